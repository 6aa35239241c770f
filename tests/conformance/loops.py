"""Tool loops to their end, written as each SDK's documentation writes them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anthropic
import openai
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

from tests.conformance.outcome import Ask
from tests.conformance.python_anthropic import ANTHROPIC_TOOLS
from tests.conformance.python_openai import OPENAI_TOOLS
from tests.conformance.python_sdk import options
from tests.support.notation import Dialect

QUESTION = "Jakarta or Bandung?"
MAX_ROUNDS = 4  # two more than the scripts have


@dataclass(slots=True)
class Looped:
    """The last answer, the usages of all rounds, and the cities asked for, in order."""

    text: str = ""
    usages: list[tuple[int, int]] = field(default_factory=list)
    cities: list[str] = field(default_factory=list)

    def weather(self, arguments: dict[str, Any]) -> str:
        """The tool."""
        self.cities.append(arguments["city"])
        return weather_in(arguments["city"])


def weather_in(city: str) -> str:
    return f"{len(city)} degrees in {city}"


@dataclass(frozen=True, slots=True)
class Loop:
    """A client that goes on until the model has no more calls; `streams` says how it is answered."""

    name: str
    dialect: Dialect
    run: Callable[[Ask], Awaitable[Looped]] | None = None  # None: the Node process knows it
    streams: bool = field(kw_only=True, default=False)


async def _openai(ask: Ask, turn: Callable[[Any, dict[str, Any]], Awaitable[Any]]) -> Looped:
    out = Looped()
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    async with openai.AsyncOpenAI(**options(ask, "/v1")) as client:
        for _ in range(MAX_ROUNDS):
            answer = await turn(client, {"model": ask.model, "messages": messages, "tools": OPENAI_TOOLS})
            message = answer.choices[0].message
            messages.append(message)
            out.text = message.content or ""
            out.usages.append((answer.usage.prompt_tokens, answer.usage.completion_tokens))
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                said = out.weather(json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
    return out


async def openai_create(ask: Ask) -> Looped:
    async def turn(client: openai.AsyncOpenAI, body: dict[str, Any]) -> Any:
        return await client.chat.completions.create(**body)

    return await _openai(ask, turn)


async def openai_stream(ask: Ask) -> Looped:
    async def turn(client: openai.AsyncOpenAI, body: dict[str, Any]) -> Any:
        async with client.chat.completions.stream(**body) as stream:
            return await stream.get_final_completion()

    return await _openai(ask, turn)


async def _anthropic(ask: Ask, turn: Callable[[Any, dict[str, Any]], Awaitable[Any]]) -> Looped:
    out = Looped()
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    async with anthropic.AsyncAnthropic(**options(ask, "/anthropic")) as client:
        for _ in range(MAX_ROUNDS):
            body = {"model": ask.model, "max_tokens": 100, "messages": messages, "tools": ANTHROPIC_TOOLS}
            message = await turn(client, body)
            messages.append({"role": "assistant", "content": message.content})
            out.text = "".join(block.text for block in message.content if block.type == "text")
            out.usages.append((message.usage.input_tokens, message.usage.output_tokens))
            if message.stop_reason != "tool_use":
                break
            calls = [block for block in message.content if block.type == "tool_use"]
            said = [{"tool_use_id": call.id, "content": out.weather(call.input)} for call in calls]
            messages.append({"role": "user", "content": [{"type": "tool_result", **result} for result in said]})
    return out


async def anthropic_create(ask: Ask) -> Looped:
    async def turn(client: anthropic.AsyncAnthropic, body: dict[str, Any]) -> Any:
        return await client.messages.create(**body)

    return await _anthropic(ask, turn)


async def anthropic_stream(ask: Ask) -> Looped:
    async def turn(client: anthropic.AsyncAnthropic, body: dict[str, Any]) -> Any:
        async with client.messages.stream(**body) as stream:
            return await stream.get_final_message()

    return await _anthropic(ask, turn)


async def anthropic_runner(ask: Ask) -> Looped:
    """The SDK's own loop. It begins with a conversation kept by the server, and must be talked out of that."""
    out = Looped()

    @anthropic.beta_async_tool
    async def get_weather(city: str, units: str = "celsius") -> str:
        """The weather in a city."""
        return out.weather({"city": city})

    async with anthropic.AsyncAnthropic(**options(ask, "/anthropic")) as client:
        messages: Any = [{"role": "user", "content": QUESTION}]
        runner = client.beta.messages.tool_runner(
            model=ask.model, max_tokens=100, tools=[get_weather], messages=messages
        )
        async for message in runner:
            out.text = "".join(block.text for block in message.content if block.type == "text")
            out.usages.append((message.usage.input_tokens, message.usage.output_tokens))
    return out


async def _langchain(model: Any) -> Looped:
    out = Looped()
    messages: list[Any] = [HumanMessage(QUESTION)]
    for _ in range(MAX_ROUNDS):
        total: Any = AIMessageChunk(content="")
        async for chunk in model.astream(messages):
            total += chunk
        messages.append(total)
        out.text = str(total.text)
        out.usages.append((total.usage_metadata["input_tokens"], total.usage_metadata["output_tokens"]))
        if not total.tool_calls:
            break
        messages += [ToolMessage(out.weather(call["args"]), tool_call_id=call["id"]) for call in total.tool_calls]
    return out


async def langchain_openai(ask: Ask) -> Looped:
    model = ChatOpenAI(model=ask.model, stream_usage=True, **options(ask, "/v1"))
    return await _langchain(model.bind_tools(OPENAI_TOOLS))


async def langchain_anthropic(ask: Ask) -> Looped:
    model = ChatAnthropic(model_name=ask.model, max_tokens_to_sample=100, **options(ask, "/anthropic"))
    return await _langchain(model.bind_tools(ANTHROPIC_TOOLS))


LOOPS = [
    Loop("openai", "openai", openai_create),
    Loop("openai-stream", "openai", openai_stream, streams=True),
    Loop("anthropic", "anthropic", anthropic_create),
    Loop("anthropic-stream", "anthropic", anthropic_stream, streams=True),
    Loop("anthropic-runner", "anthropic", anthropic_runner),
    Loop("langchain-openai", "openai", langchain_openai, streams=True),
    Loop("langchain-anthropic", "anthropic", langchain_anthropic, streams=True),
    Loop("openai-node-loop", "openai"),
    Loop("openai-node-loop-stream", "openai", streams=True),
    Loop("anthropic-node-loop", "anthropic"),
    Loop("anthropic-node-loop-stream", "anthropic", streams=True),
    Loop("vercel-openai-loop", "openai"),
    Loop("vercel-openai-loop-stream", "openai", streams=True),
    Loop("vercel-anthropic-loop", "anthropic"),
    Loop("vercel-anthropic-loop-stream", "anthropic", streams=True),
]
