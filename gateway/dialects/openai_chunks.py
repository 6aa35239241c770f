"""Neutral events as a provider of OpenAI's dialect would say them: chunks of a stream, or a whole body."""

from __future__ import annotations

from collections.abc import Iterable
from json.encoder import encode_basestring_ascii
from typing import Any

import msgspec

from gateway.dialects.base import Journey
from gateway.dialects.neutral import AnswerEvent, Argued, Counted, Finished, Other, Said, Scored, Thought
from gateway.dialects.openai_deltas import Deltas, logprobs
from gateway.dialects.openai_stream import CHUNK, DONE
from gateway.wire.ascii import ascii_json
from gateway.wire.values import decode_values

_encode = msgspec.json.encode
_DELTA_END = b',"finish_reason":null}]}\n\n'
_TEXT_END = b"}" + _DELTA_END
_ARGUMENTS_END = b"}}]}" + _DELTA_END


class OpenAIWriter:
    """Writes one answer.

    Everything is ASCII on one line, in the envelope that the client's lane gives its own chunks, which can so pass
    nearly all of them as they are. What the lane puts right by itself is left to it: `{}` for a call without arguments.
    """

    def __init__(self, journey: Journey, index: int = 0) -> None:
        envelope = {
            "id": f"chatcmpl-{journey.request_id}",
            "object": CHUNK,
            "created": journey.created_epoch_s,
            "model": journey.call.slug,
        }
        self._deltas = Deltas()
        self._journey = journey
        self._index = index  # of the choice that is written
        self._others: dict[int, OpenAIWriter] = {}
        self._envelope = envelope
        self._head = b"data: " + ascii_json(_encode(envelope))[:-1]
        self._delta = self._head + b',"choices":[{"index":%d,"delta":' % index
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
            self._deltas.thought_chars += len(event.text)
            return self._thought + _literal(event.text) + _TEXT_END if event.text else b""
        if isinstance(event, Counted):
            return self._head + b',"choices":[],"usage":' + _json(self._deltas.usage(event)) + b"}\n\n"
        if isinstance(event, Finished):
            reason = self._deltas.finish_reason(event)
            return self._delta + b'{},"finish_reason":' + _json(reason) + b"}]}\n\n"
        if isinstance(event, Other):
            other = self._other(event.index)
            return other.write(event.event) if other is not None else b""
        if isinstance(event, Scored):
            return self._delta + b'{},"logprobs":' + _json(logprobs(event.tokens)) + _DELTA_END
        delta = self._deltas.of(event)
        return self._delta + _json(delta) + _DELTA_END if delta is not None else b""

    def _other(self, index: int) -> OpenAIWriter | None:
        """The writer of another choice; None for one that nobody asked for."""
        asked = self._journey.call.fields.get("n")
        count = decode_values(asked) if asked is not None else 1
        if not isinstance(count, int) or index >= count:
            self._deltas.note = self._deltas.note or "other_choices"
            return None
        if index not in self._others:
            self._others[index] = OpenAIWriter(self._journey, index)
        return self._others[index]

    def end(self) -> bytes:
        """The terminator."""
        return DONE

    def whole(self, events: Iterable[AnswerEvent]) -> bytes:
        """A `chat.completion`."""
        events, usage = [*events], None
        for event in events:
            if isinstance(event, Counted):
                usage = self._deltas.usage(event)
        others = {event.index for event in events if isinstance(event, Other)}
        choices = [self._choice(events)]
        for index in sorted(others):
            if (other := self._other(index)) is not None:
                said = [event.event for event in events if isinstance(event, Other) and event.index == index]
                choices.append(other._choice(said))
        body: dict[str, Any] = {**self._envelope, "object": "chat.completion", "choices": choices}
        return _encode({**body, "usage": usage} if usage else body)

    def _choice(self, events: Iterable[AnswerEvent]) -> dict[str, Any]:
        """A choice of a whole answer."""
        message, reason = _Message(), "stop"
        scored: list[Scored] = []
        for event in events:
            if isinstance(event, Finished):
                reason = self._deltas.finish_reason(event)
            elif isinstance(event, Scored):
                scored.append(event)
            elif (delta := self._deltas.of(event)) is not None:
                message.add(delta)
        likely = logprobs([token for event in scored for token in event.tokens]) if scored else None
        return {"index": self._index, "message": message.members(), "logprobs": likely, "finish_reason": reason}


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


def _json(value: object) -> bytes:
    return ascii_json(_encode(value))


def _literal(text: str) -> bytes:
    return encode_basestring_ascii(text).encode()
