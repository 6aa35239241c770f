"""Tool loops to their end, with a provider that speaks the other dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.conftest import ABROAD, Stand
from tests.conformance.counting import counting
from tests.conformance.loops import LOOPS, QUESTION, Loop, Looped, weather_in
from tests.conformance.outcome import Ask
from tests.support.config import KEY
from tests.support.histories import calls_in
from tests.support.notation import (
    CBD,
    CBJ,
    CBS,
    CBX,
    DONE,
    FIN,
    MD,
    MS,
    MX,
    TC,
    Dialect,
    R,
    T,
    U,
    event,
    json_answer,
)  # fmt: skip

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("conformance-translated-loops")]

OTHER: dict[Dialect, Dialect] = {"openai": "anthropic", "anthropic": "openai"}
LOOK, FINAL = "Let me look.", "Bandung has 7, Jakarta too."
CITIES = ["Jakarta", "Bandung"]
ROUNDS = [(20, 9), (60, 11)]


def asks_for_both(dialect: Dialect, *, streams: bool) -> list[Any]:
    """Two calls at once, said by a provider of *dialect*; the arguments come in pieces."""
    if dialect == "openai":
        if streams:
            calls = [
                TC(0, name="get_weather", id="call_a"), TC(0, '{"city":'), TC(0, '"Jakarta"}'),
                TC(1, name="get_weather", id="call_b"), TC(1, '{"city": "Ban'), TC(1, 'dung"}'),
            ]  # fmt: skip
            return [R(), T(LOOK), *calls, FIN("tool_calls"), U(*ROUNDS[0]), DONE]
        functions = [{"name": "get_weather", "arguments": json.dumps({"city": city})} for city in CITIES]
        called = [{"id": f"call_{at}", "type": "function", "function": made} for at, made in enumerate(functions)]
        message = {"role": "assistant", "content": LOOK, "tool_calls": called}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        return [json_answer("", ROUNDS[0], choices=[choice])]
    if streams:
        blocks = [
            CBS(0), CBD(0, LOOK), CBX(0),
            CBS(1, "tool_use", name="get_weather", id="toolu_a"), CBJ(1, '{"city":'), CBJ(1, '"Jakarta"}'), CBX(1),
            CBS(2, "tool_use", name="get_weather", id="toolu_b"), CBJ(2, '{"city": "Ban'), CBJ(2, 'dung"}'), CBX(2),
        ]  # fmt: skip
        return [MS(ROUNDS[0][0]), *blocks, MD("tool_use", ROUNDS[0][1]), MX]
    used = [
        {"type": "tool_use", "id": f"toolu_{city}", "name": "get_weather", "input": {"city": city}} for city in CITIES
    ]
    content = [{"type": "text", "text": LOOK}, *used]
    return [json_answer("", ROUNDS[0], dialect="anthropic", finish="tool_use", content=content)]


def says(dialect: Dialect, *, streams: bool) -> list[Any]:
    """The last answer."""
    if not streams:
        return [json_answer(FINAL, ROUNDS[1], dialect=dialect)]
    if dialect == "openai":
        return [R(), T(FINAL), FIN(), U(*ROUNDS[1]), DONE]
    return [MS(ROUNDS[1][0]), CBS(0), CBD(0, FINAL), CBX(0), MD("end_turn", ROUNDS[1][1]), MX]


async def run(stand: Stand, loop: Loop, base_url: str | None = None) -> Looped:
    ask = Ask(base_url=base_url or stand.base_url, key=KEY, model=ABROAD[loop.dialect], prompt=QUESTION)
    return await (stand.node.loop(loop.name, ask) if loop.run is None else loop.run(ask))


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.name)
async def test_loop(stand: Stand, loop: Loop) -> None:
    """Both calls are made once, their results reach the provider as it wants them, and the last answer comes back."""
    provider = OTHER[loop.dialect]
    stand.provider.script(
        ABROAD[loop.dialect], asks_for_both(provider, streams=loop.streams), says(provider, streams=loop.streams)
    )
    before = len(stand.provider.requests)

    looped = await run(stand, loop)

    first, second = stand.provider.requests[before:]
    assert (looped.text, sorted(looped.cities), looped.usages) == (FINAL, sorted(CITIES), ROUNDS)
    assert calls_in(first.json, provider) == []
    assert calls_in(second.json, provider) == [("get_weather", {"city": city}, weather_in(city)) for city in CITIES]
    assert QUESTION in json.dumps(second.json["messages"][0])
    assert LOOK in json.dumps(second.json["messages"][1])


def _delta(index: int, **delta: str) -> bytes:
    return event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})


@pytest.mark.parametrize("streams", [True, False], ids=["stream", "create"])
async def test_thoughts_come_back_signed(stand: Stand, streams: bool) -> None:
    """A message that the openai SDK puts together and sends back whole has the thoughts, with Anthropic's signature."""
    thought = {"type": "thinking", "thinking": "Both, then.", "signature": "c2lnbmVk"}
    called = {"type": "tool_use", "id": "toolu_a", "name": "get_weather", "input": {"city": "Jakarta"}}
    if streams:
        told = [_delta(0, type="thinking_delta", thinking=text) for text in ("Both, ", "then.")]
        told.append(_delta(0, type="signature_delta", signature="c2lnbmVk"))
        calls = [CBS(1, "tool_use", name="get_weather", id="toolu_a"), CBJ(1, '{"city": "Jakarta"}'), CBX(1)]
        first: Any = [MS(20), CBS(0, "thinking"), *told, CBX(0), *calls, MD("tool_use", 9), MX]
    else:
        first = [json_answer("", (20, 9), dialect="anthropic", finish="tool_use", content=[thought, called])]
    stand.provider.script(ABROAD["openai"], first, says("anthropic", streams=streams))
    before = len(stand.provider.requests)

    loop = LOOPS[1 if streams else 0]
    looped = await run(stand, loop)

    second = stand.provider.requests[before + 1].json
    assert looped.text == FINAL
    assert second["messages"][1]["content"] == [thought, called]


async def test_the_runner_is_talked_out_of_threads(stand: Stand) -> None:
    """Anthropic's tool runner asks for a conversation kept by the server, is refused once, and sends it whole."""
    stand.provider.script(ABROAD["anthropic"], asks_for_both("openai", streams=False), says("openai", streams=False))
    before = len(stand.provider.requests)

    async with counting(stand.gateway.port) as counter:
        looped = await run(stand, next(loop for loop in LOOPS if loop.name == "anthropic-runner"), counter.base_url)

    assert looped.text == FINAL
    assert (counter.requests, len(stand.provider.requests) - before) == (3, 2)
