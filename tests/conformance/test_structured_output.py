"""Structured output, as pydantic-ai and the SDKs ask for it, from a provider that speaks the other dialect."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.conformance.conftest import ABROAD, Stand
from tests.support.config import KEY
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
    json_answer,
)  # fmt: skip
from tests.support.stage import Seen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("conformance-structured-output")]

each_dialect = pytest.mark.parametrize("dialect", ["openai", "anthropic"])
each_way = pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])


class City(BaseModel):
    """A city."""

    name: str
    people: int


JAKARTA = City(name="Jakarta", people=10_562_088)


@asynccontextmanager
async def model_of(stand: Stand, dialect: Dialect) -> AsyncIterator[Any]:
    """pydantic-ai's model for clients of *dialect*."""
    if dialect == "openai":
        async with openai.AsyncOpenAI(base_url=f"{stand.base_url}/v1", api_key=KEY, max_retries=0) as client:
            yield OpenAIChatModel(ABROAD["openai"], provider=OpenAIProvider(openai_client=client))
    else:
        base_url = f"{stand.base_url}/anthropic"
        async with anthropic.AsyncAnthropic(base_url=base_url, api_key=KEY, max_retries=0) as other:
            # The library goes by the names of Anthropic's own models, and would not send a schema to any other.
            profile = ModelProfile(supports_json_schema_output=True)
            provider = AnthropicProvider(anthropic_client=other)
            yield AnthropicModel(ABROAD["anthropic"], provider=provider, profile=profile)


async def ask(stand: Stand, dialect: Dialect, output: Any, stream: bool) -> tuple[City, Any]:
    """What the agent made of the answer, and the usage it noted."""
    async with model_of(stand, dialect) as model:
        agent = Agent(model, output_type=output)
        if not stream:
            result = await agent.run("Jakarta?")
            return result.output, result.usage
        async with agent.run_stream("Jakarta?") as streamed:
            return await streamed.get_output(), streamed.usage


def calls_the_tool(dialect: Dialect, stream: bool) -> Callable[[Seen], list[Any]]:
    """A provider of *dialect* that calls the one tool it was given."""
    value = JAKARTA.model_dump_json()

    def answer(seen: Seen) -> list[Any]:
        (tool,) = seen.json["tools"]
        name = tool["name"] if dialect == "anthropic" else tool["function"]["name"]
        if dialect == "anthropic":
            used = {"type": "tool_use", "id": "toolu_1", "name": name, "input": json.loads(value)}
            if not stream:
                return [json_answer("", (30, 8), dialect=dialect, finish="tool_use", content=[used])]
            block = [CBS(0, "tool_use", name=name), CBJ(0, value[:9]), CBJ(0, value[9:]), CBX(0)]
            return [MS(30), *block, MD("tool_use", 8), MX]
        if stream:
            return [R(), TC(0, name=name), TC(0, value[:9]), TC(0, value[9:]), FIN("tool_calls"), U(30, 8), DONE]
        call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": value}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        return [json_answer("", (30, 8), choices=[choice])]

    return answer


def says_json(dialect: Dialect, stream: bool) -> list[Any]:
    value = JAKARTA.model_dump_json()
    if not stream:
        return [json_answer(value, (30, 8), dialect=dialect)]
    if dialect == "openai":
        return [R(), T(value[:9]), T(value[9:]), FIN(), U(30, 8), DONE]
    return [MS(30), CBS(0), CBD(0, value[:9]), CBD(0, value[9:]), CBX(0), MD("end_turn", 8), MX]


def provider_of(dialect: Dialect) -> Dialect:
    return "anthropic" if dialect == "openai" else "openai"


@each_way
@each_dialect
async def test_by_a_tool(stand: Stand, dialect: Dialect, stream: bool) -> None:
    """The model must call the tool that takes the answer; its arguments are the answer."""
    stand.provider.script(ABROAD[dialect], calls_the_tool(provider_of(dialect), stream))
    before = len(stand.provider.requests)

    city, usage = await ask(stand, dialect, ToolOutput(City), stream)

    (seen,) = stand.provider.requests[before:]
    assert city == JAKARTA
    assert (usage.input_tokens, usage.output_tokens) == (30, 8)
    assert seen.json["tool_choice"] == ("required" if dialect == "anthropic" else {"type": "any"})


@each_way
@each_dialect
async def test_by_a_schema(stand: Stand, dialect: Dialect, stream: bool) -> None:
    """The schema reaches the provider where it keeps answers to it."""
    stand.provider.script(ABROAD[dialect], says_json(provider_of(dialect), stream))
    before = len(stand.provider.requests)

    city, usage = await ask(stand, dialect, NativeOutput(City), stream)

    (seen,) = stand.provider.requests[before:]
    assert city == JAKARTA
    assert (usage.input_tokens, usage.output_tokens) == (30, 8)
    if dialect == "openai":
        form = seen.json["output_config"]["format"]
        schema = form["schema"]
    else:
        form = seen.json["response_format"]
        schema = form["json_schema"]["schema"]
    assert (form["type"], sorted(schema["required"])) == ("json_schema", ["name", "people"])


async def test_openai_parse(stand: Stand) -> None:
    """`.parse()` of the openai SDK gives the object back."""
    stand.provider.script(ABROAD["openai"], says_json("anthropic", stream=False))

    async with openai.AsyncOpenAI(base_url=f"{stand.base_url}/v1", api_key=KEY) as client:
        messages: Any = [{"role": "user", "content": "Jakarta?"}]
        answer = await client.chat.completions.parse(model=ABROAD["openai"], messages=messages, response_format=City)

    assert answer.choices[0].message.parsed == JAKARTA


async def test_anthropic_parse(stand: Stand) -> None:
    """`.parse()` of the anthropic SDK gives the object back."""
    stand.provider.script(ABROAD["anthropic"], says_json("openai", stream=False))

    async with anthropic.AsyncAnthropic(base_url=f"{stand.base_url}/anthropic", api_key=KEY) as client:
        messages: Any = [{"role": "user", "content": "Jakarta?"}]
        answer = await client.messages.parse(
            model=ABROAD["anthropic"], max_tokens=99, messages=messages, output_format=City
        )

    assert answer.parsed_output == JAKARTA


@each_way
async def test_a_refusal_of_json_mode(stand: Stand, stream: bool) -> None:
    """A model that is to answer in JSON and says something in words has refused: so the SDK hears it."""
    words = "I cannot say that in JSON."
    said = [MS(9), CBS(0), CBD(0, words), CBX(0), MD("end_turn", 7), MX]
    stand.provider.script(ABROAD["openai"], said if stream else [json_answer(words, dialect="anthropic")])

    async with openai.AsyncOpenAI(base_url=f"{stand.base_url}/v1", api_key=KEY) as client:
        asked: Any = {"model": ABROAD["openai"], "messages": [{"role": "user", "content": "JSON!"}]}
        asked |= {"response_format": {"type": "json_object"}}
        if stream:
            async with client.chat.completions.stream(**asked) as chunks:
                (choice,) = (await chunks.get_final_completion()).choices
        else:
            (choice,) = (await client.chat.completions.create(**asked)).choices

    assert (choice.message.content or None, choice.message.refusal) == (None, words)
    assert stand.provider.requests[-1].json["tool_choice"]["type"] == "tool"
