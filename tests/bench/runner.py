"""Runs every candidate in turn, round after round, and writes down one record per measurement."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from . import candidates, scenarios
from .cancelling import cancel_for
from .candidates import DIRECT, NotStarted, Running
from .holding import Crowd
from .load import Load, Plan, window
from .processes import Spinner
from .scenarios import Column, Effort, Group, Work
from .upstream import Provider

Record = dict[str, Any]

_WARM_S = 0.3
_SETTLE_S = 1.0
_WARM_UP = 100  # answers
_WARM_UP_LIMIT_S = 5.0
_ONE_MEASUREMENT_S = 60.0  # a candidate that hangs loses this measurement, not the run
_SPIN_S = 1800.0


def percentile(values: Sequence[int], share: float) -> float:
    """The value below which *share* of *values* lie (nearest rank), in their unit; NaN for none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return float(ordered[min(len(ordered) - 1, int(share * len(ordered)))])


class Waiting:
    """The share of time in which a target waited for its core: how busy the machine was with other things."""

    def __init__(self, target: Running) -> None:
        self._target = target
        self._start = time.monotonic(), target.waited_s()

    def share(self) -> float:
        """Of the time since the start; above 1 with several threads."""
        start, waited = self._start
        return round((self._target.waited_s() - waited) / (time.monotonic() - start), 3)


@dataclass(frozen=True, slots=True)
class Order:
    """What to run and where."""

    names: tuple[str, ...]
    groups: frozenset[Group]
    effort: Effort
    proxy_core: int
    load_core: int


class Bench:
    """One run. Everything happens on this process's loop except the programs under test."""

    def __init__(self, order: Order, provider: Provider, home: Path, out: TextIO) -> None:
        self._order = order
        self._provider = provider
        self._home = home
        self._out = out
        self._starts = 0
        self.records: list[Record] = []

    async def run(self) -> list[Record]:
        """All groups asked for; a candidate that does not start is reported and left out."""
        async with self._candidates(self._order.names) as running:
            works = [work for work in scenarios.WORKS if work.group in self._order.groups]
            if works:
                with Spinner(self._order.load_core, _SPIN_S):
                    await self._cpu(works, [target for target in running if target.program])
            if "latency" in self._order.groups:
                await self._latency(running)
            if "cancel" in self._order.groups:
                await self._cancel(running)
        if "memory" in self._order.groups:
            for name in self._order.names:
                if name != DIRECT:
                    await self._memory(name)
        return self.records

    @asynccontextmanager
    async def _candidates(self, names: Sequence[str]) -> AsyncIterator[list[Running]]:
        async with AsyncExitStack() as stack:
            running = []
            for name in names:
                try:
                    target = await self._start(name)
                except NotStarted as exc:
                    print(exc, file=sys.stderr)
                    continue
                stack.callback(target.stop)
                running.append(target)
            yield running

    async def _start(self, name: str) -> Running:
        self._starts += 1
        home = self._home / f"{name}-{self._starts}"
        target = await candidates.start(name, self._provider.port, self._order.proxy_core, home)
        await self._warm(target)
        return target

    async def _warm(self, target: Running) -> None:
        """Some of everything, so that no measurement pays for first times; says so when it does not work."""
        for plan in scenarios.WARM_UPS:
            end = time.monotonic() + _WARM_UP_LIMIT_S
            async with Load(target.port, plan) as load:
                while load.tally.answered < _WARM_UP and time.monotonic() < end:  # noqa: ASYNC110 - loads have no events
                    await asyncio.sleep(_WARM_S / 10)
            tally = load.tally
            if tally.failed or tally.answered < _WARM_UP:
                kind = f"{plan.dialect} {'stream' if plan.stream else 'JSON'}"
                problem = f"{tally.answered} answered, {tally.failed} failed"
                print(f"{target.name}: warm-up {kind}: {problem}", file=sys.stderr)

    def _note(self, target: str, kind: str, name: str, round_: int, **facts: object) -> None:
        record: Record = {"candidate": target, "kind": kind, "name": name, "round": round_, "at": time.time(), **facts}
        self.records.append(record)
        self._out.write(json.dumps(record) + "\n")
        self._out.flush()
        short = {key: value for key, value in facts.items() if not isinstance(value, dict)}
        print(f"{kind:8}{name:17}{target:9}{short}", file=sys.stderr, flush=True)
        gc.collect()

    async def _cpu(self, works: Sequence[Work], running: Sequence[Running]) -> None:
        for round_ in range(self._order.effort.cpu_rounds):
            for work in works:
                for target in running:
                    await self._cpu_once(work, target, round_)

    async def _cpu_once(self, work: Work, target: Running, round_: int) -> None:
        if target.program:
            target.program.refresh()
        async with asyncio.timeout(_ONE_MEASUREMENT_S), Load(target.port, work.plan) as load:
            await asyncio.sleep(_WARM_S)
            own, waiting = time.process_time(), Waiting(target)
            seen = await window(load.tally, self._order.effort.cpu_s, target.cpu_s)
            own = time.process_time() - own
            waited = waiting.share()
        count = getattr(seen, work.unit)
        self._note(
            target.name,
            "cpu",
            work.name,
            round_,
            n=count,
            cpu_us=round(seen.cpu_s / count * 1e6, 2) if count else None,
            per_s=round(count / seen.wall_s),
            core=round(seen.cpu_s / seen.wall_s, 2),
            load_core=round(own / seen.wall_s, 2),
            waited=waited,
            failed=load.tally.failed,
        )

    async def _latency(self, running: Sequence[Running]) -> None:
        for round_ in range(self._order.effort.latency_rounds):
            for target in running:
                waiting = Waiting(target)
                json_load = await self._timed(target, scenarios.LATENCY_JSON)
                stream_load = await self._timed(target, scenarios.LATENCY_STREAM)
                json_ns, first_ns = json_load.tally.latencies, stream_load.tally.first_bytes
                delay_ns = stream_load.tally.delays
                self._note(
                    target.name,
                    "latency",
                    "added",
                    round_,
                    n=len(json_ns),
                    waited=waiting.share(),
                    json_p50_ms=round(percentile(json_ns, 0.5) / 1e6, 3),
                    json_p99_ms=round(percentile(json_ns, 0.99) / 1e6, 3),
                    first_p50_ms=round(percentile(first_ns, 0.5) / 1e6, 3),
                    first_n=len(first_ns),
                    delay_p50_ms=round(percentile(delay_ns, 0.5) / 1e6, 3),
                    delay_p99_ms=round(percentile(delay_ns, 0.99) / 1e6, 3),
                    failed=json_load.tally.failed + stream_load.tally.failed,
                )

    async def _timed(self, target: Running, plan: Plan) -> Load:
        async with asyncio.timeout(_ONE_MEASUREMENT_S), Load(target.port, plan) as load:
            await asyncio.sleep(self._order.effort.latency_s)
        return load

    async def _cancel(self, running: Sequence[Running]) -> None:
        for round_ in range(self._order.effort.cancel_rounds):
            for column in scenarios.COLUMNS:
                for target in running:
                    await self._cancel_once(column, target, round_)

    async def _cancel_once(self, column: Column, target: Running, round_: int) -> None:
        async with asyncio.timeout(_ONE_MEASUREMENT_S), AsyncExitStack() as stack:
            if column.background:
                await stack.enter_async_context(Load(target.port, column.background))
                await asyncio.sleep(_WARM_S)
            seconds, waiting = self._order.effort.cancel_s, Waiting(target)
            cancels = await cancel_for(target.port, self._provider, column.leaving, seconds)
        latencies = {f"{dialect} {how}": ns for (dialect, how), ns in cancels.latencies.items()}
        every = [ns for values in latencies.values() for ns in values]
        self._note(
            target.name,
            "cancel",
            column.name,
            round_,
            n=len(every),
            waited=waiting.share(),
            p50_ms=round(percentile(every, 0.5) / 1e6, 2),
            p99_ms=round(percentile(every, 0.99) / 1e6, 2),
            max_ms=round(max(every, default=0) / 1e6, 2),
            left_open=cancels.left_open,
            not_sent=cancels.not_sent,
            us={kind: [round(ns / 1000) for ns in values] for kind, values in latencies.items()},
        )

    async def _memory(self, name: str) -> None:
        """A fresh process: one that has worked would hide growth in memory it has free already."""
        async with self._candidates([name]) as running:
            for target in running:
                assert target.program is not None
                await asyncio.sleep(_SETTLE_S)
                target.program.refresh()
                before, crowd = target.program.pss_kb(), Crowd(target.port)
                for size in self._order.effort.memory_streams:
                    await crowd.grow_to(size)
                    await asyncio.sleep(_SETTLE_S)
                    grown = target.program.pss_kb() - before
                    self._note(
                        name,
                        "memory",
                        str(size),
                        0,
                        n=crowd.begun,
                        kb_per_stream=round(grown / crowd.begun, 1) if crowd.begun else None,
                        rest_mb=round(before / 1024, 1),
                        failed=crowd.lost,
                    )
                await crowd.leave()
