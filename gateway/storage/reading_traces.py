"""Traces, sessions and what the ledger has on one request."""

from __future__ import annotations

from typing import Any

from msgspec import structs
from sqlalchemy import Select, literal, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.reading import Row, SessionsAsked, TracesAsked
from gateway.storage.tables import bodies, ledger, sessions, traces

TAIL_ROWS = 1_000  # at once: a megabyte


def traces_statement(asked: TracesAsked) -> Select[Any]:
    """The traces of the page and one more."""
    chosen = select(traces).order_by(traces.c.started_ms.desc(), traces.c.request_id.desc()).limit(asked.limit + 1)
    if asked.tenant is not None:
        chosen = chosen.where(traces.c.tenant == asked.tenant)
    for name, value in asked.filters.items():
        chosen = chosen.where(traces.c[name] == value)
    if asked.min_cost_nano_usd is not None:
        chosen = chosen.where(traces.c.cost_nano_usd >= asked.min_cost_nano_usd)
    if asked.since_ms is not None:
        chosen = chosen.where(traces.c.started_ms >= asked.since_ms)
    if asked.until_ms is not None:
        chosen = chosen.where(traces.c.started_ms < asked.until_ms)
    if asked.after is not None:
        # The first condition follows from the second, but only it finds its way into an index.
        mark = tuple_(traces.c.started_ms, traces.c.request_id) < tuple_(*map(literal, asked.after))
        chosen = chosen.where(traces.c.started_ms <= asked.after[0], mark)
    return chosen


def tail_statement(asked: TracesAsked, came_after: tuple[int, str]) -> Select[Any]:
    """
    `TAIL_ROWS` traces in the order of their coming, of such as are *asked* for.

    Args:
        came_after: `recorded_ms` and `request_id` of the one behind which to go on.
    """
    order = (traces.c.recorded_ms, traces.c.request_id)
    behind = tuple_(*order) > tuple_(*map(literal, came_after))
    chosen = traces_statement(structs.replace(asked, limit=TAIL_ROWS - 1, after=None)).order_by(None).order_by(*order)
    return chosen.where(traces.c.recorded_ms >= came_after[0], behind)


def sessions_statement(asked: SessionsAsked) -> Select[Any]:
    """The sessions of the page and one more."""
    order = (sessions.c.last_ms, sessions.c.tenant, sessions.c.session_id)
    chosen = select(sessions).order_by(*(column.desc() for column in order)).limit(asked.limit + 1)
    if asked.tenant is not None:
        chosen = chosen.where(sessions.c.tenant == asked.tenant)
    if asked.agent is not None:
        chosen = chosen.where(sessions.c.agent_id == asked.agent)
    if asked.since_ms is not None:
        chosen = chosen.where(sessions.c.last_ms >= asked.since_ms)
    if asked.until_ms is not None:
        chosen = chosen.where(sessions.c.last_ms < asked.until_ms)
    if asked.after is not None:
        mark = tuple_(*order) < tuple_(*map(literal, asked.after))
        chosen = chosen.where(sessions.c.last_ms <= asked.after[0], mark)
    return chosen


def session_statement(tenant: str, session_id: str) -> Select[Any]:
    """The session, by its own name among those of its tenant."""
    return select(sessions).where(sessions.c.tenant == tenant, sessions.c.session_id == session_id)


def trace_statement(tenant: str | None, request_id: str) -> Select[Any]:
    """The trace of the request."""
    chosen = select(traces).where(traces.c.request_id == request_id)
    return chosen if tenant is None else chosen.where(traces.c.tenant == tenant)


def receipt_statement(tenant: str | None, request_id: str, key_id: str | None = None) -> Select[Any]:
    """Every row of the ledger on the request."""
    chosen = select(ledger).where(ledger.c.request_id == request_id).order_by(ledger.c.seq)
    if tenant is not None:
        chosen = chosen.where(ledger.c.tenant == tenant)
    return chosen if key_id is None else chosen.where(ledger.c.key_id == key_id)


def bodies_statement(tenant: str, request_id: str, now_ms: int) -> Select[Any]:
    """The bodies of the request, unless they have expired: the job that deletes them comes later."""
    return select(bodies).where(
        bodies.c.request_id == request_id, bodies.c.tenant == tenant, bodies.c.expires_ms > now_ms
    )


async def rows_of(connection: AsyncConnection, statement: Select[Any]) -> list[Row]:
    """The rows that *statement* finds."""
    return [dict(row) for row in (await connection.execute(statement)).mappings()]
