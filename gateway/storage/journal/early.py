"""Admissions that are written while limits are being asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from gateway.core.booking import Admission
from gateway.core.exchange import Place


class Granted(Place, Protocol):
    """A place that has to know whether its exchange was let in."""

    def granted(self, admission: Admission) -> None:
        """Limits have let in what was begun before, as *admission*; the journal is told of that without a wait."""


class Early:
    """
    The port `core.exchange.Begun`.

    Args:
        answered: Returns when the record is kept, or raises StoreUnavailable.
    """

    __slots__ = ("_answered", "_place", "admission")

    def __init__(self, admission: Admission, place: Granted, answered: Callable[[], Awaitable[None]]) -> None:
        self.admission = admission
        self._place = place
        self._answered = answered

    async def kept(self, admission: Admission) -> Place:
        """See the port."""
        await self._answered()
        self._place.granted(admission)
        return self._place
