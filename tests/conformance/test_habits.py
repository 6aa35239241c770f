"""Habits of single clients that the documents speak of."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import openai
import pytest

from tests.conformance.conftest import Stand
from tests.support.acts import pause_ms, repeat
from tests.support.config import KEY
from tests.support.frames import chat
from tests.support.notation import R, T, json_answer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("conformance-habits")]

WEATHER = {"type": "tool_use", "id": "toolu_0", "name": "get_weather", "input": {"city": "Jakarta"}}


async def test_break_alone(stand: Stand) -> None:
    """Python's `break` leaves the connection open for as long as the stream is held; closing it ends the call."""
    stand.provider.script("m", [R(), repeat(T("a "), pause_ms(5))])
    before = len(stand.provider.requests)

    async with openai.AsyncOpenAI(base_url=f"{stand.base_url}/v1", api_key=KEY) as client:
        stream = await client.chat.completions.create(**chat("m"))
        async for _ in stream:
            break
        seen = stand.provider.requests[before]
        told = seen.content_events
        await seen.sent_events(told + 20)
        assert not seen.closed.done()
        await stream.close()

    await seen.gone(within_s=2)


async def test_tool_runner(stand: Stand) -> None:
    """Anthropic's tool runner, on the beta path, makes the call and comes back with its result."""
    stand.provider.script(
        "claude",
        [json_answer("", (7, 4), dialect="anthropic", finish="tool_use", content=[WEATHER])],
        [json_answer("31 derajat", (20, 5), dialect="anthropic")],
    )
    before = len(stand.provider.requests)
    asked: list[str] = []

    @anthropic.beta_async_tool
    async def get_weather(city: str) -> str:
        """The weather in a city."""
        asked.append(city)
        return "31"

    async with anthropic.AsyncAnthropic(base_url=f"{stand.base_url}/anthropic", api_key=KEY) as client:
        runner = client.beta.messages.tool_runner(
            model="claude",
            max_tokens=100,
            tools=[get_weather],
            messages=[{"role": "user", "content": "Cuaca?"}],
            betas=["some-beta-2026-01-01"],
        )
        final: Any = await runner.until_done()

    first, second = stand.provider.requests[before:]
    assert (asked, final.content[0].text) == (["Jakarta"], "31 derajat")
    assert "some-beta-2026-01-01" in (first.headers.get("anthropic-beta") or "").split(",")
    assert first.json["thread"] == {"type": "create"}  # a field that the gateway does not know passes unchanged
    assert "tool_result" in str(second.json["messages"])


async def test_request_id(stand: Stand) -> None:
    """Each SDK finds the id of the request under the header that it knows."""
    stand.provider.script("m", [json_answer("a")])
    stand.provider.script("claude", [json_answer("a", dialect="anthropic")])

    async with (
        openai.AsyncOpenAI(base_url=f"{stand.base_url}/v1", api_key=KEY) as first,
        anthropic.AsyncAnthropic(base_url=f"{stand.base_url}/anthropic", api_key=KEY) as second,
    ):
        messages: Any = [{"role": "user", "content": "Hi"}]
        completion = await first.chat.completions.create(model="m", messages=messages)
        message = await second.messages.create(model="claude", max_tokens=9, messages=messages)

    assert (completion._request_id or "").startswith("req_")
    assert (message._request_id or "").startswith("req_")
    assert completion._request_id != message._request_id


async def test_kept_connections(stand: Stand) -> None:
    """A client that keeps connections gets each answer whole, one after the other and side by side."""
    stand.provider.script("m", lambda seen: [json_answer(seen.json["messages"][0]["content"])])

    async with openai.AsyncOpenAI(base_url=f"{stand.base_url}/v1", api_key=KEY) as client:

        async def ask(text: str) -> str | None:
            messages: Any = [{"role": "user", "content": text}]
            answer = await client.chat.completions.create(model="m", messages=messages)
            return answer.choices[0].message.content

        said = [await asyncio.gather(*(ask(f"{turn}-{number}") for number in range(8))) for turn in range(3)]

    assert said == [[f"{turn}-{number}" for number in range(8)] for turn in range(3)]
