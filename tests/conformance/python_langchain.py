"""LangChain's models for both dialects."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

import anthropic
import openai
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessageChunk
from langchain_openai import ChatOpenAI

from tests.conformance.outcome import Ask, Fault, Outcome
from tests.conformance.python_anthropic import ANTHROPIC_TOOLS
from tests.conformance.python_openai import OPENAI_ERRORS, OPENAI_TOOLS
from tests.conformance.python_sdk import failed, options

LANGCHAIN_OPENAI_ERRORS: dict[Fault, str] = OPENAI_ERRORS | {"unavailable": "OpenAIAPIError"}
LANGCHAIN_ANTHROPIC_ERRORS: dict[Fault, str] = OPENAI_ERRORS | {"unavailable": "AnthropicAPIError"}


async def _langchain(ask: Ask, model: Any, errors: type[Exception]) -> Outcome:
    out, pieces = Outcome(), 0
    total: Any = AIMessageChunk(content="")
    try:
        if not ask.stream:
            total = await model.ainvoke(ask.prompt)
        else:
            async with aclosing(model.astream(ask.prompt)) as chunks:
                async for chunk in chunks:
                    total += chunk
                    out.usages += chunk.usage_metadata is not None
                    pieces += bool(chunk.text)
                    if pieces == ask.leave_after:
                        out.left = True
                        break
    except errors as error:
        out.text = str(total.text)
        return failed(out, error)
    out.text = str(total.text)
    out.finish = total.response_metadata.get("finish_reason") or total.response_metadata.get("stop_reason")
    if total.usage_metadata:
        out.usage = (total.usage_metadata["input_tokens"], total.usage_metadata["output_tokens"])
    for call in total.tool_calls:
        out.tool = (call["name"], json.dumps(call["args"]))
    return out


async def langchain_openai(ask: Ask) -> Outcome:
    model: Any = ChatOpenAI(model=ask.model, stream_usage=True, **options(ask, "/v1"))
    if ask.wants == "tool":
        model = model.bind_tools(OPENAI_TOOLS)
    if ask.wants == "json":
        model = model.bind(response_format={"type": "json_object"})
    return await _langchain(ask, model, openai.OpenAIError)


async def langchain_anthropic(ask: Ask) -> Outcome:
    model: Any = ChatAnthropic(model_name=ask.model, max_tokens_to_sample=100, **options(ask, "/anthropic"))
    if ask.wants == "tool":
        model = model.bind_tools(ANTHROPIC_TOOLS)
    return await _langchain(ask, model, anthropic.AnthropicError)
