"""Whether the books agree with each other: every check is a statement that finds what should not be there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    FromClause,
    ScalarSelect,
    Select,
    Subquery,
    and_,
    exists,
    func,
    or_,
    select,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.accounts import session_key
from gateway.core.entries import CHARGED, COST, COST_CORRECTION
from gateway.storage.reading_usage import ATTEMPT
from gateway.storage.retention import ERASED
from gateway.storage.tables import audit, ledger, sessions, traces

Kind = Literal["missing", "extra", "mismatch"]

MAX_EXAMPLES = 20  # of what a check found; the count is of all
SESSIONS_AT_ONCE = 200  # in one statement, as conditions of their own
SLACK_MS = 60_000  # more than the clocks of two hosts that are looked after are apart

_AMOUNTS = ("cost_nano_usd", "weighted_tokens")
_charges = ledger.alias("charges")
_IS_CHARGE = _charges.c.kind == "charge"
_SAME_REQUEST = _charges.c.request_id == traces.c.request_id


@dataclass(frozen=True, slots=True)
class Finding:
    """
    What a check has found.

    Attributes:
        rule: What holds where all is well.
        examples: Some of the requests or sessions for which it does not.
    """

    kind: Kind
    rule: str
    count: int = 0
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """A rule, and the statement that gives one column: for whom it does not hold."""

    kind: Kind
    rule: str
    broken: Select[Any] | CompoundSelect[Any]


def checks(traces_since_ms: int) -> tuple[Check, ...]:
    """
    The checks, for books whose traces before *traces_since_ms* may have been deleted.

    A call that no provider was asked for may have a trace alone; so has a count of tokens, which is free.
    """
    charged = select(_charges.c.seq).where(_IS_CHARGE, _SAME_REQUEST)
    was_asked = and_(traces.c.provider.is_not(None), traces.c.endpoint != "count_tokens")
    kept = and_(_charges.c.admitted_ms >= traces_since_ms, ~_erased_since(_charges))
    traced = select(traces.c.request_id).where(_SAME_REQUEST)
    return (
        Check(
            "missing", "a call that a provider was asked for has a charge",
            select(traces.c.request_id).where(was_asked, ~exists(charged)),
        ),
        Check(
            "missing", "a charge has a trace, for as long as traces are kept",
            select(_charges.c.request_id).where(_IS_CHARGE, kept, ~exists(traced)),
        ),
        Check("missing", "a cost or a correction has a charge", _without_charge()),
        Check(
            "extra", "a call has one charge",
            select(_charges.c.request_id).where(_IS_CHARGE).group_by(_charges.c.request_id).having(func.count() > 1),
        ),
        Check(
            "mismatch", "a trace and its charge name the same tenant, key, cost and weighted tokens",
            select(traces.c.request_id).distinct().join(_charges, and_(_SAME_REQUEST, _IS_CHARGE)).where(or_(
                *(_charges.c[name] != traces.c[name] for name in ("tenant", "key_id")),
                *(_paid(name) != traces.c[name] for name in _AMOUNTS),
            )),
        ),
        Check("mismatch", "a charge and its corrections are not below nothing", _below_nothing(CHARGED)),
        Check(
            "mismatch", "an attempt's cost and its corrections are not below nothing",
            _below_nothing((COST, COST_CORRECTION), ATTEMPT),
        ),
        Check("mismatch", "a session's totals are those of its traces", _sessions_beside_traces(traces_since_ms)),
    )  # fmt: skip


def _paid(name: str) -> ScalarSelect[Any]:
    """The sum over a trace's charge and its corrections: traces say what the last word of the call's process was."""
    is_its_own = ledger.c.request_id == traces.c.request_id
    paid = select(func.sum(ledger.c[name])).where(is_its_own, ledger.c.kind.in_(CHARGED))
    return paid.correlate(traces).scalar_subquery()


def _erased_since(booked: FromClause) -> ColumnElement[bool]:
    """Whether what is kept of the tenant's calls besides the ledger was erased after the call of a row of *booked*."""
    return exists(
        select(audit.c.seq).where(
            audit.c.action == ERASED, audit.c.tenant == booked.c.tenant, audit.c.at_ms >= booked.c.settled_ms
        )
    )


def _without_charge() -> Select[Any]:
    other = ledger.alias("others")
    charged = select(_charges.c.seq).where(_IS_CHARGE, _charges.c.request_id == other.c.request_id)
    return select(other.c.request_id).where(other.c.kind != "charge", ~exists(charged)).distinct()


def _below_nothing(kinds: Sequence[str], *by: ColumnElement[Any]) -> Select[Any]:
    """Requests of which rows of *kinds*, those of a request together, or of the same *by* of it, are less than none."""
    sums = (func.sum(ledger.c[name]) < 0 for name in _AMOUNTS)
    request_id = ledger.c.request_id
    return select(request_id).where(ledger.c.kind.in_(kinds)).group_by(request_id, *by).having(or_(*sums))


def _sessions_beside_traces(since_ms: int) -> Select[Any]:
    """Of sessions that began when traces were kept that still are."""
    names = ("prompt_tokens", "completion_tokens", "weighted_tokens", "cost_nano_usd")
    sums: Subquery = (
        select(
            traces.c.tenant, traces.c.session_id, func.count().label("requests"),
            *(func.sum(traces.c[name]).label(name) for name in names),
        )
        .where(traces.c.session_id.is_not(None))
        .group_by(traces.c.tenant, traces.c.session_id)
        .subquery()
    )  # fmt: skip
    same = and_(sums.c.tenant == sessions.c.tenant, sums.c.session_id == sessions.c.session_id)
    differs = or_(sums.c.requests.is_(None), *(sums.c[name] != sessions.c[name] for name in ("requests", *names)))
    chosen = select(sessions.c.session_id).outerjoin(sums, same)
    return chosen.where(sessions.c.first_ms >= since_ms, differs)


async def verify(connection: AsyncConnection, traces_since_ms: int) -> list[Finding]:
    """What every check finds. Call it in a transaction that sees one state of the database."""
    found = [await _run(connection, check) for check in checks(traces_since_ms)]
    return [*found, await _sessions_beside_ledger(connection)]


async def _run(connection: AsyncConnection, check: Check) -> Finding:
    broken = check.broken.subquery()
    count = (await connection.execute(select(func.count()).select_from(broken))).scalar_one()
    if not count:
        return Finding(check.kind, check.rule)
    (column,) = broken.c
    examples = await connection.execute(select(column).order_by(column).limit(MAX_EXAMPLES))
    return Finding(check.kind, check.rule, count, tuple(examples.scalars()))


async def _sessions_beside_ledger(connection: AsyncConnection) -> Finding:
    """The ledger knows sessions by a digest alone, which no database makes: so they are taken some at a time."""
    rule = "a session's cost is what the ledger charged since it began"
    broken: list[str] = []
    after = ("", "")
    while batch := await _next_sessions(connection, after):
        after = (batch[-1].tenant, batch[-1].session_id)
        costs = await _charged(connection, batch)
        broken += [
            row.session_id
            for row in batch
            if costs.get(session_key(row.tenant, row.session_id), 0) != row.cost_nano_usd
        ]
    return Finding("mismatch", rule, len(broken), tuple(broken[:MAX_EXAMPLES]))


async def _next_sessions(connection: AsyncConnection, after: tuple[str, str]) -> Sequence[Any]:
    tenant, session_id = sessions.c.tenant, sessions.c.session_id
    behind = or_(tenant > after[0], and_(tenant == after[0], session_id > after[1]))
    columns = (tenant, session_id, sessions.c.first_ms, sessions.c.cost_nano_usd)
    chosen = select(*columns).where(behind).order_by(tenant, session_id).limit(SESSIONS_AT_ONCE)
    return (await connection.execute(chosen)).all()


async def _charged(connection: AsyncConnection, batch: Sequence[Any]) -> dict[str, int]:
    """
    What was charged, by session; what was in an earlier one of the same name, which has been deleted since, is not its
    own, nor is what was erased: a session may go on at once.
    """
    traced = exists(select(traces.c.request_id).where(traces.c.request_id == ledger.c.request_id))
    own = [
        and_(
            ledger.c.session_key == session_key(row.tenant, row.session_id),
            ledger.c.admitted_ms >= row.first_ms - SLACK_MS,
        )
        for row in batch
    ]
    chosen = select(ledger.c.session_key, func.sum(ledger.c.cost_nano_usd)).where(
        ledger.c.kind.in_(CHARGED), or_(*own), or_(traced, ~_erased_since(ledger))
    )
    return {key: int(cost) for key, cost in await connection.execute(chosen.group_by(ledger.c.session_key))}
