"""Providers with `on_cancel = "drain"`: a client that leaves leaves its provider talking, for the books."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.chaos.scenes import ALL_SIDES, OPENAI, Book, Side, serving, until
from tests.support.acts import repeat, wait
from tests.support.client import Stream
from tests.support.config import KEY_ONE, Config, anthropic_provider, openai_provider, standard
from tests.support.frames import parsed
from tests.support.gateway import Gateway
from tests.support.notation import DONE, FIN, HANG, R, T, U, json_answer
from tests.support.panels import RUN, run_of
from tests.support.provider import FakeProvider
from tests.support.stage import Seen

each_side = pytest.mark.parametrize("side", ALL_SIDES, ids=lambda side: side.name)
MAX_S, DRAIN_S = 1.5, 1.0


def config(provider: FakeProvider, workers: int = 1) -> Config:
    drain = {"on_cancel": "drain", "drain_max_s": MAX_S, "drain_max_tokens": 200}
    return standard(
        provider.base_url,
        server={"accept_s": 0.1, "drain_s": DRAIN_S, "exit_s": 6},
        providers={
            "fake-openai": openai_provider(provider.base_url, **drain),
            "fake-anthropic": anthropic_provider(provider.base_url, **drain),
        },
        tiers={"one": {"inflight": workers}},  # of which each worker has its part
    )


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with FakeProvider() as fake:
        yield fake


async def talking(provider: FakeProvider, gateway: Gateway, side: Side, **more: Any) -> tuple[Stream, Seen]:
    """A request that is at the provider, which has begun to answer a stream."""
    before = len(provider.requests)
    stream = await gateway.client(KEY_ONE).open("POST", side.path, side.ask(side.model, **more))
    await until(lambda: len(provider.requests) > before)
    seen = provider.requests[before]
    if more.get("stream", True):
        await seen.sent_events(1)
    return stream, seen


@each_side
@pytest.mark.parametrize("way", ["close", "rst"])
@pytest.mark.parametrize("workers", [1, 2], ids=["plain", "gunicorn"])
async def test_a_stream(provider: FakeProvider, side: Side, way: str, workers: int) -> None:
    """It is read to its end, and the one receipt has the provider's count of all of it."""
    async with serving(config(provider, workers), workers) as gateway:
        book, gone = Book(gateway), asyncio.Event()
        provider.script(side.model, [side.start, side.piece("Hi"), wait(gone), side.piece(" there"), side.finish])
        stream, seen = await talking(provider, gateway, side)

        getattr(stream, way)()
        await until(lambda: gateway.client_sockets() == 0)
        settled_early = [*book.receipts]
        gone.set()
        await asyncio.wait_for(seen.played.wait(), 5)
        (row,) = await book.settled(1)
        await stream.dispose()

    assert settled_early == []
    assert (row["outcome"], row["routing_mode"], row["on_cancel"]) == ("cancelled", "streaming_cancelled", "drain")
    assert (row["prompt_tokens"], row["completion_tokens"], row["usage_basis"]) == (7, 2, "provider_final")
    assert (row["note"], row["cancel_ms"]) == ("drain:end", None)
    assert float(row["cost_usd"]) > 0


@each_side
async def test_a_body(provider: FakeProvider, side: Side) -> None:
    """A JSON answer that is still to come is waited for."""
    async with serving(config(provider)) as gateway:
        book, gone = Book(gateway), asyncio.Event()
        provider.script(side.model, [wait(gone), json_answer("ok", dialect=side.dialect)])
        stream, _ = await talking(provider, gateway, side, stream=False)

        stream.close()
        await until(lambda: gateway.client_sockets() == 0)
        gone.set()
        (row,) = await book.settled(1)
        await stream.dispose()

    assert (row["outcome"], row["usage_basis"], row["note"]) == ("cancelled", "provider_final", "drain:end")


@pytest.mark.parametrize("endless", [True, False], ids=["flood", "silence"])
async def test_it_has_bounds(provider: FakeProvider, endless: bool) -> None:
    """A provider that never ends is left after so many tokens, one that says nothing after so many seconds."""
    async with serving(config(provider)) as gateway:
        book = Book(gateway)
        more = [repeat(OPENAI.piece(" word"))] if endless else [HANG]
        provider.script("m", [OPENAI.start, OPENAI.piece("Hi"), *more])
        stream, seen = await talking(provider, gateway, OPENAI)

        stream.close()
        await seen.gone(MAX_S + 2)
        (row,) = await book.settled(1)
        await stream.dispose()

    assert row["note"] == ("drain:max_tokens" if endless else "drain:max_s")
    assert row["usage_basis"] == "estimated"


async def test_the_key_is_not_free_before(provider: FakeProvider) -> None:
    """What is read on counts against the requests that a key may have at once: leaving is no way around it."""
    async with serving(config(provider)) as gateway:
        book = Book(gateway)
        provider.script("m", [OPENAI.start, OPENAI.piece("Hi"), HANG])
        stream, seen = await talking(provider, gateway, OPENAI)

        stream.close()
        await until(lambda: gateway.client_sockets() == 0)
        meanwhile = await gateway.client(KEY_ONE).request("POST", OPENAI.path, OPENAI.ask("m"))
        await seen.gone(MAX_S + 2)
        await book.settled(2)
        provider.script("m", OPENAI.whole("Hi"))
        after = await gateway.client(KEY_ONE).request("POST", OPENAI.path, OPENAI.ask("m"))
        await stream.dispose()

    assert (meanwhile.status, after.status) == (429, 200)


async def test_sigterm(provider: FakeProvider) -> None:
    """The process waits for it as for any stream, then settles what there is; exit 0."""
    async with serving(config(provider)) as gateway:
        book, gone = Book(gateway), asyncio.Event()
        provider.script("m", [OPENAI.start, OPENAI.piece("Hi"), wait(gone), OPENAI.finish])
        provider.script("claude", [*ALL_SIDES[1].whole("Hi")[:2], HANG])
        pairs = [await talking(provider, gateway, OPENAI)]
        pairs[0][0].close()
        await until(lambda: gateway.client_sockets() == 0)
        other = await gateway.client().open("POST", ALL_SIDES[1].path, ALL_SIDES[1].ask("claude"))
        await until(lambda: len(provider.requests) == 2)
        await provider.requests[1].sent_events(1)
        other.close()
        await until(lambda: gateway.client_sockets() == 0)

        gateway.signal(signal.SIGTERM)
        await gateway.logged("server.draining")
        gone.set()
        code = await gateway.exit_code(6)
        rows = {row["provider_model"]: row for row in await book.settled(2)}
        for stream in (pairs[0][0], other):
            await stream.dispose()

    assert code == 0
    assert (rows["m"]["note"], rows["m"]["usage_basis"]) == ("drain:end", "provider_final")
    assert (rows["claude"]["note"], rows["claude"]["outcome"]) == ("drain:shutdown", "cancelled")


async def test_a_panel_that_is_cancelled(provider: FakeProvider) -> None:
    """A cancelled panel says at once how much had come; its provider is read on, and its receipt has all of it."""
    async with serving(config(provider)) as gateway:
        go_on, book = asyncio.Event(), Book(gateway)
        provider.script("m", [R(), T("a"), T("b"), wait(go_on), T("c"), FIN(), U(7, 40), DONE])
        provider.script("messages-abroad", [R(), T("x"), HANG])
        stream = await gateway.client().open("POST", RUN, run_of("m", "messages-abroad"))
        async for frame in stream.frames():
            if b'"content":"b"' in frame:
                break

        path = f"{RUN}/{stream.headers.get('x-anoman-run-id')}/panels"
        replies = [await gateway.client().request("DELETE", f"{path}/{panel}") for panel in "ab"]
        frames = await stream.all_frames()
        await stream.dispose()
        go_on.set()
        rows = {row["request_id"][-1]: row for row in await book.settled(2)}

        assert [reply.status for reply in replies] == [200, 200]
        told = [item["error"]["_anoman"] for item in parsed(f + b"\n\n" for f in frames) if "error" in item]
        assert told == [{"completion_tokens": 2}, {"completion_tokens": 1}]
        assert [rows["a"][name] for name in ("outcome", "on_cancel", "completion_tokens", "usage_basis")] == [
            "cancelled", "drain", 40, "provider_final",
        ]  # fmt: skip
        assert (rows["b"]["outcome"], rows["b"]["note"]) == ("cancelled", "drain:max_s")
