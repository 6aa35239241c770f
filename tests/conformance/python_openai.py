"""openai for Python, used as its documentation says."""

from __future__ import annotations

from typing import Any

import openai

from tests.conformance.outcome import TOOL, Ask, Fault, Outcome
from tests.conformance.python_sdk import failed, options

OPENAI_ERRORS: dict[Fault, str] = {
    "invalid": "BadRequestError",
    "unauthorized": "AuthenticationError",
    "limited": "RateLimitError",
    "unavailable": "InternalServerError",
    "interrupted": "APIError",
}
OPENAI_FINISH = ("stop", "tool_calls")
OPENAI_TOOLS: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": TOOL}}]


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
    with openai.OpenAI(**options(ask, "/v1")) as client:
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
            return failed(out, error)
    return out


async def openai_async(ask: Ask) -> Outcome:
    out, pieces = Outcome(), 0
    async with openai.AsyncOpenAI(**options(ask, "/v1")) as client:
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
            return failed(out, error)
    return out


def openai_helper(ask: Ask) -> Outcome:
    """`.stream()`, which puts the answer together itself."""
    out, pieces = Outcome(), 0
    with openai.OpenAI(**options(ask, "/v1")) as client:
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
            return failed(out, error)
    seen, whole = out.usages, Outcome()
    _completion(whole, final)
    assert not whole.text or whole.text == out.text
    whole.usages, whole.extension, whole.text = seen, out.extension, out.text
    return whole
