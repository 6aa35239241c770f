"""JSON text in ASCII, so that no client can cut, re-split or mis-decode it."""

from __future__ import annotations

import re
from json.encoder import encode_basestring_ascii

import msgspec

from gateway.wire.values import decode_values

# On to the next character that JSON itself escapes: a call for each wide one took 0.3 s per megabyte of some languages.
_WIDE = re.compile(r'[^\x00-\x7f][^\x00-\x1f"\\\x7f]*')
# A string up to its closing quote, or to the end when it has none: possessive and never failing, so linear.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_CONTROLS = {chr(code): f"\\u{code:04x}" for code in range(0x20)}
# Behind an odd number of backslashes: no escape, and none may come of it.
_ESCAPED_CONTROL = re.compile(r"(?<!\\)\\(?:\\\\)*+[\x00-\x1f]")
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)

MAX_MEND_BYTES = 1 << 20  # an event's own limit by default; mending that much takes 0.02-0.4 s


def ascii_json(payload: bytes) -> bytes:
    r"""The same JSON with every character outside ASCII as `\uXXXX`, astral ones as surrogate pairs.

    Bytes that are not UTF-8 become `\ufffd`. The very same object when there is nothing to do.
    """
    if payload.isascii():
        return payload
    return _escape(payload.decode("utf-8", "replace"))


def mend_json(payload: bytes) -> bytes | None:
    r"""Upstream JSON that a strict decoder refuses but that can be understood, as ASCII JSON it accepts.

    Mended are a BOM, bytes that are not UTF-8, raw control characters in strings (escaped) and lone surrogate escapes
    (`\ufffd`; halves of a pair in two payloads cannot be joined). Everything else, numbers and spaces included, stays
    as it was spelled.

    Returns:
        None when it is no JSON even so: NaN and Infinity, integers too long, nesting too deep to decode, text. And
        when it is longer than `MAX_MEND_BYTES`.
    """
    if len(payload) > MAX_MEND_BYTES:
        return None
    text = _STRING.sub(_mend_string, payload.decode("utf-8-sig", "replace"))
    try:
        decode_values(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return _escape(text)


def _escape(text: str) -> bytes:
    return _WIDE.sub(lambda run: encode_basestring_ascii(run[0])[1:-1], text).encode("ascii")


def _mend_string(string: re.Match[str]) -> str:
    text = string[0]
    if "\\u" in text:
        text = _ESCAPE.sub(_mend_escape, text)
    if _CONTROL.search(text) is None or _ESCAPED_CONTROL.search(text) is not None:
        return text
    # Character by character of the alphabet: up to 32 passes, where a call for each hit would take five times as long.
    for control in _CONTROLS.keys() & set(text):
        text = text.replace(control, _CONTROLS[control])
    return text


def _mend_escape(escape: re.Match[str]) -> str:
    return r"\ufffd" if escape.lastgroup == "lone" else escape[0]
