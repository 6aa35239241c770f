"""What SDKs make of answers that guards mask or stop: texts as ever, the typed frame as an API error, a 403."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import anthropic
import openai
import pytest
import pytest_asyncio

from tests.support.config import CANARY, standard
from tests.support.gateway import PLAIN, Gateway
from tests.support.notation import CBD, CBS, CBX, DONE, EOF_OK, FIN, MD, MS, MX, R, T, U, json_answer
from tests.support.provider import FakeProvider

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("guarded-answers")]

KEYS = {mode: f"anm-sk-{CANARY}-{mode}" for mode in ("redact", "block")}
PIECES = ("mail jane.", "doe@exam", "ple.com now")
CHAT = [R(), *map(T, PIECES), FIN("stop"), U(7, 3), DONE, EOF_OK]
MESSAGE = [MS(7), CBS(0), *(CBD(0, piece) for piece in PIECES), CBX(0), MD(usage=3), MX, EOF_OK]


@dataclass
class Place:
    gateway: Gateway
    provider: FakeProvider

    def openai(self, mode: str) -> openai.AsyncOpenAI:
        url = f"http://127.0.0.1:{self.gateway.port}/v1"
        return openai.AsyncOpenAI(base_url=url, api_key=KEYS[mode], max_retries=0)

    def anthropic(self, mode: str) -> anthropic.AsyncAnthropic:
        url = f"http://127.0.0.1:{self.gateway.port}/anthropic"
        return anthropic.AsyncAnthropic(base_url=url, api_key=KEYS[mode], max_retries=0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    async with FakeProvider() as provider:
        config = standard(provider.base_url)
        for mode, key in KEYS.items():
            terms = {"mode": mode, "guards": ["pii"]}
            config.setdefault("policies", {})[mode] = {"guardrails": {"response_content": terms}}
            config["keys"][key] = {"tenant": "guarded", "tier": "enterprise", "policy": mode}
        async with Gateway(config, flags=PLAIN) as gateway:
            yield Place(gateway, provider)


async def heard_of_openai(client: openai.AsyncOpenAI, said: list[str]) -> None:
    async with client:
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hi"}], stream=True
        )
        async for chunk in stream:
            said.append(chunk.choices[0].delta.content or "")  # noqa: PERF401 - what came before an error counts


async def heard_of_anthropic(client: anthropic.AsyncAnthropic, said: list[str]) -> None:
    async with client:
        asked = client.messages.stream(model="claude", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])
        async with asked as stream:
            async for text in stream.text_stream:
                said.append(text)  # noqa: PERF401 - what came before an error counts


async def test_masked(place: Place) -> None:
    """A masked stream is a stream like any other."""
    place.provider.script("m", CHAT)
    place.provider.script("claude", MESSAGE)
    chat: list[str] = []
    message: list[str] = []

    await heard_of_openai(place.openai("redact"), chat)
    await heard_of_anthropic(place.anthropic("redact"), message)

    assert ["".join(chat), "".join(message)] == ["mail [EMAIL_1] now"] * 2


async def test_stopped(place: Place) -> None:
    """The typed frame is an API error of each SDK, with the code; what stands before it was heard."""
    place.provider.script("m", CHAT)
    place.provider.script("claude", MESSAGE)
    chat: list[str] = []
    message: list[str] = []

    with pytest.raises(openai.APIError) as of_openai:
        await heard_of_openai(place.openai("block"), chat)
    with pytest.raises(anthropic.APIError) as of_anthropic:
        await heard_of_anthropic(place.anthropic("block"), message)

    assert ["".join(chat), "".join(message)] == ["mail "] * 2
    assert of_openai.value.code == "content_violation"
    assert isinstance(of_anthropic.value.body, dict)
    assert of_anthropic.value.body["error"]["code"] == "content_violation"


async def test_refused(place: Place) -> None:
    """A whole answer that is stopped is the SDK's error for a 403, with the code."""
    place.provider.script("m", [json_answer("kim@example.com")])
    place.provider.script("claude", [json_answer("kim@example.com", dialect="anthropic")])

    with pytest.raises(openai.PermissionDeniedError) as of_openai:
        async with place.openai("block") as one:
            await one.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
    with pytest.raises(anthropic.PermissionDeniedError) as of_anthropic:
        async with place.anthropic("block") as other:
            await other.messages.create(model="claude", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])

    assert of_openai.value.code == "content_violation"
    assert isinstance(of_anthropic.value.body, dict)
    assert of_anthropic.value.body["error"]["details"]["error_code"] == "content_violation"
