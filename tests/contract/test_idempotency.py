"""Named calls in the database: one of those who ask does the call, the others get what it was answered with."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from sqlalchemy import event, func, select, update

from gateway.core.exchange import Answer
from gateway.core.ports import Claim, Kept, StoreUnavailable
from gateway.storage.database import Database
from gateway.storage.idempotency import RENEW_S, IdempotencyRules, SqlReplays
from gateway.storage.sightings import MOST, Sightings
from gateway.storage.tables import idempotency, metadata
from tests.support.books import Clock

ANSWER = Answer(200, bytes(range(256)), (("x-request-id", "req_1"), ("x-anoman-region", "ID")))
# The test says when time has passed, and no timer of ours does anything before it does.
STILL = IdempotencyRules(keep_s=3600, queue_bytes=1 << 20, lease_s=30, renew_s=3600, sweep_s=3600)


def claim(request_id: str = "req_1", *, tenant: str = "acme", name: bytes = b"n", digest: bytes = b"d") -> Claim:
    return Claim(tenant, name, digest, request_id)


Process = Callable[..., SqlReplays]


@pytest.fixture
def clock() -> Clock:
    """The monotonic one of all processes."""
    return Clock()


@pytest_asyncio.fixture
async def process(database: Database, clock: Clock) -> AsyncIterator[Process]:
    """Makes what one process knows of named calls. Nothing of a task may die."""
    async with database.engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    deaths: list[tuple[str, BaseException]] = []
    made: list[SqlReplays] = []

    def start(rules: IdempotencyRules = STILL) -> SqlReplays:
        made.append(SqlReplays(database, rules, lambda name, exc: deaths.append((name, exc)), clock))
        return made[-1]

    yield start
    for replays in made:
        await replays.close(2)
    assert deaths == []


async def row_count(database: Database) -> int:
    async with database.engine.connect() as connection:
        return (await connection.execute(select(func.count()).select_from(idempotency))).scalar_one()


async def age(database: Database, column: str, by_s: float) -> None:
    """Let *by_s* seconds have passed since what *column* says."""
    async with database.engine.begin() as connection:
        moved = {column: idempotency.c[column] - round(by_s * 1000)}
        await connection.execute(update(idempotency).values(moved))


async def test_the_first_one_does_it(process: Process) -> None:
    """The first to ask has the call; to all others, in its process or another, it is running."""
    here, there = process(), process()

    found = [await here.claim(claim()), await here.claim(claim("req_2")), await there.claim(claim("req_3"))]

    assert found == ["claimed", "running", "running"]


async def test_another_call_of_the_same_name(process: Process) -> None:
    """A name stands for one call: another one by it is told so, while that one runs and when it is done."""
    here, there = process(), process()
    await here.claim(first := claim())

    running = [await one.claim(claim("req_2", digest=b"other")) for one in (here, there)]
    here.keep(first, ANSWER)
    await here.written(first)
    done = [await one.claim(claim("req_3", digest=b"other")) for one in (here, there)]

    assert running + done == ["mismatch"] * 4


async def test_the_answer_again(process: Process, database: Database) -> None:
    """What was kept comes back byte by byte, for every process, after a restart, and long after the claim's lease."""
    here = process()
    await here.claim(first := claim())

    here.keep(first, ANSWER)
    await here.written(first)
    await age(database, "renewed_ms", 10 * STILL.lease_s)

    again = [await one.claim(claim("req_2")) for one in (here, process())]
    assert again == [Kept("req_1", ANSWER)] * 2


async def test_an_answer_that_was_too_long(process: Process) -> None:
    """One that is not kept is known to have been given, so that nobody has the call done once more."""
    here = process()
    await here.claim(first := claim())

    here.keep(first, None)
    await here.written(first)

    assert [await one.claim(claim("req_2")) for one in (here, process())] == [Kept("req_1", None)] * 2


async def test_answers_that_wait_are_bounded(process: Process, database: Database) -> None:
    """With no room left for answers that wait to be written, one is noted as given and not kept."""
    here = process(IdempotencyRules(keep_s=3600, queue_bytes=300, renew_s=3600, sweep_s=3600))
    claims = [claim(f"req_{number}", name=bytes([number])) for number in range(3)]
    for one in claims:
        await here.claim(one)

    for one in claims:
        here.keep(one, ANSWER)
    for one in claims:
        await here.written(one)

    found = [await here.claim(claim("req_9", name=bytes([number]))) for number in range(3)]
    assert [kept.answer is None for kept in found if isinstance(kept, Kept)] == [False, True, True]


async def test_a_call_that_was_not_answered(process: Process) -> None:
    """Released, the name is free for everybody, and for any call."""
    here, there = process(), process()
    await here.claim(first := claim())

    here.release(first)
    await here.written(first)

    assert await there.claim(claim("req_2", digest=b"other")) == "claimed"


async def test_who_asks_while_it_is_released(process: Process) -> None:
    """In the same process, whoever asks before the release is written waits for it."""
    here = process()
    await here.claim(first := claim())

    here.release(first)

    assert await here.claim(claim("req_2")) == "claimed"


async def test_tenants_do_not_meet(process: Process) -> None:
    """Two tenants' calls of one name have nothing to do with each other."""
    here = process()
    await here.claim(mine := claim(tenant="acme"))
    here.keep(mine, ANSWER)
    await here.written(mine)

    assert await here.claim(claim("req_2", tenant="other")) == "claimed"


async def test_twenty_at_once(process: Process) -> None:
    """Of twenty that ask two processes at once exactly one has the call."""
    here, there = process(), process()

    found = await asyncio.gather(
        *((here, there)[number % 2].claim(claim(f"req_{number}")) for number in range(20))
    )

    assert Counter(found) == {"claimed": 1, "running": 19}


async def test_one_question_for_all(process: Process, database: Database) -> None:
    """Those of a process that ask for one call at once ask the database once, also when it is another process's."""
    here, there = process(), process()
    await there.claim(first := claim())
    asked: list[str] = []

    def note(*arguments: Any) -> None:
        asked.append(str(arguments[2]))

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    running = await asyncio.gather(*(here.claim(claim(f"req_{number}")) for number in range(20)))
    there.keep(first, ANSWER)
    await there.written(first)
    kept = await asyncio.gather(*(here.claim(claim(f"req_{number}")) for number in range(20)))

    assert (set(running), set(kept)) == ({"running"}, {Kept("req_1", ANSWER)})
    assert len([statement for statement in asked if statement.startswith("INSERT INTO idempotency")]) == 2


async def test_a_burst_waits_once(process: Process, database: Database) -> None:
    """Calls of many names that come at once do not wait for the disk one after the other (SQLite)."""
    here, commits = process(), list[object]()
    event.listen(database.engine.sync_engine, "commit", commits.append)

    found = await asyncio.gather(*(here.claim(claim(f"req_{number}", name=b"%d" % number)) for number in range(40)))

    assert found == ["claimed"] * 40
    assert len(commits) <= 3 or database.dialect != "sqlite"


async def outlive(clock: Clock, *processes: SqlReplays) -> list[object]:
    """A lease goes by in which *processes* ask again and again: what they were told."""
    told: list[object] = []
    for _ in range(4):
        told += [await one.claim(claim("req_early")) for one in processes]
        clock.now_s += STILL.lease_s / 4
    return told


async def test_the_process_died(process: Process, clock: Clock) -> None:
    """A claim that was not renewed for the length of a lease is taken over, by one of those who ask."""
    dead, here, there = process(), process(), process()
    await dead.claim(claim("req_dead"))

    early = await outlive(clock, here, there)
    late = await asyncio.gather(here.claim(claim("req_1")), there.claim(claim("req_2")))

    assert early == ["running"] * 8
    assert sorted(map(str, late)) == ["claimed", "running"]


@pytest.mark.parametrize("step_s", [STILL.lease_s + 1, 3600, 40 * 86_400, -3600])
async def test_a_step_of_the_time_of_day(process: Process, database: Database, clock: Clock, step_s: float) -> None:
    """However far the database's clock is put: a claim that is renewed stays its process's, and none is swept away."""
    holder, here = process(), process()
    await holder.claim(mine := claim())
    told = [await here.claim(claim("req_2"))]

    for column in ("renewed_ms", "expires_ms"):
        await age(database, column, step_s)
    await here._sweep()
    told.append(await here.claim(claim("req_3")))
    told += (await outlive(clock, here))[:-1]
    await holder._renew()
    told += await outlive(clock, here)
    holder.keep(mine, ANSWER)
    await holder.written(mine)

    assert (told, await here.claim(claim("req_6"))) == (["running"] * 9, Kept("req_1", ANSWER))


async def test_all_stood_still(process: Process, clock: Clock) -> None:
    """After a halt of everybody, as of the database, who lives has time to renew its claims, as often as ever."""
    holder, here = process(), process()
    await holder.claim(claim())
    await here.claim(claim("req_2"))
    clock.now_s += RENEW_S
    await here.claim(claim("req_3"))

    clock.now_s += 10 * STILL.lease_s
    told = [await here.claim(claim("req_4"))]
    clock.now_s += RENEW_S + 2
    told.append(await here.claim(claim("req_5")))
    clock.now_s += STILL.lease_s / 4

    assert (told, await here.claim(claim("req_6"))) == (["running"] * 2, "claimed")


async def test_a_dead_process_is_found_out_unasked(process: Process, clock: Clock) -> None:
    """Who was asked once goes on looking: the next request need not wait."""
    dead, here = process(), process(replace(STILL, renew_s=0.02))
    await dead.claim(claim("req_dead"))
    await here.claim(claim("req_2"))

    for _ in range(4):
        before, clock.now_s = clock.now_s, clock.now_s + STILL.lease_s / 4
        async with asyncio.timeout(10):
            while any(one.seen_s <= before for one in here._rows._sightings._seen.values()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    found = await here.claim(mine := claim("req_3"))

    assert found == "claimed"
    here.release(mine)
    async with asyncio.timeout(10):
        while here._rows.is_looking or "look" in here._timers:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


def test_sightings_are_bounded() -> None:
    """However many claims of others are asked for."""
    sightings = Sightings(Clock(), 30)

    for number in range(MOST + 5):
        sightings.is_lost(("acme", b"%d" % number), ("req_1", 1))

    assert (len(sightings.places), sightings.places[0]) == (MOST, ("acme", b"5"))


async def test_who_was_thought_dead(process: Process, clock: Clock) -> None:
    """One that lost its claim, and is late, changes nothing of what the new holder has or says."""
    slow, here = process(), process()
    await slow.claim(lost := claim("req_slow"))
    await outlive(clock, here)
    await here.claim(mine := claim("req_1"))

    slow.keep(lost, Answer(200, b"late"))
    await slow.written(lost)
    before = await process().claim(claim("req_2"))
    here.keep(mine, ANSWER)
    await here.written(mine)

    assert (before, await slow.claim(claim("req_3"))) == ("running", Kept("req_1", ANSWER))


async def test_renewal(process: Process, database: Database, clock: Clock) -> None:
    """A claim whose call takes longer than a lease stays its process's."""
    here, there = process(replace(STILL, renew_s=0.02)), process()
    await here.claim(claim())
    await outlive(clock, there)

    await renewed(database)

    assert await there.claim(claim("req_2")) == "running"


async def renewed(database: Database) -> None:
    """What is claimed is renewed from now on once."""
    old = select(func.min(idempotency.c.renewed_ms))
    async with asyncio.timeout(10), database.engine.connect() as connection:
        before = (await connection.execute(old)).scalar_one()
        while (await connection.execute(old)).scalar_one() == before:
            await connection.rollback()  # each look sees what has been committed by then
            await asyncio.sleep(0.01)


async def test_a_day_later(process: Process, database: Database) -> None:
    """When its time is over an answer is not repeated, even if nothing has swept it away."""
    here = process()
    await here.claim(first := claim())
    here.keep(first, ANSWER)
    await here.written(first)

    await age(database, "expires_ms", STILL.keep_s + 1)

    assert [await here.claim(claim("req_2")), await process().claim(claim("req_3"))] == ["claimed", "running"]


async def test_sweep(process: Process, database: Database) -> None:
    """What is out of date is deleted at the start and again and again, and nothing else is."""
    here = process()
    for number in range(3):
        await here.claim(one := claim(name=bytes([number])))
        here.keep(one, ANSWER)
        await here.written(one)
    await age(database, "expires_ms", STILL.keep_s + 1)
    await here.claim(claim(name=b"young"))

    here.start()
    async with asyncio.timeout(10):
        while await row_count(database) > 1:  # noqa: ASYNC110 - only the database knows
            await asyncio.sleep(0.01)

    assert await here.claim(claim("req_2", name=b"young")) == "running"


async def test_a_request_that_ends_while_it_asks(process: Process) -> None:
    """A claim whose request is cancelled while the database is asked is given back."""
    here, there = process(), process()
    asking = asyncio.ensure_future(here.claim(claim()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    asking.cancel()
    await asyncio.wait([asking])
    again = await here.claim(claim("req_2"))

    assert asking.cancelled()
    assert (again, await there.claim(claim("req_3"))) == ("claimed", "running")


@contextlib.asynccontextmanager
async def unable_to_write(url: str) -> AsyncIterator[None]:
    """Within it the database lets nobody write to the table."""
    with contextlib.ExitStack() as stack:
        if url.startswith("sqlite"):
            stack.enter_context(_sqlite_locked(url.removeprefix("sqlite:///")))
            yield
            return
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction():
                await connection.execute("LOCK TABLE idempotency IN ACCESS EXCLUSIVE MODE")
                yield
        finally:
            await connection.close()


@contextlib.contextmanager
def _sqlite_locked(path: str) -> Iterator[None]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
        yield
    finally:
        connection.close()


async def test_the_database_does_not_answer(process: Process, url: str) -> None:
    """It cannot be told whose the call is, within two seconds; once it can, nothing is left of the attempt."""
    here, there = process(), process()
    async with unable_to_write(url):
        with pytest.raises(StoreUnavailable):
            await here.claim(claim())

    async with asyncio.timeout(20):
        found: Any = None
        while found != "claimed":
            with contextlib.suppress(StoreUnavailable):
                found = await there.claim(claim("req_2"))

    assert found == "claimed"


async def test_an_answer_while_the_database_is_gone(process: Process, url: str) -> None:
    """It is written when the database is back; until then the call counts as running in its process."""
    here = process()
    await here.claim(first := claim())
    async with unable_to_write(url):
        here.keep(first, ANSWER)
        with pytest.raises(StoreUnavailable):
            await here.claim(claim("req_2"))

    async with asyncio.timeout(20):
        found: Any = None
        while not isinstance(found, Kept):
            with contextlib.suppress(StoreUnavailable):
                found = await here.claim(claim("req_3"))

    assert found == Kept("req_1", ANSWER)
