"""How the two languages write an answer."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from gateway.demo_provider.models import ToolCall
from gateway.demo_provider.pieces import pieces_of
from gateway.demo_provider.prompt import Prompt


class Dialect(Protocol):
    """How one language writes an answer; one object writes one answer. `reason` is stop, length or tool."""

    def start(self, said: str | ToolCall) -> bytes:
        """The frames before *said*, which comes first."""

    def text(self, piece: str) -> bytes: ...

    def call(self, call: ToolCall) -> Iterator[bytes]:
        """The frames of a call: the name first, then one frame for each piece of the arguments."""

    def finish(self, reason: str, tokens: int) -> bytes:
        """Everything behind the last piece."""

    def whole(self, text: str, calls: list[ToolCall], reason: str, tokens: int) -> dict[str, Any]:
        """The JSON answer."""

    @staticmethod
    def error(status: int, message: str) -> dict[str, Any]:
        """The body of an error."""


def _frame(data: Any, event: str | None = None) -> bytes:
    name = f"event: {event}\n".encode() if event else b""
    return name + b"data: " + msgspec.json.encode(data) + b"\n\n"


class OpenAIChat:
    """Chat completions."""

    _reasons = MappingProxyType({"stop": "stop", "length": "length", "tool": "tool_calls"})

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._calls = 0
        self._id = f"chatcmpl-{secrets.token_hex(12)}"
        self._created = int(time.time())

    def _envelope(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        head = {"id": self._id, "object": kind, "created": self._created, "model": self._prompt.model}
        return {**head, "choices": choices}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        chunk = self._envelope("chat.completion.chunk", [{"index": 0, "delta": delta, "finish_reason": finish}])
        return _frame({**chunk, "usage": None} if self._prompt.include_usage else chunk)

    def _usage(self, tokens: int) -> dict[str, Any]:
        counts = {"prompt_tokens": self._prompt.tokens, "completion_tokens": tokens}
        counts["total_tokens"] = self._prompt.tokens + tokens
        return {**counts, "prompt_tokens_details": {"cached_tokens": 0}}

    def start(self, said: str | ToolCall) -> bytes:
        return self._chunk({"role": "assistant", "content": "" if isinstance(said, str) else None})

    def text(self, piece: str) -> bytes:
        return self._chunk({"content": piece})

    def call(self, call: ToolCall) -> Iterator[bytes]:
        index, self._calls = self._calls, self._calls + 1
        first = {"index": index, "id": f"call_{secrets.token_hex(8)}", "type": "function"}
        yield self._chunk({"tool_calls": [{**first, "function": {"name": call.name, "arguments": ""}}]})
        for piece in pieces_of(call.arguments):
            yield self._chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})

    def finish(self, reason: str, tokens: int) -> bytes:
        out = self._chunk({}, self._reasons[reason])
        if self._prompt.include_usage:
            out += _frame({**self._envelope("chat.completion.chunk", []), "usage": self._usage(tokens)})
        return out + b"data: [DONE]\n\n"

    def whole(self, text: str, calls: list[ToolCall], reason: str, tokens: int) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{secrets.token_hex(8)}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": self._reasons[reason]}
        return {**self._envelope("chat.completion", [choice]), "usage": self._usage(tokens)}

    @staticmethod
    def error(status: int, message: str) -> dict[str, Any]:
        """The body of an error."""
        codes = {404: "model_not_found", 429: "rate_limit_exceeded"}
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": codes.get(status)}
        return {"error": error}


class AnthropicMessages:
    """The Messages API."""

    _reasons = MappingProxyType({"stop": "end_turn", "length": "max_tokens", "tool": "tool_use"})

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._block = -1
        self._in_text = False

    def _message(self, content: list[Any], tokens: int, stop_reason: str | None) -> dict[str, Any]:
        return {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": self._prompt.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": self._usage(tokens),
        }

    def _usage(self, tokens: int) -> dict[str, int]:
        usage = {"input_tokens": self._prompt.tokens, "output_tokens": tokens}
        return {**usage, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}

    def _event(self, name: str, **members: Any) -> bytes:
        return _frame({"type": name, **members}, name)

    def _open(self, block: dict[str, Any]) -> bytes:
        out = self._close()
        self._block += 1
        self._in_text = block["type"] == "text"
        return out + self._event("content_block_start", index=self._block, content_block=block)

    def _delta(self, kind: str, **members: str) -> bytes:
        return self._event("content_block_delta", index=self._block, delta={"type": kind, **members})

    def _close(self) -> bytes:
        self._in_text = False
        return self._event("content_block_stop", index=self._block) if self._block >= 0 else b""

    def start(self, said: str | ToolCall) -> bytes:
        return self._event("message_start", message=self._message([], 1, None)) + self._event("ping")

    def text(self, piece: str) -> bytes:
        opening = b"" if self._in_text else self._open({"type": "text", "text": ""})
        return opening + self._delta("text_delta", text=piece)

    def call(self, call: ToolCall) -> Iterator[bytes]:
        yield self._open({"type": "tool_use", "id": f"toolu_{secrets.token_hex(12)}", "name": call.name, "input": {}})
        for piece in pieces_of(call.arguments):
            yield self._delta("input_json_delta", partial_json=piece)

    def finish(self, reason: str, tokens: int) -> bytes:
        delta = {"stop_reason": self._reasons[reason], "stop_sequence": None}
        return (
            self._close()
            + self._event("message_delta", delta=delta, usage={"output_tokens": tokens})
            + self._event("message_stop")
        )

    def whole(self, text: str, calls: list[ToolCall], reason: str, tokens: int) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        content += [
            {
                "type": "tool_use",
                "id": f"toolu_{secrets.token_hex(12)}",
                "name": call.name,
                "input": msgspec.json.decode(call.arguments),
            }
            for call in calls
        ]
        return self._message(content, tokens, self._reasons[reason])

    @staticmethod
    def error(status: int, message: str) -> dict[str, Any]:
        """The body of an error."""
        kinds = {404: "not_found_error", 429: "rate_limit_error"}
        error = {"type": kinds.get(status, "invalid_request_error"), "message": message}
        return {"type": "error", "error": error, "request_id": f"req_{secrets.token_hex(12)}"}
