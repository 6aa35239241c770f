"""Small pictures, written by hand, byte for byte as their specifications have them."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping


def chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int = 3, height: int = 2) -> bytes:
    """A black PNG; one that is large claims its size and has no pixels."""
    rows = b"".join(b"\0" + bytes(width) for _ in range(height)) if width * height < 10_000 else b""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def segment(marker: int, data: bytes) -> bytes:
    """A segment of a JPEG."""
    return bytes((0xFF, marker)) + struct.pack(">H", len(data) + 2) + data


def jpeg(width: int = 3, height: int = 2, before: bytes = b"", marker: int = 0xC0) -> bytes:
    """The head of a JPEG, with *before* between its first segment and the frame header; it has no scan."""
    frame = struct.pack(">BHHB", 8, height, width, 1) + b"\x01\x11\0"
    return b"\xff\xd8" + segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0") + before + segment(marker, frame) + b"\xff\xd9"


def webp(width: int = 3, height: int = 2, kind: bytes = b"VP8X") -> bytes:
    """The head of a WebP of each of its three kinds."""
    if kind == b"VP8X":
        body = b"\0\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    elif kind == b"VP8L":
        body = b"\x2f" + (width - 1 | height - 1 << 14).to_bytes(4, "little") + bytes(5)
    else:
        body = b"\x10\0\0\x9d\x01\x2a" + struct.pack("<HH", width | 0x4000, height | 0x8000)  # with scales
    return b"RIFF" + struct.pack("<I", len(body) + 12) + b"WEBP" + kind + struct.pack("<I", len(body)) + body


def gif(width: int = 3, height: int = 2, frames: int = 1) -> bytes:
    """
    A GIF of two colours whose frames are one pixel of the screen each: red, then green.

    The pixel is coded as LZW with codes of three bits: clear, the colour, end.
    """
    screen = struct.pack("<HHBBB", width, height, 0x80, 0, 0) + b"\xff\0\0" + b"\0\xff\0"
    out = b"GIF89a" + screen
    for number in range(frames):
        codes = 4 | number % 2 << 3 | 5 << 6
        out += b"\x21\xf9\x04\x04\x0a\0\0\0" + b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0)
        out += b"\x02\x02" + codes.to_bytes(2, "little") + b"\0"
    return out + b"\x3b"


MADE: Mapping[str, Callable[[], bytes]] = {"png": png, "jpeg": jpeg, "webp": webp, "gif": gif}


def b64(picture: bytes) -> str:
    return b64encode(picture).decode()


def data_url(picture: bytes, claim: str = "image/png") -> str:
    return f"data:{claim};base64,{b64(picture)}"


def image_url(url: str, **more: str) -> dict[str, object]:
    """A part of OpenAI's."""
    return {"type": "image_url", "image_url": {"url": url, **more}}


def image(picture: bytes, claim: str = "image/png") -> dict[str, object]:
    """A block of Anthropic's."""
    return {"type": "image", "source": {"type": "base64", "media_type": claim, "data": b64(picture)}}


def linked(url: str) -> dict[str, object]:
    """A block of Anthropic's."""
    return {"type": "image", "source": {"type": "url", "url": url}}
