"""
Whether who holds a claim still lives, by looking at it again and again.

A living process renews its claims. Whether it still does is told by the looker's own monotonic clock, never by the time
of day, which may be put forward by an hour while everybody lives.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

Place = tuple[str, bytes]
"""Tenant and name of a claim."""
Version = tuple[str, int]
"""Its request and when that was renewed last: another one after each renewal."""

MOST = 1_000  # claims of other processes that are looked at; beyond, the oldest begin again. Some 0.5 KB each
# Of the lease, that counts at most between two looks. When all have stood still, the database or the machine, a third
# may have counted before, the pause between renewals; what is left is more than such a pause.
_PART = 0.25


@dataclass(slots=True)
class _Sighting:
    version: Version
    seen_s: float
    unchanged_s: float = 0.0


class Sightings:
    """
    Args:
        clock_s: Monotonic seconds.
        lease_s: How long a claim that is not renewed is its holder's.
    """

    def __init__(self, clock_s: Callable[[], float], lease_s: float) -> None:
        self._clock_s = clock_s
        self._lease_s = lease_s
        self._seen: OrderedDict[Place, _Sighting] = OrderedDict()

    @property
    def places(self) -> list[Place]:
        """Of the claims that were looked at."""
        return list(self._seen)

    def is_lost(self, place: Place, version: Version) -> bool:
        """Whether the claim at *place*, which was just read, was the same for a lease."""
        now_s, seen = self._clock_s(), self._seen.get(place)
        if seen is None or seen.version != version:
            self._seen[place] = _Sighting(version, now_s)
            if len(self._seen) > MOST:
                self._seen.popitem(last=False)
            return False
        seen.unchanged_s += min(now_s - seen.seen_s, self._lease_s * _PART)
        seen.seen_s = now_s
        return seen.unchanged_s >= self._lease_s

    def forget(self, place: Place) -> None:
        """It is not claimed any more, or by us."""
        self._seen.pop(place, None)
