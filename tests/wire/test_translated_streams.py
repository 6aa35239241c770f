"""Translated streams that pause, break, are left, or change their provider before they have begun."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
import pytest_asyncio

from tests.support.acts import Answer, pause_ms, repeat, status
from tests.support.config import model
from tests.support.frames import blocks, named, parsed
from tests.support.gateway import CHAT, MESSAGES
from tests.support.notation import (
    CBD,
    CBJ,
    CBS,
    CBX,
    DONE,
    ERRF,
    FIN,
    HANG,
    MD,
    MS,
    MX,
    RST,
    TC,
    R,
    T,
    U,
    json_answer,
)  # fmt: skip
from tests.wire.desk import Desk, error_of, events, items, open_desk, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

ABROAD = {CHAT: "chat-abroad", MESSAGES: "messages-abroad"}
PROMISE_S = 0.05  # contract, 6: a client's close reaches the upstream within 50 ms
PING = {CHAT: b": ping", MESSAGES: b'event: ping\ndata: {"type":"ping"}'}
COUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens", "usage_basis")

each_path = pytest.mark.parametrize("path", [CHAT, MESSAGES], ids=["chat", "messages"])
each_form = pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    routes = ("fake-openai/mixed-o", "fake-anthropic/mixed-a")
    models = {"openai-first": model(*routes), "anthropic-first": model(*reversed(routes))}
    # A fault on a pooled connection may be the connection's own, and would be made up for first: they go quickly.
    upstream = {"pool_idle_s": 0.01}
    async with open_desk(stream={"heartbeat_s": 0.1, "commit_after_s": 0.25}, upstream=upstream, models=models) as desk:
        yield desk


def started(path: str) -> list[Any]:
    """Two words of a provider that does not speak the dialect of *path*; Anthropic's has told the prompt's count."""
    if path == CHAT:
        return [MS(40, 1, cache_read_input_tokens=60), CBS(0), CBD(0, "Once "), CBD(0, "upon")]
    return [R(), T("Once "), T("upon")]


def finished(path: str) -> list[Any]:
    return [CBX(0), MD("end_turn", 2), MX] if path == CHAT else [FIN(), U(100, 2), DONE]


# -- death --


@each_path
async def test_death_after_content(desk: Desk, path: str) -> None:
    """The words so far, the documented error frame of the client's dialect, a clean end, and a receipt to match."""
    reply = await desk.ask([*started(path), RST], path=path, model=ABROAD[path])
    receipt = await desk.receipt(reply)

    frames = blocks(reply.body)
    assert text_of(items(reply)) == "Once upon"
    if path == CHAT:
        assert frames[-2:] == [ERRF(2).strip(), DONE.strip()]
    else:
        assert reply.body.count(b"event: error") == 1
        assert "message_stop" not in events(reply)
        (name, last) = named(frames)[-1]
        assert (name, list(last), list(last["error"])) == (
            "error",
            ["type", "error", "request_id"],
            ["type", "message", "code", "details", "_anoman"],
        )
        assert last["error"]["details"] == {"error_code": "stream_interrupted"}
        assert last["error"]["_anoman"] == {"failure_class": "upstream_error", "completion_tokens": 2}
    assert (receipt["outcome"], receipt["routing_mode"]) == ("interrupted", "streaming_interrupted")
    # What Anthropic has said of the prompt is kept; OpenAI says it last, so there it is our own count.
    prompt = (100, 60) if path == CHAT else (5, 0)
    assert tuple(receipt[name] for name in COUNTS) == (*prompt, 2, "estimated")
    cost = Decimal("0.000195") if path == CHAT else Decimal("0.0000325")
    assert Decimal(receipt["cost_usd"]) == cost


@each_path
async def test_death_within_a_tool_call(desk: Desk, path: str) -> None:
    """Half a call never looks like a whole one: no end of the answer, no end of its block, the error frame."""
    if path == CHAT:
        script: list[Any] = [MS(7), CBS(0, "tool_use", name="f"), CBJ(0, '{"a": '), RST]
    else:
        script = [R(), TC(0, name="f"), TC(0, '{"a": '), RST]

    reply = await desk.ask(script, path=path, model=ABROAD[path])
    await desk.receipt(reply)

    said = items(reply)
    if path == CHAT:
        assert not [item for item in said[:-2] if item["choices"][0]["finish_reason"]]
        assert "error" in said[-2]
    else:
        assert not {"content_block_stop", "message_delta", "message_stop"} & set(events(reply))
        assert events(reply)[-1] == "error"


@each_path
async def test_death_before_content(desk: Desk, path: str) -> None:
    """A provider that has only said hello has said nothing: two attempts, then a plain 503 in the client's envelope."""
    before = len(desk.provider.requests)

    reply = await desk.ask([started(path)[0], RST], path=path, model=ABROAD[path])
    receipt = await desk.receipt(reply)

    assert (reply.status, error_of(reply)["code"]) == (503, "provider_unavailable")
    assert (receipt["outcome"], float(receipt["cost_usd"])) == ("failed", 0)
    assert len(desk.provider.requests) == before + 2


# -- silence --


@each_path
async def test_silence(desk: Desk, path: str) -> None:
    """Committed before the provider said anything, kept alive in the client's own way, and whole in the end."""
    first, *rest = started(path)
    script = [pause_ms(450), first, pause_ms(250), *rest, pause_ms(250), *finished(path)]

    reply = await desk.ask(script, path=path, model=ABROAD[path])
    receipt = await desk.receipt(reply)

    frames = blocks(reply.body)
    begins = next(at for at, frame in enumerate(frames) if b"Once" in frame)
    assert frames[0] == PING[path]
    assert PING[path] in frames[begins:]
    assert text_of(parsed(frames)) == "Once upon"
    assert (receipt["outcome"], receipt["completion_tokens"]) == ("completed", 2)


@each_path
async def test_failure_after_an_early_commit(desk: Desk, path: str) -> None:
    """The status line is out: the provider's refusal is the error frame, and nobody else is asked."""
    before = len(desk.provider.requests)

    reply = await desk.ask([pause_ms(450), status(500, (), {"error": {}})], path=path, model=ABROAD[path])
    receipt = await desk.receipt(reply)

    frames = blocks(reply.body)
    assert frames[0] == PING[path]
    error = named(frames)[-2 if path == CHAT else -1][1]["error"]
    assert error["_anoman"] == {"failure_class": "upstream_error", "completion_tokens": 0}
    assert (receipt["outcome"], float(receipt["cost_usd"])) == ("interrupted", 0)
    assert len(desk.provider.requests) == before + 1


# -- leaving --


@pytest.mark.alone
@pytest.mark.parametrize("flows", [True, False], ids=["flowing", "stalled"])
@each_path
async def test_leaving(desk: Desk, path: str, flows: bool) -> None:
    """The upstream is closed within 50 ms; the receipt has the prompt and the tokens that were there."""
    piece = started(path)[-1]
    script = [*started(path), repeat(piece, pause_ms(5)) if flows else HANG]

    async with desk.stream(script, path=path, model=ABROAD[path]) as stream:
        async for frame in stream.frames():
            if b"upon" in frame:
                break
        seen = desk.provider.requests[-1]
        left_s = stream.rst()
        closed = await seen.gone()
        receipt = await desk.receipt(stream)

    assert closed.when_s - left_s <= PROMISE_S
    assert (receipt["outcome"], receipt["routing_mode"]) == ("cancelled", "streaming_cancelled")
    assert receipt["prompt_tokens"] == (100 if path == CHAT else 5)
    assert 2 <= receipt["completion_tokens"] <= seen.content_events


async def test_closing_on_the_terminator(desk: Desk) -> None:
    """A client that leaves on the last frame has got everything: completed, with the provider's counts."""
    for path, end in ((CHAT, b"data: [DONE]"), (MESSAGES, b"event: message_stop")):
        async with desk.stream([*started(path), *finished(path), HANG], path=path, model=ABROAD[path]) as stream:
            async for frame in stream.frames():
                if frame.startswith(end):
                    break
            stream.rst()
            receipt = await desk.receipt(stream)

        assert (receipt["outcome"], receipt["usage_basis"]) == ("completed", "provider_final")
        assert (receipt["prompt_tokens"], receipt["completion_tokens"]) == (100, 2)


# -- another provider --

FAULTS: dict[str, Answer] = {
    "500": [status(500, (), {"error": {"message": "no"}})],
    "429": [status(429, (), {"error": {"message": "no"}})],
    "401": [status(401, (), {"error": {"message": "no"}})],
    "reset": [RST],
}
NATIVE = {CHAT: "mixed-o", MESSAGES: "mixed-a"}
FIRST = {"openai-first": ("fake-openai/mixed-o", "fake-anthropic/mixed-a")}
FIRST["anthropic-first"] = FIRST["openai-first"][::-1]


def speaks(route: str, stream: bool) -> Answer:
    """A good answer of *route*."""
    if not stream:
        return [json_answer("Once upon", (100, 2), dialect="anthropic" if route.endswith("-a") else "openai")]
    return [*started(CHAT), *finished(CHAT)] if route.endswith("-a") else [*started(MESSAGES), *finished(MESSAGES)]


@each_form
@each_path
@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize("fault", FAULTS)
async def test_fallback_across_dialects(desk: Desk, fault: str, name: str, path: str, stream: bool) -> None:
    """From the native route, whichever is configured first, to the translated one: only `params` tells the client."""
    first, second = sorted(FIRST[name], key=lambda route: not route.endswith(NATIVE[path]))
    desk.provider.script(first.split("/")[1], FAULTS[fault])
    desk.provider.script(second.split("/")[1], speaks(second, stream))

    odd = "seed" if path == CHAT else "top_k"
    await desk.provider.all_gone()

    reply = await desk.ask(path=path, model=name, stream=stream, **{odd: 3})
    receipt = await desk.receipt(reply)

    assert receipt["attempts"] == [f"{first}:failed", f"{second}:ok"]
    assert (receipt["outcome"], receipt["prompt_tokens"], receipt["completion_tokens"]) == ("completed", 100, 2)
    assert receipt["usage_basis"] == "provider_final"
    if stream:
        assert text_of(items(reply)) == "Once upon"
        assert items(reply)[-1] == "[DONE]" if path == CHAT else events(reply)[-1] == "message_stop"
        extension = items(reply)[-2]["_anoman"]
    else:
        whole = reply.json["choices"][0]["message"]["content"] if path == CHAT else reply.json["content"][0]["text"]
        assert whole == "Once upon"
        extension = reply.json["_anoman"]
    assert extension["params"]["dropped"] == ([] if second.endswith(NATIVE[path]) else [odd])


@each_path
async def test_no_second_beginning(desk: Desk, path: str) -> None:
    """After the first good frame of a translated stream nobody else is asked."""
    first, second = FIRST["openai-first" if path == CHAT else "anthropic-first"]
    desk.provider.script(first.split("/")[1], FAULTS["401"])
    desk.provider.script(second.split("/")[1], [*started(path), RST])

    reply = await desk.ask(path=path, model="openai-first")
    receipt = await desk.receipt(reply)

    assert text_of(items(reply)) == "Once upon"
    assert receipt["attempts"] == [f"{first}:failed", f"{second}:failed"]
    assert receipt["outcome"] == "interrupted"


# -- as it comes --


@each_path
async def test_arguments_are_not_kept_back(desk: Desk, path: str) -> None:
    """Each piece of a call's arguments is with the client before the provider says the next one."""
    pieces = ['{"city": ', '"Jak', 'arta"', "}"]
    gates = [asyncio.Event() for _ in pieces]
    make: Any = (lambda text: CBJ(0, text)) if path == CHAT else (lambda text: TC(0, text))
    script: list[Any] = [MS(7), CBS(0, "tool_use", name="f")] if path == CHAT else [R(), TC(0, name="f")]
    for gate, piece in zip(gates, pieces, strict=True):
        script += [make(piece), _Gate(gate)]
    script += [CBX(0), MD("tool_use", 4), MX] if path == CHAT else [FIN("tool_calls"), U(7, 4), DONE]
    got = ""

    async with asyncio.timeout(5), desk.stream(script, path=path, model=ABROAD[path]) as stream:
        async for frame in stream.frames():
            for _, item in named([frame]):
                got += _arguments(item)
            if got and "".join(pieces).startswith(got):
                for at, gate in enumerate(gates):
                    if got == "".join(pieces[: at + 1]):
                        gate.set()

    assert got == "".join(pieces)


class _Gate:
    """An act that goes on when the client has what was said before it."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event

    async def play(self, stage: Any) -> None:
        await self._event.wait()


def _arguments(item: Any) -> str:
    if not isinstance(item, dict):
        return ""
    delta = item.get("delta") or (item.get("choices") or [{}])[0].get("delta") or {}
    calls = delta.get("tool_calls") or ()
    return str(delta.get("partial_json", "")) + "".join(call["function"].get("arguments", "") for call in calls)
