"""Tracked tasks: nothing is lost, nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import time
from functools import partial

import pytest

from gateway import aio
from gateway.aio import Patience, Tasks, together

Reports = list[tuple[str, BaseException]]


@pytest.fixture
def reports() -> Reports:
    return []


@pytest.fixture
def tasks(reports: Reports) -> Tasks:
    return Tasks(lambda name, exc: reports.append((name, exc)))


async def test_task_is_referenced_until_done(tasks: Tasks) -> None:
    """A task that nobody else refers to runs to its end, and is counted until then."""
    gate, passed = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        await gate.wait()
        passed.set()

    tasks.spawn(wait(), name="waiter")
    await asyncio.sleep(0)
    gc.collect()
    counted = len(tasks)
    gate.set()
    await passed.wait()
    await asyncio.sleep(0)

    assert [counted, len(tasks)] == [1, 0]


async def test_spawn_returns_the_task(tasks: Tasks) -> None:
    """What `spawn` returns can be awaited for the result and bears the name."""

    async def answer() -> int:
        return 42

    task = tasks.spawn(answer(), name="answer")

    assert (task.get_name(), await task) == ("answer", 42)


async def test_exception_is_reported_once(tasks: Tasks, reports: Reports) -> None:
    """An exception that nobody awaits reaches the callback, and the loop has nothing to complain of."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    boom = ValueError("boom")

    async def fail() -> None:
        raise boom

    tasks.spawn(fail(), name="failing")
    await tasks.drain(1)
    gc.collect()

    assert ([("failing", boom)], []) == (reports, complaints)


async def test_cancellation_is_silent(tasks: Tasks, reports: Reports) -> None:
    """A cancelled task is no failure."""
    task = tasks.spawn(asyncio.Event().wait(), name="waiter")
    await asyncio.sleep(0)
    task.cancel()
    await tasks.drain(1)

    assert (reports, len(tasks)) == ([], 0)


async def test_drain_waits_for_tasks_spawned_meanwhile(tasks: Tasks) -> None:
    """Draining ends when no task is left, not when those of its beginning are done."""
    done: list[str] = []

    async def second() -> None:
        await asyncio.sleep(0)
        done.append("second")

    async def first() -> None:
        await asyncio.sleep(0)
        tasks.spawn(second(), name="second")
        done.append("first")

    tasks.spawn(first(), name="first")
    await tasks.drain(5)

    assert (done, len(tasks)) == (["first", "second"], 0)


async def test_drain_cancels_the_rest_and_waits_for_its_cleanup(tasks: Tasks, reports: Reports) -> None:
    """At the time-out tasks are cancelled, and drain returns only when their cleanup has run."""
    cleaned: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("cleaned")

    tasks.spawn(stubborn(), name="stubborn")
    await tasks.drain(0.01)

    assert (cleaned, reports, len(tasks)) == (["cleaned"], [], 0)


async def test_drain_gives_up_on_a_task_that_ignores_cancellation(
    tasks: Tasks, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that will not die is reported instead of holding the shutdown for ever."""
    monkeypatch.setattr(aio, "CANCEL_GRACE_S", 0.01)
    gate = asyncio.Event()

    async def deaf() -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    task = tasks.spawn(deaf(), name="deaf")
    await asyncio.sleep(0)
    await tasks.drain(0.01)
    reported = [(name, type(exc)) for name, exc in reports]
    gate.set()
    await task

    assert [("deaf", TimeoutError)] == reported


async def test_a_task_may_drain_its_own_set(tasks: Tasks) -> None:
    """The draining task waits for the others, not for itself."""
    gate = asyncio.Event()
    tasks.spawn(gate.wait(), name="other")

    async def shut_down() -> int:
        gate.set()
        await tasks.drain(5)
        return len(tasks)

    left = await tasks.spawn(shut_down(), name="shutdown")

    assert left == 1


async def test_together_gives_what_each_gave() -> None:
    """Results come in the order of the steps, and no more than the bound run at once."""
    running, most = 0, 0

    async def step(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5 - number):
            await asyncio.sleep(0)
        running -= 1
        return number

    got = await together([partial(step, number) for number in range(5)], at_once=2)

    assert (got, most) == ([0, 1, 2, 3, 4], 2)
    assert await together([], at_once=2) == []


@pytest.mark.parametrize("leaves", [False, True])
async def test_together_leaves_nothing_behind(leaves: bool) -> None:
    """A failure, or whoever waits leaving, ends every step before it is heard of."""
    begun, ended = asyncio.Event(), []

    async def hang(number: int) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(number)
            raise ValueError("while it was cancelled")

    async def fail() -> None:
        if leaves:
            await asyncio.Event().wait()
        await begun.wait()
        raise KeyError("first")

    waiting = asyncio.ensure_future(together([partial(hang, 1), partial(hang, 2), fail], at_once=3))
    await begun.wait()
    if leaves:
        waiting.cancel()
    await asyncio.wait([waiting])

    assert ended == [1, 2]
    assert waiting.cancelled() if leaves else isinstance(waiting.exception(), KeyError)


async def test_patience_ends() -> None:
    """Where nothing comes, it is over after its time, and a cancelled one is not over at all."""
    loop, over = asyncio.get_running_loop(), list[float]()
    begun_s = loop.time()
    Patience(0.04, lambda: over.append(loop.time() - begun_s))
    Patience(0.04, lambda: over.append(-1.0)).cancel()

    await asyncio.sleep(0.2)

    assert len(over) == 1
    assert over[0] >= 0.04


async def test_patience_outlasts_our_own_lag() -> None:
    """What the loop was held up for is not counted as silence of others."""
    over: list[bool] = []
    patience = Patience(0.1, lambda: over.append(True))

    await asyncio.sleep(0)
    time.sleep(0.3)  # noqa: ASYNC251 - as a busy machine does
    await asyncio.sleep(0.02)
    patience.cancel()

    assert over == []
