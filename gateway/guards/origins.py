"""Where the characters of a changed text come from."""

from __future__ import annotations

from array import array
from bisect import bisect_right


class Origins:
    """Runs in which one character is one: where each begins in the changed text, and in the original."""

    __slots__ = ("_changed", "_original")

    def __init__(self) -> None:
        self._changed = array("q", (0,))
        self._original = array("q", (0,))

    def begin(self, place: int, original: int) -> None:
        """From *place* of the changed text on it is as from *original* on. Neither is less than of the run before."""
        self._changed.append(place)
        self._original.append(original)

    def of(self, place: int) -> int:
        """The character that the one at *place* comes from; the run's last one where the run has fewer."""
        at = bisect_right(self._changed, place) - 1
        origin = self._original[at] + place - self._changed[at]
        return min(origin, self._original[at + 1] - 1) if at + 1 < len(self._original) else origin

    def span(self, start: int, end: int) -> tuple[int, int]:
        """What the characters from *start* to *end*, at least one, come from."""
        return self.of(start), self.of(end - 1) + 1
