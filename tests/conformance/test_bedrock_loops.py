"""Tool loops of the Python SDKs to their end, with Claude on Bedrock: signatures, binary streams, signed thoughts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.conformance.loops import LOOPS, QUESTION, Loop, weather_in
from tests.conformance.outcome import Ask
from tests.support import bedrock
from tests.support.acts import Script
from tests.support.config import CANARY, KEY, model, standard
from tests.support.eventstream import event
from tests.support.gateway import PLAIN, Gateway
from tests.support.provider import ANY_MODEL, FakeProvider

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("conformance-bedrock-loops")]

MODEL = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
LOOK, FINAL = "Let me look.", "Bandung has 7, Jakarta too."
CITIES = ["Jakarta", "Bandung"]
SECRETS = {"AKIDOFATEST": f"{CANARY}-secret"}
ENV = {"AWS_ACCESS_KEY_ID": "AKIDOFATEST", "AWS_SECRET_ACCESS_KEY": f"{CANARY}-secret", "AWS_REGION": "us-east-1"}
# Chat completions have no member of OpenAI's own for signatures: whoever keeps to those loses the thoughts on the way.
KEEPERS = ["openai", "openai-stream", "anthropic", "anthropic-stream"]
LOSERS = ["langchain-openai"]

THOUGHT = {"reasoningContent": {"reasoningText": {"text": "Two cities.", "signature": "EqQBCg=="}}}


def uses() -> list[dict[str, Any]]:
    return [{"toolUse": {"toolUseId": f"tooluse_{c}", "name": "get_weather", "input": {"city": c}}} for c in CITIES]


def says(content: list[dict[str, Any]], reason: str, counts: tuple[int, int], streams: bool) -> Script:
    """An answer of *content*, as Bedrock streams it or sends it whole."""
    if not streams:
        return bedrock.converse(content, reason, bedrock.usage(*counts))
    out = [bedrock.HEAD, bedrock.START]
    for at, block in enumerate(content):
        out += [*_streamed(block, at), bedrock.closes(at)]
    return [*out, bedrock.stop(reason), bedrock.metadata(*counts)]


def _streamed(block: dict[str, Any], at: int) -> list[bytes]:
    if "text" in block:
        return [bedrock.text(block["text"], at)]
    if "toolUse" in block:
        use = block["toolUse"]
        city = use["input"]["city"]
        return [
            bedrock.begins(use["toolUseId"], use["name"], at),
            bedrock.argues('{"city": "', at),
            bedrock.argues(f'{city}"}}', at),
        ]
    pieces = [{name: value} for name, value in block["reasoningContent"]["reasoningText"].items()]
    return [event("contentBlockDelta", {"contentBlockIndex": at, "delta": {"reasoningContent": one}}) for one in pieces]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand() -> AsyncIterator[tuple[FakeProvider, Gateway]]:
    async with FakeProvider() as provider:
        config = standard(
            provider.base_url,
            providers={"fake-bedrock": {"preset": "bedrock", "base_url": provider.base_url}},
            models={MODEL: model(f"fake-bedrock/{MODEL}")},
        )
        async with Gateway(config, flags=PLAIN, env=ENV) as gateway:
            yield provider, gateway


@pytest.mark.parametrize("loop", [loop for loop in LOOPS if loop.name in KEEPERS + LOSERS], ids=lambda loop: loop.name)
async def test_loop(stand: tuple[FakeProvider, Gateway], loop: Loop) -> None:
    """Both calls are made once, their results stand behind them, and the thoughts come back as they were signed."""
    provider, gateway = stand
    answers = [
        says([THOUGHT, {"text": LOOK}, *uses()], "tool_use", (20, 39), loop.streams),
        says([{"text": FINAL}], "end_turn", (60, 16), loop.streams),
    ]
    provider.script(ANY_MODEL, *(bedrock.signed(answer, SECRETS, "us-east-1") for answer in answers))
    before = len(provider.requests)
    assert loop.run is not None

    looped = await loop.run(Ask(base_url=f"http://127.0.0.1:{gateway.port}", key=KEY, model=MODEL, prompt=QUESTION))

    _, second = provider.requests[before:]
    asked, called, gave = second.json["messages"]
    thoughts = [THOUGHT] if loop.name in KEEPERS else []
    assert (looped.text, looped.cities, looped.usages) == (FINAL, CITIES, [(20, 39), (60, 16)])
    assert asked == {"role": "user", "content": [{"text": QUESTION}]}
    assert called == {"role": "assistant", "content": [*thoughts, {"text": LOOK}, *uses()]}
    assert gave["content"] == [
        {"toolResult": {"toolUseId": f"tooluse_{city}", "content": [{"text": weather_in(city)}]}} for city in CITIES
    ]
