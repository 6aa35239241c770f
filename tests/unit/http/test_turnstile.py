"""How many requests begin before the loop looks at its sockets again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from gateway.http.turnstile import MAX_STARTS, STARTS, Turnstile


class Loop:
    """Counts the turns of the loop, and notes which requests began in which; its clock goes by what work takes."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.turn = 0
        self.began: list[tuple[int, int]] = []
        self.turnstile = Turnstile(lambda: self.now_s)
        self._running = True
        self._loop = asyncio.get_running_loop()
        self._next()

    def _next(self) -> None:
        self.turn += 1
        if self._running:
            self._loop.call_soon(self._next)

    async def request(self, name: int, work_s: float = 0.0) -> None:
        await self.turnstile.enter()
        self.began.append((self.turn, name))
        self.now_s += work_s

    async def requests(self, names: Iterable[int], work_s: float = 0.0) -> None:
        """All at once, until the last has begun."""
        await asyncio.gather(*(self.request(name, work_s) for name in names))

    def stop(self) -> list[int]:
        """How many requests began in each of the turns in which any did."""
        self._running = False
        turns = [turn for turn, _ in self.began]
        return [turns.count(turn) for turn in dict.fromkeys(turns)]


async def test_what_comes_together() -> None:
    """It begins two by two and in its order."""
    loop = Loop()

    await loop.requests(range(9))

    assert loop.stop() == [STARTS] * 4 + [1]
    assert [name for _, name in loop.began] == list(range(9))


async def test_a_few_do_not_wait() -> None:
    """As many as may begin in one turn begin in the turn in which they come."""
    loop, asked = Loop(), list[int]()

    async def request(name: int) -> None:
        asked.append(loop.turn)
        await loop.request(name)

    await asyncio.gather(*(request(name) for name in range(STARTS)))
    for _ in range(3):
        await asyncio.sleep(0)
    await request(9)

    loop.stop()
    assert [turn for turn, _ in loop.began] == asked


async def test_a_latecomer() -> None:
    """It does not overtake those who wait."""
    loop = Loop()
    tasks = [asyncio.create_task(loop.request(name)) for name in range(6)]
    for _ in range(2):
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(loop.request(len(tasks))))

    await asyncio.gather(*tasks)

    assert max(loop.stop()) == STARTS
    assert [name for _, name in loop.began] == list(range(8))


async def test_who_has_left() -> None:
    """A request whose client is gone takes nobody's place."""
    loop = Loop()
    tasks = [asyncio.create_task(loop.request(name)) for name in range(6)]
    await asyncio.sleep(0)
    for task in tasks[2:4]:
        task.cancel()

    await asyncio.gather(*tasks, return_exceptions=True)

    assert loop.stop() == [STARTS, 2]
    assert [name for _, name in loop.began] == [0, 1, 4, 5]


@pytest.mark.parametrize(("busy_s", "starts"), [(0.001, STARTS), (0.0125, 6), (0.2, MAX_STARTS)])
async def test_turns_that_other_work_makes_long(busy_s: float, starts: int) -> None:
    """Requests have a share of the core beside it, up to a limit."""
    loop = Loop()
    waiting = asyncio.create_task(loop.requests(range(40)))

    while not waiting.done():
        loop.now_s += busy_s
        await asyncio.sleep(0)

    assert loop.stop()[2:4] == [starts] * 2


async def test_requests_that_take_their_time() -> None:
    """Turns that are long by their own work are no reason to let more of them in."""
    loop = Loop()

    await loop.requests(range(100), work_s=0.003)

    assert max(loop.stop()) == STARTS


async def test_after_a_long_turn() -> None:
    """Its allowance is its own: when nobody has come for a while, the next ones begin two by two again."""
    loop = Loop()
    await loop.request(0, work_s=0.2)
    for _ in range(4):
        await asyncio.sleep(0)
    loop.began.clear()

    await loop.requests(range(9))

    assert loop.stop() == [STARTS] * 4 + [1]
