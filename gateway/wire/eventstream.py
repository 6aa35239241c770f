"""AWS's binary event stream (`application/vnd.amazon.eventstream`), read into the same events as server-sent ones.

A message is a prelude (length of the whole, length of the headers, a CRC-32 of both), headers, a payload and a CRC-32
of all that; numbers are big-endian. AWS describes it in the guides to its streaming services, "Event stream encoding",
and in Smithy's specification, "Amazon Event Stream".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple
from zlib import crc32

import msgspec

from gateway.wire.sse import Event, FrameTooLarge, Unreadable

MEDIA_TYPE = "application/vnd.amazon.eventstream"

_PRELUDE = struct.Struct(">III")  # length of the message, of its headers, CRC-32 of these eight bytes
_U32 = struct.Struct(">I")
_U16 = struct.Struct(">H")
_SIGNED = {1: struct.Struct(">b"), 2: struct.Struct(">h"), 4: struct.Struct(">i"), 8: struct.Struct(">q")}
_NUMBERS = {2: _SIGNED[1], 3: _SIGNED[2], 4: _SIGNED[4], 5: _SIGNED[8], 8: _SIGNED[8]}  # by header type
_UUID_BYTES = 16
_OVERHEAD_BYTES = _PRELUDE.size + _U32.size
MAX_HEADER_BYTES = 128 * 1024  # of a message: the limit that AWS's own clients keep
MAX_HEADERS = 64  # a message has three or four; 128 KB could hold 43,000
_KNOWN_HEADS = 16  # a stream has some eight kinds of messages, and those of one kind have the same header bytes,
_KNOWN_BYTES = 256  # about a hundred

Value = bool | int | bytes | str
"""A header's value: true or false, a number, bytes, text; a timestamp is in milliseconds since the epoch."""


# A NamedTuple's own constructor is a Python function that calls this one.
_new = tuple.__new__


class Fault(Event):
    """
    An exception or error that a service raises inside its stream: `name` is its type, `data` tells of it.

    One called `UNREADABLE` is of what came: its `data` says what is wrong with it, and nothing follows.
    """

    __slots__ = ()


UNREADABLE = b""


class BadMessage(Unreadable):
    """A checksum, a length or a header is wrong."""

    def __init__(self) -> None:
        super().__init__("damaged message")


class _Head(NamedTuple):
    """What a message's headers say of it; `empty` stands for a payload that has nothing."""

    kind: type[Event]
    name: bytes
    empty: bytes = b"{}"


class MessageSplitter:
    """Cuts a byte stream into whole messages, however the stream was cut into reads.

    Checksums are compared: a prelude's before its lengths are believed, a message's before it is used. Memory is
    bounded by *max_event_bytes* and `MAX_HEADER_BYTES` besides the read being handled; time is linear in the bytes fed.

    Args:
        max_event_bytes: Bound of one message's payload.
    """

    __slots__ = ("_buffer", "_heads", "_is_broken", "_max", "_wanted")

    def __init__(self, max_event_bytes: int) -> None:
        self._max = max_event_bytes
        self._buffer = bytearray()  # the unfinished message
        self._wanted = _PRELUDE.size  # how long the buffer has to be before it says more than is known already
        self._is_broken = False
        self._heads: dict[bytes, _Head] = {}

    def feed(self, data: bytes) -> list[Event]:
        """
        The events that *data* completes, in order.

        What cannot be read is told by the last of them, at once: whoever waits for more would wait in vain.
        """
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._wanted:
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        events: list[Event] = []
        if not self._is_broken:
            try:
                rest = data[self._read(data, events) :]
            except Unreadable as exc:
                events.append(Fault(UNREADABLE, str(exc).encode()))
                self._is_broken = True
            else:
                self._buffer += rest
        return events

    def close(self) -> list[Event]:
        """Nothing: part of a message says nothing."""
        return []

    def _read(self, data: bytes, events: list[Event]) -> int:
        """Add the events of the whole messages in *data*; where the last of them ends."""
        at, self._wanted = 0, _PRELUDE.size
        while len(data) - at >= _PRELUDE.size:
            total, header_bytes, checksum = _PRELUDE.unpack_from(data, at)
            if crc32(data[at : at + 8]) != checksum or header_bytes > MAX_HEADER_BYTES:
                raise BadMessage
            payload_bytes = total - header_bytes - _OVERHEAD_BYTES
            if payload_bytes < 0:
                raise BadMessage
            if payload_bytes > self._max:
                raise FrameTooLarge
            if len(data) - at < total:
                self._wanted = total
                break
            payload_at, end = at + _PRELUDE.size + header_bytes, at + total - _U32.size
            if crc32(data[at:end]) != _U32.unpack_from(data, end)[0]:
                raise BadMessage
            block = data[at + _PRELUDE.size : payload_at]
            head = self._heads.get(block) or self._head(block)
            events.append(_new(head.kind, (head.name, data[payload_at:end] or head.empty)))
            at += total
        return at

    def _head(self, block: bytes) -> _Head:
        """What the headers in *block* say, for each message that has the same again."""
        head = _read_head(read_headers(block))
        if len(self._heads) < _KNOWN_HEADS and len(block) <= _KNOWN_BYTES:
            self._heads[block] = head
        return head


def read_headers(block: bytes) -> dict[str, Value]:
    """
    The headers of a message by name.

    Raises:
        BadMessage: One overruns *block*, is there twice, or is of a type that there is none of.
    """
    headers: dict[str, Value] = {}
    at = 0
    try:
        while at < len(block):
            name, at = _take(block, at + 1, block[at])
            if len(headers) == MAX_HEADERS or (key := name.decode()) in headers:
                raise BadMessage
            headers[key], at = _value(block, at + 1, block[at])
    except (IndexError, struct.error, UnicodeDecodeError) as exc:
        raise BadMessage from exc
    return headers


def _value(block: bytes, at: int, kind: int) -> tuple[Value, int]:
    """The value of type *kind* that begins at *at*, and where it ends; types are numbered as the specification does."""
    number = _NUMBERS.get(kind)
    if number is not None:
        return number.unpack_from(block, at)[0], at + number.size
    if kind in (0, 1):
        return kind == 0, at
    if kind == 9:
        return _take(block, at, _UUID_BYTES)
    if kind not in (6, 7):
        raise BadMessage
    value, at = _take(block, at + _U16.size, _U16.unpack_from(block, at)[0])
    return value if kind == 6 else value.decode(), at


def _take(block: bytes, at: int, length: int) -> tuple[bytes, int]:
    """*length* bytes from *at* on, and where they end. Raises IndexError where there are fewer."""
    end = at + length
    if end > len(block):
        raise IndexError
    return block[at:end], end


def _read_head(headers: Mapping[str, Value]) -> _Head:
    """What *headers* say of their message. Raises BadMessage where they do not."""
    match headers:
        case {":message-type": "event", ":event-type": str(name)}:
            return _Head(Event, name.encode())
        case {":message-type": "exception", ":exception-type": str(name)}:
            return _Head(Fault, name.encode())
        case {":message-type": "error", ":error-code": str(name)}:  # its words are a header, and it has no payload
            return _Head(Fault, name.encode(), msgspec.json.encode({"message": headers.get(":error-message")}))
    raise BadMessage
