"""Runs a soak: the service, its stores, its customers, and what is done to them meanwhile; then collects the books."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.scenes import PAGE_BYTES
from tests.support.redis import Redis

from .books import Books, read_books
from .customers import Customers
from .plan import Disturbance, Kind, plan
from .processes import ProviderProcess, gateway_command
from .rest import Rest, leftovers
from .service import Service
from .stores import Database
from .verdict import Evidence
from .visits import Visit, visits
from .world import Customer

_OUTAGE_S = (1.0, 3.0)  # the "a few seconds"
_QUIET_S = 60.0  # reliability C1: an admitted request is settled within 60 s, whatever became of its process
_WARM, _MEASURED = 0.9, 5_000  # of the calls, from when on memory is looked at; and how many it takes to say anything


@dataclass(frozen=True, slots=True)
class Order:
    """
    What is to be run.

    Attributes:
        per_s: Calls that begin in a second, at most.
        counts: How often what is done to the service.
    """

    seed: int
    calls: int
    counts: Mapping[Kind, int]
    at_once: int = 48
    per_s: float | None = None


@dataclass(slots=True)
class Stage:
    """
    Everything that runs; `database` and `redis` are None where the gateway has none beside it.

    Attributes:
        loses_s: See `Evidence`.
    """

    provider: ProviderProcess
    service: Service
    keys: list[Customer]
    database_url: str
    config: Path
    database: Database | None = None
    redis: Redis | None = None
    loses_s: float = 0.0
    acts: dict[Kind, Callable[[float], Awaitable[None]]] = field(init=False)

    def __post_init__(self) -> None:
        self.acts = {"kill": self.service.kill, "roll": self._roll}
        for name, store in (("redis", self.redis), ("postgres", self.database)):
            if store is not None:
                self.acts[f"{name}.stop"] = _outage(store.stop, store.start)  # type: ignore[index]  # its own kinds
                self.acts[f"{name}.freeze"] = _outage(store.freeze, store.thaw)  # type: ignore[index]
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


def _outage(begin: Callable[[], None], end: Callable[[], None]) -> Callable[[float], Awaitable[None]]:
    """*begin* and *end* with a few seconds between them, by chance how many."""

    async def act(chance: float) -> None:
        await asyncio.to_thread(begin)
        try:
            await asyncio.sleep(_OUTAGE_S[0] + chance * (_OUTAGE_S[1] - _OUTAGE_S[0]))
        finally:
            await asyncio.to_thread(end)

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
    memory = asyncio.create_task(_memory(customers, stage.service, order.calls))
    async with asyncio.TaskGroup() as group:
        group.create_task(customers.run(noted(visits(order.seed, order.calls, stage.keys), calls)))
        disturbing = group.create_task(_disturb(disturbances, stage, customers))
    rest = Rest(memory=_drift(await memory, stage.service, order.calls))
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
        loses_s=stage.loses_s,
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


async def _memory(customers: Customers, service: Service, calls: int) -> dict[int, int]:
    """Resident bytes by worker, when the service is warm and nothing is done to it any more."""
    await customers.reached(int(calls * _WARM))
    return {pid: _rss(pid) for pid in service.workers()}


def _drift(before: dict[int, int], service: Service, calls: int) -> int | None:
    """Bytes by which the worker grew that grew most; None where too few calls came to tell."""
    if calls * (1 - _WARM) < _MEASURED:
        return None
    return max((_rss(pid) - before[pid] for pid in service.workers() if pid in before), default=0)


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
