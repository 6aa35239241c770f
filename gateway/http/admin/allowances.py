"""Months of tenants beside their allowances, as JSON or CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.core.allowances import COLUMNS, AllowanceUsed
from gateway.core.errors import INVALID_REQUEST, GatewayError
from gateway.http.admin.reading import MAX_GROUPS, is_sheet
from gateway.http.admin.routes import AdminRequest, AdminRoute, Reply
from gateway.policy.periods import month_of, number_of
from gateway.wire.sheets import sheet

_TAKES = frozenset({"month", "format"})
_SHEET = (("Content-Disposition", 'attachment; filename="allowances.csv"'),)


class Allowances(Protocol):
    """See `storage.allowances.SqlAllowances`."""

    async def month(self, number: int, tenant: str | None, after: str, limit: int) -> Sequence[AllowanceUsed]: ...


class AllowancesDesk:
    """The handler, over what the ledger has."""

    def __init__(self, allowances: Allowances) -> None:
        self._allowances = allowances

    def routes(self) -> tuple[AdminRoute, ...]:
        """One row."""
        return (AdminRoute("GET", "usage/allowances", "read", self.allowances, _TAKES, paged=True),)

    async def allowances(self, asked: AdminRequest) -> Reply:
        """The month of the tenant, or of every one."""
        number = _month(asked)
        if is_sheet(asked):
            rows = await self._allowances.month(number, asked.tenant, "", MAX_GROUPS + 1)
            if len(rows) > MAX_GROUPS:
                words = f"format: these are more than {MAX_GROUPS} tenants; take JSON page by page."
                raise GatewayError(INVALID_REQUEST, words, param="format")
            told = [list(row.told().values()) for row in rows]
            return Reply(sheet(COLUMNS, told).encode(), content_type="text/csv; charset=utf-8", headers=_SHEET)
        mark, limit = asked.page.mark_of(str), asked.page.limit
        found = await self._allowances.month(number, asked.tenant, "" if mark is None else str(mark[0]), limit + 1)
        next_mark = (found[limit - 1].tenant,) if len(found) > limit else None
        return Reply(asked.page.render([row.told() for row in found[:limit]], next_mark=next_mark))


def _month(asked: AdminRequest) -> int:
    text = asked.query.get("month")
    if text is None:
        return number_of("month", asked.now_ms)
    try:
        return month_of(text)
    except ValueError as exc:
        raise GatewayError(INVALID_REQUEST, f"month: {exc}.", param="month") from None
