"""Anthropic message events from a provider to a client of the same dialect."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from gateway.core.receipt import Receipt, extension, precall_extension
from gateway.core.usage import Basis, Usage, count
from gateway.dialects.anthropic_usage import UsageReader, usage_object
from gateway.dialects.base import Journey
from gateway.dialects.failures import ABSENT, NOTHING, in_band_failure, malformed
from gateway.dialects.lane import PassthroughLane, read_json
from gateway.dialects.prompt_tokens import prompt_tokens
from gateway.dialects.validate import read_id
from gateway.wire.ascii import ascii_json
from gateway.wire.body import replace_members
from gateway.wire.sse import Event, frame
from gateway.wire.values import decode_members, decode_values

# As Anthropic itself sends.
HEARTBEAT = frame(b'{"type":"ping"}', b"ping")


class _Delta(Struct, gc=False):
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None


class _Event(Struct, gc=False):
    type: str | None = None
    delta: _Delta | None = None
    error: Raw = ABSENT


_BLOCK_EVENTS = frozenset(("content_block_start", "content_block_stop"))
_read = msgspec.json.Decoder(_Event).decode


class AnthropicLane(PassthroughLane):
    """Events in, events out. The last `message_delta` is held back until `message_stop` proves the answer whole."""

    def __init__(self, journey: Journey) -> None:
        super().__init__(journey)
        self._reader = UsageReader()
        self._told = False  # a message_delta has counted the answer
        self._last_delta: bytes | None = None  # payload of the held-back message_delta
        self._stop: bytes = b'{"type":"message_stop"}'
        self._id: object = None  # of the message, as the provider sent it

    @property
    def response_id(self) -> str | None:
        return read_id(self._id)

    def measure(self) -> tuple[Usage, Basis]:
        """The provider's count where it gave one, ours for the rest."""
        reader, said = self._reader, self._said()
        final = self.complete and self._told and bool(said or not self._tally.deltas)
        output = said if final else self.received_tokens()
        usage = reader.usage(0 if reader.has_prompt else prompt_tokens(self.journey.call, self.journey.family), output)
        if final and reader.has_prompt:
            return usage, "provider_final"
        if not self.complete and reader.has_prompt and output == said:
            return usage, "received"
        return usage, "estimated"

    def received_tokens(self) -> int:
        """Tokens of the answer so far."""
        return max(self._said(), self._tally.tokens())

    def _said(self) -> int:
        """The provider's own count of the answer; that of `message_start` is a placeholder."""
        return self._reader.counts["output_tokens"] if self._told else 0

    def finish(self, receipt: Receipt) -> bytes:
        """The held-back `message_delta` with its usage, and `message_stop`, both with `_anoman`."""
        changes: dict[str, Any] = {}
        if not self.journey.call.options.strip_extension:
            changes["_anoman"] = extension(receipt)
        usage = {"usage": usage_object(receipt.usage, self._reader.raw)}
        held = self._last_delta
        last = frame(_with(held, {**usage, **changes}), b"message_delta") if held is not None else b""
        return last + frame(_with(self._stop, changes), b"message_stop")

    def _take(self, event: Event) -> bytes:
        if self._last_delta is None and (out := self._like_before(event.data)) is not None:
            return out
        read = read_json(event.data, _read, _read_leniently)
        if read is None:
            self._break(malformed(event.data.decode("utf-8", "replace")))
            return b""
        parsed, payload = read
        if event.name == b"error" or (parsed.error is not ABSENT and bytes(parsed.error) not in NOTHING):
            return self._take_error(payload)
        kind = parsed.type or event.name.decode("ascii", "replace")
        if kind == "content_block_delta":
            self._tell(parsed.delta)
            self.progress += 1
            sent = frame(payload, b"content_block_delta")
            if parsed.delta is not None and parsed.delta.text:
                self._remember(payload, sent, b'"text":', parsed.delta.text)
            return self._let_go() + sent
        handler = _HANDLERS.get(kind)
        if handler is not None:
            try:
                return handler(self, payload)
            except (msgspec.DecodeError, OverflowError, RecursionError):  # as a number of over 64 bits
                self._break(malformed(event.data.decode("utf-8", "replace")))
                return b""
        if not kind.isidentifier():  # it becomes a line of ours, so it must be a word
            self._break(malformed(f"event type {kind[:50]!r}"))
            return b""
        if kind in _BLOCK_EVENTS:
            self.progress += 1
        else:
            self.note = self.note or "unknown_event"  # passed on: clients are told to expect new ones
        return self._let_go() + frame(payload, kind.encode("ascii", "replace"))

    def _tell(self, delta: _Delta | None) -> None:
        """Note what a content delta adds; signatures and citations are no tokens of the answer."""
        text = (delta.text or delta.partial_json or delta.thinking) if delta is not None else None
        self.talking = True
        if text:
            self._tally.add(text)

    def _let_go(self) -> bytes:
        """A held `message_delta` that turns out not to be the last passes as it was."""
        if self._last_delta is None:
            return b""
        held, self._last_delta = self._last_delta, None
        return frame(held, b"message_delta")

    def _take_start(self, payload: bytes) -> bytes:
        members = decode_members(payload)
        message = decode_values(members["message"]) if "message" in members else None
        if not isinstance(message, dict):
            self._break(malformed("message_start without message"))
            return b""
        reader = self._reader
        reader.take(message.get("usage"))
        self._note_odd()
        self._id = message.get("id")
        message["model"] = self.journey.call.slug
        if reader.odd or not reader.whole:
            prompt = 0 if reader.has_prompt else prompt_tokens(self.journey.call, self.journey.family)
            message["usage"] = usage_object(reader.usage(prompt), reader.raw)
        message.pop("_anoman", None)  # of a gateway behind us
        if not self.journey.call.options.strip_extension:
            journey = self.journey
            message["_anoman"] = precall_extension(journey.route.provider, journey.rules.region, journey.verdicts)
        self.progress += 1
        return frame(ascii_json(replace_members(members, {"message": message})), b"message_start")

    def _take_delta(self, payload: bytes) -> bytes:
        out = self._let_go()
        usage = decode_members(payload).get("usage")
        said = decode_values(usage) if usage is not None else None
        self._reader.take(said)
        self._told |= isinstance(said, dict) and count(said.get("output_tokens")) is not None
        self._note_odd()
        self._last_delta = payload
        self.progress += 1
        return out

    def _take_stop(self, payload: bytes) -> bytes:
        self._stop = payload
        self.complete = self.ended = True
        self.progress += 1
        return b""

    def _take_ping(self, payload: bytes) -> bytes:
        return frame(payload, b"ping")

    def _take_error(self, payload: bytes) -> bytes:
        self._break(in_band_failure(payload))
        return b""

    def _note_odd(self) -> None:
        if self._reader.odd:
            self.note = "usage_odd"


_HANDLERS = {
    "message_start": AnthropicLane._take_start,
    "message_delta": AnthropicLane._take_delta,
    "message_stop": AnthropicLane._take_stop,
    "ping": AnthropicLane._take_ping,
    "error": AnthropicLane._take_error,
}


def _with(payload: bytes, changes: dict[str, Any]) -> bytes:
    """*payload* with *changes*, and without what a gateway behind us has to say."""
    members = {name: value for name, value in decode_members(payload).items() if name != "_anoman"}
    return ascii_json(replace_members(members, changes))


def _read_leniently(payload: bytes) -> _Event:
    """
    *payload* as an event, whatever types its members have.

    Raises:
        msgspec.DecodeError: Not a JSON object.
    """
    members = decode_members(payload)
    kind = decode_values(members["type"]) if "type" in members else None
    delta = decode_values(members["delta"]) if "delta" in members else None
    out = _Event(type=kind if isinstance(kind, str) else None, error=members.get("error", ABSENT))
    if isinstance(delta, dict):
        out.delta = _Delta()
        for name in ("text", "partial_json", "thinking"):
            if isinstance(delta.get(name), str):
                setattr(out.delta, name, delta[name])
    return out
