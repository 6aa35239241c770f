"""Counters over a real Redis, as processes use them: what becomes of what others hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from gateway.aio import Tasks
from gateway.core.accounts import Budget, Scope
from gateway.core.ports import Admitted, Booked, Draw, Order, Spending, Spent
from gateway.policy.entitlement import entitlement
from gateway.policy.verdict import Open, Part
from gateway.storage.memory import NoSpending
from gateway.storage.redis_counters import RedisCounters
from gateway.storage.redis_script import settle
from gateway.storage.redis_upkeep import NOBODY, Observer, SharingRules
from tests.support.books import USD, key
from tests.support.redis import Redis, server

RULES = SharingRules(timeout_s=0.1, rejoin_ms=100)
MINE = key("mine", budgets=(Budget("key", "total", USD),))
SOON_S = 20.0


class Ledger:
    """What has been charged, long ago: by whose calls is told of those that are asked for."""

    def __init__(self, **charged: int) -> None:
        self.charged = charged

    async def booked(self, scope: Scope, owner: str, since_ms: int, ids: Collection[str]) -> Booked:
        return Booked(sum(self.charged.values()), 0, tuple(name for name in self.charged if name in ids))


@asynccontextmanager
async def process(
    redis: Redis, spending: Spending | None = None, rules: SharingRules = RULES, observer: Observer = NOBODY
) -> AsyncIterator[RedisCounters]:
    """What one process has of the counters."""
    tasks = Tasks(lambda name, exc: None)
    counters = RedisCounters(
        redis.url, spending or NoSpending(), rules, tasks, clock_s=time.time, workers=2, observer=observer
    )  # fmt: skip
    await counters.start()
    yield counters
    await counters.close()
    await tasks.drain(1)


async def stands(counters: RedisCounters) -> tuple[object, object]:
    (row,) = (await counters.usage_limits(MINE))["data"]  # type: ignore[misc]
    return row["used"], row["held"]


@pytest.mark.parametrize("what", ["account:key:mine:total", "epoch", "open"])
async def test_something_else_under_a_name_of_the_counters(what: str) -> None:
    """It keeps its contents under another name, which is told, and calls pass again; what is held still is."""
    told: list[tuple[str, str]] = []
    with server() as redis:
        async with process(redis, observer=Observer(displaced=lambda *names: told.append(names))) as counters:
            assert isinstance(await counters.admit(Order(MINE, "r1", nano_usd=Draw(USD // 2, USD // 2))), Admitted)

            redis.command("SET", f"{{anoman}}:{what}", "theirs")
            async with asyncio.timeout(SOON_S):
                order = Order(MINE, "r2", nano_usd=Draw(1000, 1000))
                while not isinstance(await counters.admit(order), Admitted):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
                while await stands(counters) != ("0.000000", "0.500001"):  # noqa: ASYNC110 - it is told again
                    await asyncio.sleep(0.05)

            ((name, new_name),) = told
            assert name == f"{{anoman}}:{what}"
            assert redis.command("GET", new_name) == "theirs"
            for request_id in ("r1", "r2"):
                counters.settle(request_id, Spent())


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


async def test_who_looks_waits_for_what_is_told_again() -> None:
    """Counters are lost, and limits are looked at before a process has told them again of a call that has been in the
    ledger for long: it counts once."""
    ledger = Ledger(r1=1_000)
    (account,) = entitlement(MINE, None).accounts
    told_again = settle(Open("r1", "mine", parts=(Part(account, 0, 0),), epoch=1), Spent(nano_usd=1_000))
    with server() as redis:
        async with process(redis, ledger, replace(RULES, rejoin_ms=1_500)) as looker, asyncio.timeout(SOON_S):
            redis.flush()
            looking = asyncio.create_task(stands(looker))
            await asyncio.wait({looking}, timeout=0.3)  # it is to wait, so there is nothing else to be awaited
            await looker._upkeep.ask(told_again)

            assert await looking == ("0.000001", "0.000000")
            assert await stands(looker) == ("0.000001", "0.000000")
