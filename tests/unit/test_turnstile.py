"""How many requests begin before the loop looks at its sockets again."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.http.turnstile import STARTS, STARTS_PER_S, Turnstile


class Turns:
    """Counts the turns of the loop, and which requests began in which."""

    def __init__(self) -> None:
        self.number = 0
        self.began: list[tuple[int, int]] = []
        self._running = True
        self._loop = asyncio.get_running_loop()
        self._next()

    def _next(self) -> None:
        self.number += 1
        if self._running:
            self._loop.call_soon(self._next)

    def stop(self) -> None:
        self._running = False

    async def request(self, turnstile: Turnstile, name: int, work_s: float = 0.0) -> None:
        await turnstile.enter()
        self.began.append((self.number, name))
        time.sleep(work_s)  # noqa: ASYNC251  # what holds the loop is what is tested


def in_each(began: list[tuple[int, int]]) -> list[int]:
    turns = [turn for turn, _ in began]
    return [turns.count(turn) for turn in dict.fromkeys(turns)]


async def test_what_comes_together_begins_two_by_two_and_in_its_order() -> None:
    turnstile, turns = Turnstile(), Turns()

    await asyncio.gather(*(turns.request(turnstile, name) for name in range(9)))

    turns.stop()
    assert [name for _, name in turns.began] == list(range(9))
    assert in_each(turns.began) == [STARTS] * 4 + [1]


async def test_a_few_do_not_wait() -> None:
    turnstile, turns = Turnstile(), Turns()
    asked: list[int] = []

    async def request(name: int) -> None:
        asked.append(turns.number)
        await turns.request(turnstile, name)

    await asyncio.gather(*(request(name) for name in range(STARTS)))
    await asyncio.sleep(0.01)
    await request(9)

    turns.stop()
    assert [turn for turn, _ in turns.began] == asked


async def test_a_latecomer_does_not_overtake() -> None:
    turnstile, turns = Turnstile(), Turns()
    tasks = [asyncio.create_task(turns.request(turnstile, name)) for name in range(6)]
    for _ in range(2):
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(turns.request(turnstile, len(tasks))))

    await asyncio.gather(*tasks)

    turns.stop()
    assert [name for _, name in turns.began] == list(range(8))
    assert max(in_each(turns.began)) == STARTS


async def test_who_has_left_takes_no_place() -> None:
    turnstile, turns = Turnstile(), Turns()
    tasks = [asyncio.create_task(turns.request(turnstile, name)) for name in range(6)]
    await asyncio.sleep(0)
    for task in tasks[2:4]:
        task.cancel()

    await asyncio.gather(*tasks, return_exceptions=True)

    turns.stop()
    assert [name for _, name in turns.began] == [0, 1, 4, 5]
    assert in_each(turns.began) == [STARTS, 2]


@pytest.mark.parametrize("busy_s", [0.05, 0.1])
async def test_requests_have_their_share_where_other_work_makes_the_turns_long(busy_s: float) -> None:
    turnstile, turns = Turnstile(), Turns()
    loop = asyncio.get_running_loop()
    began_before: list[int] = []

    def work() -> None:
        began_before.append(len(turns.began))
        time.sleep(busy_s)
        if len(began_before) < 3:
            loop.call_soon(work)

    loop.call_soon(work)
    await asyncio.gather(*(turns.request(turnstile, name) for name in range(400)))

    turns.stop()
    assert in_each(turns.began)[1] >= int(busy_s * STARTS_PER_S)
