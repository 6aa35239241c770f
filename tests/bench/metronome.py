"""A clock for paced streams: one Linux timerfd whose beats are spread over the interval.

The event loops' own timers have a resolution of a millisecond, so that 5,000 events a second would leave in bunches of
five and share a proxy's wake-ups; real providers' events do not.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from typing import Protocol

INTERVAL_MS = 20
_SLOTS = 100
_STRIDE = 61  # coprime to 100: streams that join one after another land far apart, and 100 of them get a slot each
_SLOT_NS = INTERVAL_MS * 1_000_000 // _SLOTS
_CLOCK_MONOTONIC = 1  # linux/time.h
_libc = ctypes.CDLL(None, use_errno=True)


class Beaten(Protocol):
    """Something that acts once an interval."""

    def beat(self) -> None:
        """Act now; must not raise."""


class Metronome:
    """Calls every member once in 20 ms, each in its own 200 µs slot; costs nothing while there is no member."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._slots: list[dict[Beaten, None]] = [{} for _ in range(_SLOTS)]
        self._home: dict[Beaten, int] = {}
        self._joined = 0
        self._at = 0
        self._fd = _libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        loop.add_reader(self._fd, self._tick)

    def join(self, member: Beaten) -> None:
        """Beat *member* from now on, first after one slot to one interval."""
        self._joined += 1
        slot = self._joined * _STRIDE % _SLOTS
        self._slots[slot][member] = None
        self._home[member] = slot
        if len(self._home) == 1:
            self._period(_SLOT_NS)

    def leave(self, member: Beaten) -> None:
        """Forget *member*, known or not."""
        slot = self._home.pop(member, None)
        if slot is None:
            return
        del self._slots[slot][member]
        if not self._home:
            self._period(0)

    def close(self) -> None:
        """Stop for good; twice is as good as once."""
        if self._fd < 0:
            return
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1

    def _period(self, nanoseconds: int) -> None:
        if self._fd < 0:  # closed; connections still end and leave
            return
        spec = struct.pack("4q", 0, nanoseconds, 0, nanoseconds)  # struct itimerspec: interval, first; zero disarms
        if _libc.timerfd_settime(self._fd, 0, spec, None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def _tick(self) -> None:
        try:
            (expired,) = struct.unpack("Q", os.read(self._fd, 8))
        except BlockingIOError:  # disarmed after the loop had seen it ready
            return
        for _ in range(min(expired, _SLOTS)):  # later than a whole interval: those beats are lost, not queued
            self._at = (self._at + 1) % _SLOTS
            for member in tuple(self._slots[self._at]):
                member.beat()
