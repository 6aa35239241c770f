"""What is kept for a time only: deleted some rows at a time, by one process at a time. The ledger is never touched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Delete, Table, delete, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.ports import StoreUnavailable
from gateway.core.reading import DAY_MS
from gateway.core.records import Actor
from gateway.storage.account_rows import write_audit
from gateway.storage.database import Database
from gateway.storage.tables import bodies, dead_letters, idempotency, sessions, traces

BATCH = 1_000  # rows in one transaction: milliseconds, in which others can write between two
PAUSE_S = 0.05  # between two: with the above at most 20,000 rows a second
EVERY_S = 600.0  # days are what is promised; this keeps the portions small
ERASED = "traces.erased"  # in the audit log
LOCK = 0x616E6F6D6B70  # any number that no other program uses for a lock of the database; "anomkp" in ASCII


class Retention(Struct, frozen=True):
    """
    Attributes:
        traces_days: After their beginning, and of sessions after their last use; 0 keeps them.
    """

    traces_days: int


class Janitor:
    """
    Args:
        now_ms: Epoch milliseconds.
        spread: Between 0 and 1, so that not all processes come at once.
    """

    def __init__(
        self, database: Database, rules: Retention, *, now_ms: Callable[[], int], spread: Callable[[], float]
    ) -> None:
        self._database = database
        self._rules = rules
        self._now_ms = now_ms
        self._spread = spread

    async def run(self) -> None:
        """Sweep again and again. A database that is away is tried the next time."""
        while True:
            await asyncio.sleep(EVERY_S * (0.5 + self._spread()))
            try:
                await self.sweep()
            except StoreUnavailable:
                continue  # it is told of elsewhere

    async def sweep(self) -> int:
        """
        Delete what is due, unless another process does; how many rows that were.

        Raises:
            StoreUnavailable: The database is away; what was deleted by then is.
        """
        now_ms, count = self._now_ms(), 0
        for statement in due(self._rules, now_ms):
            while True:
                deleted = await self._delete(statement)
                count += max(0, deleted)
                if deleted < 0:
                    return count
                if deleted < BATCH:
                    break
                await asyncio.sleep(PAUSE_S)
        return count

    async def _delete(self, statement: Delete) -> int:
        """How many rows it deleted; -1 where another process is at it."""

        async def step(connection: AsyncConnection) -> int:
            if connection.dialect.name == "postgresql":  # on SQLite, writers take turns anyway
                lock = text("SELECT pg_try_advisory_xact_lock(:lock)")
                if not (await connection.execute(lock, {"lock": LOCK})).scalar_one():
                    return -1
            return await _run(statement, connection)

        return await self._database.write(step)


def due(rules: Retention, now_ms: int) -> list[Delete]:
    """The statements that delete a batch each of what is due at *now_ms*."""
    found = [_batch(bodies, bodies.c.expires_ms <= now_ms, bodies.c.expires_ms)]
    if rules.traces_days:
        last_ms = now_ms - rules.traces_days * DAY_MS
        found.append(_batch(traces, traces.c.started_ms < last_ms, traces.c.started_ms))
        found.append(_batch(sessions, sessions.c.last_ms < last_ms, sessions.c.last_ms))
    return found


async def erase(database: Database, actor: Actor, tenant: str, now_ms: Callable[[], int]) -> int:
    """
    Delete what is kept of *tenant*'s calls besides the ledger, as *actor*, and note that; how many rows that were.

    Calls under way leave their own afterwards. Among it are calls that the database had refused: what callers chose is
    in their records.

    Raises:
        StoreUnavailable: The database is away; what was deleted by then is.
    """
    answered = idempotency.c.status.is_not(None)  # a call under way needs the other one
    statements = [_batch(table, table.c.tenant == tenant) for table in (bodies, traces, sessions, dead_letters)]
    count = 0
    for statement in (*statements, _batch(idempotency, (idempotency.c.tenant == tenant) & answered)):
        deleted = BATCH
        while deleted == BATCH:
            deleted = await database.write(partial(_run, statement))
            count += deleted

    async def note(connection: AsyncConnection) -> None:
        await write_audit(
            connection, actor, ERASED, tenant, tenant=tenant, at_ms=now_ms(), details={"rows": count}
        )  # fmt: skip

    await database.write(note)
    return count


async def _run(statement: Delete, connection: AsyncConnection) -> int:
    return (await connection.execute(statement)).rowcount


def _batch(table: Table, condition: ColumnElement[bool], *order: ColumnElement[Any]) -> Delete:
    keys = tuple(table.primary_key.columns)
    chosen = select(*keys).where(condition).order_by(*order).limit(BATCH)
    return delete(table).where(tuple_(*keys).in_(chosen) if len(keys) > 1 else keys[0].in_(chosen))
