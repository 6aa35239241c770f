"""A watch cuts a step short when it must, and takes back every cancellation that was its own."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.errors import NON_STREAM_TIMEOUT, SHUTDOWN, Failure, UpstreamFailed
from gateway.pipeline.watch import JsonWatch
from tests.support.virtual_time import START_S
from tests.unit.pipeline.scene import at, elapsed_s, virtual_loop
from tests.unit.pipeline.watches import LIMIT_S, cancelling, failure_of, silence, watching


async def test_a_step_in_time() -> None:
    """Its result is handed on; an exception of its own is, too."""
    watch = watching()

    async def broken() -> None:
        await at(2.0)
        raise KeyError("its own")

    result = await watch.until(lambda: asyncio.sleep(1.0, "done"))
    with pytest.raises(KeyError, match="its own"):
        await watch.until(broken)

    assert (result, elapsed_s(), cancelling()) == ("done", 2.0, 0)


async def test_the_deadline() -> None:
    """A step is cut short at the deadline, no cancellation is left over, and the next await is not disturbed."""
    watch = watching()

    failure = await failure_of(watch)
    await asyncio.sleep(1.0)

    assert (failure, elapsed_s(), cancelling()) == (NON_STREAM_TIMEOUT, LIMIT_S + 1, 0)


async def test_no_step_begins_after_the_deadline() -> None:
    """What is over is over, also for a step that would not wait."""
    watch = watching()
    begun: list[float] = []

    async def step() -> None:
        begun.append(elapsed_s())

    await watch.until(step)
    await at(LIMIT_S)
    with pytest.raises(UpstreamFailed):
        await watch.until(step)

    assert begun == [0.0]


async def test_one_timer_for_a_deadline_that_moves() -> None:
    """Moving it away arms nothing; the timer fires early, is armed once more, and the step is not begun anew."""
    watch = watching()
    begun: list[float] = []

    async def step() -> None:
        begun.append(elapsed_s())
        for _ in range(200):
            await asyncio.sleep(1.0)
            watch.deadline_s = START_S + elapsed_s() + LIMIT_S

    await watch.until(step)

    assert (begun, virtual_loop().timers_of(watch)) == ([0.0], [100.0, 199.0, 298.0])


async def test_a_nearer_wake_up_replaces_the_timer() -> None:
    """Arming for later than is armed changes nothing; arming for earlier wins."""
    watch = watching()

    async def step() -> None:
        watch.arm(START_S + 200.0)
        watch.deadline_s = START_S + 50.0
        watch.arm(watch.deadline_s)
        await silence()

    with pytest.raises(UpstreamFailed):
        await watch.until(step)

    assert (elapsed_s(), virtual_loop().timers_of(watch)) == (50.0, [100.0, 50.0])


async def test_many_steps_share_the_timer() -> None:
    """It outlives the step for which it was armed, and is gone with the watch."""
    watch = watching()

    for _ in range(50):
        await watch.until(lambda: asyncio.sleep(1.0))
    left = virtual_loop().waiting_for(JsonWatch)
    watch.close()
    watch.close()

    assert (virtual_loop().timers_of(watch), left) == ([100.0], [100.0])
    assert virtual_loop().waiting_for(JsonWatch) == []


async def test_a_timer_that_fires_between_two_steps() -> None:
    """It has nobody to wake up then; the next step is refused all the same."""
    watch = watching()

    await watch.until(lambda: asyncio.sleep(1.0))
    await asyncio.sleep(500.0)

    assert (await failure_of(watch), cancelling()) == (NON_STREAM_TIMEOUT, 0)


@pytest.mark.parametrize("when_s", [0.0, 7.0])
async def test_an_interruption_of_a_step(when_s: float) -> None:
    """It ends the step in the same instant; a second one changes nothing."""
    watch = watching()
    for _ in range(2):
        virtual_loop().call_later(when_s, watch.interrupt, SHUTDOWN)

    failure = await failure_of(watch)
    again = await failure_of(watch)

    assert (failure, again, elapsed_s(), cancelling()) == (SHUTDOWN, SHUTDOWN, when_s, 0)


async def test_an_interruption_between_two_steps() -> None:
    """No further step begins."""
    watch = watching()
    await watch.until(lambda: asyncio.sleep(1.0))

    watch.interrupt(SHUTDOWN)

    assert (await failure_of(watch), elapsed_s()) == (SHUTDOWN, 1.0)


async def test_who_cut_the_step() -> None:
    """Within the step that is cut one can see by what; before, afterwards and for strangers there is nothing to see."""
    watch = watching()
    seen: list[Failure | None] = []

    async def step() -> None:
        seen.append(watch.cut_by)
        try:
            await silence()
        finally:
            seen.append(watch.cut_by)

    with pytest.raises(UpstreamFailed):
        await watch.until(step)
    seen.append(watch.cut_by)
    other = watching()
    stranger = asyncio.create_task(other.until(silence))
    await asyncio.sleep(0)
    stranger.cancel()
    await asyncio.wait([stranger])

    assert seen == [None, NON_STREAM_TIMEOUT, None]
    assert other.cut_by is None
