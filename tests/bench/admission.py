"""
What admission and settlement cost: `python -m tests.bench.admission`.

Prints microseconds of this process's time for a key of each kind, counted in process and over a Redis of its own, and
how many admissions that Redis takes.
"""

from __future__ import annotations

import asyncio
import time

from gateway.aio import Tasks
from gateway.core.accounts import Budget, Burst, Key
from gateway.core.ports import Admitted, Draw, Order, Spent
from gateway.storage.memory import MemoryCounters, NoSpending
from gateway.storage.redis_counters import RedisCounters
from gateway.storage.redis_upkeep import NOBODY, SharingRules
from tests.support.books import USD, key
from tests.support.redis import server

CALLS = 5_000
AT_ONCE = 64
KEYS = {
    "no limit": key("none"),
    "rpm": key("rate", rpm=10**8),
    "rpm, burst, tpm, inflight": key("rates", rpm=10**8, burst=Burst(9, 1), tpm=10**12, inflight=10**6),
    "the same and a budget": key("money", rpm=10**8, inflight=10**6, budgets=(Budget("key", "month", 10**6 * USD),)),
    "and three budgets": key(
        "more", rpm=10**8, budgets=tuple([Budget("key", period, 10**6 * USD) for period in ("day", "week", "month")])
    ),
}


async def one(counters: MemoryCounters | RedisCounters, mine: Key, number: int) -> None:
    order = Order(mine, f"req_{number:032x}", tokens=50, nano_usd=Draw(1000, 1000))
    admitted = await counters.admit(order)
    assert isinstance(admitted, Admitted)
    counters.settle(order.request_id, Spent(20, 0, 500))


async def measure(counters: MemoryCounters | RedisCounters, mine: Key) -> tuple[float, float]:
    """Microseconds of CPU, and of the clock, per call with `AT_ONCE` of them."""
    await one(counters, mine, CALLS)
    cpu_s, wall_s = time.process_time(), time.perf_counter()

    async def some(first: int) -> None:
        for number in range(first, CALLS, AT_ONCE):
            await one(counters, mine, number)

    async with asyncio.TaskGroup() as group:
        for first in range(AT_ONCE):
            group.create_task(some(first))
    return (time.process_time() - cpu_s) / CALLS * 1e6, (time.perf_counter() - wall_s) / CALLS * 1e6


async def main() -> None:
    local = MemoryCounters(time.time)
    print(f"{'in process':32}{'us':>8}")
    for name, mine in KEYS.items():
        print(f"{name:32}{(await measure(local, mine))[0]:8.1f}")
    with server() as redis:
        shared = RedisCounters(
            redis.url, NoSpending(), SharingRules(timeout_s=10, rejoin_ms=0), Tasks(lambda name, exc: None),
            clock_s=time.time, workers=1, observer=NOBODY,
        )  # fmt: skip
        await shared.start()
        print(f"{'over Redis':32}{'us':>8}{'calls/s':>10}")
        for name, mine in KEYS.items():
            cpu_us, wall_us = await measure(shared, mine)
            print(f"{name:32}{cpu_us:8.1f}{1e6 / wall_us:10.0f}")
        await shared.close()


if __name__ == "__main__":
    asyncio.run(main())
