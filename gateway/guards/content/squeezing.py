"""Texts without what only widens them: blanks behind a blank, and what stands between letters that are spelled out."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right

import re2

# Three letters or more, each by itself: `b.o.m.b`, `b o m b`. Python's own engine takes thirty times as long for them
# as for blanks, so it only has to look where there are some.
_SPELLED = r"\b[a-z](?:(?: [a-z]){2,}|(?:\.[a-z]){2,}|(?:\*[a-z]){2,})\b"
_IS_SPELLED = re2.compile(_SPELLED)
_BLANKS = re.compile(r" {2,}")
_ALL = re.compile(rf" {{2,}}|{_SPELLED}")


def _narrow(wide: re.Match[str]) -> str:
    return wide[0][0] if wide[0][1] == wide[0][0] else wide[0][::2]


class Squeezed:
    """
    A squeezed text, and where its characters come from.

    Attributes:
        text: Never longer than the original.
    """

    __slots__ = ("_original", "_runs", "_wide", "text")

    def __init__(self, original: str) -> None:
        self._original = original
        self._runs: tuple[array[int], array[int]] | None = None
        self._wide = _BLANKS if _IS_SPELLED.search(original) is None else _ALL
        self.text = self._wide.sub(_narrow, original)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The place in the original of what stands from *start* to *end*; it is not empty."""
        if len(self.text) == len(self._original):
            return start, end
        return self._origin(start), self._origin(end - 1) + 1

    def _origin(self, place: int) -> int:
        if self._runs is None:
            self._runs = self._map()
        squeezed, original = self._runs
        at = bisect_right(squeezed, place) - 1
        return original[at] + place - squeezed[at]

    def _map(self) -> tuple[array[int], array[int]]:
        """Where runs begin in which nothing was left out: in the squeezed text, and in the original."""
        squeezed, original = array("q", (0,)), array("q", (0,))
        left_out = 0
        for wide in self._wide.finditer(self._original):
            if wide[0][1] == " " == wide[0][0]:
                kept = [wide.end()]
                left_out += len(wide[0]) - 2
            else:
                kept = list(range(wide.start() + 2, wide.end(), 2))
            for place in kept:
                left_out += 1
                squeezed.append(place - left_out)
                original.append(place)
        return squeezed, original
