"""anthropic for Python, used as its documentation says."""

from __future__ import annotations

import json
from typing import Any

import anthropic

from tests.conformance.outcome import TOOL, Ask, Fault, Outcome
from tests.conformance.python_openai import OPENAI_ERRORS
from tests.conformance.python_sdk import failed, options

ANTHROPIC_ERRORS: dict[Fault, str] = OPENAI_ERRORS | {"unavailable": "ServiceUnavailableError"}
ANTHROPIC_FINISH = ("end_turn", "tool_use")
ANTHROPIC_TOOLS: Any = [{"name": "get_weather", "input_schema": TOOL}]


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
        said = event.usage.input_tokens  # cumulative; some leave out what has not changed
        out.usage = ((out.usage or (0, 0))[0] if said is None else said, event.usage.output_tokens)
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
    with anthropic.Anthropic(**options(ask, "/anthropic")) as client:
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
            return failed(out, error)
    return out


async def anthropic_async(ask: Ask) -> Outcome:
    out, pieces = Outcome(), 0
    async with anthropic.AsyncAnthropic(**options(ask, "/anthropic")) as client:
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
            return failed(out, error)
    return out


def anthropic_helper(ask: Ask) -> Outcome:
    """`.stream()`, which puts the message together itself."""
    out, pieces = Outcome(), 0
    with anthropic.Anthropic(**options(ask, "/anthropic")) as client:
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
            return failed(out, error)
    whole = Outcome(usages=out.usages - 1)
    _message(whole, final)
    whole.extension = out.extension
    assert whole.text == out.text
    return whole
