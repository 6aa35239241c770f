"""What the gateway has written down, as the verdict reads it: rows of its tables by their names there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec import Struct, convert
from sqlalchemy import Table, select
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from gateway.storage import tables

R = TypeVar("R", bound=Struct)
_DRIVERS = {"postgresql://": "postgresql+asyncpg://", "sqlite:///": "sqlite+aiosqlite:///"}


class Row(Struct, frozen=True, kw_only=True):
    """A row of the ledger."""

    request_id: str
    attempt: int
    kind: str
    state: str
    basis: str
    tenant: str
    key_id: str
    provider_model: str | None
    outcome: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    weighted_tokens: int
    cost_nano_usd: int
    admitted_ms: int
    settled_ms: int
    recorded_ms: int


class Trace(Struct, frozen=True, kw_only=True):
    """A row of the traces; `user` is the call's marker."""

    request_id: str
    user: str | None
    tenant: str
    key_id: str
    session_id: str | None
    outcome: str
    status: int
    error_code: str | None
    prompt_tokens: int
    completion_tokens: int
    weighted_tokens: int
    cost_nano_usd: int


class Session(Struct, frozen=True, kw_only=True):
    """A row of the sessions."""

    tenant: str
    session_id: str
    requests: int
    prompt_tokens: int
    completion_tokens: int
    weighted_tokens: int
    cost_nano_usd: int


@dataclass(frozen=True, slots=True)
class Books:
    """All of it."""

    ledger: Sequence[Row] = ()
    traces: Sequence[Trace] = ()
    sessions: Sequence[Session] = ()
    dead_letters: Sequence[str] = field(default=())


async def read_books(url: str) -> Books:
    """The books in the database at *url*, as in `storage.database_url`."""
    for scheme, driver in _DRIVERS.items():
        if url.startswith(scheme):
            url = driver + url.removeprefix(scheme)
    engine = create_async_engine(url)
    try:
        async with engine.connect() as connection:
            dead = await connection.execute(select(tables.dead_letters.c.reason))
            return Books(
                await _rows(connection, tables.ledger, Row),
                await _rows(connection, tables.traces, Trace),
                await _rows(connection, tables.sessions, Session),
                [str(reason) for (reason,) in dead],
            )
    finally:
        await engine.dispose()


async def _rows(connection: AsyncConnection, table: Table, kind: type[R]) -> list[R]:
    columns = [table.c[name] for name in kind.__struct_fields__]
    found = await connection.execute(select(*columns))
    rows = [dict(zip(kind.__struct_fields__, row, strict=True)) for row in found]
    return convert(rows, list[kind])  # type: ignore[valid-type]  # a type at run time
