"""Bounded JSON of client requests: refused before it costs anything, and never read two ways (B7, B8, B9, H25)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from json import JSONDecoder
from math import isinf
from typing import Any

import msgspec

from gateway.wire.values import decode_members

# Strict about NaN, bad UTF-8, lone surrogates and raw controls; `decode_members` skips values unchecked. Floats come
# as the bytes of their literals: the decoder's own conversion takes 10 us for `1e300`, and their values are not needed.
_ANY = msgspec.json.Decoder(float_hook=str.encode)
_ENCODER = msgspec.json.Encoder()

MAX_DEPTH = 128  # agent bodies with tool schemas nest 20 to 30 deep, answers a dozen

_BOM = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1  # int64 and uint64: what providers and databases can hold exactly
# An exponent beyond a double's. Leading zeros could make up for it, but nobody writes 0.001e310. The literal prefix
# makes the search a memchr.
_BEYOND_DOUBLE = re.compile(rb"e\+?0*+(?:309|3[1-9]\d|[4-9]\d\d|[1-9]\d{3})")
_MAX_DIGITS = 309  # of the integer part of a double
_POSITION = re.compile(r"\(byte (\d+)\)")
# A string up to its closing quote, or to the end when it has none: possessive and never failing, so linear.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_STRUCTURAL = bytes(set(range(256)) - set(b"{}[],:"))
_STRIDE = 32 * 1024  # bytes counted between two leaps to the next hit; 64 and 16 KiB measured the same
_QUOTE_ESCAPE = b"\\u0022"
_MAX_PARAM_CHARS = 64  # longer keys are not worth repeating to the caller


class BadBody(Exception):
    """A body that is refused with 400.

    Attributes:
        message: One public sentence.
        param: The key at fault by its bare name, where there is one.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Bounds of what a body may make us do.

    Attributes:
        max_depth: Objects and arrays inside each other, the root included. Agent bodies with tool schemas need 20-30.
        max_structural: Braces, brackets, commas and colons outside strings (B9: 20 MB of tiny objects block 1 s).
    """

    max_depth: int = MAX_DEPTH
    max_structural: int = 200_000


def parse_object(body: bytes, limits: BodyLimits) -> dict[str, msgspec.Raw]:
    """The top-level members of *body*, in its order, values as the bytes they were sent as.

    Raises:
        BadBody: The body is not one JSON object in UTF-8 within *limits*, or has a key twice in one object at any
            depth (`"mod\\u0065l"` is `"model"`), an integer that 64 bits cannot hold, or a float whose exponent or
            integer part is beyond a double's.
    """
    _check_encoding(body)
    if structural(body, limits.max_structural) > limits.max_structural:
        raise BadBody("The request body has too many JSON elements.")
    try:
        root = _ANY.decode(body)
    except RecursionError:
        raise _too_deep() from None
    except msgspec.DecodeError as exc:
        raise _not_json(body, exc) from None
    if type(root) is not dict:
        raise BadBody("The request body must be a JSON object.")
    _check_unique(body, _strings(root, limits.max_depth))
    return decode_members(body)


def replace_members(
    fields: Mapping[str, msgspec.Raw], changes: Mapping[str, object], drop: frozenset[str] = frozenset()
) -> bytes:
    """The object of *fields* as JSON, with the members of *changes* put in and those named in *drop* left out.

    Order is kept, new members follow. Untouched values are byte-identical; keys are written without needless escapes.
    """
    members: dict[str, object] = {**fields, **changes}
    for name in drop:
        members.pop(name, None)
    return _ENCODER.encode(members)


def fits(value: object) -> bool:
    """Whether *value* can be written again; JSON's own integers have no bound, ours have 64 bits."""
    try:
        _ENCODER.encode(value)
    except (OverflowError, RecursionError):
        return False
    return True


def _check_encoding(body: bytes) -> None:
    if not body:
        raise BadBody("The request body is empty.")
    if body.startswith(_BOM):
        raise BadBody("The request body must be JSON in UTF-8 without a byte order mark.")
    # RFC 8259 texts start with two ASCII characters, so a NUL among the first two bytes is UTF-16 or UTF-32.
    if body.startswith(_UTF16_MARKS) or b"\0" in body[:2]:
        raise BadBody("The request body must be JSON in UTF-8.")


def _not_json(body: bytes, error: msgspec.DecodeError) -> BadBody:
    if isinstance(error, msgspec.ValidationError):  # of an untyped decoder: only numbers
        return _out_of_range()
    try:
        body.decode()
    except UnicodeDecodeError:
        return BadBody("The request body must be JSON in UTF-8.")
    position = _POSITION.search(str(error))
    return BadBody(f"The request body is not valid JSON (near byte {position[1] if position else len(body)}).")


def _out_of_range() -> BadBody:
    return BadBody("The request body has a number that is out of range.")


def _too_deep() -> BadBody:
    return BadBody("The request body is nested too deeply.")


def structural(body: bytes, enough: int) -> int:
    """Structural characters of *body* (braces, brackets, commas and colons outside strings).

    Instead of a number up to *enough*, it may be any upper bound that is not above *enough* either.

    Exact for valid JSON. In anything else it is exact up to the first error, which is as far as a decoder goes.
    """
    if len(body) <= enough:
        return len(body)
    # Cheap bound, strings counted too: closings match openings, and each colon has its comma or opening.
    bound = 3 * (_count(body, b"{") + _count(body, b"[")) + 2 * _count(body, b",")
    if bound <= enough:
        return bound
    # Each string of an object has its own comma, colon or opening before it: past *enough* strings all is said.
    skeleton = _STRING.sub(b"", body, enough + 1)
    return len(skeleton.translate(None, _NOT_STRUCTURAL))


def _count(body: bytes, char: bytes) -> int:
    """`body.count(char)` that leaps over long stretches without *char*: `find` is memchr, `count` is a loop."""
    total, start = 0, 0
    while start >= 0:
        total += body.count(char, start, start + _STRIDE)
        start = body.find(char, start + _STRIDE)
    return total


def _strings(root: dict[str, Any], max_depth: int) -> list[str]:
    """Every key and string under *root*.

    Raises:
        BadBody: It is nested deeper than *max_depth*, an integer does not fit 64 bits, or a float is out of range.
    """
    strings: list[str] = []
    floats: list[bytes] = []
    level: list[Any] = [root]
    depth = 0
    while level:
        depth += 1
        if depth > max_depth:
            raise _too_deep()
        below: list[Any] = []
        for node in level:
            if type(node) is dict:
                strings += node
                node = node.values()
            for value in node:
                kind = type(value)
                if kind is str:
                    strings.append(value)
                elif kind is dict or kind is list:
                    below.append(value)
                elif kind is bytes:
                    floats.append(value)
                elif kind is int and not _MIN_INT <= value <= _MAX_INT:
                    raise _out_of_range()
        level = below
    if floats and _any_beyond(floats):
        raise _out_of_range()
    return strings


def _any_beyond(floats: list[bytes]) -> bool:
    """Whether one of the literals is beyond a double by the digits of its integer part, or has an exponent that is."""
    if _BEYOND_DOUBLE.search(b",".join(floats).lower()):
        return True
    return any(isinf(float(literal)) for literal in floats if len(literal) > _MAX_DIGITS)


def _check_unique(body: bytes, strings: list[str]) -> None:
    """Refuse *body* when an object in it has a key twice.

    *strings* are the keys and strings that survived decoding, where the last of equal keys wins. The body has two
    quotes for each string plus one for each `\\"`; decoded, each `\\"` is a quote. A lost member takes its key's quotes
    along, and only `\\u0022` makes a decoded quote without one in the body. So without that escape the figures agree
    exactly when nothing was lost; with it, or when they differ, a slow and sure decoder has the last word.
    """
    expected, hidden = 2 * len(strings), -1
    first_escape = body.find(b"\\")
    if first_escape >= 0:
        expected += sum([text.count('"') for text in strings if '"' in text])
        hidden = body.find(_QUOTE_ESCAPE, first_escape, body.rfind(b"\\") + len(_QUOTE_ESCAPE))
    if hidden < 0 and expected == _count(body, b'"'):
        return
    try:
        _PAIRS.decode(body.decode())
    except RecursionError:  # in a member that decoding dropped
        raise _too_deep() from None


def _unique(pairs: Iterable[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            plain = key.isascii() and key.isprintable() and len(key) <= _MAX_PARAM_CHARS
            raise BadBody("An object in the request body has the same key twice.", key if plain else None)
        seen.add(key)


# Numbers stay text: the strict decoder has judged them already.
_PAIRS = JSONDecoder(object_pairs_hook=_unique, parse_int=str, parse_float=str)


_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def nested_deeper(payload: bytes, limit: int) -> bool:
    """Whether JSON is nested deeper than *limit*; a decoder's own bound depends on how deep its caller stands."""
    if payload.count(b"{") + payload.count(b"[") <= limit:
        return False
    depth = 0
    for bracket in _STRING.sub(b"", payload).translate(None, _NOT_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > limit:
            return True
    return False
