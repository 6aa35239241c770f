"""Base64 in a body that is still one piece of bytes: where it stands, whether it is sound, and the body without it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gateway.core.held import Held

MIN_PAYLOAD_BYTES = 64 * 1024  # shorter ones cost the parser less than they would cost here
WINDOW_BYTES = 1 << 20  # of base64 judged in one go: 0.8 ms (measured)

_STRIDE = MIN_PAYLOAD_BYTES // 2  # so that a payload has at least one whole stride without a quote
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_MAX_HEAD_BYTES = 512  # of a data URL: a media type has up to 255 characters (RFC 6838), its parameters a few more
# Those that nobody here decodes. A text is decoded on its way to another dialect.
_HEAD = re.compile(rb"data:(?:image/[^,]*|application/pdf[^,]*);base64\Z", re.IGNORECASE)
_DATA_BEFORE = re.compile(rb'"data"[ \t\r\n]{0,32}:[ \t\r\n]{0,32}"\Z')  # the member that holds base64 in both dialects
_BEFORE_BYTES = len(b'"data":"') + 64  # as far back as that can reach

Span = tuple[int, int]


def payloads(body: bytes) -> Iterator[Span]:
    """Where *body* has long data URLs of pictures and PDFs, and long members `data`: what may be base64, and no more.

    Linear, and a look at one byte in many: strings are found by the quotes that are missing.
    """
    at = behind = 0
    while at < len(body):
        if body.find(b'"', at, at + _STRIDE) >= 0:
            at += _STRIDE
            continue
        start = body.rfind(b'"', behind, at) + 1
        end = body.find(b'"', at + _STRIDE)
        if end < 0:
            return
        payload = _payload_start(body, start, end) if start else None
        if payload is not None and end - payload >= MIN_PAYLOAD_BYTES:
            yield payload, end
        at = behind = end + 1


def unpadded(data: bytes, start: int, end: int) -> int | None:
    """Where the padding of the base64 in *data* begins (RFC 4648, 4); None where its length is that of no base64."""
    if start == end or (end - start) % 4:
        return None
    padding = data[end - 2 : end]
    return end - (2 if padding == b"==" else padding.endswith(b"="))


def is_plain(data: bytes) -> bool:
    """Whether *data* has nothing but characters of base64 without padding."""
    return not data.translate(None, _ALPHABET)


def is_base64(data: bytes) -> bool:
    """Whether all of *data* is base64, padding included."""
    end = unpadded(data, 0, len(data))
    return end is not None and is_plain(data[:end])


def take_out(body: bytes, spans: Sequence[Span], mark: str) -> tuple[bytes, Held]:
    """*body* with tokens of *mark* where *spans* of base64 stood, and those. What parses the one parses the other."""
    view = memoryview(body)
    held = Held(mark, tuple(view[start:end] for start, end in spans))
    pieces: list[bytes] = []
    behind = 0
    for position, (start, end) in enumerate(spans):
        pieces += (body[behind:start], held.token(position).encode())
        behind = end
    return b"".join((*pieces, body[behind:])), held


def _payload_start(body: bytes, start: int, end: int) -> int | None:
    """Where the base64 of the string from *start* to *end* would begin; None where nothing says that it is some."""
    comma = body.find(b",", start, min(end, start + _MAX_HEAD_BYTES))
    if comma >= 0:
        return comma + 1 if _HEAD.match(body, start, comma) else None
    return start if _DATA_BEFORE.search(body, max(0, start - _BEFORE_BYTES), start) else None
