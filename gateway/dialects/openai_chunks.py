"""Neutral events as a provider of OpenAI's dialect would say them: chunks of a stream, or a whole body."""

from __future__ import annotations

from collections.abc import Iterable
from json.encoder import encode_basestring_ascii
from typing import Any

import msgspec

from gateway.dialects.base import Journey
from gateway.dialects.neutral import AnswerEvent, Argued, Counted, Finished, Said, Thought
from gateway.dialects.openai_deltas import Deltas
from gateway.dialects.openai_stream import CHUNK, DONE
from gateway.wire.ascii import ascii_json

_encode = msgspec.json.encode
_DELTA_END = b',"finish_reason":null}]}\n\n'
_TEXT_END = b"}" + _DELTA_END
_ARGUMENTS_END = b"}}]}" + _DELTA_END


class OpenAIWriter:
    """Writes one answer.

    Everything is ASCII on one line, in the envelope that the client's lane gives its own chunks, which can so pass
    nearly all of them as they are. What the lane puts right by itself is left to it: `{}` for a call without arguments.
    """

    def __init__(self, journey: Journey) -> None:
        envelope = {
            "id": f"chatcmpl-{journey.request_id}",
            "object": CHUNK,
            "created": journey.created_epoch_s,
            "model": journey.call.slug,
        }
        self._deltas = Deltas()
        self._envelope = envelope
        self._head = b"data: " + ascii_json(_encode(envelope))[:-1]
        self._delta = self._head + b',"choices":[{"index":0,"delta":'
        self._text = self._delta + b'{"content":'
        self._thought = self._delta + b'{"reasoning_content":'
        self._argued = self._delta + b'{"tool_calls":[{"index":'

    @property
    def note(self) -> str | None:
        """Something that was left out, for the log."""
        return self._deltas.note

    def write(self, event: AnswerEvent) -> bytes:
        """*event* as a chunk; b"" where there is nothing to say."""
        if isinstance(event, Said):
            self._deltas.chars += len(event.text)
            return self._text + _literal(event.text) + _TEXT_END if event.text else b""
        if isinstance(event, Argued):
            arguments = b'%d,"function":{"arguments":' % event.slot + _literal(event.text)
            return self._argued + arguments + _ARGUMENTS_END if event.text else b""
        if isinstance(event, Thought) and event.signature is None and event.redacted is None:
            return self._thought + _literal(event.text) + _TEXT_END if event.text else b""
        if isinstance(event, Counted):
            return self._chunk(b',"choices":[],"usage":', self._deltas.usage(event), b"}\n\n")
        if isinstance(event, Finished):
            reason = self._deltas.finish_reason(event)
            return self._chunk(b',"choices":[{"index":0,"delta":{},"finish_reason":', reason, b"}]}\n\n")
        delta = self._deltas.of(event)
        return self._chunk(b',"choices":[{"index":0,"delta":', delta, _DELTA_END) if delta is not None else b""

    def _chunk(self, before: bytes, value: object, after: bytes) -> bytes:
        return self._head + before + ascii_json(_encode(value)) + after

    def end(self) -> bytes:
        """The terminator."""
        return DONE

    def whole(self, events: Iterable[AnswerEvent]) -> bytes:
        """A `chat.completion`."""
        message, reason, usage = _Message(), "stop", None
        for event in events:
            if isinstance(event, Finished):
                reason = self._deltas.finish_reason(event)
            elif isinstance(event, Counted):
                usage = self._deltas.usage(event)
            elif (delta := self._deltas.of(event)) is not None:
                message.add(delta)
        choice = {"index": 0, "message": message.members(), "logprobs": None, "finish_reason": reason}
        body: dict[str, Any] = {**self._envelope, "object": "chat.completion", "choices": [choice]}
        return _encode({**body, "usage": usage} if usage else body)


class _Message:
    """An assistant's message, put together from the deltas that a stream would have."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._lists: dict[str, list[Any]] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._arguments: dict[int, list[str]] = {}

    def add(self, delta: dict[str, Any]) -> None:
        for name, value in delta.items():
            if name == "tool_calls":
                self._add_call(value[0])
            elif isinstance(value, list):
                self._lists.setdefault(name, []).extend(value)
            else:
                self._texts.setdefault(name, []).append(value)

    def _add_call(self, piece: dict[str, Any]) -> None:
        slot, function = piece["index"], piece["function"]
        if "id" in piece:
            self._calls[slot] = {"id": piece["id"], "type": "function", "function": {"name": function["name"]}}
        self._arguments.setdefault(slot, []).append(function["arguments"])

    def members(self) -> dict[str, Any]:
        """The message; `content` is null where something else was said instead."""
        for slot, call in self._calls.items():
            call["function"]["arguments"] = "".join(self._arguments[slot]) or "{}"
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        calls = {"tool_calls": [call for _, call in sorted(self._calls.items())]} if self._calls else {}
        content, refusal = texts.pop("content", ""), texts.pop("refusal", None)
        silent = not content and (calls or refusal is not None)
        texts.pop("role", None)
        return {
            "role": "assistant",
            "content": None if silent else content,
            "refusal": refusal,
            **texts,
            **self._lists,
            **calls,
        }


def _literal(text: str) -> bytes:
    return encode_basestring_ascii(text).encode()
