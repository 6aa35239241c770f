"""A stretch of text around words that matter: which terms stand where in it, and what rules make of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from msgspec import Struct

from gateway.guards.content.lexicon import Need, Rule

EXCUSED = 0.5
"""What is left of the score of a finding that something near it excuses."""


class Hit(Struct, frozen=True, gc=False):
    """A term in a text, by its place, and the groups that it stands in."""

    start: int
    end: int
    groups: tuple[int, ...]


class Reach(Struct, frozen=True, gc=False):
    """
    How far off from a core's beginning things are looked for, in characters.

    Attributes:
        behind: Of all that counts, where it has to end.
    """

    need: int
    excuse: int
    behind: int


class Scene:
    """Where terms of each group stand: of those inside of one another the longest, and none inside of a saying."""

    __slots__ = ("_ends", "_reach", "_starts")

    def __init__(self, hits: Iterable[Hit], hiding: frozenset[int], reach: Reach) -> None:
        self._reach = reach
        self._starts: dict[int, list[int]] = {}
        self._ends: dict[int, list[int]] = {}
        for hit in _seen(hits, hiding):
            for group in hit.groups:
                ends = self._ends.setdefault(group, [])
                if not ends or ends[-1] < hit.end:
                    ends.append(hit.end)
                    self._starts.setdefault(group, []).append(hit.start)

    def places(self, group: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Where terms of *group* begin and end, in order: those that end at *first* or later, and before *last*."""
        ends = self._ends.get(group, [])
        for at in range(bisect_left(ends, first), bisect_left(ends, last)):
            yield self._starts[group][at], ends[at]

    def score(self, rule: Rule, start: int, end: int) -> float:
        """How much *rule* makes of a core at that place; 0 where something is missing that it needs."""
        for need in rule.needs:
            if not self._has(need, start, end):
                return 0.0
        far, behind = self._reach.excuse, start + self._reach.behind
        for group in rule.excuses:
            if self._stands(group, start - far, end + far, behind):
                return rule.score * EXCUSED
        return rule.score

    def _has(self, need: Need, start: int, end: int) -> bool:
        """Whether a term of one of its groups stands where it may."""
        far, behind = self._reach.need, start + self._reach.behind
        first = start - min(need.before, far) if need.before >= 0 else start + 1
        last = end + min(need.behind, far) if need.behind >= 0 else start
        return any(self._stands(group, first, last, behind) for group in need.groups)

    def _stands(self, group: int, first: int, last: int, behind: int) -> bool:
        """Whether a term of *group* ends at *first* or later, and before *behind*, and begins at *last* or before."""
        ends = self._ends.get(group)
        if ends is None:
            return False
        at = bisect_left(ends, first)
        return at < len(ends) and ends[at] <= behind and self._starts[group][at] <= last


def _seen(hits: Iterable[Hit], hiding: frozenset[int]) -> list[Hit]:
    """Hits by their places, without those inside of a saying."""
    seen: list[Hit] = []
    start = end = -1
    for hit in sorted(hits, key=lambda hit: (hit.start, -hit.end)):
        if hit.end <= end and (hit.start, hit.end) != (start, end):
            continue
        if hit.end > end and not hiding.isdisjoint(hit.groups):
            start, end = hit.start, hit.end
        seen.append(hit)
    return seen
