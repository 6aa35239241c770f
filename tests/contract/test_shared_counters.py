"""Counters over a real Redis, as processes use them: what becomes of what others hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.aio import Tasks
from gateway.core.accounts import Budget
from gateway.core.ports import Admitted, Draw, Order, Spent
from gateway.storage.memory import NoSpending
from gateway.storage.redis_counters import RedisCounters
from gateway.storage.redis_upkeep import NOBODY, SharingRules
from tests.support.books import USD, key
from tests.support.redis import Redis, server

RULES = SharingRules(timeout_s=0.1, rejoin_ms=100)
MINE = key("mine", budgets=(Budget("key", "total", USD),))
SOON_S = 20.0


@asynccontextmanager
async def process(redis: Redis) -> AsyncIterator[RedisCounters]:
    """What one process has of the counters."""
    tasks = Tasks(lambda name, exc: None)
    counters = RedisCounters(
        redis.url, NoSpending(), RULES, tasks, clock_s=time.time, workers=2, observer=NOBODY
    )  # fmt: skip
    await counters.start()
    yield counters
    await counters.close()
    await tasks.drain(1)


async def stands(counters: RedisCounters) -> tuple[object, object]:
    (row,) = (await counters.usage_limits(MINE))["data"]  # type: ignore[misc]
    return row["used"], row["held"]


async def test_what_a_dead_process_holds_is_settled_when_redis_is_back() -> None:
    """Its journal is adopted while Redis is away: the hold does not run out, to be booked at the worst case."""
    with server() as redis:
        async with process(redis) as dead:
            order = Order(MINE, "r1", nano_usd=Draw(USD // 2, USD // 2))
            assert isinstance(await dead.admit(order), Admitted)
        async with process(redis) as living:
            redis.freeze()
            async with asyncio.timeout(SOON_S):
                while not living._upkeep.is_blind:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
                living.settle("r1", Spent(nano_usd=1_000))
                redis.thaw()
                while living._upkeep.is_blind or await stands(living) != ("0.000001", "0.000000"):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
