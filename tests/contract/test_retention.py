"""What is kept for a time only, and the shelf of bodies, on both kinds of database."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, insert, select, text

from gateway.aio import Tasks
from gateway.core.journal import Settled, encode
from gateway.core.ports import StoreUnavailable
from gateway.storage import retention
from gateway.storage.bodies import MAX_WAITING_BYTES, PIECE_CHARS, BodyRules, BodyShelf
from gateway.storage.database import Database
from gateway.storage.migrations import upgrade
from gateway.storage.retention import LOCK, Janitor, Retention
from gateway.storage.tables import audit, bodies, dead_letters, idempotency, ledger, metadata, sessions, traces
from gateway.storage.verifying import verify
from gateway.storage.writing import BookWriter, Entry
from tests.contract.test_commands import run
from tests.support.booked import DAY_MS, NOON_MS, book, charge, session, trace
from tests.unit.admissions import ended


async def count(database: Database, table: Any) -> int:
    async with database.engine.connect() as connection:
        return int((await connection.execute(select(func.count()).select_from(table))).scalar_one())


def janitor(database: Database, days: int = 90) -> Janitor:
    return Janitor(database, Retention(days), now_ms=lambda: NOON_MS, spread=lambda: 0.0)


async def fill(database: Database, calls: int) -> None:
    """So many calls at each side of 90 days ago."""
    edge_ms = NOON_MS - 90 * DAY_MS
    booked = [charge(admitted_ms=at_ms) for at_ms in (edge_ms - 1, edge_ms) for _ in range(calls)]
    kept = [
        {"request_id": row["request_id"], "tenant": "acme", "expires_ms": NOON_MS + (row["admitted_ms"] >= edge_ms)}
        for row in booked
    ]
    async with database.engine.begin() as connection:
        await book(
            connection,
            ledger_rows=booked,
            trace_rows=[trace(row) for row in booked],
            body_rows=kept,
            session_rows=[
                session(session_id=row["request_id"], last_ms=row["admitted_ms"], tenant=f"t{n % 2}")
                for n, row in enumerate(booked)
            ],
        )


async def test_what_is_due(tabled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces, sessions and bodies whose time is over go, in as many portions as it takes; the ledger stays."""
    monkeypatch.setattr(retention, "BATCH", 3)
    monkeypatch.setattr(retention, "PAUSE_S", 0.0)
    await fill(tabled, 7)

    deleted = await janitor(tabled).sweep()

    left = {table.name: await count(tabled, table) for table in (traces, sessions, bodies, ledger)}
    assert (deleted, left) == (21, {"traces": 7, "sessions": 7, "bodies": 7, "ledger": 14})
    assert await janitor(tabled).sweep() == 0


async def test_what_is_kept(tabled: Database) -> None:
    """With 0 days traces and sessions are kept; bodies have an end of their own."""
    await fill(tabled, 2)

    assert await janitor(tabled, days=0).sweep() == 2
    assert (await count(tabled, traces), await count(tabled, bodies)) == (4, 2)


async def test_one_at_a_time(tabled: Database) -> None:
    """While another process deletes, this one does not (on SQLite writers take turns anyway)."""
    await fill(tabled, 1)
    if tabled.dialect == "sqlite":
        return
    async with tabled.engine.connect() as other, other.begin():
        await other.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})

        meanwhile = await janitor(tabled).sweep()

    assert meanwhile == 0
    assert await janitor(tabled).sweep() == 3


async def test_without_a_database(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage ends one round, not the janitor."""
    monkeypatch.setattr(retention, "EVERY_S", 0.01)
    work = janitor(database)
    with pytest.raises(StoreUnavailable):
        await work.sweep()  # there are no tables yet
    running = asyncio.create_task(work.run())
    try:
        await asyncio.sleep(0.1)
        await database.write(lambda connection: connection.run_sync(metadata.create_all))
        await fill(database, 1)
        async with asyncio.timeout(30):
            while await count(database, traces) > 1:  # noqa: ASYNC110 - only the database knows
                await asyncio.sleep(0.02)
    finally:
        running.cancel()

    assert await count(database, ledger) == 2


def shelf(database: Database, dropped: list[int], tasks: Tasks, max_bytes: int = 40) -> BodyShelf:
    return BodyShelf(
        database,
        BodyRules(max_bytes, keep_ms=5),
        redact=lambda said: said.replace("secret", "***"),
        on_drop=dropped.append,
        tasks=tasks,
        now_ms=lambda: NOON_MS,
    )


async def test_bodies(tabled: Database) -> None:
    """They are redacted before they are cut, at a whole character, and hold nothing that a database refuses."""
    crashes: list[BaseException] = []
    tasks, dropped = Tasks(lambda name, exc: crashes.append(exc)), list[int]()
    keeper = shelf(tabled, dropped, tasks)

    keeper.keep("req_1", "acme", b"a secret\0 \xff", "x\ud800y")
    keeper.keep("req_2", "acme", "é".encode() * 30, "z" * 33 + "secret")
    await tasks.drain(30)

    async with tabled.engine.connect() as connection:
        found = (await connection.execute(select(bodies).order_by(bodies.c.request_id))).all()
    assert [tuple(row) for row in found] == [
        ("req_1", "acme", "a *** \ufffd", "x?y", NOON_MS + 5),
        ("req_2", "acme", "é" * 17 + "[cut]", "z" * 33 + "***", NOON_MS + 5),
    ]
    assert (dropped, crashes) == ([], [])


async def test_long_bodies(tabled: Database) -> None:
    """They are redacted in pieces, between which others have their turn, and no credential is in two of them."""
    seen: list[str] = []
    tasks, turns = Tasks(lambda name, exc: None), list[int]()

    def redact(said: str) -> str:
        seen.append(said)
        return said

    async def others() -> None:
        while True:
            turns.append(len(seen))
            await asyncio.sleep(0)

    keeper = BodyShelf(
        tabled, BodyRules(2**20, 5), redact=redact, on_drop=lambda count: None, tasks=tasks, now_ms=lambda: NOON_MS
    )
    request = "x " * (PIECE_CHARS // 2 - 4) + "Bearer  " + "k" * 40 + " y" * PIECE_CHARS
    waiting = asyncio.create_task(others())
    keeper.keep("req_1", "acme", request.encode(), "z" * 3 * PIECE_CHARS)
    await tasks.drain(30)
    waiting.cancel()

    assert "".join(seen) == request + "z" * 3 * PIECE_CHARS
    assert max(map(len, seen[:-1])) < PIECE_CHARS + 60
    assert sum("Bearer  " + "k" * 40 in piece for piece in seen) == 1
    assert {1, 2, 3} <= set(turns)


async def test_bodies_that_are_dropped(database: Database) -> None:
    """Without tables, and beyond what may wait, they are dropped and counted, and the next is tried again."""
    tasks, dropped = Tasks(lambda name, exc: None), list[int]()
    keeper = shelf(database, dropped, tasks)

    keeper.keep("req_1", "acme", b"a", "b")
    keeper.keep("req_2", "acme", b"a", "x" * MAX_WAITING_BYTES)
    await tasks.drain(30)
    before = list(dropped)
    async with database.engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    keeper.keep("req_3", "acme", b"a", "b")
    await tasks.drain(30)

    assert (before, dropped) == ([1, 1], [1, 1])
    assert await count(database, bodies) == 1


async def test_erasing_a_tenant(database: Database, url: str, tmp_path: Path) -> None:
    """What is kept of one tenant's calls goes, but for the ledger and calls under way; it is noted, and books agree."""
    mine, theirs = (charge(tenant=tenant) for tenant in ("acme", "umbrella"))
    named = {
        "name": b"1", "call": b"1", "request_id": "r", "headers": None, "body": b"kept", "holder": "h", "renewed_ms": 1,
        "expires_ms": 2**53, "tenant": "acme",
    }  # fmt: skip
    await asyncio.to_thread(upgrade, url)
    async with database.engine.begin() as connection:
        await book(
            connection,
            ledger_rows=[mine, theirs],
            trace_rows=[trace(mine), trace(theirs)],
            session_rows=[session(cost_nano_usd=0), session(tenant="umbrella", cost_nano_usd=0)],
            body_rows=[{"request_id": "req_1", "tenant": "acme", "expires_ms": 2**53}],
        )
        rows = [{**named, "status": 200}, {**named, "name": b"2", "status": None}]
        await connection.execute(insert(idempotency), rows)
    for name, tenant in (("r1", "acme"), ("r2", "umbrella")):
        refused = Entry(ended(name, tenant=tenant, user="somebody"), "here:1:2")
        await BookWriter(database, lambda: 1).bury(refused, encode(Settled(refused.receipt)), "DataError")

    done = await run(url, "traces", "erase", "acme", "--yes", cwd=tmp_path)

    tables = (traces, sessions, bodies, idempotency, dead_letters, ledger, audit)
    assert [await count(database, table) for table in tables] == [1, 1, 0, 1, 1, 2, 1]
    assert done[:2] == (0, "Deleted 5 rows of acme. The ledger has what its calls cost.\n")
    async with database.engine.connect() as connection:
        noted = (await connection.execute(select(audit.c.actor, audit.c.action, audit.c.tenant))).one()
        found = {one.rule for one in await verify(connection, 0) if one.count}
    assert tuple(noted) == ("cli", "traces.erased", "acme")
    assert found == {"a session's totals are those of its traces"}  # of umbrella's, which this test has made up
