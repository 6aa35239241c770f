"""A thousand clients vanish at once: everything is let go, settled and back where it was (B2, DIS-16)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from tests.chaos.scenes import OPENAI, SIDES, STORM_S, Book, Side, quiet, serving, until
from tests.support.acts import Answer, head, pause_ms, repeat, stall
from tests.support.client import Client, Stream
from tests.support.config import Config, standard
from tests.support.gateway import Gateway
from tests.support.notation import HANG, json_answer
from tests.support.provider import FakeProvider

pytestmark = [pytest.mark.alone]

CROWD = 1000  # issue, proof 4
MANY = "anm-sk-many"
SEED = 1000


def config(provider: FakeProvider) -> Config:
    """One key whose every slot the crowd takes; a pool that is empty again after a moment."""
    return standard(
        provider.base_url,
        stream={"first_token_s": 60, "idle_s": 60, "commit_after_s": 60, "non_stream_s": 60},
        upstream={"pool_idle_s": 0.2},
        tiers={"many": {"inflight": CROWD}},
        keys={MANY: {"tenant": "many", "tier": "many"}},
    )


def phases(side: Side) -> list[tuple[Answer, bool]]:
    """A script and whether the request streams: silent, held back, flowing, stalled, JSON silent, JSON in its body."""
    return [
        ([HANG], True),
        ([side.start, HANG], True),
        ([side.start, repeat(side.piece(" word"), pause_ms(200))], True),
        ([side.start, side.piece(" word"), HANG], True),
        ([HANG], False),
        ([head("application/json", framing=1000), b"{", stall()], False),
    ]


async def crowd(client: Client, provider: FakeProvider) -> list[Stream]:
    """`CROWD` requests on their own connections, all of them at the provider, spread over sides and phases."""
    before = len(provider.requests)
    streams: list[Stream] = []
    for side in SIDES:
        for script, is_stream in phases(side):
            count = CROWD // (2 * len(phases(side))) + (CROWD % (2 * len(phases(side))) if not streams else 0)
            provider.script(side.model, script)
            asked = len(provider.requests)
            payload = side.ask(side.model, stream=is_stream)
            streams += await asyncio.gather(*(client.open("POST", side.path, payload) for _ in range(count)))
            await until(lambda: len(provider.requests) == asked + count, 20)  # noqa: B023 - called within this turn
    assert len(provider.requests) - before == len(streams) == CROWD
    return streams


async def healthy(client: Client, provider: FakeProvider, times: int = 1) -> None:
    provider.script(OPENAI.model, [json_answer("ok")])
    payload = OPENAI.ask(OPENAI.model, stream=False)
    replies = [await client.request("POST", OPENAI.path, payload, within_s=2) for _ in range(times)]
    assert {reply.status for reply in replies} == {200}


async def at_rest(gateway: Gateway, provider: FakeProvider) -> int:
    """Open files once nothing goes on."""
    await quiet(gateway, provider)
    await until(lambda: gateway.sockets(provider.port) == 0)
    await until(lambda: gateway.client_sockets() == 0)
    return gateway.open_files()


async def test_b2_storm() -> None:
    """All upstreams are closed within 500 ms, all is settled with one info line each, and nothing is left; twice."""
    dice = random.Random(SEED)
    async with FakeProvider() as provider, serving(config(provider)) as gateway:
        client = gateway.client(MANY)
        await healthy(client, provider, 20)
        baseline = await at_rest(gateway, provider)

        for _ in range(2):  # the second crowd needs every slot of the first
            book, before = Book(gateway), len(provider.requests)
            streams = await crowd(client, provider)
            dice.shuffle(streams)

            left_s = [dice.choice((Stream.close, Stream.rst))(stream) for stream in streams]
            ends = [await seen.gone() for seen in provider.requests[before:]]
            rows = await book.settled(CROWD)
            await healthy(client, provider)

            took_s = max(end.when_s for end in ends) - min(left_s)
            print(f"storm of {CROWD}: {took_s * 1000:.0f} ms")
            assert took_s <= STORM_S
            assert {(row["outcome"], row["level"]) for row in rows} == {("cancelled", "info")}
            assert all(row["prompt_tokens"] > 0 for row in rows)
            await book_is_quiet(book)
            for stream in streams:
                await stream.dispose()
            # The books of 1,000 exchanges are read from the journal yet, through a file of their own.
            await at_rest(gateway, provider)
            await until(lambda: gateway.open_files() <= baseline)


async def book_is_quiet(book: Book) -> None:
    """One line per request and none beside them."""
    lines = Counter(line["event"] for line in (await book.settled(CROWD + 1)) and book.lines)
    assert lines == {"exchange.settled": CROWD + 1}


async def test_storm_on_two_workers() -> None:
    """The same behind gunicorn."""
    async with FakeProvider() as provider, serving(config(provider), 2) as gateway:
        client, book = gateway.client(), Book(gateway)
        streams = await crowd(client, provider)

        left_s = [stream.close() for stream in streams]
        ends = [await seen.gone() for seen in provider.requests]
        rows = await book.settled(CROWD)
        await healthy(client, provider)

        assert max(end.when_s for end in ends) - min(left_s) <= STORM_S
        assert {row["outcome"] for row in rows} == {"cancelled"}
        await book_is_quiet(book)
        for stream in streams:
            await stream.dispose()
        await at_rest(gateway, provider)
