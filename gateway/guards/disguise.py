"""A text for engines that look for numbers and keys: digits of every script are digits, and nothing unseen is between.

Full-width letters and digits, digits of other scripts, and the many spaces, dashes and dots become their ASCII twins,
one character for one; characters that show nothing are left out. Unlike `folding` it keeps the case, which keys have,
and accents; and where nothing stands that could tear a number apart, which is nearly always, it costs one look.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right

import re2
from msgspec import Struct

_UNSEEN = "\u200b"  # stands for all of them until they are cut out
_UNSEEN_RANGES = (
    (0x00AD, 0x00AD),  # soft hyphen
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x180E, 0x180E),
    (0x200B, 0x200F),  # zero width, and marks of direction
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x20E3, 0x20E3),  # makes a key cap of the digit before it
    (0xFE00, 0xFE0F),  # variation selectors
    (0xFEFF, 0xFEFF),
    (0xE0000, 0xE007F),  # tags
)
_SPACES = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\ufe58\ufe63"
_DOTS = "\u2024\u3002\uff61\u00b7"


def _twins() -> dict[int, str]:
    # From U+0080 on: up to there every digit is its own twin.
    twins = {char: str(unicodedata.decimal(chr(char))) for char in range(0x80, 0x20000) if chr(char).isdecimal()}
    twins |= {char: chr(char - 0xFEE0) for char in range(0xFF01, 0xFF5F)}
    twins |= {ord(char): " " for char in _SPACES} | {ord(char): "-" for char in _DASHES}
    twins |= {ord(char): "." for char in _DOTS} | {0xFE6B: "@"}
    return twins | {char: _UNSEEN for first, last in _UNSEEN_RANGES for char in range(first, last + 1)}


_TWINS = _twins()
_ODD_CHARS = frozenset(map(chr, _TWINS))
_FEW = 16  # so many kinds of them are replaced one after the other faster than all of them in one pass


def _odd() -> str:
    """
    For RE2: finds whether a disguise could matter: most texts with a dash or an emoji need none.

    Only what stands behind a letter, digit or sign of ASCII can tear a number or a key apart.
    """
    unseen = "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in _UNSEEN_RANGES)
    marks = "".join(f"\\x{{{ord(char):x}}}" for char in _SPACES + _DASHES + _DOTS)
    letters = "".join(f"\\x{{{c:x}}}" for c, twin in _TWINS.items() if twin.isalnum() or 0xFF01 <= c < 0xFF5F)
    return f"[{letters}\\x{{fe6b}}]|[!-~][{unseen}]|[0-9][{marks}]"


ODD = _odd()
_ODD = re2.compile(ODD)


class Bare(Struct, frozen=True):
    """
    A text without disguise.

    Attributes:
        text: What engines read.
        starts: Where in it pieces begin, in order, between which something was left out; empty where nothing was.
        origins: Where each of those pieces begins in the text as it came.
    """

    text: str
    starts: tuple[int, ...] = ()
    origins: tuple[int, ...] = ()

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The place in the text as it came of what stands from *start* to *end*, which is at least one character."""
        return self._origin(start), self._origin(end - 1) + 1

    def _origin(self, place: int) -> int:
        piece = bisect_right(self.starts, place) - 1
        return place if piece < 0 else self.origins[piece] + place - self.starts[piece]


def undisguise(text: str) -> Bare:
    """*text* without disguise: itself, for all texts of ASCII, and for others where `ODD` does not stand."""
    if text.isascii() or _ODD.search(text.encode("utf-8", "replace")) is None:
        return Bare(text)
    odd = _ODD_CHARS.intersection(text)
    if len(odd) > _FEW:
        plain = text.translate(_TWINS)
    else:
        plain = text
        for char in odd:
            plain = plain.replace(char, _TWINS[ord(char)])
    if _UNSEEN not in plain:
        return Bare(plain)
    pieces, starts, origins = [], [], []
    place = 0
    for found in re.finditer(f"[^{_UNSEEN}]+", plain):
        pieces.append(found[0])
        starts.append(place)
        origins.append(found.start())
        place += len(found[0])
    return Bare("".join(pieces), tuple(starts), tuple(origins))


def lowered(text: str) -> str:
    """*text* in lower case, with every place where it was: the one letter whose small form is longer is taken for I."""
    return text.replace("\u0130", "I").lower()
