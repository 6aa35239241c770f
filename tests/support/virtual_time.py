"""An event loop whose time is virtual: when nobody has anything left to do, it is at once as late as the next timer.

Minutes pass in microseconds, and every run is the same. Choose times that binary fractions can hold (whole seconds,
quarters): then what is due at an instant is due exactly then.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

Ts = TypeVarTuple("Ts")

START_S = 1000.0  # not 0, so that a forgotten start is noticed
MAX_TURNS = 10_000  # of one instant; more is a loop that waits for a time that it never lets come


class Standstill(RuntimeError):
    """Time cannot go on: everybody waits for somebody else, or somebody is busy for ever."""


class _Selector(selectors.DefaultSelector):
    """Never waits. `idle` is told, with what the loop would have waited, that nothing was ready."""

    idle: Callable[[float | None], None]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            self.idle(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """
    Raises `Standstill` out of `run_until_complete` where a real loop would hang.

    Attributes:
        timers: Every timer that was ever armed, and the object whose method it calls.
    """

    def __init__(self) -> None:
        self._now_s = START_S
        self._turns = 0
        self.timers: list[tuple[asyncio.TimerHandle, object]] = []
        selector = _Selector()
        selector.idle = self._idle
        super().__init__(selector)

    def time(self) -> float:
        return self._now_s

    @property
    def elapsed_s(self) -> float:
        """Seconds since the loop was made."""
        return self._now_s - START_S

    def timers_of(self, owner: object) -> list[float]:
        """The instants, in seconds since the start, for which *owner* armed timers; in the order of arming."""
        return [timer.when() - START_S for timer, whose in self.timers if whose is owner]

    def waiting_for(self, kind: type) -> list[float]:
        """The instants, as above, for which objects of *kind* have timers that are still to fire."""
        waiting = [timer for timer, whose in self.timers if isinstance(whose, kind) and not timer.cancelled()]
        return [timer.when() - START_S for timer in waiting if timer.when() > self._now_s]

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = super().call_at(when, callback, *args, context=context)
        self.timers.append((timer, getattr(callback, "__self__", None)))
        return timer

    def _idle(self, timeout_s: float | None) -> None:
        if timeout_s is None:
            raise Standstill(f"at {self.elapsed_s} s everybody waits for somebody else")
        if timeout_s > 0:
            self._now_s += timeout_s
            self._turns = 0
            return
        self._turns += 1
        if self._turns > MAX_TURNS:
            self._turns = 0  # there is some cleaning up to be done
            raise Standstill(f"at {self.elapsed_s} s somebody is busy for ever")
