"""Months of tenants beside their allowances: derived from the ledger, booked nowhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace
from sqlalchemy import Select, and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.accounts import BadTerms
from gateway.core.allowances import AllowanceUsed
from gateway.core.entries import CHARGED
from gateway.core.ports import Terms
from gateway.core.reading import Row
from gateway.policy.periods import end_ms, month_name, start_ms
from gateway.storage.reading import Reader
from gateway.storage.reading_traces import rows_of
from gateway.storage.tables import ledger, tenants, tiers


class SqlAllowances:
    """
    Those of the tenants in the database.

    Args:
        terms: The tiers of the file that is in force now.
    """

    def __init__(self, database: Reader, terms: Callable[[], Terms]) -> None:
        self._database = database
        self._terms = terms

    async def month(self, number: int, tenant: str | None, after: str, limit: int) -> Sequence[AllowanceUsed]:
        """
        What the *number*th month (see `policy.periods`) came to: of *tenant*, or of all of them behind *after* by id.

        Raises:
            StoreUnavailable: That cannot be told now.
        """
        statement = _statement(number, tenant, after).limit(limit)

        async def step(connection: AsyncConnection) -> Sequence[Row]:
            return await rows_of(connection, statement)

        return [self._used(number, row) for row in await self._database.read(step)]

    def _used(self, number: int, row: Row) -> AllowanceUsed:
        known = AllowanceUsed(row["id"], month_name(number), row["tier"], int(row["weighted"]))
        try:
            terms = self._terms().tier(row["tier"], row["limits"], {})
        except BadTerms:  # told of with its keys, which cannot be used; what they had used before is there
            return known
        allowance, price = terms.weighted_tokens_per_month, terms.overage_nano_usd_per_million
        return replace(known, allowance=allowance, overage_nano_usd_per_million=price)


def _statement(number: int, tenant: str | None, after: str) -> Select[Any]:
    booked = and_(
        ledger.c.tenant == tenants.c.id,
        ledger.c.kind.in_(CHARGED),
        ledger.c.admitted_ms >= start_ms("month", number),
        ledger.c.admitted_ms < (end_ms("month", number) or 0),
    )
    weighted = select(func.coalesce(func.sum(ledger.c.weighted_tokens), 0)).where(booked).scalar_subquery()
    chosen = select(tenants.c.id, tenants.c.tier, tiers.c.limits, weighted.label("weighted"))
    chosen = chosen.select_from(tenants.outerjoin(tiers, tiers.c.name == tenants.c.tier)).order_by(tenants.c.id)
    return chosen.where(tenants.c.id > after) if tenant is None else chosen.where(tenants.c.id == tenant)
