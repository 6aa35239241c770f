"""Runs a soak: the service, its stores, its customers, and what is done to them meanwhile; then collects the books."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.chaos.scenes import PAGE_BYTES
from tests.support.redis import Redis

from .books import Books, read_books
from .customers import Customers
from .plan import Disturbance, Kind, plan
from .processes import ProviderProcess, gateway_command
from .rest import Growth, Rest, leftovers
from .service import Service
from .stores import Database
from .verdict import Evidence
from .visits import Visit, smooth_visits, visits
from .world import OPEN, Customer

_OUTAGE_S = (1.0, 3.0)  # the "a few seconds"
_STEPS = 2
_SETTLED_S = 1.0  # until the journal and the database have what was told last
_QUIET_S = 60.0  # reliability C1: an admitted request is settled within 60 s, whatever became of its process


@dataclass(frozen=True, slots=True)
class Order:
    """
    What is to be run.

    Attributes:
        per_s: Calls that begin in a second, at most.
        counts: How often what is done to the service.
        calm: Calls that nothing is done to, behind all others: so many to warm up, and as many again twice while memory
            is watched.
    """

    seed: int
    calls: int
    counts: Mapping[Kind, int]
    calm: int = 0
    at_once: int = 48
    per_s: float | None = None


@dataclass(slots=True)
class Stage:
    """
    Everything that runs; `database` and `redis` are None where the gateway has none beside it.

    Attributes:
        has_journal_in_redis: See `Evidence`.
    """

    provider: ProviderProcess
    service: Service
    keys: list[Customer]
    database_url: str
    config: Path
    database: Database | None = None
    redis: Redis | None = None
    has_journal_in_redis: bool = False
    acts: dict[Kind, Callable[[float], Awaitable[None]]] = field(init=False)

    def __post_init__(self) -> None:
        self.acts = {"kill": self.service.kill, "roll": self._roll}
        for name, store in (("redis", self.redis), ("postgres", self.database)):
            if store is not None:
                self.acts[f"{name}.stop"] = self._outage(name, store.stop, store.start)  # type: ignore[index]
                self.acts[f"{name}.freeze"] = self._outage(name, store.freeze, store.thaw)  # type: ignore[index]
        if self.redis is not None:
            self.acts["redis.flush"] = self._flush

    def budgets(self) -> dict[str, int]:
        """Nano-USD by key id."""
        return {key.key_id: key.budget_nano_usd for key in self.keys if key.budget_nano_usd is not None}

    async def _roll(self, _chance: float) -> None:
        await self.service.roll()

    async def _flush(self, _chance: float) -> None:
        assert self.redis is not None
        await asyncio.to_thread(self.redis.flush)

    def _outage(
        self, name: str, begin: Callable[[], None], end: Callable[[], None]
    ) -> Callable[[float], Awaitable[None]]:  # fmt: skip
        """*begin* and *end* with a few seconds between them, by chance how many."""

        async def act(chance: float) -> None:
            async with self.service.without(name, begin, end):
                await asyncio.sleep(_OUTAGE_S[0] + chance * (_OUTAGE_S[1] - _OUTAGE_S[0]))

        return act


@dataclass(slots=True)
class Soaked:
    """
    What a run gave.

    Attributes:
        done_s: What was done to the service, and how long it took each time.
    """

    evidence: Evidence
    rest: Rest
    took_s: float
    problems: list[str]
    done_s: dict[Kind, list[float]]


async def soak(order: Order, stage: Stage) -> Soaked:
    """Run *order* on *stage*, whose service is started here and stopped in the end."""
    begun_s = time.monotonic()
    await stage.service.start()
    customers = Customers(lambda: stage.service.port, at_once=order.at_once, per_s=order.per_s)
    calls: dict[str, Visit] = {}
    disturbances = plan(order.seed, order.calls, dict(order.counts))
    async with asyncio.TaskGroup() as group:
        group.create_task(customers.run(noted(visits(order.seed, order.calls, stage.keys), calls)))
        disturbing = group.create_task(_disturb(disturbances, stage, customers))
    rest = Rest()
    await _quiet(stage, rest)
    if order.calm:
        rest.memory = await _drift(order, stage, customers, calls)
        await _quiet(stage, rest)
    rest.verified = await gateway_command(stage.config, "ledger", "verify")
    await stage.service.stop()
    attempts = await stage.provider.stop()
    evidence = Evidence(
        visits=calls,
        attempts=attempts,
        told=customers.told,
        books=await read_books(stage.database_url),
        kills_s=stage.service.kills_s,
        budgets=stage.budgets(),
        has_journal_in_redis=stage.has_journal_in_redis,
        outages_s=stage.service.outages_s,
    )
    return Soaked(evidence, rest, time.monotonic() - begun_s, stage.service.problems, disturbing.result())


def noted(calls: Iterator[Visit], by_marker: dict[str, Visit]) -> Iterator[Visit]:
    """*calls*, each put into *by_marker* as it begins: making 100,000 of them takes half a minute."""
    for visit in calls:
        by_marker[visit.marker] = visit
        yield visit


async def _disturb(disturbances: list[Disturbance], stage: Stage, customers: Customers) -> dict[Kind, list[float]]:
    """One thing after the other; calls wait where the next one is due before this one is over. Seconds of each."""
    took_s: dict[Kind, list[float]] = {}
    ends = [disturbance.at for disturbance in disturbances[1:]] + [float("inf")]
    for disturbance, limit in zip(disturbances, ends, strict=True):
        customers.allow(limit)
        await customers.reached(disturbance.at)
        begun_s = time.monotonic()
        await stage.acts[disturbance.kind](disturbance.chance)
        took_s.setdefault(disturbance.kind, []).append(time.monotonic() - begun_s)
    customers.allow(float("inf"))
    return took_s


async def _drift(order: Order, stage: Stage, customers: Customers, calls: dict[str, Visit]) -> Growth:
    """By how much the worker grew that grew most, once it was warm: steadily, so the smaller of two steps counts."""
    keys = [key for key in stage.keys if key.tier == OPEN]
    resident: list[dict[int, int]] = []
    for step in range(1 + _STEPS):
        first = order.calls + step * order.calm
        await customers.run(noted(smooth_visits(order.seed, order.calm, keys, first), calls))
        await asyncio.sleep(_SETTLED_S)
        resident.append({pid: _rss(pid) for pid in stage.service.workers()})
    grown = [min(after[pid] - before[pid] for before, after in pairwise(resident)) for pid in resident[0]]
    return Growth(max(grown), order.calm // len(grown))


def _rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


async def _quiet(stage: Stage, rest: Rest) -> None:
    """Wait until everything is settled and written down, and note what does not come to rest."""
    end_s = time.monotonic() + _QUIET_S
    begun_s = time.monotonic()
    seen: Books | None = None
    while time.monotonic() < end_s:
        books = await read_books(stage.database_url)
        rest.left = await leftovers(
            stage.service.gateway, stage.provider, stage.redis, len(stage.service.workers())
        )
        is_still = seen is not None and len(seen.ledger) == len(books.ledger)
        if is_still and not any(rest.left.values()):
            break
        seen = books
        await asyncio.sleep(1.0)
    rest.quiet_s = time.monotonic() - begun_s
