"""Pictures by their headers: kind and size are read from the bytes, and nothing is decoded."""

from __future__ import annotations

import struct
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.pictures import MAX_SEGMENTS, BadPicture, Encoded, Look, Plain, look
from tests.support.pictures import MADE, chunk, gif, jpeg, png, segment, webp

EXIF = segment(0xE1, b"Exif\0\0" + jpeg(160, 120))  # with a thumbnail inside
PROFILE = segment(0xE2, bytes(65_000)) * 3
TABLES = segment(0xC4, bytes(30)) + segment(0xDB, bytes(65))


@pytest.mark.parametrize(
    ("picture", "seen"),
    [
        (png(640, 480), Look("png", 640, 480)),
        (png(2**31 - 1, 1), Look("png", 2**31 - 1, 1)),
        (jpeg(640, 480), Look("jpeg", 640, 480)),
        (jpeg(640, 480, EXIF + PROFILE + TABLES), Look("jpeg", 640, 480)),
        (jpeg(640, 480, b"\xff\xff\xff" + TABLES), Look("jpeg", 640, 480)),
        (jpeg(640, 480, b"\xff\x01"), Look("jpeg", 640, 480)),
        (jpeg(640, 480, marker=0xC2), Look("jpeg", 640, 480)),
        (webp(640, 480, b"VP8 "), Look("webp", 640, 480)),
        (webp(640, 480, b"VP8L"), Look("webp", 640, 480)),
        (webp(2**24, 2**24, b"VP8X"), Look("webp", 2**24, 2**24)),
        (webp(2**14, 2**14, b"VP8L"), Look("webp", 2**14, 2**14)),
        (gif(640, 480), Look("gif", 640, 480)),
        (gif(640, 480).replace(b"GIF89a", b"GIF87a"), Look("gif", 640, 480)),
    ],
)
def test_sizes(picture: bytes, seen: Look) -> None:
    """Each format's header says kind, width and height, in base64 as well as plain."""
    assert look(Plain(picture)) == seen
    assert look(Encoded(b64encode(picture))) == seen


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<svg/>",
        b"BM" + bytes(60),
        b"%PDF-1.7",
        b"II*\0" + bytes(40),
        b"RIFF....WAVE",
        b"\0\0\0\x18ftypheic",
        b"GIF90a",
    ],
)
def test_other_data(data: bytes) -> None:
    """What is none of the four formats is refused, other formats of pictures too."""
    with pytest.raises(BadPicture, match="no image in PNG, JPEG, WebP or GIF"):
        look(Plain(data))


@pytest.mark.parametrize(
    "picture",
    [
        png(0, 5),
        png(5, 0),
        png()[:20],
        b"\x89PNG\r\n\x1a\n" + chunk(b"IDAT", b""),
        jpeg(5, 0),
        jpeg()[:25],
        jpeg(before=b"\0\0\0\0"),
        jpeg(before=b"\0\xe1\0\x02"),
        jpeg(before=segment(0xDA, bytes(8))),
        jpeg(before=b"\xff\xd9" + bytes(9)),
        jpeg(before=segment(0xE1, b"") * MAX_SEGMENTS),
        b"\xff\xd8" + b"\xff" * 100_000,
        webp(kind=b"VP8L").replace(b"\x2f", b"\0"),
        webp(kind=b"VP8 ").replace(b"\x9d\x01\x2a", bytes(3)),
        webp().replace(b"VP8X", b"ALPH"),
        webp()[:29],
        webp(kind=b"VP8L")[:24],
        webp(kind=b"VP8 ")[:29],
        png(300, 300)[:23],
        gif(300, 300)[:9],
        gif(0, 5),
        b"GIF89a\1",
    ],
)
def test_damaged(picture: bytes) -> None:
    """A picture whose size is cut off, nothing, or nowhere to be found in a bounded search is refused."""
    with pytest.raises(BadPicture, match="damaged"):
        look(Plain(picture))


@given(st.sampled_from(sorted(MADE)), st.binary(max_size=60), st.integers(0, 60))
def test_any_bytes(kind: str, noise: bytes, at: int) -> None:
    """Whatever follows a magic number, the result is a size or a refusal."""
    picture = MADE[kind]()[:at] + noise
    try:
        seen = look(Plain(picture))
    except BadPicture:
        return

    assert seen.width > 0
    assert seen.height > 0


@given(st.binary(min_size=1, max_size=50), st.integers(0, 60), st.integers(0, 20))
def test_base64_is_read_where_it_is_asked_for(data: bytes, start: int, length: int) -> None:
    """A view of base64 reads like the bytes that it stands for."""
    encoded = Encoded(memoryview(b64encode(data)))

    assert encoded.size == len(data)
    assert encoded.read(start, length) == data[start : start + length]


def test_the_frame_header_is_big_endian() -> None:
    """The bytes of a JPEG's frame header are read as written by hand (ITU T.81, B.2.2)."""
    by_hand = b"\xff\xd8\xff\xc0" + struct.pack(">HBHH", 11, 8, 0x0102, 0x0304) + b"\x01\x01\x11\0"

    assert look(Plain(by_hand)) == Look("jpeg", 0x0304, 0x0102)
