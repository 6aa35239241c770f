"""What comes in one turn of the loop with a wake-up of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.core.errors import NON_STREAM_TIMEOUT, SHUTDOWN, Failure
from gateway.pipeline.watch import JsonWatch
from tests.support.virtual_time import START_S
from tests.unit.pipeline.scene import at, elapsed_s, virtual_loop
from tests.unit.pipeline.watches import LIMIT_S, cancelling, failure_of, silence, watching

Push = Callable[[JsonWatch, "asyncio.Task[int]"], object]


def client(watch: JsonWatch, task: asyncio.Task[int]) -> None:
    task.cancel()


def us(watch: JsonWatch, task: asyncio.Task[int]) -> None:
    watch.interrupt(SHUTDOWN)


@pytest.mark.parametrize(
    "pushes",
    [(client,), (client, us), (us, client), (us, client, us)],
    ids=lambda pushes: "-".join(push.__name__ for push in pushes),
)
async def test_the_clients_cancellation_wins(pushes: tuple[Push, ...]) -> None:
    """In the turn of the loop in which we cut the step too, before or after us: it stays one, and counts as one."""
    watch = watching()

    async def exchange() -> int:
        try:
            await watch.until(silence)
        except asyncio.CancelledError:
            return cancelling()
        return -1

    task = asyncio.create_task(exchange())
    await at(3.0)
    for push in pushes:
        push(watch, task)

    assert await task == 1


@pytest.mark.parametrize("first", ["client", "deadline"])
async def test_the_clients_cancellation_in_the_turn_of_the_deadline(first: str) -> None:
    """As above, with the timer itself; whichever was there first."""
    watch, left = watching(), []

    async def exchange() -> None:
        try:
            await watch.until(silence)
        except BaseException as exc:
            left.append((type(exc), cancelling(), elapsed_s()))

    task = asyncio.create_task(exchange())
    if first == "deadline":
        await asyncio.sleep(0)  # its timer is armed first
    virtual_loop().call_at(START_S + LIMIT_S, task.cancel)
    await asyncio.wait([task])

    assert left == [(asyncio.CancelledError, 1, LIMIT_S)]


async def test_a_cancellation_from_before_the_step() -> None:
    """One that was there already is no wake-up of ours; a step taken while it is being handled is watched as ever."""
    watch = watching()
    seen: list[tuple[Failure, int]] = []

    async def exchange() -> None:
        try:
            await silence()
        finally:
            seen.append((await failure_of(watch), cancelling()))

    task = asyncio.create_task(exchange())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    assert (seen, task.cancelled()) == ([(NON_STREAM_TIMEOUT, 1)], True)
