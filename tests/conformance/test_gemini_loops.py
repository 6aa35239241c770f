"""Tool loops of the Python SDKs to their end, with a provider that speaks Gemini's own dialect and signs its calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.conformance.loops import LOOPS, QUESTION, Loop, weather_in
from tests.conformance.outcome import Ask
from tests.support.acts import status
from tests.support.config import KEY, gemini_provider, model, standard
from tests.support.gateway import PLAIN, Gateway
from tests.support.notation import GC, GT, GU
from tests.support.provider import FakeProvider

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("conformance-gemini-loops")]

MODEL = "gemini-3.6-flash"
LOOK, FINAL = "Let me look.", "Bandung has 7, Jakarta too."
CITIES = ["Jakarta", "Bandung"]
SIGNATURE = "Ep8CCpwCAb4+9vt1/w=="
STAND_IN = "skip_thought_signature_validator"
# Chat completions have no member of OpenAI's own for signatures: whoever keeps to those loses them on the way.
KEEPERS = ["openai", "openai-stream", "anthropic", "anthropic-stream"]
LOSERS = ["langchain-openai"]


def calls() -> list[dict[str, Any]]:
    parts = [{"functionCall": {"name": "get_weather", "args": {"city": city}, "id": f"id-{city}"}} for city in CITIES]
    return [{**parts[0], "thoughtSignature": SIGNATURE}, parts[1]]


def says(*parts: dict[str, Any], tokens: tuple[int, int, int], streams: bool) -> list[Any]:
    """An answer of *parts*, each an event of its own where it is streamed."""
    if streams:
        return [*(GC(part, tokens=tokens) for part in parts), GT("", finish="STOP", tokens=tokens)]
    candidate = {"content": {"parts": [*parts], "role": "model"}, "finishReason": "STOP"}
    return [status(200, (), {"candidates": [candidate], "usageMetadata": GU(*tokens)})]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand() -> AsyncIterator[tuple[FakeProvider, Gateway]]:
    async with FakeProvider() as provider:
        config = standard(
            provider.base_url,
            providers={"fake-gemini": gemini_provider(provider.base_url)},
            models={MODEL: model(f"fake-gemini/{MODEL}")},
        )
        async with Gateway(config, flags=PLAIN) as gateway:
            yield provider, gateway


@pytest.mark.parametrize("loop", [loop for loop in LOOPS if loop.name in KEEPERS + LOSERS], ids=lambda loop: loop.name)
async def test_loop(stand: tuple[FakeProvider, Gateway], loop: Loop) -> None:
    """Both calls are made once, their results stand behind them, and the signature is on its call, or its stand-in."""
    provider, gateway = stand
    provider.script(
        MODEL,
        says({"text": LOOK}, *calls(), tokens=(20, 9, 30), streams=loop.streams),
        says({"text": FINAL}, tokens=(60, 11, 5), streams=loop.streams),
    )
    before = len(provider.requests)
    assert loop.run is not None

    looped = await loop.run(Ask(base_url=f"http://127.0.0.1:{gateway.port}", key=KEY, model=MODEL, prompt=QUESTION))

    _, second = provider.requests[before:]
    asked, called, gave = second.json["contents"]
    signature = SIGNATURE if loop.name in KEEPERS else STAND_IN
    expected = calls()
    expected[0]["thoughtSignature"] = signature
    assert (looped.text, looped.cities, looped.usages) == (FINAL, CITIES, [(20, 39), (60, 16)])
    assert asked == {"role": "user", "parts": [{"text": QUESTION}]}
    assert called == {"role": "model", "parts": [{"text": LOOK}, *expected]}
    assert gave["parts"] == [
        {"functionResponse": {"id": f"id-{c}", "name": "get_weather", "response": {"result": weather_in(c)}}}
        for c in CITIES
    ]
