"""A watch between `asyncio.timeout` scopes: each keeps to its own cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from gateway.core.errors import NON_STREAM_TIMEOUT, SHUTDOWN, UpstreamFailed
from tests.support.virtual_time import START_S
from tests.unit.pipeline.scene import at, elapsed_s, virtual_loop
from tests.unit.pipeline.watches import LIMIT_S, cancelling, silence, watching


async def ending(exchange: Awaitable[object]) -> tuple[str, int, float]:
    """How *exchange* ended in this task: by what, how many cancellations are left, when."""
    try:
        await exchange
    except BaseException as exc:
        return type(exc).__name__, cancelling(), elapsed_s()
    return "well", cancelling(), elapsed_s()


async def within(limit_s: float, step: Awaitable[object]) -> None:
    async with asyncio.timeout(limit_s):
        await step


async def test_an_outer_timeout_that_is_over_first() -> None:
    """It is a TimeoutError for those who set it, and the watch lets it pass."""
    watch = watching()

    assert await ending(within(50.0, watch.until(silence))) == ("TimeoutError", 0, 50.0)


async def test_an_outer_timeout_that_is_never_over() -> None:
    """The deadline inside is not taken for it."""
    watch = watching()

    assert await ending(within(150.0, watch.until(silence))) == ("UpstreamFailed", 0, LIMIT_S)


@pytest.mark.parametrize("first", ["timeout", "deadline"])
async def test_an_outer_timeout_in_the_turn_of_the_deadline(first: str) -> None:
    """It wins, as whoever is further out does."""
    watch = watching()
    if first == "deadline":
        await watch.until(lambda: asyncio.sleep(0))

    assert await ending(within(LIMIT_S, watch.until(silence))) == ("TimeoutError", 0, LIMIT_S)


async def test_an_outer_timeout_and_the_client_in_the_turn_of_the_deadline() -> None:
    """Of three in one turn the client's cancellation is what remains."""
    watch = watching()
    task = asyncio.create_task(ending(within(LIMIT_S, watch.until(silence))))
    virtual_loop().call_at(START_S + LIMIT_S, task.cancel)

    assert await task == ("CancelledError", 1, LIMIT_S)


async def test_an_inner_timeout() -> None:
    """One that a step sets for itself is the step's own business."""
    watch = watching()

    assert await ending(watch.until(lambda: within(5.0, silence()))) == ("TimeoutError", 0, 5.0)


async def test_an_inner_timeout_in_the_turn_of_an_interruption() -> None:
    """The interruption wins: the step was cut short, however it would have ended."""
    watch = watching()
    virtual_loop().call_at(START_S + 5.0, watch.interrupt, SHUTDOWN)

    async def step() -> None:
        try:
            await within(5.0, silence())
        except TimeoutError:
            await silence()

    with pytest.raises(UpstreamFailed) as caught:
        await watch.until(step)

    assert (caught.value.failure, cancelling(), elapsed_s()) == (SHUTDOWN, 0, 5.0)


async def test_a_watch_inside_a_watch() -> None:
    """The inner one's deadline is its own; the outer one goes on and keeps its own for later."""
    outer, inner = watching(), watching()
    inner.deadline_s = START_S + 10.0

    async def step() -> str:
        with pytest.raises(UpstreamFailed):
            await inner.until(silence)
        await at(20.0)
        return "went on"

    assert (await outer.until(step), elapsed_s(), cancelling()) == ("went on", 20.0, 0)
    with pytest.raises(UpstreamFailed) as caught:
        await outer.until(silence)
    assert (caught.value.failure, elapsed_s()) == (NON_STREAM_TIMEOUT, LIMIT_S)


async def test_a_step_that_swallows_our_wake_up() -> None:
    """Its result counts, and the cancellation is taken back all the same."""
    watch = watching()

    async def step() -> str:
        try:
            await silence()
        except asyncio.CancelledError:
            return "deaf"
        return "never"

    result = await watch.until(step)
    await asyncio.sleep(0)

    assert (result, cancelling(), elapsed_s()) == ("deaf", 0, LIMIT_S)
