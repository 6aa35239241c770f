"""The forms of values in calls: what by its form is a name or a link, and what may be a text, whatever its member.

All take time that the length of what they look at decides.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error
from decimal import Decimal
from typing import Any

from msgspec import Raw

BEGINNING = 64
"""Characters of base64 by which a text is told from other files: 48 bytes."""
_LONG_DIGITS = 8  # fewer are nobody's number
_MOST_DIGITS = 40  # more neither
_NAME = re.compile(r"[A-Za-z0-9_+/=.,:;~|*#$!-]*+")
_NUMBER = re.compile(r"[0-9+/=.,:;~|*#$!-]*+")
_LINK = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}://\S*+")
_ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})")
_BASE64 = re.compile(r"[A-Za-z0-9+/_\r\n-]*+=*[\r\n]*+")
_URL_SAFE = str.maketrans("-_", "+/", "\r\n=")
# What no text has, in one byte a character.
_BINARY = frozenset(range(32)) - frozenset(b"\t\n\v\f\r\x1b")
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")
_WIDE_ENCODINGS = ("utf-16-le", "utf-16-be")
# A value of the API's own words: short names, small numbers, and what holds them together.
_QUIET = re.compile(
    rb'(?:"(?:[A-Za-z][\w.:/+=-]{0,38}|[0-9]{0,7})"|[\[\]{},:\s]|true|false|null|-?[0-9.]{1,7}(?![0-9.]))*+', re.ASCII
)
_STOP_CHARS = 32
_STOP_DIGITS = re.compile(r"[0-9]{6}")


def is_name(text: str, *, may_be_number: bool = False) -> bool:
    """Whether *text* has the form of a name of a program: a type, a signature. A long number has that of ids only."""
    if _NAME.fullmatch(text) is None:
        return False
    return may_be_number or len(text) < _LONG_DIGITS or _NUMBER.fullmatch(text) is None


def is_link(text: str) -> bool:
    """Whether *text* has the form of a URL."""
    return _LINK.fullmatch(text) is not None


def is_quiet(raw: Raw) -> bool:
    """Whether *raw* is made of words of an API: of short names and small numbers."""
    return _QUIET.fullmatch(bytes(raw)) is not None


def is_stop(value: Any) -> bool:
    """Whether *value* is a sequence to stop at, or a list of such: short, and nobody's address or number."""
    if isinstance(value, list):
        return all(isinstance(one, str) and is_stop(one) for one in value)
    if not isinstance(value, str):
        return value is None
    return len(value) <= _STOP_CHARS and "@" not in value and _STOP_DIGITS.search(value) is None


def long_number(node: Any) -> str | None:
    """The digits of *node* before its point, where it is a number with so many that it may be somebody's."""
    if type(node) is int:
        return str(node) if abs(node) >= 10 ** (_LONG_DIGITS - 1) else None
    if not isinstance(node, Raw):
        return None
    literal = bytes(node)
    if b"e" not in literal and b"E" not in literal and len(literal.partition(b".")[0]) < _LONG_DIGITS:
        return None
    try:
        value = Decimal(literal.decode())
    except ArithmeticError:  # an exponent that nothing can hold
        return None
    return str(int(value)) if _LONG_DIGITS <= value.adjusted() + 1 <= _MOST_DIGITS else None


def unescaped(text: str) -> str:
    """*text* with the characters that its escapes of JSON stand for."""
    plain = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_base64(data: str) -> bool:
    """Whether *data* is base64 of either alphabet, padded or not, in lines or not."""
    return data.isascii() and _BASE64.fullmatch(data) is not None


def decoded(data: str) -> bytes | None:
    """What *data* is the base64 of, as lenient programs read it."""
    plain = data.translate(_URL_SAFE)
    plain = plain[:-1] if len(plain) % 4 == 1 else plain
    try:
        return b64decode(plain + "=" * (-len(plain) % 4))
    except Error:
        return None


def begins_as_text(data: str) -> bool:
    """Whether base64 that begins with *data* may be that of a text."""
    content = decoded(data)
    if not content:
        return False
    return content[:2] in _WIDE_MARKS or _encoding(content) in _WIDE_ENCODINGS or _BINARY.isdisjoint(content)


def text_of_file(content: bytes) -> tuple[str, bool] | None:
    """The text that *content* is, and whether it is in UTF-8; None where it is no text."""
    encoding = _encoding(content)
    try:
        return content.decode(encoding), encoding == "utf-8"
    except UnicodeDecodeError:
        pass
    # Some other alphabet in single bytes; what is ASCII of it, as all that guards look for, is the same in all.
    return (content.decode("latin-1"), False) if _BINARY.isdisjoint(content) else None


def _encoding(content: bytes) -> str:
    """By its mark, or by where the zeros of Latin letters are."""
    if content[:2] in _WIDE_MARKS:
        return "utf-16"
    even, odd = content[0:BEGINNING:2], content[1:BEGINNING:2]
    if odd and not any(odd):
        return "utf-16-le"
    return "utf-16-be" if even and not any(even) else "utf-8"
