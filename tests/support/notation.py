"""Scripts in the notation of the case catalogue: `[R(), T("a"), FIN("stop"), U(7, 1), DONE, EOF_OK]`.

Makers of events return bytes, so that tests can cut, join and bend them; ends are acts.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from tests.support.acts import Status, end, fin, reset, stall, status

Tokens = tuple[int, int] | dict[str, Any] | None
"""Usage as (prompt, completion), as an object to be sent literally, or none."""

Dialect = Literal["openai", "anthropic"]

_ENVELOPE = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def _compact(obj: Any) -> str:
    return obj if isinstance(obj, str) else json.dumps(obj, ensure_ascii=False, separators=(",", ":"))


def data(obj: Any) -> bytes:
    """An unnamed event: *obj* as compact JSON, or literally when it is a string."""
    return f"data: {_compact(obj)}\n\n".encode()


def event(name: str, obj: Any) -> bytes:
    """A named event."""
    return f"event: {name}\n".encode() + data(obj)


def crlf(frames: bytes) -> bytes:
    """*frames* with every line ended by CR LF."""
    return frames.replace(b"\n", b"\r\n")


def _usage(tokens: Tokens) -> dict[str, Any] | None:
    if not isinstance(tokens, tuple):
        return tokens
    prompt, completion = tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def chunk(delta: dict[str, Any], finish: str | None = None, tokens: Tokens = None, **more: Any) -> bytes:
    """A chunk with one choice; *more* are further or overriding top-level members."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    usage = {} if tokens is None else {"usage": _usage(tokens)}
    return data({**_ENVELOPE, "choices": [choice], **usage, **more})


def R() -> bytes:
    """The role chunk."""
    return chunk({"role": "assistant", "content": ""})


def T(text: str, tokens: Tokens = None) -> bytes:
    """A piece of text."""
    return chunk({"content": text}, None, tokens)


def TC(index: int, arguments: str = "", *, name: str | None = None, id: str | None = None) -> bytes:
    """A piece of a tool call; *name* makes it the first piece."""
    call: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
    if name is not None:
        call = {"index": index, "id": id or f"call_{index}", "type": "function"}
        call["function"] = {"name": name, "arguments": arguments}
    return chunk({"tool_calls": [call]})


def FIN(reason: str = "stop", tokens: Tokens = None) -> bytes:
    """The finish chunk."""
    return chunk({}, reason, tokens)


def U(prompt: int, completion: int, **more: Any) -> bytes:
    """The usage-only chunk, with an empty list of choices."""
    usage = {**(_usage((prompt, completion)) or {}), **more}
    return data({**_ENVELOPE, "choices": [], "usage": usage})


DONE = data("[DONE]")


def ERRF(completion_tokens: int, failure_class: str = "upstream_error") -> bytes:
    """What the gateway writes when a stream breaks on the OpenAI endpoint; DONE follows it."""
    extension = {"failure_class": failure_class, "completion_tokens": completion_tokens}
    error = {"type": "provider_error", "code": "stream_interrupted", "message": "upstream stream interrupted"}
    return data({"error": {**error, "_anoman": extension}})


def MS(input_tokens: int, output_tokens: int = 1, **usage: int) -> bytes:
    """message_start; *usage* are further members of its usage."""
    tokens = {"input_tokens": input_tokens, "output_tokens": output_tokens, **usage}
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    message |= {"stop_reason": None, "stop_sequence": None, "usage": tokens}
    return event("message_start", {"type": "message_start", "message": message})


def CBS(index: int, kind: str = "text", **more: Any) -> bytes:
    """content_block_start of *kind* "text", "tool_use", "thinking" or any other with the members in *more*."""
    starts: dict[str, dict[str, Any]] = {
        "text": {"text": ""},
        "tool_use": {"id": f"toolu_{index}", "name": "tool", "input": {}},
        "thinking": {"thinking": "", "signature": ""},
    }
    block = {"type": kind, **starts.get(kind, {}), **more}
    return event("content_block_start", {"type": "content_block_start", "index": index, "content_block": block})


def _block_delta(index: int, delta: dict[str, Any]) -> bytes:
    return event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})


def CBD(index: int, text: str) -> bytes:
    """content_block_delta with a piece of text."""
    return _block_delta(index, {"type": "text_delta", "text": text})


def CBJ(index: int, partial_json: str) -> bytes:
    """content_block_delta with a piece of tool input."""
    return _block_delta(index, {"type": "input_json_delta", "partial_json": partial_json})


def CBX(index: int) -> bytes:
    """content_block_stop."""
    return event("content_block_stop", {"type": "content_block_stop", "index": index})


def MD(reason: str | None = "end_turn", usage: int | dict[str, Any] = 1) -> bytes:
    """message_delta; *usage* is the number of output tokens or the object to be sent literally."""
    tokens = {"output_tokens": usage} if isinstance(usage, int) else usage
    delta = {"stop_reason": reason, "stop_sequence": None}
    return event("message_delta", {"type": "message_delta", "delta": delta, "usage": tokens})


MX = event("message_stop", {"type": "message_stop"})
PING = event("ping", {"type": "ping"})


def AERR(kind: str, message: str = "Overloaded") -> bytes:
    """An error event inside a stream."""
    return event("error", {"type": "error", "error": {"type": kind, "message": message}})


EOF_OK = end()
"""EOF+: the body ended properly."""
FIN_CUT = fin()
"""FIN-: closed with the body unfinished."""
RST = reset()
HANG = stall()


def GC(*parts: dict[str, Any], finish: str | None = None, tokens: tuple[int, ...] | None = None, **more: Any) -> bytes:
    """A chunk of Gemini's dialect, in its line endings; *tokens* are prompt, answer and thoughts."""
    candidate: dict[str, Any] = {"index": 0}
    if parts:
        candidate["content"] = {"parts": list(parts), "role": "model"}
    if finish is not None:
        candidate["finishReason"] = finish
    body = {"candidates": [candidate], "modelVersion": "m", "responseId": "r1"}
    if tokens is not None:
        body["usageMetadata"] = GU(*tokens)
    return b"data: " + json.dumps({**body, **more}).encode() + b"\r\n\r\n"


def GU(prompt: int, answer: int | None = None, thoughts: int | None = None) -> dict[str, int]:
    """`usageMetadata` of Gemini's dialect."""
    total = prompt + (answer or 0) + (thoughts or 0)
    counts = {"promptTokenCount": prompt, "candidatesTokenCount": answer, "thoughtsTokenCount": thoughts}
    return {name: value for name, value in {**counts, "totalTokenCount": total}.items() if value is not None}


def GT(text: str, **more: Any) -> bytes:
    """A chunk of Gemini's dialect with a text."""
    return GC({"text": text}, **more)


def json_answer(
    text: str, tokens: tuple[int, int] = (7, 1), *, dialect: Dialect = "openai", finish: str | None = None, **more: Any
) -> Status:
    """A whole JSON answer of *dialect*; *more* are further or overriding top-level members."""
    prompt, completion = tokens
    if dialect == "anthropic":
        message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
        message |= {"content": [{"type": "text", "text": text}], "stop_reason": finish or "end_turn"}
        message |= {"stop_sequence": None, "usage": {"input_tokens": prompt, "output_tokens": completion}}
        return status(200, (), {**message, **more})
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish or "stop"}
    completion_object = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return status(200, (), {**completion_object, "usage": _usage(tokens), **more})
