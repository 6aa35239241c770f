"""Texts without what only widens them: blanks behind a blank, and what stands between letters that are spelled out."""

from __future__ import annotations

import re

import re2

from gateway.guards.origins import Origins

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

    __slots__ = ("_original", "_origins", "_wide", "text")

    def __init__(self, original: str) -> None:
        self._original = original
        self._origins: Origins | None = None
        self._wide = _BLANKS if _IS_SPELLED.search(original) is None else _ALL
        self.text = self._wide.sub(_narrow, original)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The place in the original of what stands from *start* to *end*; it is not empty."""
        if len(self.text) == len(self._original):
            return start, end
        if self._origins is None:
            self._origins = self._map()
        return self._origins.span(start, end)

    def _map(self) -> Origins:
        origins, left_out = Origins(), 0
        for wide in self._wide.finditer(self._original):
            is_blank = wide[0][1] == wide[0][0]
            left_out += len(wide[0]) - 2 if is_blank else 0
            for place in (wide.end(),) if is_blank else range(wide.start() + 2, wide.end(), 2):
                left_out += 1
                origins.begin(place - left_out, place)
        return origins
