"""Scenes with an aim of their own: the last units of a budget, places of the killed, stores that are away."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from gateway.storage.redis_upkeep import TICK_S

from .books import read_books
from .conductor import Stage, noted
from .customers import Customers
from .records import Attempt, Told
from .script import Script
from .verdict import Evidence, Verdict, judge
from .visits import Visit, smooth_visits
from .world import CAPPED, OPEN, PLACED, PLACES, UNIT, Customer, key_of, price_nano_usd

RACERS, UNITS = 200, 10  # reliability G5, in four processes
FREE_S = 30.0  # G6
ADDED_MS = 60.0  # G11, of Redis: at the 99th percentile
DRAINED_S, CALLS_PER_S = 60.0, 200.0  # G11, of PostgreSQL
AGAIN_S = 8.0  # the breaker's pause and the counters' rebuilding, generously
FIRST_CALLS = 200  # before an outage, for what happens once
# Until no process waits for Redis any more: one without a call finds out by itself, then three time-outs of 0.1 s.
BLIND_S = TICK_S + 0.5
_WHOLE_S = 60.0  # an outage so long is judged with its beginning, as G11 has it; of a shorter one that is too much
_TOKENS = 40
UNIT_NANO_USD = price_nano_usd(UNIT, 0, 0, _TOKENS)
_ALL_HERE_S = 20.0


def racers(rounds: int) -> list[Customer]:
    """A key for each round, with `UNITS` in its budget."""
    usd = f"{UNITS * UNIT_NANO_USD / 10**9:.6f}"
    return [key_of(f"race-{number}", CAPPED, usd) for number in range(rounds)]


def placed() -> list[Customer]:
    """A key with a hundred places."""
    return [key_of("place", PLACED)]


def calm() -> list[Customer]:
    """A key that nothing limits, and one whose budget is never met."""
    return [key_of("calm", OPEN), key_of("calm", CAPPED, "1000000.00")]


def _unit_call(number: int, key: Customer, *, wait_ms: int = 0, interval_ms: int = 0, tokens: int = _TOKENS) -> Visit:
    """A call that takes exactly as many tokens as it asks for at the most."""
    script = Script(f"s0-{number:06}", tokens, interval_ms, wait_ms, prompt=999)
    is_stream = interval_ms > 0 or number % 2 == 0
    return Visit(number, key, UNIT, script, is_stream, fresh=True, max_tokens=tokens)


async def race(stage: Stage) -> Verdict:
    """In a round for each key, `RACERS` calls at once want the last `UNITS` of its budget."""
    calls: dict[str, Visit] = {}
    told: list[Told] = []
    wrong: list[tuple[str, int]] = []
    async with _service(stage):
        for number, key in enumerate(stage.keys):
            field = Customers(lambda: stage.service.port, at_once=RACERS)
            runners = (_unit_call(number * RACERS + at, key, wait_ms=100) for at in range(RACERS))
            await field.run(noted(runners, calls))
            whole = sum(one.seen == "whole" for one in field.told)
            if whole != UNITS:
                wrong.append((key.key_id, whole))
            told += field.told
    verdict = await _judged(stage, calls, told)
    for key_id, whole in wrong:
        verdict.blame("race", key_id, f"{whole} calls were answered, {UNITS} were left")
    answers = Counter(one.code or one.seen for one in told)
    verdict.figures = {
        "rounds": len(stage.keys),
        "answers": ", ".join(f"{name} {count}" for name, count in answers.most_common()),
        "budgets overspent": sum(offence.rule == "over: budget" for offence in verdict.offences),
    }
    return verdict


async def places(stage: Stage) -> Verdict:
    """All processes are killed with every place of a key taken; soon the places are free, by nobody's hand."""
    (key,), calls = stage.keys, dict[str, Visit]()
    async with _service(stage):
        long = Customers(lambda: stage.service.port, at_once=PLACES)
        stuck = (_unit_call(number, key, interval_ms=100, tokens=1_000) for number in range(PLACES))
        streams = asyncio.create_task(long.run(noted(stuck, calls)))
        await _until_open(stage, PLACES)
        killed_s = time.monotonic()
        await stage.service.kill_all()
        await streams
        told, first, freed_s, taken_s = long.told, PLACES, None, 0.0
        while freed_s is None and time.monotonic() < killed_s + 2 * FREE_S:
            crowd = Customers(lambda: stage.service.port, at_once=PLACES)
            asked_s = time.monotonic() - killed_s
            await crowd.run(noted((_unit_call(first + at, key, wait_ms=300) for at in range(PLACES)), calls))
            told, first = told + crowd.told, first + PLACES
            if all(one.seen == "whole" for one in crowd.told):
                freed_s = asked_s
            else:
                taken_s = asked_s
                await asyncio.sleep(0.5)
    verdict = await _judged(stage, calls, told)
    verdict.figures["seconds until all places were free"] = f"{taken_s:.1f} to {freed_s or 2 * FREE_S:.1f}"
    if freed_s is None or taken_s > FREE_S:
        verdict.blame("places", key.key_id, f"some are still taken after {taken_s:.1f} s")
    return verdict


async def redis_frozen(stage: Stage, outage_s: float) -> Verdict:
    """Redis hangs: calls are hardly later, budgets admit nothing, and afterwards everything is as before."""
    assert stage.redis is not None
    calls: dict[str, Visit] = {}
    # Made beforehand: what the first ones take would be the calls' latency.
    first = list(smooth_visits(2, FIRST_CALLS, stage.keys))
    planned = list(smooth_visits(1, int((2 * outage_s + 2 * AGAIN_S) * CALLS_PER_S / 2), stage.keys))
    async with _service(stage):
        crowd = Customers(lambda: stage.service.port, at_once=64, per_s=CALLS_PER_S / 2)
        # Calls on budgets wait out the birth of the counters; then all customers at once have time to catch up.
        await crowd.run(noted(iter(first), calls))
        running = asyncio.create_task(crowd.run(noted(iter(planned), calls)))
        await asyncio.sleep(outage_s)
        async with stage.service.without("redis", stage.redis.freeze, stage.redis.thaw):
            frozen_s = time.time()
            await asyncio.sleep(outage_s)
            thawed_s = time.time()
        await running
    verdict = await _judged(stage, calls, crowd.told)
    by_key = {marker: one.customer.tier for marker, one in calls.items()}
    capped = [one for one in crowd.told if by_key[one.marker] == CAPPED]
    free = [one for one in crowd.told if by_key[one.marker] == OPEN]
    before = _p99_ms(one for one in free if frozen_s - outage_s / 2 <= one.sent_s < frozen_s)
    begin_s = frozen_s + (BLIND_S if outage_s < _WHOLE_S else 0.0)
    during = _p99_ms(one for one in free if begin_s <= one.sent_s < thawed_s)
    admitted = [one for one in capped if frozen_s <= one.sent_s and one.over_s < thawed_s and one.seen == "whole"]
    after = [one for one in capped if one.sent_s > thawed_s + AGAIN_S]
    verdict.figures |= {
        "seconds frozen": outage_s,
        "p99 of the first byte before, ms": before,
        "p99 of the first byte meanwhile, ms": during,
        "p99 added, ms": round(during - before, 1),
        "admitted on a budget meanwhile": len(admitted),
        "refused on a budget afterwards": f"{sum(one.seen != 'whole' for one in after)} of {len(after)}",
    }
    for one in admitted:
        verdict.blame("admitted blindly", one.marker, one)
    # A machine that is as slow as that by itself tells nothing of what the outage adds, nor whether Redis is back for
    # calls on budgets: without an answer in 0.1 s they are refused.
    is_telling = before <= ADDED_MS
    for one in (*free, *(after if is_telling else ())):
        if one.seen != "whole":
            verdict.blame("refused", one.marker, one)
    if is_telling and during - before > ADDED_MS:
        verdict.blame("latency", "-", f"{during - before:.1f} ms added")
    return verdict


async def postgres_away(stage: Stage, outage_s: float) -> Verdict:
    """PostgreSQL is gone: nobody notices, and once it is back every row is there soon, and once."""
    assert stage.database is not None
    calls: dict[str, Visit] = {}
    async with _service(stage):
        crowd = Customers(lambda: stage.service.port, at_once=64, per_s=CALLS_PER_S)
        await crowd.run(noted(smooth_visits(2, FIRST_CALLS, stage.keys[:1]), calls))
        async with stage.service.without("postgres", stage.database.stop, stage.database.start):
            stopped_s = time.time()
            more = smooth_visits(3, int(outage_s * CALLS_PER_S), stage.keys[:1])
            await crowd.run(noted(more, calls))
            away_s = time.time() - stopped_s
        back_s = time.monotonic()
        drained_s = await _drained(stage, len(calls), back_s)
    verdict = await _judged(stage, calls, crowd.told)
    verdict.figures |= {
        "seconds away": round(away_s, 1),
        "calls meanwhile": sum(one.sent_s >= stopped_s for one in crowd.told),
        "p99 of the first byte meanwhile, ms": _p99_ms(one for one in crowd.told if one.sent_s >= stopped_s),
        "seconds until every row was there": drained_s and round(drained_s, 1),
    }
    if drained_s is None:
        verdict.blame("drain", "-", f"rows are missing after {DRAINED_S} s")
    for one in crowd.told:
        if one.seen != "whole":
            verdict.blame("refused", one.marker, one)
    return verdict


async def _drained(stage: Stage, calls: int, back_s: float) -> float | None:
    """Seconds since *back_s* when the ledger had a charge for each of *calls*; None if it never had."""
    while (now_s := time.monotonic() - back_s) < DRAINED_S:
        books = await read_books(stage.database_url)
        if sum(row.kind == "charge" for row in books.ledger) >= calls:
            return now_s
        await asyncio.sleep(0.5)
    return None


@asynccontextmanager
async def _service(stage: Stage) -> AsyncIterator[None]:
    """The service runs; in the end it is told to go, and has written everything down."""
    await stage.service.start()
    try:
        yield
    finally:
        await stage.service.stop()


async def _until_open(stage: Stage, count: int) -> None:
    async with asyncio.timeout(_ALL_HERE_S):
        while await stage.provider.open_requests() < count:  # noqa: ASYNC110 - the provider tells when it is asked
            await asyncio.sleep(0.05)


async def _judged(stage: Stage, calls: dict[str, Visit], told: list[Told]) -> Verdict:
    attempts: list[Attempt] = await stage.provider.stop()
    evidence = Evidence(
        visits=calls,
        attempts=attempts,
        told=told,
        books=await read_books(stage.database_url),
        kills_s=stage.service.kills_s,
        budgets=stage.budgets(),
    )
    verdict = judge(evidence)
    for problem in stage.service.problems:
        verdict.blame("process", "-", problem)
    return verdict


def _p99_ms(told: Iterator[Told]) -> float:
    found = sorted(one.head_ms for one in told)
    return found[int(len(found) * 0.99)] if found else 0.0
