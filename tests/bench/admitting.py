"""
What a call waits for before its provider is asked (goal G12): `python -m tests.bench.admitting`.

Key, limits with a budget, and the durable record of the admission, by the gateway's own stages and stores, of 64 calls
at once whose provider takes a fifth of a second each. Embedded: SQLite, counters in process, journal on the disk;
served: PostgreSQL, Redis, journal on the disk. Prints milliseconds, and beside them those of the disk alone.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from gateway.aio import Tasks
from gateway.core.accounts import Budget
from gateway.core.call import CallOptions
from gateway.core.exchange import Exchange
from gateway.core.ports import Spent
from gateway.core.receipt import Tariff
from gateway.core.records import CLI, KeyDraft
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.pipeline.services import Clock
from gateway.pipeline.stages.admit import AdmissionRules, Admit
from gateway.pipeline.stages.choose import Choose
from gateway.pipeline.stages.record import Record
from gateway.settings import FileTerms
from gateway.storage.accounts import SqlAccounts
from gateway.storage.journal.carrying import Carrier, CarrierReports
from gateway.storage.journal.keeping import KeeperReports, SpoolKeeper, SpoolRules
from gateway.storage.journal.spool import Reports
from gateway.storage.open import Stores, Watchers, open_stores
from gateway.storage.redis_counters import RedisCounters
from gateway.storage.redis_upkeep import SharingRules
from gateway.storage.tables import metadata
from gateway.storage.writing import BookWriter
from tests.support.postgres import cluster
from tests.support.redis import server
from tests.unit.admissions import ended
from tests.unit.pipeline.scene import MODES, catalog, route

AT_ONCE, PROVIDER_S, RUN_S, WARM_S = 64, 0.2, 10.0, 2.0
USD = 10**9
BODY = b'{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"Apa kabar? What is there to see?"}]}'
LIMITS = {"rpm": 10**6, "inflight": 1000}


@dataclass(frozen=True, slots=True)
class Place:
    """A gateway as far as it goes before a provider is asked."""

    stores: Stores
    journal: SpoolKeeper
    secret: str


def nobody(*told: object) -> None:
    """Is told things that do not matter here."""


@asynccontextmanager
async def place(database_url: str, redis_url: str, home: Path) -> AsyncIterator[Place]:
    """One with a key that has every kind of limit."""
    tasks = Tasks(lambda name, exc: print(name, exc))
    stores = open_stores(
        {}, FileTerms({}), database_url=database_url, redis_url=redis_url, tasks=tasks, clock_s=time.monotonic,
        epoch_s=time.time, watchers=Watchers(nobody, nobody), sharing=SharingRules(rejoin_ms=0),
    )  # fmt: skip
    await stores.database.write(lambda connection: connection.run_sync(metadata.create_all))
    accounts = SqlAccounts(
        stores.database, lambda: FileTerms({}), chance=os.urandom, now_ms=lambda: time.time_ns() // 10**6
    )
    await accounts.create_tenant(CLI, "acme", {"name": "acme", "tier": "enterprise", "budgets": ()})
    draft = KeyDraft("acme", "bench", tier="enterprise", limits=LIMITS, budgets=(Budget("key", "month", 10**6 * USD),))
    secret = (await accounts.create_key(CLI, draft)).text
    if isinstance(stores.counters, RedisCounters):
        await stores.counters.start()
    carrier = Carrier(
        BookWriter(stores.database, lambda: time.time_ns() // 10**6), CarrierReports(nobody, lambda: None, nobody)
    )
    journal = SpoolKeeper(
        SpoolRules(home / "spool", "bench", "bench:1:2"), carrier, stores.counters,
        reports=Reports(print, lambda: None, nobody), keeper_reports=KeeperReports(print, nobody, print, print),
        epoch_s=time.time, tasks=tasks,
    )  # fmt: skip
    journal.start()
    try:
        yield Place(stores, journal, secret)
    finally:
        await journal.close(10)
        await stores.counters.close()
        await stores.database.close()


async def measure(at: Place, warm_s: float = WARM_S, run_s: float = RUN_S) -> list[float]:
    """Milliseconds of each admission behind the first *warm_s*."""
    clock = Clock(time.monotonic, time.time, random.random)
    record = Record(at.journal, Tariff(MODES, bill_interrupted=True, region="id"), clock)
    admit = Admit(at.stores.counters, clock, AdmissionRules(MODES), meanwhile=record.begin)
    stages, took_ms, begun_s = (Choose(catalog(route("a"))), admit, record), [], time.monotonic()

    async def call(number: int) -> None:
        key = await at.stores.keys.find(at.secret)
        assert key is not None
        asked = CLIENT_DIALECTS["openai_chat"].read_call(BODY, CallOptions(), ())
        one = Exchange(f"req_{number:032x}", f"{number:032x}", "chat_completions", asked, key, time.monotonic())
        for stage in stages:
            await stage.admit(one)
        now_s = time.monotonic()
        if now_s - begun_s > warm_s:
            took_ms.append((now_s - one.started_s) * 1000)
        await asyncio.sleep(PROVIDER_S * random.uniform(0.5, 1.5))
        receipt = ended(one.request_id, key_id=key.id)
        at.stores.counters.settle(one.request_id, Spent(33, 33, 41_000))
        at.journal.record(receipt)

    async def some(first: int) -> None:
        await asyncio.sleep(PROVIDER_S * random.random())
        for number in itertools.count(first, AT_ONCE):
            await call(number)
            if time.monotonic() - begun_s > warm_s + run_s:
                return

    async with asyncio.TaskGroup() as group:
        for first in range(AT_ONCE):
            group.create_task(some(first))
    return took_ms


def disk_ms(home: Path) -> list[float]:
    """What a synchronous write of a record's size takes there."""
    took_ms, descriptor = [], os.open(home / "probe", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_DSYNC)
    for _ in range(300):
        begun_s = time.perf_counter()
        os.write(descriptor, bytes(400))
        took_ms.append((time.perf_counter() - begun_s) * 1000)
    os.close(descriptor)
    return took_ms


def told(name: str, took_ms: Sequence[float]) -> None:
    """One line."""
    parts = statistics.quantiles(took_ms, n=100)
    print(f"{name:24}{len(took_ms):8}{parts[49]:8.2f}{parts[98]:8.2f}{max(took_ms):8.1f}", flush=True)


async def main() -> None:
    print(f"{'ms':24}{'calls':>8}{'p50':>8}{'p99':>8}{'most':>8}")
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-bench-")))
        told("the disk, alone", disk_ms(home))
        async with place(f"sqlite:///{home / 'bench.db'}", "", home) as embedded:
            told("embedded", await measure(embedded))
        postgres, redis = stack.enter_context(cluster()), stack.enter_context(server())
        async with place(postgres.create_database("bench"), redis.url, home) as served:
            told("PostgreSQL and Redis", await measure(served))


if __name__ == "__main__":
    uvloop.run(main())
