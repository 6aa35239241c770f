"""The Python SDKs, used as their documentation says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import anthropic
import openai
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessageChunk
from langchain_openai import ChatOpenAI

from tests.conformance.outcome import TOOL, Ask, Client, Fault, Outcome

OPENAI_ERRORS: dict[Fault, str] = {
    "invalid": "BadRequestError",
    "unauthorized": "AuthenticationError",
    "limited": "RateLimitError",
    "unavailable": "InternalServerError",
    "interrupted": "APIError",
}
ANTHROPIC_ERRORS: dict[Fault, str] = OPENAI_ERRORS | {"unavailable": "ServiceUnavailableError"}
LANGCHAIN_OPENAI_ERRORS: dict[Fault, str] = OPENAI_ERRORS | {"unavailable": "OpenAIAPIError"}
LANGCHAIN_ANTHROPIC_ERRORS: dict[Fault, str] = OPENAI_ERRORS | {"unavailable": "AnthropicAPIError"}
OPENAI_FINISH = ("stop", "tool_calls")
ANTHROPIC_FINISH = ("end_turn", "tool_use")
OPENAI_TOOLS: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": TOOL}}]
ANTHROPIC_TOOLS: Any = [{"name": "get_weather", "input_schema": TOOL}]


def _failed(out: Outcome, error: Exception) -> Outcome:
    out.errors = [kind.__name__ for kind in type(error).__mro__]
    out.status = getattr(error, "status_code", None)
    out.code = getattr(error, "code", None)
    body = getattr(error, "body", None)
    if out.code is None and isinstance(body, dict):
        out.code = body.get("error", {}).get("code")
    return out


def _options(ask: Ask, path: str) -> dict[str, Any]:
    retries = {} if ask.retries is None else {"max_retries": ask.retries}
    return {"base_url": ask.base_url + path, "api_key": ask.key, "default_headers": dict(ask.headers), **retries}


# -- openai --


def _chat(ask: Ask) -> dict[str, Any]:
    body: dict[str, Any] = {"model": ask.model, "messages": [{"role": "user", "content": ask.prompt}]}
    if ask.wants == "tool":
        body |= {"tools": OPENAI_TOOLS, "tool_choice": "auto"}
    if ask.wants == "json":
        body |= {"response_format": {"type": "json_object"}}
    return body


def _chunk(out: Outcome, chunk: Any) -> bool:
    """Take in *chunk*; whether it had text."""
    delta = chunk.choices[0].delta.content or ""
    out.text += delta
    for call in chunk.choices[0].delta.tool_calls or ():
        name, arguments = out.tool or ("", "")
        out.tool = (name + (call.function.name or ""), arguments + (call.function.arguments or ""))
    out.finish = chunk.choices[0].finish_reason or out.finish
    _usage(out, chunk)
    return bool(delta)


def _usage(out: Outcome, answer: Any) -> None:
    if answer.usage is not None:
        out.usage = (answer.usage.prompt_tokens, answer.usage.completion_tokens)
        out.usages += 1
    out.extension = (answer.model_extra or {}).get("_anoman") or out.extension


def _completion(out: Outcome, answer: Any) -> None:
    choice = answer.choices[0]
    out.text = choice.message.content or ""
    out.finish = choice.finish_reason
    for call in choice.message.tool_calls or ():
        out.tool = (call.function.name, call.function.arguments)
    _usage(out, answer)


def openai_sync(ask: Ask) -> Outcome:
    out, pieces = Outcome(), 0
    with openai.OpenAI(**_options(ask, "/v1")) as client:
        try:
            if not ask.stream:
                _completion(out, client.chat.completions.create(**_chat(ask)))
                return out
            stream = client.chat.completions.create(**_chat(ask), stream=True)
            for chunk in stream:
                pieces += _chunk(out, chunk)
                if pieces == ask.leave_after:
                    stream.close()
                    out.left = True
                    break
        except openai.OpenAIError as error:
            return _failed(out, error)
    return out


async def openai_async(ask: Ask) -> Outcome:
    out, pieces = Outcome(), 0
    async with openai.AsyncOpenAI(**_options(ask, "/v1")) as client:
        try:
            if not ask.stream:
                _completion(out, await client.chat.completions.create(**_chat(ask)))
                return out
            stream = await client.chat.completions.create(**_chat(ask), stream=True)
            async for chunk in stream:
                pieces += _chunk(out, chunk)
                if pieces == ask.leave_after:
                    await stream.close()
                    out.left = True
                    break
        except openai.OpenAIError as error:
            return _failed(out, error)
    return out


def openai_helper(ask: Ask) -> Outcome:
    """`.stream()`, which puts the answer together itself."""
    out, pieces = Outcome(), 0
    with openai.OpenAI(**_options(ask, "/v1")) as client:
        try:
            with client.chat.completions.stream(**_chat(ask)) as stream:
                for event in stream:
                    if event.type == "chunk":
                        _usage(out, event.chunk)
                    elif event.type == "content.delta":
                        out.text += event.delta
                        pieces += bool(event.delta)
                    if pieces == ask.leave_after:
                        out.left = True
                        return out  # the end of the `with` block closes
                final = stream.get_final_completion()
        except openai.OpenAIError as error:
            return _failed(out, error)
    seen, whole = out.usages, Outcome()
    _completion(whole, final)
    assert not whole.text or whole.text == out.text
    whole.usages, whole.extension, whole.text = seen, out.extension, out.text
    return whole


# -- anthropic --


def _messages(ask: Ask) -> dict[str, Any]:
    body: dict[str, Any] = {"model": ask.model, "max_tokens": 100}
    body["messages"] = [{"role": "user", "content": ask.prompt}]
    if ask.wants == "tool":
        body |= {"tools": ANTHROPIC_TOOLS}
    return body


def _event(out: Outcome, event: Any) -> bool:
    """Take in *event*; whether it had text."""
    piece = ""
    if event.type == "message_start":
        out.usage = (event.message.usage.input_tokens, 0)
    elif event.type == "content_block_start" and event.content_block.type == "tool_use":
        out.tool = (event.content_block.name, "")
    elif event.type == "content_block_delta" and event.delta.type == "text_delta":
        piece = event.delta.text
    elif event.type == "content_block_delta" and out.tool:
        out.tool = (out.tool[0], out.tool[1] + event.delta.partial_json)
    elif event.type == "message_delta":
        out.finish = event.delta.stop_reason
        out.usage = ((out.usage or (0, 0))[0], event.usage.output_tokens)
        out.usages += 1
        out.extension = (event.model_extra or {}).get("_anoman")
    out.text += piece
    return bool(piece)


def _message(out: Outcome, message: Any) -> None:
    out.text = "".join(block.text for block in message.content if block.type == "text")
    for block in message.content:
        if block.type == "tool_use":
            out.tool = (block.name, json.dumps(block.input))
    out.finish = message.stop_reason
    out.usage = (message.usage.input_tokens, message.usage.output_tokens)
    out.usages += 1
    out.extension = (message.model_extra or {}).get("_anoman")


def anthropic_sync(ask: Ask) -> Outcome:
    out, pieces = Outcome(), 0
    with anthropic.Anthropic(**_options(ask, "/anthropic")) as client:
        try:
            if not ask.stream:
                _message(out, client.messages.create(**_messages(ask)))
                return out
            stream = client.messages.create(**_messages(ask), stream=True)
            for event in stream:
                pieces += _event(out, event)
                if pieces == ask.leave_after:
                    stream.close()
                    out.left = True
                    break
        except anthropic.AnthropicError as error:
            return _failed(out, error)
    return out


async def anthropic_async(ask: Ask) -> Outcome:
    out, pieces = Outcome(), 0
    async with anthropic.AsyncAnthropic(**_options(ask, "/anthropic")) as client:
        try:
            if not ask.stream:
                _message(out, await client.messages.create(**_messages(ask)))
                return out
            stream = await client.messages.create(**_messages(ask), stream=True)
            async for event in stream:
                pieces += _event(out, event)
                if pieces == ask.leave_after:
                    await stream.close()
                    out.left = True
                    break
        except anthropic.AnthropicError as error:
            return _failed(out, error)
    return out


def anthropic_helper(ask: Ask) -> Outcome:
    """`.stream()`, which puts the message together itself."""
    out, pieces = Outcome(), 0
    with anthropic.Anthropic(**_options(ask, "/anthropic")) as client:
        try:
            with client.messages.stream(**_messages(ask)) as stream:
                for event in stream:
                    if event.type in ("message_start", "content_block_start", "content_block_delta", "message_delta"):
                        pieces += _event(out, event)
                    if pieces == ask.leave_after:
                        out.left = True
                        return out
                final = stream.get_final_message()
        except anthropic.AnthropicError as error:
            return _failed(out, error)
    whole = Outcome(usages=out.usages - 1)
    _message(whole, final)
    whole.extension = out.extension
    assert whole.text == out.text
    return whole


# -- langchain --


async def _langchain(ask: Ask, model: Any, errors: type[Exception]) -> Outcome:
    out, pieces = Outcome(), 0
    total: Any = AIMessageChunk("")
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
        return _failed(out, error)
    out.text = str(total.text)
    out.finish = total.response_metadata.get("finish_reason") or total.response_metadata.get("stop_reason")
    if total.usage_metadata:
        out.usage = (total.usage_metadata["input_tokens"], total.usage_metadata["output_tokens"])
    for call in total.tool_calls:
        out.tool = (call["name"], json.dumps(call["args"]))
    return out


async def langchain_openai(ask: Ask) -> Outcome:
    model: Any = ChatOpenAI(model=ask.model, stream_usage=True, **_options(ask, "/v1"))
    if ask.wants == "tool":
        model = model.bind_tools(OPENAI_TOOLS)
    if ask.wants == "json":
        model = model.bind(response_format={"type": "json_object"})
    return await _langchain(ask, model, openai.OpenAIError)


async def langchain_anthropic(ask: Ask) -> Outcome:
    model: Any = ChatAnthropic(model_name=ask.model, max_tokens_to_sample=100, **_options(ask, "/anthropic"))
    if ask.wants == "tool":
        model = model.bind_tools(ANTHROPIC_TOOLS)
    return await _langchain(ask, model, anthropic.AnthropicError)


def _threaded(function: Callable[[Ask], Outcome]) -> Callable[[Ask], Any]:
    async def ask_in_thread(ask: Ask) -> Outcome:
        return await asyncio.to_thread(function, ask)

    return ask_in_thread


PYTHON_CLIENTS = [
    Client("openai", "openai", _threaded(openai_sync), OPENAI_ERRORS, OPENAI_FINISH),
    Client("openai-async", "openai", openai_async, OPENAI_ERRORS, OPENAI_FINISH),
    Client("openai-helper", "openai", _threaded(openai_helper), OPENAI_ERRORS, OPENAI_FINISH, shows_extension=False),
    Client("anthropic", "anthropic", _threaded(anthropic_sync), ANTHROPIC_ERRORS, ANTHROPIC_FINISH),
    Client("anthropic-async", "anthropic", anthropic_async, ANTHROPIC_ERRORS, ANTHROPIC_FINISH),
    Client("anthropic-helper", "anthropic", _threaded(anthropic_helper), ANTHROPIC_ERRORS, ANTHROPIC_FINISH),
    Client(
        "langchain-openai",
        "openai",
        langchain_openai,
        LANGCHAIN_OPENAI_ERRORS,
        OPENAI_FINISH,
        counts_usages=False,
        shows_extension=False,
    ),
    Client(
        "langchain-anthropic",
        "anthropic",
        langchain_anthropic,
        LANGCHAIN_ANTHROPIC_ERRORS,
        ANTHROPIC_FINISH,
        counts_usages=False,
        shows_extension=False,
    ),
]
