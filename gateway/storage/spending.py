"""What has been spent, read from the ledger's table: what counters are loaded from."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Protocol

from sqlalchemy import ColumnElement, and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.accounts import Scope
from gateway.core.entries import CHARGED
from gateway.core.ports import Booked
from gateway.storage.tables import ledger

# Of a call that waits for its counters. An answer from the indexes takes milliseconds.
TIMEOUT_S = 2.0
# What was recorded before this cannot be told to counters a second time: they hear of a call within seconds.
RECENT_MS = 120_000
IDS_AT_ONCE = 500  # SQLite takes 32,766 variables, asyncpg 32,767; the rest of the work should not wait for so many

_OWNERS: Mapping[Scope, ColumnElement[str | None]] = {
    "key": ledger.c.key_id,
    "tenant": ledger.c.tenant,
    "session": ledger.c.session_key,
}


def charged_to(scope: Scope, owner: str, since_ms: int) -> ColumnElement[bool]:
    """The rows of the ledger that *owner* has to pay for, of calls admitted from *since_ms* on."""
    return and_(
        _OWNERS[scope] == owner, ledger.c.admitted_ms >= since_ms, ledger.c.kind.in_(CHARGED)
    )


class Reader(Protocol):
    """Runs a step, see `Database.read`."""

    async def read(self, step: Callable[[AsyncConnection], Awaitable[Booked]], /, *, within_s: float) -> Booked: ...


class SqlSpending:
    """
    Implements `Spending`. Charges and corrections count, in the period of the call's admission.

    Args:
        clock_s: Epoch seconds, as those who record rows have them.
    """

    def __init__(self, database: Reader, clock_s: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock_s = clock_s

    async def booked(self, scope: Scope, owner: str, since_ms: int, ids: Collection[str]) -> Booked:
        theirs = charged_to(scope, owner, since_ms)
        recent_ms = int(self._clock_s() * 1000) - RECENT_MS

        async def step(connection: AsyncConnection) -> Booked:
            return await _booked(connection, theirs, recent_ms, list(ids))

        return await self._database.read(step, within_s=TIMEOUT_S)


async def _booked(
    connection: AsyncConnection, theirs: ColumnElement[bool], recent_ms: int, ids: list[str]
) -> Booked:  # fmt: skip
    """
    Rows come while this is read. Those from before *recent_ms* are all there, so a sum of them cannot change; the ones
    since are read in one statement, amounts and ids, so that no row is in one of them alone.
    """
    old = and_(theirs, ledger.c.recorded_ms < recent_ms)
    columns = func.sum(ledger.c.cost_nano_usd), func.sum(ledger.c.weighted_tokens)
    money, weighted = (await connection.execute(select(*columns).where(old))).one()
    recent = await connection.execute(
        select(ledger.c.request_id, *columns)
        .where(theirs, ledger.c.recorded_ms >= recent_ms)
        .group_by(ledger.c.request_id)
    )
    rows = recent.all()
    found = {row[0] for row in rows}
    for some in _batches(ids):
        known = await connection.execute(select(ledger.c.request_id).where(old, ledger.c.request_id.in_(some)))
        found.update(known.scalars())
    # PostgreSQL sums to decimals, as the sum of 64-bit integers may be longer; ours are whole.
    return Booked(
        int(money or 0) + sum(int(row[1]) for row in rows),
        int(weighted or 0) + sum(int(row[2]) for row in rows),
        tuple(sorted(found)),
    )


def _batches(ids: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), IDS_AT_ONCE):
        yield ids[start : start + IDS_AT_ONCE]
