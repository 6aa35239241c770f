"""Sums over the ledger, by what the ledger knows of a call and by what only its trace knows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Row,
    Select,
    Text,
    case,
    exists,
    func,
    literal,
    literal_column,
    or_,
    select,
    tuple_,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.entries import CHARGED, COSTS_APART
from gateway.core.reading import DAY_MS, FIGURES, Dimension, Figures, Group, UsageAsked, UsageReport
from gateway.storage.tables import keys, ledger, tenants, traces

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# A call whose trace is gone, or never came, counts among those that have no such value: sums are the ledger's.
_COLUMNS: Mapping[Dimension, ColumnElement[Any]] = {
    "model": ledger.c.model,
    "key": ledger.c.key_id,
    "user": traces.c.user,
    "agent": traces.c.agent_id,
    "session": traces.c.session_id,
    "provider": ledger.c.provider,
    "region": ledger.c.region,
    "mode": ledger.c.routing_mode,
    "endpoint": traces.c.endpoint,
    "tenant": ledger.c.tenant,
}
# As literals, not as parameters: PostgreSQL takes two parameters for two things, even in GROUP BY.
_NOTHING, _DAY_MS = literal_column("''", Text), literal_column(str(DAY_MS), BigInteger)
DAY = ledger.c.admitted_ms // _DAY_MS  # whole days of UTC
ATTEMPT = ledger.c.attempt % literal_column(str(COSTS_APART), Integer)  # whose cost a row is of, or corrects
_OF_TRACES = frozenset(name for name, column in _COLUMNS.items() if column.table is traces)


_KNOWN = {"tenant": (tenants.c.id, ledger.c.tenant), "key": (keys.c.id, ledger.c.key_id)}


async def unknown(connection: AsyncConnection, named: Mapping[str, str]) -> list[str]:
    """
    The kinds of *named* (`tenant`, `key`) of which the database has neither that one nor a call: one that stands in the
    file alone is known by its calls.
    """
    found = []
    for kind, name in named.items():
        seen = [exists().where(column == name) for column in _KNOWN[kind]]
        if not (await connection.execute(select(or_(*seen)))).scalar_one():
            found.append(kind)
    return found


async def read_usage(connection: AsyncConnection, asked: UsageAsked) -> UsageReport:
    """The page that is *asked* for. Call it in a transaction that sees one state of the database."""
    (total,) = (await connection.execute(_sums(asked, ()))).all()
    if not asked.by:
        return UsageReport((Group((), _figures(total)),), _figures(total), has_more=False)
    found = (await connection.execute(usage_statement(asked))).all()
    groups = tuple(_group(row, asked.by) for row in found[: asked.limit])
    return UsageReport(groups, _figures(total), has_more=len(found) > asked.limit)


def usage_statement(asked: UsageAsked) -> Select[Any]:
    """The groups of the page and one more, in the order of their values."""
    by = tuple(map(_value, asked.by))
    chosen = _sums(asked, by).group_by(*by).order_by(*by).limit(asked.limit + 1)
    if asked.after is None:
        return chosen
    after = [_mark(name, text) for name, text in zip(asked.by, asked.after, strict=True)]
    return chosen.where(tuple_(*by) > tuple_(*map(literal, after)))


def _sums(asked: UsageAsked, by: tuple[ColumnElement[Any], ...]) -> Select[Any]:
    is_charge = case((ledger.c.kind == "charge", 1), else_=0)
    summed = (is_charge, *(ledger.c[name] for name in FIGURES[1:]))
    chosen = select(*by, *(func.coalesce(func.sum(what), 0) for what in summed)).where(
        ledger.c.kind.in_(CHARGED), ledger.c.admitted_ms >= asked.since_ms, ledger.c.admitted_ms < asked.until_ms
    )
    if asked.tenant is not None:
        chosen = chosen.where(ledger.c.tenant == asked.tenant)
    for name, value in asked.filters.items():
        chosen = chosen.where(_COLUMNS[name] == value)
    if _OF_TRACES.isdisjoint((*asked.by, *asked.filters)):
        return chosen
    of_call = (traces.c.request_id == ledger.c.request_id) & (traces.c.tenant == ledger.c.tenant)
    return chosen.select_from(ledger.outerjoin(traces, of_call))


def _value(name: Dimension) -> ColumnElement[Any]:
    """What groups are told apart and ordered by: "" where a call has no such value, as marks cannot be null."""
    return DAY if name == "day" else func.coalesce(_COLUMNS[name], _NOTHING)


def _mark(name: Dimension, text: str) -> int | str:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH).days if name == "day" else text


def _group(row: Row[Any], by: tuple[Dimension, ...]) -> Group:
    values = tuple(_told(name, value) for name, value in zip(by, row, strict=False))
    return Group(values, _figures(row[len(by) :]))


def _told(name: Dimension, value: Any) -> str | None:
    return (EPOCH + timedelta(days=value)).date().isoformat() if name == "day" else value or None


def _figures(sums: Any) -> Figures:
    return Figures(*map(int, sums))  # PostgreSQL adds whole numbers up as decimals
