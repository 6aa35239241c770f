"""Texts as engines compare them: without what characters can be dressed in, and with the way back to the original.

Every character is folded by itself, whatever stands beside it. So a text can be folded in slices, and where a folded
character comes from is known without a table for the whole text.
"""

from __future__ import annotations

import re
import sys
import unicodedata

from gateway.core.guarding import Check, never_late
from gateway.guards.lookalikes import BOXED, LOOKALIKES
from gateway.guards.origins import Origins

SLICE_CHARS = 32 * 1024
"""How much to fold at once, where a deadline is to be looked at in between: about 3 ms at worst."""

LONGEST = 6
"""What a character becomes at most, in characters; two ligatures that are whole Arabic phrases lose their ends."""

_FOREIGN = re.compile(r"[^\x00-\x7f]+")
# Marks and format characters: zero-width ones, soft hyphens, direction, variation, tags. They show little or nothing.
_UNSEEN = frozenset(("Mn", "Me", "Cf"))
_FILLERS = "\u115f\u1160\u3164\uffa0"  # letters of Hangul by category, but blank
_SPACES = frozenset(("Zs", "Zl", "Zp"))
_PLAIN = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u02bc\u02b9\u2032\u00b4", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u30fb", "-"),
    "\u2800": " ",  # a braille cell without dots
    "\u0085": "\n",
    "\u2028": "\n",
    "\u2029": "\n",
}
_LOOKALIKES = LOOKALIKES | {chr(code): letter for code, letter in BOXED.items()}


def _fold_char(char: str) -> str:
    """What is left of *char*: compatibility forms resolved, without marks, in lower case; a look-alike as Latin."""
    plain = _PLAIN.get(char)
    if plain is not None:
        return plain
    if "\ud800" <= char <= "\udfff":  # half a pair, which no encoder takes
        return "\ufffd"
    bare = "".join(
        part
        for part in unicodedata.normalize("NFKD", char)
        if part not in _FILLERS and unicodedata.category(part) not in _UNSEEN
    )
    folded = unicodedata.normalize("NFKC", bare).casefold()[:LONGEST]
    return "".join(
        " " if unicodedata.category(part) in _SPACES else _PLAIN.get(part, _LOOKALIKES.get(part, part))
        for part in folded
    )


class _Table(dict[int, str]):
    """Foldings of the characters met so far; at most one for each code point."""

    def __missing__(self, code: int) -> str:
        folded = self[code] = sys.intern(_fold_char(chr(code)))
        return folded


_TABLE = _Table()


def _fold_run(run: re.Match[str]) -> str:
    return run[0].translate(_TABLE)


class Folded:
    """
    A folded text, and where its characters come from.

    Attributes:
        text: In lower case; never longer than `LONGEST` times the original, and as long for nearly all there is.
    """

    __slots__ = ("_original", "_origins", "text")

    def __init__(self, original: str, check: Check) -> None:
        self._original = original
        self._origins: Origins | None = None
        if original.isascii():
            self.text = original.lower()
            return
        slices = []
        for start in range(0, len(original), SLICE_CHARS):
            check()
            slices.append(_FOREIGN.sub(_fold_run, original[start : start + SLICE_CHARS]).lower())
        self.text = "".join(slices)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The place in the original of what stands from *start* to *end* of the folded text; it is not empty."""
        if self._original.isascii():
            return start, end
        if self._origins is None:
            self._origins = self._map()
        return self._origins.span(start, end)

    def _map(self) -> Origins:
        origins, shift = Origins(), 0
        for run in _FOREIGN.finditer(self._original):
            for place, char in enumerate(run[0], run.start()):
                length = len(_TABLE[ord(char)])
                if length == 1:
                    continue
                if length > 1:  # a run of its own
                    origins.begin(place + shift, place)
                shift += length - 1
                origins.begin(place + 1 + shift, place + 1)
        return origins


def fold(text: str, check: Check = never_late) -> Folded:
    """
    *text* without what its characters can be dressed in: NFKC, unseen ones, accents, look-alikes, case.

    Args:
        check: Called between slices; what it raises goes through.
    """
    return Folded(text, check)
