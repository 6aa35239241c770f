"""What the fake provider says and how a test tells it: pre-built bytes of both dialects and the marker in a prompt.

Shapes follow the providers' public API references: OpenAI chat completion chunks, Anthropic message events.
A content frame has a fixed length, so that its HTTP chunk header never changes; only the 19 digits of a stamp do.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

STAMP = re.compile(rb"@(\d{19})@")
"""A content frame's text begins with its sending time: nanoseconds of the machine's monotonic clock."""

_BLANK = b"@%019d@" % 0  # where a stamp goes
_MARKER = re.compile(rb"\[\[bench id=(\d+) n=(\d+) i=(\d+) f=(\d+) b=(\d+)\]\]")
_STREAM = re.compile(rb'"stream"\s*:\s*true')
_WANTS_USAGE = re.compile(rb'"include_usage"\s*:\s*true')

UPSTREAM_MODEL = "bench-up"
"""Differs from the model clients ask for: a gateway that maps names has its real work to do."""


@dataclass(frozen=True, slots=True)
class Script:
    """How the provider has to answer one request; travels in the prompt's text, so that every proxy forwards it.

    Attributes:
        id: Names the request in the provider's records; 0 leaves none.
        events: Content events of a stream.
        interval_ms: Between content events; 0 is as fast as the socket takes them.
        first_ms: Silence before the first byte of the answer.
        size: Bytes of text in an event or in a JSON answer; events have at least a stamp's 21.
    """

    id: int = 0
    events: int = 4
    interval_ms: int = 0
    first_ms: int = 0
    size: int = 32

    def marker(self) -> str:
        """The text to put into a prompt."""
        return f"[[bench id={self.id} n={self.events} i={self.interval_ms} f={self.first_ms} b={self.size}]]"


def script_of(body: bytes) -> Script:
    """The script a request's body carries, or the default one."""
    found = _MARKER.search(body)
    return Script(*map(int, found.groups())) if found else Script()


def wants_stream(body: bytes) -> bool:
    """Whether the request asks for a stream."""
    return _STREAM.search(body) is not None


def wants_usage(body: bytes) -> bool:
    """Whether an OpenAI request asks for the usage chunk."""
    return _WANTS_USAGE.search(body) is not None


@dataclass(frozen=True, slots=True)
class Recording:
    """The parts of a stream as HTTP chunks; a content chunk is `head + 19 digits + tail`."""

    opening: bytes
    head: bytes
    tail: bytes
    closing: bytes

    def content(self, now_ns: int) -> bytes:
        """One content frame that says it left now."""
        return b"%b%019d%b" % (self.head, now_ns, self.tail)


def chunk(payload: bytes) -> bytes:
    """One HTTP/1.1 chunk (RFC 9112, 7.1)."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def _compact(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + _compact(value) + b"\n\n"


def _event(value: dict[str, Any]) -> bytes:
    return b"event: %b\n%b" % (value["type"].encode(), _data(value))


def _recording(opening: list[bytes], content: bytes, closing: list[bytes]) -> Recording:
    head, _, tail = chunk(content).partition(_BLANK)
    return Recording(
        opening=b"".join(map(chunk, opening)),
        head=head + b"@",
        tail=b"@" + tail,
        closing=b"".join(map(chunk, closing)) + b"0\r\n\r\n",
    )


def _text(size: int) -> str:
    return _BLANK.decode() + "x" * max(0, size - len(_BLANK))


@lru_cache(maxsize=64)
def openai_stream(size: int, usage: bool) -> Recording:
    """Role chunk, content chunks, finish chunk, the usage chunk when asked, `[DONE]`."""
    base: dict[str, Any] = {
        "id": "chatcmpl-B4ncH0000000000000000000000001",
        "object": "chat.completion.chunk",
        "created": 1764000000,
        "model": UPSTREAM_MODEL,
        "service_tier": "default",
        "system_fingerprint": "fp_b4nc400000",
    }
    nothing: dict[str, Any] = {"usage": None} if usage else {}

    def frame(delta: dict[str, Any], finish: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _data({**base, "choices": [choice], **nothing})

    counts = {"prompt_tokens": 210, "completion_tokens": 40, "total_tokens": 250}
    closing = [frame({}, "stop")]
    if usage:
        closing.append(_data({**base, "choices": [], "usage": counts}))
    return _recording(
        [frame({"role": "assistant", "content": "", "refusal": None}, None)],
        frame({"content": _text(size)}, None),
        [*closing, b"data: [DONE]\n\n"],
    )


@lru_cache(maxsize=64)
def anthropic_stream(size: int) -> Recording:
    """`message_start` to `message_stop` with one text block."""
    message: dict[str, Any] = {
        "id": "msg_01B4ncH000000000000000001",
        "type": "message",
        "role": "assistant",
        "model": UPSTREAM_MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 210, "output_tokens": 1},
    }
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    return _recording(
        [
            _event({"type": "message_start", "message": message}),
            _event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ],
        _event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": _text(size)}}),
        [
            _event({"type": "content_block_stop", "index": 0}),
            _event({"type": "message_delta", "delta": stop, "usage": {"input_tokens": 210, "output_tokens": 40}}),
            _event({"type": "message_stop"}),
        ],
    )


@lru_cache(maxsize=64)
def openai_answer(size: int) -> bytes:
    """A chat completion of about *size* + 420 bytes."""
    message: dict[str, Any] = {"role": "assistant", "content": "x" * size, "refusal": None, "annotations": []}
    return _compact({
        "id": "chatcmpl-B4ncH0000000000000000000000002",
        "object": "chat.completion",
        "created": 1764000000,
        "model": UPSTREAM_MODEL,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 210, "completion_tokens": 40, "total_tokens": 250},
        "system_fingerprint": "fp_b4nc400000",
    })


@lru_cache(maxsize=64)
def anthropic_answer(size: int) -> bytes:
    """A message of about *size* + 260 bytes."""
    return _compact({
        "id": "msg_01B4ncH000000000000000002",
        "type": "message",
        "role": "assistant",
        "model": UPSTREAM_MODEL,
        "content": [{"type": "text", "text": "x" * size}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 210, "output_tokens": 40},
    })
