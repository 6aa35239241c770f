"""The virtual loop itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.support.virtual_time import MAX_TURNS, Standstill, VirtualLoop


def test_an_hour_passes_at_once() -> None:
    """Sleepers wake in the order of their times, each exactly on time, and nobody waits for it."""
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, sleep_s: float) -> None:
        await asyncio.sleep(sleep_s)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        woken.append((name, loop.elapsed_s))

    async def three() -> None:
        await asyncio.gather(sleeper("late", 3600.0), sleeper("soon", 0.25), sleeper("later", 60.0))

    started_s = time.monotonic()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(three())

    assert woken == [("soon", 0.25), ("later", 60.0), ("late", 3600.0)]
    assert time.monotonic() - started_s < 60


async def _wait_for_nobody() -> None:
    await asyncio.Event().wait()


async def _never_let_time_come() -> None:
    for _ in range(2 * MAX_TURNS):
        await asyncio.sleep(0)


@pytest.mark.parametrize("hang", [_wait_for_nobody, _never_let_time_come])
def test_what_would_hang_is_an_error(hang: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A test of it ends with a word about the reason, not by its timeout."""
    with pytest.raises(Standstill), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(hang())


def test_who_armed_what() -> None:
    """Timers are known by the object whose method they call, and whether they are still to fire."""

    class Bell:
        def ring(self) -> None:
            pass

    async def arm() -> tuple[list[float], list[float], list[float]]:
        loop, bell = asyncio.get_running_loop(), Bell()
        assert isinstance(loop, VirtualLoop)
        loop.call_later(1.0, bell.ring)
        loop.call_later(2.0, bell.ring).cancel()
        loop.call_later(3.0, bell.ring)
        await asyncio.sleep(1.5)
        return loop.timers_of(bell), loop.waiting_for(Bell), loop.timers_of(loop)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        known = runner.run(arm())

    assert known == ([1.0, 2.0, 3.0], [3.0], [])
