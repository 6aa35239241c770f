"""What a picture is by its own first bytes, and how large it would be if somebody decoded it. Nothing is decoded here.

Each format's header is read as its specification has it: PNG 5.2 and 11.2.2, JPEG (ITU T.81) annex B, WebP (RFC 9649,
2.5 to 2.7 and 3.4), GIF89a 17 and 18.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from msgspec import Struct

from gateway.core.held import Part

Kind = Literal["png", "jpeg", "webp", "gif"]

MEDIA_TYPES: Mapping[Kind, str] = {"png": "image/png", "jpeg": "image/jpeg", "webp": "image/webp", "gif": "image/gif"}
# Before the frame header of a JPEG. A colour profile has up to 255 (ICC.1, annex B.4), all else a few dozen.
MAX_SEGMENTS = 400

_PNG = b"\x89PNG\r\n\x1a\n"
_HEADER_BYTES = 30  # as far as the sizes of PNG, WebP and GIF reach
_WIDTH_14_BITS = 0x3FFF


class BadPicture(Exception):
    """A picture that is refused; `message` is the public reason, fit to follow the name of its place."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Look(Struct, frozen=True, gc=False):
    """A picture by its header; of a GIF, the screen that its frames are drawn on."""

    kind: Kind
    width: int
    height: int


class Source(Protocol):
    """The bytes of a picture, wherever they are."""

    @property
    def size(self) -> int:
        """In bytes."""

    def read(self, start: int, length: int) -> bytes:
        """The bytes from *start* on, fewer where there are no more."""


class Encoded:
    """A picture in sound base64 (`is_base64`), decoded only where it is read."""

    def __init__(self, data: Part) -> None:
        self._data = data
        self.size = len(data) // 4 * 3 - bytes(data[-2:]).count(b"=")

    def read(self, start: int, length: int) -> bytes:
        first, last = start // 3, -(-(start + length) // 3)
        return a2b_base64(self._data[first * 4 : last * 4])[start % 3 :][:length]


class Plain:
    """A picture as it is."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, start: int, length: int) -> bytes:
        return self._data[start : start + length]


def look(source: Source) -> Look:
    """
    What *source* is, by its bytes alone.

    Raises:
        BadPicture: No picture of a kind that models take, or one whose size cannot be read.
    """
    head = source.read(0, _HEADER_BYTES)
    kind = _kind_of(head)
    if kind is None:
        raise BadPicture("The data is no image in PNG, JPEG, WebP or GIF.")
    size = _SIZES[kind](head, source)
    if size is None or not all(size):
        raise BadPicture("The image is damaged.")
    return Look(kind, *size)


def _kind_of(head: bytes) -> Kind | None:
    if head.startswith(_PNG):
        return "png"
    if head.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "webp"
    return "gif" if head.startswith((b"GIF87a", b"GIF89a")) else None


_Size = tuple[int, int] | None


def _png(head: bytes, source: Source) -> _Size:
    if head[8:16] != b"\0\0\0\x0dIHDR" or len(head) < 24:
        return None
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


def _gif(head: bytes, source: Source) -> _Size:
    if len(head) < 10:
        return None
    return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")


def _webp(head: bytes, source: Source) -> _Size:
    chunk = head[12:16]
    if chunk == b"VP8X" and len(head) == _HEADER_BYTES:
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if chunk == b"VP8L" and head[20:21] == b"\x2f" and len(head) >= 25:
        bits = int.from_bytes(head[21:25], "little")
        return (bits & _WIDTH_14_BITS) + 1, (bits >> 14 & _WIDTH_14_BITS) + 1
    if chunk == b"VP8 " and head[23:26] == b"\x9d\x01\x2a" and len(head) == _HEADER_BYTES:
        sizes = int.from_bytes(head[26:28], "little"), int.from_bytes(head[28:30], "little")
        return sizes[0] & _WIDTH_14_BITS, sizes[1] & _WIDTH_14_BITS
    return None


def _jpeg(head: bytes, source: Source) -> _Size:
    """From segment to segment up to the frame header; a thumbnail inside of one is passed over with it."""
    at = 2
    for _ in range(MAX_SEGMENTS):
        segment = source.read(at, 9)
        if len(segment) < 9 or segment[0] != 0xFF:
            return None
        marker = segment[1]
        if marker == 0xFF:  # fill
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD7:  # these have no length
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # frame headers, but for tables among them
            return int.from_bytes(segment[7:9], "big"), int.from_bytes(segment[5:7], "big")
        elif marker < 0xC0 or marker in (0xD8, 0xD9, 0xDA):  # the data, or the end, before any frame
            return None
        else:
            at += 2 + int.from_bytes(segment[2:4], "big")
    return None


_SIZES: Mapping[Kind, Callable[[bytes, Source], _Size]] = {"png": _png, "jpeg": _jpeg, "webp": _webp, "gif": _gif}
