"""Addresses that send keys which are none, counted by the minute."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from msgspec import Struct

WINDOW_S = 60.0

# A client with a wrong key sends one request after the other, and its SDK does not retry a 401; sixty are a loop.
REFUSED_FROM = 60
# Beyond ten a second nobody's mistake is left, and what this process does not know is not looked up. Below it is: a
# good key that it has not seen must not suffer from what others behind the same address do.
UNHEARD_FROM = 600
MAX_ADDRESSES = 10_000  # of some 300 bytes each; with more at once the oldest are forgotten


class _Minute(Struct, frozen=True, gc=False):
    """Failures since the first one, which was at *opened_s*."""

    opened_s: float
    failures: int

    @property
    def ends_s(self) -> float:
        return self.opened_s + WINDOW_S


class Strangers:
    """
    Failed attempts of each address, in minutes that open with the first one.

    Args:
        clock_s: Monotonic seconds.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._minutes: OrderedDict[str, _Minute] = OrderedDict()  # in the order of opening

    def __len__(self) -> int:
        """Addresses held: what the memory bound is about."""
        return len(self._minutes)

    def failed(self, home: str) -> float | None:
        """An attempt of *home* has failed. Seconds until its minute is over, where it has had too many; else None."""
        now_s = self._clock_s()
        self._drop_ended(now_s)
        minute = self._minutes.get(home) or _Minute(now_s, 0)
        self._minutes[home] = minute = _Minute(minute.opened_s, minute.failures + 1)
        if len(self._minutes) > MAX_ADDRESSES:
            self._minutes.popitem(last=False)
        return minute.ends_s - now_s if minute.failures > REFUSED_FROM else None

    def unheard_s(self, home: str) -> float | None:
        """Seconds for which nothing unknown of *home* is looked up; None where it is."""
        now_s = self._clock_s()
        self._drop_ended(now_s)
        minute = self._minutes.get(home)
        return minute.ends_s - now_s if minute is not None and minute.failures >= UNHEARD_FROM else None

    def _drop_ended(self, now_s: float) -> None:
        minutes = self._minutes
        while minutes and now_s >= next(iter(minutes.values())).ends_s:
            minutes.popitem(last=False)
