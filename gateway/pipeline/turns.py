"""Who may use the threads of guards, and when: by turns, so that one tenant's long texts make nobody else wait."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 3  # scans hold the interpreter, of which the streams of all clients need their part: not many more
EACH = 1  # of one tenant: more at a time would end no sooner


class Turns:
    """
    Threads for work, a few at a time, and fewer of one owner. Those who wait get a turn owner by owner.

    Args:
        threads: As many as `at_once`, at the least: whoever has a turn has a thread.
        each: How many turns one owner may have at a time.
    """

    def __init__(self, threads: Executor, at_once: int = AT_ONCE, each: int = EACH) -> None:
        self._threads = threads
        self._free = at_once
        self._each = each
        self._running: dict[str, int] = {}
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def run(self, owner: str, work: Callable[[], T], wait_s: float | None, most_s: float | None) -> T:
        """
        What *work* gives in a thread.

        Args:
            wait_s: How long it may wait for its turn.
            most_s: How long it may take from then on. The turn ends with the work, however long that goes on.

        Raises:
            TimeoutError: It had no turn in time, and was not begun; or it was not done in time.
        """
        async with asyncio.timeout(wait_s):
            await self._turn(owner)
        loop = asyncio.get_running_loop()

        def ended(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._give_back, owner)

        try:
            future = self._threads.submit(work)
        except BaseException:
            self._give_back(owner)
            raise
        future.add_done_callback(ended)
        async with asyncio.timeout(most_s):
            return await asyncio.wrap_future(future)

    async def _turn(self, owner: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        self._hand_out()
        try:
            await turn
        except BaseException:
            if turn.cancelled():
                self._leave(owner, turn)
            else:
                self._give_back(owner)
            raise

    def _leave(self, owner: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiting[owner]
        queue.remove(turn)
        if not queue:
            del self._waiting[owner]

    def _give_back(self, owner: str) -> None:
        self._free += 1
        left = self._running.pop(owner) - 1
        if left:
            self._running[owner] = left
        self._hand_out()

    def _hand_out(self) -> None:
        """Give the turns that are free to those who wait; whoever has got one stands behind all other owners."""
        for owner in tuple(self._waiting) if self._free else ():
            if not self._free:
                return
            queue = self._waiting[owner]
            turn = next((one for one in queue if not one.done()), None)
            if turn is None or self._running.get(owner, 0) >= self._each:
                continue
            queue.remove(turn)
            self._waiting.pop(owner)
            if queue:
                self._waiting[owner] = queue
            self._free -= 1
            self._running[owner] = self._running.get(owner, 0) + 1
            turn.set_result(None)
