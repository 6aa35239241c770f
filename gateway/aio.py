"""Tracked tasks: the only place of the project that creates one.

The event loop itself keeps weak references only, so an untracked task can vanish half way, and the exception of a task
that nobody awaits is told to nobody until the garbage collector finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
Report = Callable[[str, BaseException], None]

TURNS = 4  # parts of a patience
# What is here already may wait behind the last timer in one turn of a busy loop.
LAST_LOOK_S = 0.005
CANCEL_GRACE_S = 0.5  # a task that was cancelled has cleaned up within one turn of the loop, or it never will


async def together(steps: Iterable[Callable[[], Awaitable[T]]], *, at_once: int) -> list[T]:
    """
    What *steps* give, in their order, while *at_once* of them run. None of them outlives the call.

    Raises:
        BaseException: What the first of those that failed did; the others are cancelled.
    """
    gate = asyncio.Semaphore(at_once)

    async def run(step: Callable[[], Awaitable[T]]) -> T:
        async with gate:
            return await step()

    tasks = [asyncio.create_task(run(step)) for step in steps]
    if not tasks:
        return []
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        failed = [task for task in tasks if task.done() and not task.cancelled() and task.exception() is not None]
        left = [task for task in tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
            for task in left:
                task.cancelled() or task.exception()  # seen: it failed while it was cancelled
    return [task.result() for task in failed or tasks]


class Patience:
    """
    Calls *then* when *seconds* have passed in which this loop was there to see what comes, unless it is cancelled.

    While the loop is held up, by a callback or by a machine that is busy with others, a timer goes on; nothing is read
    meanwhile, and nothing written. So the time is waited for in parts: each of them, however late its end is noticed,
    counts for no more than itself, and between any two the loop has looked.
    """

    __slots__ = ("_left", "_loop", "_part_s", "_then", "_timer")

    def __init__(self, seconds: float, then: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._part_s = seconds / TURNS
        self._left = TURNS
        self._then = then
        self._timer = self._loop.call_later(self._part_s, self._turn)

    def cancel(self) -> None:
        """Have nothing called any more."""
        self._timer.cancel()

    def _turn(self) -> None:
        self._left -= 1
        if self._left < 0:
            self._then()
        else:
            self._timer = self._loop.call_later(self._part_s if self._left else LAST_LOOK_S, self._turn)


class Tasks:
    """
    A set of running tasks.

    Args:
        report: Called with a task's name and its exception as soon as the task has died of it; also when somebody
            awaits the task. Cancellation is no exception in this sense. Must not raise.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run *coro* as a task of the running loop, referenced until it is done."""
        task = asyncio.create_task(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        exc = task.exception()  # also marks it as retrieved
        if exc is not None:
            self._report(task.get_name(), exc)

    def tell(self, name: str, exc: Exception) -> None:
        """Report *exc* as that of the task *name*, which lives on."""
        self._report(name, exc)

    async def drain(self, timeout_s: float) -> None:
        """
        Wait until no task is left, those spawned meanwhile included; after *timeout_s* cancel the rest and wait for it.

        A task that is not done `CANCEL_GRACE_S` after its cancellation is reported as a `TimeoutError` and left alone.
        A task may drain its own set: it does not wait for itself.
        """
        await self._settle(timeout_s)
        for task in self._others():
            task.cancel()
        await self._settle(CANCEL_GRACE_S)
        for task in self._others():
            self._report(task.get_name(), TimeoutError("still running after its cancellation"))

    async def _settle(self, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while (tasks := self._others()) and (left_s := deadline_s - loop.time()) > 0:
            await asyncio.wait(tasks, timeout=left_s)
            await asyncio.sleep(0)  # done callbacks run in the next turn of the loop

    def _others(self) -> list[asyncio.Task[Any]]:
        current = asyncio.current_task()
        return [task for task in self._tasks if task is not current and not task.done()]
