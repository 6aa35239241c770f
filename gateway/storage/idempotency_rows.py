"""The statements of the table `idempotency`: each step is atomic, on SQLite and on PostgreSQL.

Time is the database's: the clocks of two machines may differ by more than a lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, bindparam, delete, null, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from gateway.core.exchange import Answer
from gateway.core.ports import Claim, Claimed, Kept
from gateway.storage.tables import idempotency as rows

SWEPT_ROWS = 500  # in one transaction: other writers of SQLite wait for it


class now_ms(FunctionElement[int]):
    """Epoch milliseconds by the database's clock."""

    type = BigInteger()
    inherit_cache = True


@compiles(now_ms, "postgresql")
def _postgres_now(element: Any, compiler: Any, **_: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"


@compiles(now_ms, "sqlite")
def _sqlite_now(element: Any, compiler: Any, **_: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"  # 2440587.5: the Julian day of the epoch


_IS_NAMED = (rows.c.tenant == bindparam("of_tenant")) & (rows.c.name == bindparam("of_name"))
# A claim that another process has taken over, and an answer that is there, are not touched any more.
_IS_HIS = _IS_NAMED & (rows.c.request_id == bindparam("of_request")) & rows.c.status.is_(None)
_KEEP = (
    update(rows)
    .where(_IS_HIS)
    .values(
        status=bindparam("new_status"),
        headers=bindparam("new_headers"),
        body=bindparam("new_body"),
        expires_ms=now_ms() + bindparam("keep_ms"),
    )
)
_RELEASE = delete(rows).where(_IS_HIS)
_DELETE_OLD = delete(rows).where(_IS_NAMED, rows.c.expires_ms <= now_ms())
_RENEW = update(rows).where(_IS_HIS).values(renewed_ms=now_ms(), expires_ms=now_ms() + bindparam("keep_ms"))


def _claiming(dialect: str) -> Any:
    """The statement that takes a name, in one step: one that is new, out of date, or held by a process that died."""
    insert: Any = (postgresql if dialect == "postgresql" else sqlite).insert
    fresh = insert(rows).values(
        tenant=bindparam("tenant"),
        name=bindparam("name"),
        call=bindparam("call"),
        request_id=bindparam("request_id"),
        holder=bindparam("holder"),
        renewed_ms=now_ms(),
        expires_ms=now_ms() + bindparam("keep_ms"),
    )
    taken = ("call", "request_id", "holder", "renewed_ms", "expires_ms")
    return fresh.on_conflict_do_update(
        index_elements=["tenant", "name"],
        set_={
            **{name: fresh.excluded[name] for name in taken},
            **dict.fromkeys(("status", "headers", "body"), null()),
        },
        where=or_(
            rows.c.expires_ms <= now_ms(),
            rows.c.status.is_(None) & (rows.c.renewed_ms <= now_ms() - bindparam("lease_ms")),
        ),
    ).returning(rows.c.request_id)


class Rows:
    """
    The table, as one process uses it.

    Args:
        dialect: `sqlite` or `postgresql`.
        holder: The process, for people who look at the table.
        lease_s: How long a claim holds that is not renewed.
        keep_s: How long an answer is kept.
    """

    def __init__(self, dialect: str, holder: str, *, lease_s: float, keep_s: float) -> None:
        self._claiming = _claiming(dialect)
        self._keep_ms = round(keep_s * 1000)
        self._terms = {"holder": holder, "keep_ms": self._keep_ms, "lease_ms": round(lease_s * 1000)}

    async def claim(self, claim: Claim, connection: AsyncConnection) -> Claimed:
        """What becomes of *claim*, see `Replays`."""
        values = {"tenant": claim.tenant, "name": claim.name, "call": claim.digest, "request_id": claim.request_id}
        if (await connection.execute(self._claiming, {**values, **self._terms})).first() is not None:
            return "claimed"
        row = (await connection.execute(select(rows).where(_IS_NAMED), _his(claim))).first()
        if row is None:
            return "running"  # it was let go in this very moment: the caller asks again
        if row.call != claim.digest:
            return "mismatch"
        if row.status is None:
            return "running"
        if row.body is None:
            return Kept(row.request_id, None)
        headers = tuple((name, value) for name, value in row.headers)
        return Kept(row.request_id, Answer(row.status, row.body, headers))

    async def renew(self, claims: Sequence[Claim], connection: AsyncConnection) -> None:
        """Say that *claims* are still held."""
        await connection.execute(_RENEW, [{**_his(claim), "keep_ms": self._keep_ms} for claim in claims])

    async def end(
        self,
        kept: Sequence[tuple[Claim, Answer | None]],
        released: Sequence[Claim],
        connection: AsyncConnection,
    ) -> None:
        """Put the answers of *kept* in the place of their claims, and take *released* away."""
        if kept:
            await connection.execute(_KEEP, [self._kept(claim, answer) for claim, answer in kept])
        if released:
            await connection.execute(_RELEASE, [_his(claim) for claim in released])

    def _kept(self, claim: Claim, answer: Answer | None) -> dict[str, Any]:
        """Without an answer only the status tells that there was one."""
        said = answer or Answer(200, b"")
        return {
            **_his(claim),
            "new_status": said.status,
            "new_headers": [list(pair) for pair in said.headers],
            "new_body": None if answer is None else answer.body,
            "keep_ms": self._keep_ms,
        }

    async def sweep(self, connection: AsyncConnection) -> int:
        """Delete up to `SWEPT_ROWS` that are out of date; how many there were."""
        gone = select(rows.c.tenant, rows.c.name).where(rows.c.expires_ms <= now_ms()).limit(SWEPT_ROWS)
        swept = [{"of_tenant": tenant, "of_name": name} for tenant, name in await connection.execute(gone)]
        if swept:
            await connection.execute(_DELETE_OLD, swept)
        return len(swept)


def _his(claim: Claim) -> dict[str, Any]:
    return {"of_tenant": claim.tenant, "of_name": claim.name, "of_request": claim.request_id}
