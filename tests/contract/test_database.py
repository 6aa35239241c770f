"""The way into the database: transactions, turns, and what becomes of it when it does not answer."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.ports import StoreUnavailable
from gateway.storage.database import DRAIN_S, SERVING_CONNECT_S, Database
from tests.support.gateway import free_port
from tests.support.postgres import PASSWORD


async def make(connection: AsyncConnection) -> None:
    await connection.execute(text("CREATE TABLE numbers (number INTEGER PRIMARY KEY)"))


async def add(connection: AsyncConnection, number: int = 1) -> None:
    await connection.execute(text("INSERT INTO numbers VALUES (:number)"), {"number": number})


async def count(connection: AsyncConnection) -> int:
    return int((await connection.execute(text("SELECT count(*) FROM numbers"))).scalar_one())


async def test_committed(database: Database) -> None:
    """What a step writes is there for the next one."""
    await database.write(make)
    await database.write(add)

    assert await database.read(count) == 1


async def test_rolled_back(database: Database) -> None:
    """A step that fails leaves nothing behind, and its own exception comes through."""

    async def half(connection: AsyncConnection) -> None:
        await add(connection)
        raise LookupError

    await database.write(make)
    with pytest.raises(LookupError):
        await database.write(half)

    assert await database.read(count) == 0


async def test_constraint(database: Database) -> None:
    """A constraint that does not hold is the writer's to deal with, and no outage."""
    await database.write(make)
    await database.write(add)

    with pytest.raises(IntegrityError):
        await database.write(add)


async def test_missing_table(url: str) -> None:
    """Without the tables of this version the database counts as not there; told once, and again when it is."""
    told: list[StoreUnavailable | None] = []
    database = Database(url, told.append)

    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await database.read(count)
    await database.write(make)
    await database.close()

    assert [outage is None for outage in told] == [False, True]


async def test_unreachable() -> None:
    """A server that refuses is an outage at once; what is told of it holds no password."""
    told: list[StoreUnavailable | None] = []
    database = Database(f"postgres://gateway:{PASSWORD}@127.0.0.1:{free_port()}/gateway", told.append)

    with pytest.raises(StoreUnavailable, match="ConnectionRefusedError"):
        await database.read(count)
    await database.close()

    assert PASSWORD not in str(told)


async def test_silent_server() -> None:
    """A server that takes connections and says nothing is an outage within the time that the caller has."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        database = Database(f"postgres://gateway@127.0.0.1:{silent.getsockname()[1]}/gateway")

        with pytest.raises(StoreUnavailable):
            await database.read(count, within_s=0.1)
        await database.close()


async def test_caller_that_leaves(database: Database) -> None:
    """A transaction that has begun ends by itself when its caller is cancelled."""
    await database.write(make)
    began, done = asyncio.Event(), asyncio.Event()

    async def slow(connection: AsyncConnection) -> None:
        await add(connection)
        began.set()
        await asyncio.sleep(0.01)
        await add(connection, 2)
        done.set()

    task = asyncio.ensure_future(database.write(slow))
    await began.wait()
    task.cancel()
    await asyncio.wait([task])
    await done.wait()

    assert task.cancelled()
    assert await database.write(count) == 2


async def test_file_that_is_taken_away(tmp_path: Path) -> None:
    """Nothing is written into a file that nobody will find again; the one that comes back, or another, is used."""
    path, away = tmp_path / "gateway.db", tmp_path / "away.db"
    changes: list[StoreUnavailable | None] = []
    database = Database(f"sqlite:///{path}", changes.append)
    await database.write(make)
    await database.write(add)
    shutil.copy(path, tmp_path / "backup.db")

    path.rename(away)
    for step in (add, count):
        with pytest.raises(StoreUnavailable):
            await (database.write(step) if step is add else database.read(count))
    was_made = path.exists()
    away.rename(path)
    found = await database.read(count)
    await database.write(lambda connection: add(connection, 2))
    (tmp_path / "backup.db").rename(path)
    in_backup = await database.read(count)
    await database.close()

    assert not was_made
    assert (found, in_backup) == (1, 1)
    assert [change is None for change in changes] == [False, True]


async def test_two_processes_that_write(tmp_path: Path) -> None:
    """On SQLite one that reads before it writes waits for the writer of another process instead of failing."""
    url = f"sqlite:///{tmp_path}/gateway.db"
    one, two = Database(url), Database(url)
    await one.write(make)

    async def next_number(connection: AsyncConnection) -> None:
        number = await count(connection)
        await asyncio.sleep(0)
        await add(connection, number)

    await asyncio.gather(*(database.write(next_number) for database in (one, two) * 20))
    total = await one.read(count)
    await one.close()
    await two.close()

    assert total == 40


async def test_a_lock_does_not_keep_the_process(tmp_path: Path) -> None:
    """What waits for a writer that stands still is given up when the process ends: no thread stays in the wait."""
    url = f"sqlite:///{tmp_path}/gateway.db"
    database, threads = Database(url), set(threading.enumerate())
    await database.write(make)
    with closing(sqlite3.connect(tmp_path / "gateway.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writing = [asyncio.ensure_future(database.write(add, within_s=60)) for _ in range(3)]
        await asyncio.sleep(0.3)
        told_s = time.monotonic()

        await database.close()
        took_s = time.monotonic() - told_s
        async with asyncio.timeout(SERVING_CONNECT_S / 2):
            while not set(threading.enumerate()) <= threads:  # noqa: ASYNC110 - nothing to await
                await asyncio.sleep(0.01)

        assert took_s < DRAIN_S + 1  # a turn of the wait, and what a busy machine adds
        for task in writing:
            with pytest.raises(asyncio.CancelledError):
                await task


async def test_a_writer_waits_its_whole_time(tmp_path: Path) -> None:
    """However often it looks up: a writer that lets go within the time lets the next one through."""
    database = Database(f"sqlite:///{tmp_path}/gateway.db")
    await database.write(make)
    with closing(sqlite3.connect(tmp_path / "gateway.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.ensure_future(database.write(add))
        await asyncio.sleep(SERVING_CONNECT_S * 0.6)
        in_wait = writing.done()
        other.execute("COMMIT")

        await writing
    found = await database.read(count)
    await database.close()

    assert (in_wait, found) == (False, 1)
