"""Just enough HTTP/1.1, strict and exact: heads, and bodies that tell whether they ended properly."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

Framing = Literal["chunked", "eof"] | int
"""How a body is delimited; a number is a content length."""

_CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,8}")  # int() would also take "+5", "0x5" and "5_0"

MAX_HEAD_BYTES = 256 * 1024  # far above any limit under test: a head that never ends is a bug, not a case


class FramingError(Exception):
    """The other side broke HTTP/1.1."""


class Headers(list[tuple[str, str]]):
    """Header pairs in the order of the wire, names lower-cased."""

    def get(self, name: str) -> str | None:
        """The value of the only header called *name*, or None.

        Raises:
            FramingError: It is there more than once.
        """
        values = self.all(name)
        if len(values) > 1:
            raise FramingError(f"{name} is there {len(values)} times")
        return values[0] if values else None

    def all(self, name: str) -> list[str]:
        """Every value of *name*, in order."""
        return [value for key, value in self if key == name.lower()]


@dataclass(frozen=True, slots=True)
class Head:
    """A start line and its headers."""

    line: str
    headers: Headers

    @property
    def status(self) -> int:
        """The status of a response.

        Raises:
            FramingError: The start line is no status line.
        """
        version, _, rest = self.line.partition(" ")
        if version not in ("HTTP/1.1", "HTTP/1.0") or not rest[:3].isdigit():
            raise FramingError(f"no status line: {self.line!r}")
        return int(rest[:3])


def cut_head(data: bytearray) -> Head | None:
    """Take one head from the front of *data*; None while it is unfinished.

    Raises:
        FramingError: A header line without a colon, or a head above `MAX_HEAD_BYTES`.
    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        if len(data) > MAX_HEAD_BYTES:
            raise FramingError("endless head")
        return None
    first, *lines = bytes(data[:end]).decode("latin-1").split("\r\n")
    del data[: end + 4]
    headers = Headers()
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise FramingError(f"bad header line {line!r}")
        headers.append((name.lower(), value.strip(" \t")))
    return Head(first, headers)


def request_framing(headers: Headers) -> Framing:
    """How the body of a request with *headers* is delimited."""
    if headers.get("transfer-encoding") == "chunked":
        return "chunked"
    return int(headers.get("content-length") or 0)


def response_framing(method: str, head: Head) -> Framing:
    """How the body of the answer to a *method* request is delimited.

    Raises:
        FramingError: It has a length and is chunked.
    """
    length, coding = head.headers.get("content-length"), head.headers.get("transfer-encoding")
    if method == "HEAD" or head.status in (204, 304) or head.status < 200:
        return 0
    if coding is not None and length is not None:
        raise FramingError("content-length beside transfer-encoding")
    if coding is not None:
        return "chunked"
    return "eof" if length is None else int(length)


@dataclass(slots=True)
class Body:
    """A decoder of one body.

    Attributes:
        ended: The body's own end was seen: last chunk with its trailers, full length, or a FIN where that is the end.
        rest: Bytes behind the end.
        chunks: Sizes of the chunks that were opened, the last one (0) included.
    """

    framing: Framing
    ended: bool = False
    rest: bytearray = field(default_factory=bytearray)
    chunks: list[int] = field(default_factory=list)
    _left: int = 0
    _state: Literal["size", "data", "data_end", "trailer"] = "size"

    def __post_init__(self) -> None:
        if isinstance(self.framing, int):
            self._left = self.framing
            self.ended = self.framing == 0

    def feed(self, data: bytes) -> bytes:
        """The decoded part of *data*.

        Raises:
            FramingError: The chunk framing is broken.
        """
        self.rest += data
        if self.ended:
            return b""
        if self.framing == "eof":
            return self._take(len(self.rest))
        if self.framing == "chunked":
            return self._chunked()
        out = self._take(self._left)
        self._left -= len(out)
        self.ended = self._left == 0
        return out

    def close(self, how: str) -> None:
        """The connection is over: a body without framing ends well with "fin", nothing else does."""
        if self.framing == "eof" and how == "fin":
            self.ended = True

    def _take(self, count: int) -> bytes:
        out = bytes(self.rest[:count])
        del self.rest[: len(out)]
        return out

    def _line(self) -> bytes | None:
        end = self.rest.find(b"\r\n")
        if end < 0:
            if b"\n" in self.rest or len(self.rest) > MAX_HEAD_BYTES:
                raise FramingError(f"bad chunk line {bytes(self.rest[:40])!r}")
            return None
        line = bytes(self.rest[:end])
        del self.rest[: end + 2]
        return line

    def _chunked(self) -> bytes:
        out = bytearray()
        while not self.ended:
            if self._state == "data":
                piece = self._take(self._left)
                self._left -= len(piece)
                out += piece
                if self._left:
                    break
                self._state = "data_end"
            line = self._line()
            if line is None:
                break
            self._chunk_line(line)
        return bytes(out)

    def _chunk_line(self, line: bytes) -> None:
        if self._state == "trailer":
            self.ended = line == b""
        elif self._state == "data_end":
            if line:
                raise FramingError(f"chunk longer than its size: {line[:40]!r}")
            self._state = "size"
        else:
            size = line.partition(b";")[0].rstrip()
            if not _CHUNK_SIZE.fullmatch(size):
                raise FramingError(f"bad chunk size {line[:40]!r}")
            self._left = int(size, 16)
            self.chunks.append(self._left)
            self._state = "data" if self._left else "trailer"
