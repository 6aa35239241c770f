"""Calls that a provider gets in another form, and whose answers the client hears in its own; over sockets, by SDKs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest
import pytest_asyncio

from tests.support.config import KEY
from tests.support.notation import CBJ, CBS, CBX, DONE, FIN, MD, MS, MX, TC, R
from tests.support.stage import Act, Seen
from tests.wire.desk import Desk, open_desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = "mcp__a_server_with_a_rather_long_name__and_a_tool_with_an_even_longer_one"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with open_desk() as desk:
        yield desk


async def test_json_mode_of_the_openai_sdk(desk: Desk) -> None:
    """`json_object` with a model of Anthropic's dialect: the provider is made to call a tool, the client reads JSON."""

    def answers(seen: Seen) -> list[bytes | Act]:
        name = seen.json["tool_choice"]["name"]
        call = [CBS(0, "tool_use", name=name, id="toolu_1"), CBJ(0, '{"city":'), CBJ(0, ' "Jakarta"}'), CBX(0)]
        return [MS(9), *call, MD("tool_use", 5), MX]

    desk.provider.script("chat-abroad", answers)
    url = f"http://127.0.0.1:{desk.gateway.port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY) as client:
        stream = await client.chat.completions.create(
            model="chat-abroad",
            messages=[{"role": "user", "content": "Where? In JSON."}],
            response_format={"type": "json_object"},
            stream=True,
        )
        chunks = [chunk async for chunk in stream]

    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert json.loads("".join(delta.content or "" for delta in deltas)) == {"city": "Jakarta"}
    assert not any(delta.tool_calls for delta in deltas)
    assert {chunk.choices[0].finish_reason for chunk in chunks if chunk.choices} == {None, "stop"}
    assert "response_format" not in desk.provider.requests[-1].json


async def test_long_names_of_the_anthropic_sdk(desk: Desk) -> None:
    """A tool whose name is too long for the provider is called by it under another, and by the client's own here."""

    def calls(seen: Seen) -> list[bytes | Act]:
        name = seen.json["tools"][0]["function"]["name"]
        assert len(name) <= 64
        return [R(), TC(0, name=name, id="call_1"), TC(0, '{"a":1}'), FIN("tool_calls"), DONE]

    desk.provider.script("messages-abroad", calls)
    url, tools = f"http://127.0.0.1:{desk.gateway.port}/anthropic", [{"name": LONG, "input_schema": {"type": "object"}}]
    asked: dict[str, Any] = {"model": "messages-abroad", "max_tokens": 99, "tools": tools}
    turns: Any = [{"role": "user", "content": "Call."}]
    async with (
        anthropic.AsyncAnthropic(base_url=url, api_key=KEY) as client,
        client.messages.stream(**asked, messages=turns) as stream,
    ):
        message = await stream.get_final_message()

    (block,) = message.content
    assert isinstance(block, anthropic.types.ToolUseBlock)
    assert (block.name, block.input, message.stop_reason) == (LONG, {"a": 1}, "tool_use")
