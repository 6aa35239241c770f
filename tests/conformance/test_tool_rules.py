"""Tool loops under a policy: the official SDKs hear of a denied call, and go on with an allowed one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import anthropic
import openai
import pytest
import pytest_asyncio

from tests.conformance.outcome import TOOL
from tests.support.config import KEY, standard
from tests.support.gateway import PLAIN, Gateway
from tests.support.notation import CBD, CBJ, CBS, CBX, DONE, FIN, MD, MS, MX, TC, R, T, U, json_answer
from tests.support.provider import FakeProvider

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("conformance-tools")]

RULE = {"tool": "get_weather", "path": "city", "deny": ["atlantis"]}
NAMES = ("get_weather", "drop_table")
STREAMS = pytest.mark.parametrize("stream", [False, True])


@dataclass
class Place:
    provider: FakeProvider
    gateway: Gateway

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    async with FakeProvider() as provider:
        config = standard(provider.base_url)
        config["policies"] = {"agents": {"tools": {"deny": ["drop_*"], "arguments": [RULE]}}}
        config["keys"][KEY]["policy"] = "agents"
        async with Gateway(config, flags=PLAIN) as gateway:
            yield Place(provider, gateway)


@dataclass
class Looped:
    """What an agent lived through: codes of errors, cities that it was let ask for, and the last text."""

    codes: list[str | None] = field(default_factory=list)
    cities: list[str] = field(default_factory=list)
    text: str = ""

    def told(self, error: Any) -> dict[str, str]:
        """The turn that tells the model of *error*."""
        body = error.body
        self.codes.append(error.code if isinstance(error, openai.APIError) else body["error"]["code"])
        return {"role": "user", "content": f"Not allowed: {error.message}"}


def turns(*, stream: bool, anthropics: bool) -> list[list[Any]]:
    """What the provider says in turn: a denied call, an allowed one, and text."""
    return [*(called(city, stream=stream, anthropics=anthropics) for city in ("atlantis", "Jakarta")),
            said(stream=stream, anthropics=anthropics)]  # fmt: skip


def called(city: str, *, stream: bool, anthropics: bool) -> list[Any]:
    arguments = json.dumps({"city": city})
    if anthropics:
        if stream:
            return [MS(7), CBS(0), CBD(0, "Look"), CBX(0), CBS(1, "tool_use", name="get_weather"),
                    CBJ(1, arguments[:9]), CBJ(1, arguments[9:]), CBX(1), MD("tool_use", 5), MX]  # fmt: skip
        block = {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": city}}
        return [json_answer("", dialect="anthropic", content=[block], stop_reason="tool_use")]
    if stream:
        return [R(), T("Look"), TC(0, name="get_weather"), TC(0, arguments[:9]), TC(0, arguments[9:]),
                FIN("tool_calls"), U(7, 5), DONE]  # fmt: skip
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return [json_answer("", choices=[{"index": 0, "message": message, "finish_reason": "tool_calls"}])]


def said(*, stream: bool, anthropics: bool) -> list[Any]:
    if not stream:
        return [json_answer("Sunny", dialect="anthropic" if anthropics else "openai")]
    if anthropics:
        return [MS(7), CBS(0), CBD(0, "Sunny"), CBX(0), MD(usage=1), MX]
    return [R(), T("Sunny"), FIN(), U(7, 1), DONE]


async def openai_loop(place: Place, *, stream: bool) -> Looped:
    out, messages = Looped(), list[Any]([{"role": "user", "content": "Where?"}])
    tools: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": TOOL}}]
    async with openai.AsyncOpenAI(base_url=f"{place.base_url}/v1", api_key=KEY) as client:
        for _ in range(4):
            try:
                if stream:
                    async with client.chat.completions.stream(model="m", messages=messages, tools=tools) as answer:
                        message = (await answer.get_final_completion()).choices[0].message
                else:
                    whole = await client.chat.completions.create(model="m", messages=messages, tools=tools)
                    message = whole.choices[0].message
            except openai.APIError as error:
                messages.append(out.told(error))
                continue
            messages.append(message)
            out.text = message.content or ""
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                out.cities.append(json.loads(call.function.arguments)["city"])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "30 degrees"})
    return out


async def anthropic_loop(place: Place, *, stream: bool) -> Looped:
    out, messages = Looped(), list[Any]([{"role": "user", "content": "Where?"}])
    tools: Any = [{"name": "get_weather", "input_schema": TOOL}]
    asked: Any = {"model": "claude", "max_tokens": 100, "tools": tools}
    async with anthropic.AsyncAnthropic(base_url=f"{place.base_url}/anthropic", api_key=KEY) as client:
        for _ in range(4):
            try:
                if stream:
                    async with client.messages.stream(**asked, messages=messages) as answer:
                        message: Any = await answer.get_final_message()
                else:
                    message = await client.messages.create(**asked, messages=messages)
            except anthropic.APIError as error:
                messages.append(out.told(error))
                continue
            messages.append({"role": "assistant", "content": message.content})
            out.text = "".join(block.text for block in message.content if block.type == "text")
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                break
            out.cities += [call.input["city"] for call in calls]
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": "30 degrees"} for call in calls]
            messages.append({"role": "user", "content": results})
    return out


@STREAMS
async def test_openai(place: Place, stream: bool) -> None:
    """The denied call is an error with its code, once; told of it, the model calls what is allowed, to the end."""
    place.provider.script("m", *turns(stream=stream, anthropics=False))

    assert await openai_loop(place, stream=stream) == Looped(["tool_denied"], ["Jakarta"], "Sunny")


@STREAMS
async def test_anthropic(place: Place, stream: bool) -> None:
    """The same with the other SDK."""
    place.provider.script("claude", *turns(stream=stream, anthropics=True))

    assert await anthropic_loop(place, stream=stream) == Looped(["tool_denied"], ["Jakarta"], "Sunny")


@STREAMS
async def test_a_denied_definition(place: Place, stream: bool) -> None:
    """It is what each SDK calls a denied permission, and neither tries again."""
    place.provider.requests.clear()
    chat_tools: Any = [{"type": "function", "function": {"name": name}} for name in NAMES]
    tools: Any = [{"name": name, "input_schema": TOOL} for name in NAMES]
    asked: Any = [{"role": "user", "content": "Hi"}]
    async with (
        openai.AsyncOpenAI(base_url=f"{place.base_url}/v1", api_key=KEY) as chat,
        anthropic.AsyncAnthropic(base_url=f"{place.base_url}/anthropic", api_key=KEY) as claude,
    ):
        with pytest.raises(openai.PermissionDeniedError) as of_chat:
            await chat.chat.completions.create(model="m", messages=asked, tools=chat_tools, stream=stream)
        with pytest.raises(anthropic.PermissionDeniedError) as of_claude:
            await claude.messages.create(model="claude", max_tokens=9, messages=asked, tools=tools, stream=stream)

    body: Any = of_claude.value.body
    assert (of_chat.value.code, of_chat.value.param) == ("tool_denied", "tools[1]")
    assert (body["error"]["code"], body["error"]["details"]["error_code"]) == ("tool_denied", "tool_denied")
    assert place.provider.requests == []
