"""The statements of the table `idempotency`: each step is atomic, on SQLite and on PostgreSQL.

Time is the database's, as the clocks of two machines may differ; whether a holder lives is not told by it, see
`sightings`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import BigInteger, bindparam, delete, null, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from gateway.core.exchange import Answer
from gateway.core.ports import Claim, Claimed, Kept
from gateway.storage.sightings import Sightings
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
_IS_AS_SEEN = rows.c.renewed_ms == bindparam("seen_ms")
_DELETE_OLD = delete(rows).where(_IS_NAMED, rows.c.expires_ms <= now_ms(), _IS_AS_SEEN)
_RENEW = update(rows).where(_IS_HIS).values(renewed_ms=now_ms(), expires_ms=now_ms() + bindparam("keep_ms"))


def _claiming(dialect: str) -> Any:
    """The statement that takes a name, in one step: one that is new, or whose answer is out of date."""
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
        where=(rows.c.expires_ms <= now_ms()) & rows.c.status.is_not(None),
    ).returning(rows.c.request_id)


# Takes a claim over from a process that died, unless it has been renewed, answered or taken since it was read.
_TAKE_OVER = (
    update(rows)
    .where(_IS_HIS, _IS_AS_SEEN)
    .values(
        call=bindparam("new_call"),
        request_id=bindparam("new_request"),
        holder=bindparam("new_holder"),
        renewed_ms=now_ms(),
        expires_ms=now_ms() + bindparam("keep_ms"),
    )
    .returning(rows.c.request_id)
)


class Rows:
    """
    The table, as one process uses it.

    Args:
        dialect: `sqlite` or `postgresql`.
        holder: The process, for people who look at the table.
        lease_s: How long a claim holds that is not renewed.
        keep_s: How long an answer is kept.
        clock_s: Monotonic seconds.
    """

    def __init__(
        self, dialect: str, holder: str, *, lease_s: float, keep_s: float, clock_s: Callable[[], float]
    ) -> None:  # fmt: skip
        self._claiming = _claiming(dialect)
        self._keep_ms = round(keep_s * 1000)
        self._terms = {"holder": holder, "keep_ms": self._keep_ms}
        self._sightings = Sightings(clock_s, lease_s)

    async def claim(self, claim: Claim, connection: AsyncConnection) -> Claimed:
        """What becomes of *claim*, see `Replays`."""
        values = {"tenant": claim.tenant, "name": claim.name, "call": claim.digest, "request_id": claim.request_id}
        if (await connection.execute(self._claiming, {**values, **self._terms})).first() is not None:
            return "claimed"
        row = (await connection.execute(select(rows).where(_IS_NAMED), _his(claim))).first()
        if row is None:
            return "running"  # it was let go in this very moment: the caller asks again
        if row.status is None and await self._took_over(claim, row, connection):
            return "claimed"
        if row.call != claim.digest:
            return "mismatch"
        if row.status is None:
            return "running"
        if row.body is None:
            return Kept(row.request_id, None)
        headers = tuple((name, value) for name, value in row.headers)
        return Kept(row.request_id, Answer(row.status, row.body, headers))

    async def _took_over(self, claim: Claim, row: Any, connection: AsyncConnection) -> bool:
        """Whether *row* was held by a process that died, and is *claim* now."""
        place = (claim.tenant, claim.name)
        if not self._sightings.is_lost(place, (row.request_id, row.renewed_ms)):
            return False
        self._sightings.forget(place)
        terms = {
            **_named(*place),
            "of_request": row.request_id,
            "seen_ms": row.renewed_ms,
            "new_call": claim.digest,
            "new_request": claim.request_id,
            "new_holder": self._terms["holder"],
            "keep_ms": self._keep_ms,
        }
        return (await connection.execute(_TAKE_OVER, terms)).first() is not None

    @property
    def is_looking(self) -> bool:
        """Whether there are claims of others that were asked for here."""
        return bool(self._sightings.places)

    async def look(self, connection: AsyncConnection) -> None:
        """See which claims of others are renewed still: whoever asks for one again need not be the one to find out."""
        places = self._sightings.places
        chosen = select(rows.c.tenant, rows.c.name, rows.c.request_id, rows.c.renewed_ms).where(
            tuple_(rows.c.tenant, rows.c.name).in_(places), rows.c.status.is_(None)
        )
        running = {(tenant, name): version for tenant, name, *version in await connection.execute(chosen)}
        for place in places:
            if place in running:
                self._sightings.is_lost(place, tuple(running[place]))
            else:
                self._sightings.forget(place)

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
        """Delete up to `SWEPT_ROWS` that are out of date, and held by nobody who lives; how many there were."""
        columns = (rows.c.tenant, rows.c.name, rows.c.request_id, rows.c.status, rows.c.renewed_ms)
        gone = select(*columns).where(rows.c.expires_ms <= now_ms()).limit(SWEPT_ROWS)
        swept = [
            {**_named(row.tenant, row.name), "seen_ms": row.renewed_ms}
            for row in await connection.execute(gone)
            if row.status is not None
            or self._sightings.is_lost((row.tenant, row.name), (row.request_id, row.renewed_ms))
        ]
        if swept:
            await connection.execute(_DELETE_OLD, swept)
        return len(swept)


def _his(claim: Claim) -> dict[str, Any]:
    return {**_named(claim.tenant, claim.name), "of_request": claim.request_id}


def _named(tenant: str, name: bytes) -> dict[str, Any]:
    return {"of_tenant": tenant, "of_name": name}
