"""What processes hold in Redis, by their names: what one that died leaves to whoever takes its journal over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from gateway.aio import Tasks
from gateway.core.accounts import Budget
from gateway.core.ports import Draw, Order, Spent
from gateway.storage.memory import NoSpending
from gateway.storage.redis_counters import RedisCounters
from gateway.storage.redis_upkeep import NOBODY, SharingRules
from tests.support.books import key
from tests.support.redis import Redis, server

KEY = key("money", budgets=(Budget("key", "month", 1_000),))


@pytest.fixture
def redis() -> Iterator[Redis]:
    with server() as running:
        yield running


async def counters(redis: Redis, owner: str) -> RedisCounters:
    """Those of the process *owner*."""
    rules, tasks = SharingRules(rejoin_ms=0, owner=owner), Tasks(lambda name, exc: None)
    made = RedisCounters(
        redis.url, NoSpending(), rules, tasks, clock_s=lambda: 0.0, workers=2, observer=NOBODY
    )  # fmt: skip
    await made.start()
    return made


def order(name: str) -> Order:
    return Order(KEY, name, nano_usd=Draw(100, 100))


async def test_by_name(redis: Redis) -> None:
    """Each process's own, as long as they are held, also where the counters were lost and told again."""
    one, two = await counters(redis, "one"), await counters(redis, "two")
    for who, name in ((one, "a"), (one, "b"), (two, "c")):
        await who.admit(order(name))
    before = await two.held_by("one")
    redis.flush()
    async with asyncio.timeout(10):
        while await two.held_by("one") != {"a", "b"}:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.05)
    one.settle("a", Spent())
    after = await one.held_by("one"), await one.held_by("two"), await one.held_by("three")
    await one.close()
    await two.close()

    assert (before, after) == ({"a", "b"}, ({"b"}, {"c"}, frozenset()))


async def test_another_ones_while_away(redis: Redis) -> None:
    """What is settled for a process that died, while Redis is away, is told when it is there again."""
    one, two = await counters(redis, "one"), await counters(redis, "two")
    await one.admit(order("a"))
    await one.close()

    redis.freeze()
    await two.admit(order("b"))
    async with asyncio.timeout(10):
        while not two._upkeep.is_blind:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)
    two.settle("a", Spent())
    redis.thaw()
    async with asyncio.timeout(10):
        while two._upkeep.is_blind:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)
    held = await two.held_by("one")
    await two.close()

    assert held == frozenset()
