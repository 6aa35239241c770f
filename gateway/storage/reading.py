"""The books in the database, to be read: implements the port `Books`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from msgspec import structs
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.reading import Row, SessionFound, SessionsAsked, TraceFound, TracesAsked, UsageAsked, UsageReport
from gateway.storage.reading_traces import (
    bodies_statement,
    receipt_statement,
    rows_of,
    session_statement,
    sessions_statement,
    trace_statement,
    traces_statement,
)
from gateway.storage.reading_usage import read_usage

T = TypeVar("T")


class Reader(Protocol):
    """Runs a step, see `Database.read`."""

    async def read(self, step: Callable[[AsyncConnection], Awaitable[T]], /) -> T: ...


def in_one_state(step: Callable[[AsyncConnection], Awaitable[T]]) -> Callable[[AsyncConnection], Awaitable[T]]:
    """*step*, in whose transaction all statements see the same state of the database, and none writes."""

    async def steady(connection: AsyncConnection) -> T:
        if connection.dialect.name == "postgresql":  # SQLite's transactions see one state anyway
            await connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return await step(connection)

    return steady


class SqlBooks:
    """
    Args:
        now_ms: Epoch milliseconds.
    """

    def __init__(self, database: Reader, now_ms: Callable[[], int]) -> None:
        self._database = database
        self._now_ms = now_ms

    async def usage(self, asked: UsageAsked) -> UsageReport:
        async def step(connection: AsyncConnection) -> UsageReport:
            return await read_usage(connection, asked)

        return await self._read(step)

    async def traces(self, asked: TracesAsked) -> Sequence[Row]:
        async def step(connection: AsyncConnection) -> Sequence[Row]:
            return await rows_of(connection, traces_statement(asked))

        return await self._read(step)

    async def trace(self, tenant: str | None, request_id: str) -> TraceFound | None:
        async def step(connection: AsyncConnection) -> TraceFound | None:
            found = await rows_of(connection, trace_statement(tenant, request_id))
            if not found:
                return None
            owner = found[0]["tenant"]
            booked = await rows_of(connection, receipt_statement(owner, request_id))
            kept = await rows_of(connection, bodies_statement(owner, request_id, self._now_ms()))
            return TraceFound(found[0], booked, kept[0] if kept else None)

        return await self._read(step)

    async def receipt(self, tenant: str | None, request_id: str, key_id: str | None = None) -> Sequence[Row]:
        async def step(connection: AsyncConnection) -> Sequence[Row]:
            return await rows_of(connection, receipt_statement(tenant, request_id, key_id))

        return await self._read(step)

    async def sessions(self, asked: SessionsAsked) -> Sequence[Row]:
        async def step(connection: AsyncConnection) -> Sequence[Row]:
            return await rows_of(connection, sessions_statement(asked))

        return await self._read(step)

    async def session(self, session_id: str, asked: TracesAsked) -> SessionFound | None:
        assert asked.tenant is not None  # names of sessions are chosen by clients: two tenants may have the same
        tenant, of_it = asked.tenant, structs.replace(asked, filters={**asked.filters, "session_id": session_id})

        async def step(connection: AsyncConnection) -> SessionFound | None:
            found = await rows_of(connection, session_statement(tenant, session_id))
            return SessionFound(found[0], await rows_of(connection, traces_statement(of_it))) if found else None

        return await self._read(step)

    async def _read(self, step: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        return await self._database.read(in_one_state(step))
