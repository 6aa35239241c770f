"""The database of the settings: SQLAlchemy's engine, and the two ways in that everything else takes."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

import asyncpg
from sqlalchemy import URL, Connection, Engine, event, make_url
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from gateway.aio import Tasks
from gateway.core.ports import StoreUnavailable

T = TypeVar("T")
Step = Callable[[AsyncConnection], Awaitable[T]]

DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgres": "postgresql+asyncpg", "postgresql": "postgresql+asyncpg"}
# To connect, or (SQLite) for another writer to finish, where nobody waits for an answer. A database in reach answers in
# milliseconds; asyncpg's own minute is longer than a platform waits for a release to say something.
CONNECT_S = 10.0
# Reliability D4: by default asyncpg waits a minute for a connection, and for ever for a statement.
SERVING_CONNECT_S = 2.0
STATEMENT_S = 5.0
POOL_SIZE = 5
# Of one step as a whole: its place in the pool, a connection and a statement that each just make it.
STEP_S = 2 * SERVING_CONNECT_S + STATEMENT_S
DRAIN_S = 0.5  # for what is under way when the process ends; a transaction takes milliseconds
WRITES = "gateway_writes"  # the option of a connection whose transaction will write
# A thread that waits inside SQLite for another writer cannot be called back, and no process ends before it comes back:
# it looks up this often. SQLite itself asks every 0.1 s in the end, so it costs nothing.
TURN_S = 0.1
_WAITS = "gateway_waits_s"  # in the notes of a connection: how long SQLite waits in it
# Of asyncpg itself come those of connecting, which SQLAlchemy does not wrap.
_DISCONNECTED = (OSError, TimeoutError, PoolTimeout, asyncpg.PostgresError, asyncpg.InterfaceError)
# The SQLSTATEs of a database that refuses for its own state, not for what it was asked (PostgreSQL, appendix A):
# 08 connection, 25006 read-only, 28 who we are, 3D000 no such database, 40 rolled back, 42P01 no such table, 42703 no
# such column, 53 resources, 55P03 lock, 57 shutting down or cancelled, 58 system.
_OUTAGES = ("08", "25006", "28", "3D000", "40", "42P01", "42703", "53", "55P03", "57", "58")


def async_url(text: str) -> URL:
    """
    *text* (sqlite:, postgres: or postgresql:, as the settings check it) with the driver we use.

    libpq's `sslmode`, which hosted databases put into their URLs, gets the name that asyncpg knows it by.

    Raises:
        KeyError: Another kind of database.
    """
    url = make_url(text)
    url = url.set(drivername=DRIVERS[url.drivername])
    mode = url.query.get("sslmode")
    if mode is None:
        return url
    return url.difference_update_query(["sslmode"]).update_query_dict({"ssl": mode})


def sqlite_file(url: URL) -> str | None:
    """The file of a SQLite database; None for one in memory, and for any other kind."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return url.database


def open_engine(text: str, *, connect_s: float = CONNECT_S, **options: Any) -> AsyncEngine:
    """An engine for *text*, see `async_url`. It connects when it is first used; dispose of it.

    Args:
        connect_s: To connect, or (SQLite) for another writer to finish.
        options: Further ones of the driver's `connect`.
    """
    url = async_url(text)
    pool: dict[str, Any] = {"pool_size": POOL_SIZE, "max_overflow": 0, "pool_timeout": connect_s}
    if url.get_backend_name() == "sqlite" and sqlite_file(url) is None:
        pool = {}  # one connection for all there is, which SQLAlchemy sees to
    engine = create_async_engine(url, connect_args={"timeout": connect_s, **options}, **pool)
    if engine.dialect.name == "sqlite":
        attend_sqlite(engine.sync_engine, connect_s)
    return engine


def attend_sqlite(engine: Engine, wait_s: float) -> None:
    """Set up the connections of *engine* as they are opened, and have its transactions wait *wait_s* for others."""
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", partial(_begin_sqlite, wait_s))


def _set_up_sqlite(connection: Any, _record: object) -> None:
    # Without it Python's driver begins transactions by itself, too late for what they read to hold when they write.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")  # off in SQLite, for old programs' sake
    cursor.execute("PRAGMA synchronous = FULL")  # what has been committed outlives a power cut, in WAL mode too
    cursor.close()


def _begin_sqlite(wait_s: float, connection: Connection) -> None:
    if not connection.get_execution_options().get(WRITES, False):
        _let_wait(connection, wait_s)
        connection.exec_driver_sql("BEGIN")
        return
    # One that reads first and writes later would fail at once when another one has written in between (SQLITE_BUSY_
    # SNAPSHOT): those that will write say so from the start, and wait for their turn.
    _let_wait(connection, TURN_S)
    end_s = time.monotonic() + wait_s
    while True:
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            return
        except OperationalError as exc:
            code = getattr(exc.orig, "sqlite_errorcode", 0)
            if code & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end_s:  # its extended codes stand above
                raise


def _let_wait(connection: Connection, seconds: float) -> None:
    if connection.info.get(_WAITS) != seconds:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")
        connection.info[_WAITS] = seconds


class Database:
    """
    The way in for everything that serves; nothing connects before the first step.

    A step is a function of a connection inside one transaction, which is committed when it returns and rolled back when
    it raises. It runs in a task of its own: a caller that is cancelled leaves, and the step ends by itself, because a
    command that is cut short costs its connection (H24). Steps hold nothing but the transaction; on SQLite those that
    write take turns within the process, and wait for the writers of other processes.

    Args:
        on_change: Told when the database is found not to answer, with the reason, and with None when it does again.
    """

    def __init__(self, text: str, on_change: Callable[[StoreUnavailable | None], None] = lambda outage: None) -> None:
        options: dict[str, Any] = {}
        if not text.startswith("sqlite"):
            options["command_timeout"] = STATEMENT_S
        self.engine = open_engine(text, connect_s=SERVING_CONNECT_S, **options)
        self.dialect = self.engine.dialect.name  # sqlite or postgresql
        self._turn = asyncio.Lock() if self.dialect == "sqlite" else None
        # Whoever waits for a step gets what it raises; there is nobody else to tell.
        self._tasks = Tasks(lambda name, exc: None)
        self._on_change = on_change
        self._is_out = False
        self._path = sqlite_file(self.engine.url)
        self._file: os.stat_result | None = None  # what the connections are to, as far as that is known

    async def read(self, step: Step[T], *, within_s: float = STEP_S) -> T:
        """
        What *step* gives, which writes nothing.

        Raises:
            StoreUnavailable: The database did not answer within *within_s*, refuses to for its own state, or has not
                the tables of this version.
        """
        return await self._run(self._reading(step), "database.read", within_s)

    async def write(self, step: Step[T], *, within_s: float = STEP_S) -> T:
        """
        As `read`, of one that may write. If *within_s* has passed it may still come to be committed.

        Raises:
            StoreUnavailable: As `read`.
            IntegrityError: Of SQLAlchemy: a constraint does not hold.
        """
        return await self._run(self._writing(step), "database.write", within_s)

    async def close(self) -> None:
        """Let what is under way end, and close the connections."""
        await self._tasks.drain(DRAIN_S)
        await self.engine.dispose()

    async def _run(self, work: Coroutine[Any, Any, T], name: str, within_s: float) -> T:
        task = self._tasks.spawn(work, name=name)
        try:
            async with asyncio.timeout(within_s):
                found = await asyncio.shield(task)
        except (DBAPIError, *_DISCONNECTED) as exc:
            if isinstance(exc, IntegrityError) or not _is_outage(exc):
                raise
            outage = StoreUnavailable(f"{type(exc).__name__}: {first_line(exc)}")
            if not self._is_out:
                self._is_out = True
                self._on_change(outage)
            raise outage from exc
        if self._is_out:
            self._is_out = False
            self._on_change(None)
        return found

    async def _follow_file(self) -> None:
        """
        See that the connections are to the file that is there now: SQLite goes on with one that was taken away, and
        what is written into that is lost.

        Raises:
            FileNotFoundError: It has been taken away.
        """
        if self._path is None:
            return
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            if self._file is None:
                return  # it is made by the first connection
            raise FileNotFoundError("somebody has taken the file away") from None
        if self._file is not None and not os.path.samestat(found, self._file):
            await self.engine.dispose()
        self._file = found

    async def _reading(self, step: Step[T]) -> T:
        await self._follow_file()
        async with self.engine.connect() as connection, connection.begin():
            return await step(connection)

    async def _writing(self, step: Step[T]) -> T:
        async with self._turn or nullcontext():
            await self._follow_file()
            async with self.engine.connect() as connection:
                await connection.execution_options(**{WRITES: True})
                async with connection.begin():
                    return await step(connection)


def first_line(exc: BaseException) -> str:
    """The database's own words, without the statement and its values that SQLAlchemy adds."""
    cause = exc.orig if isinstance(exc, DBAPIError) and exc.orig is not None else exc
    return str(cause).partition("\n")[0]


def _is_outage(exc: BaseException) -> bool:
    """Whether *exc* is about the database and not about what it was asked."""
    if not isinstance(exc, DBAPIError) or exc.connection_invalidated:
        return True
    code = getattr(exc.orig, "sqlstate", None)
    if code is not None:
        return str(code).startswith(_OUTAGES)
    # SQLite's OperationalError is for locks, disks and missing tables; of asyncpg, what has no code is its own trouble.
    return type(exc).__name__ in ("OperationalError", "InterfaceError", "InternalError")
