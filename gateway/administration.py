"""The admin API over the stores of this process: every route that there is."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from gateway.core.ports import Terms
from gateway.http.admin.accounts import AccountsDesk, RulesDesk
from gateway.http.admin.allowances import AllowancesDesk
from gateway.http.admin.desk import AdminDesk
from gateway.http.admin.limits import LimitsDesk
from gateway.http.admin.reading import ReadingDesk
from gateway.http.admin.routes import AdminTable
from gateway.http.door import Door
from gateway.storage.account_rules import SqlRules
from gateway.storage.accounts import SqlAccounts
from gateway.storage.allowances import SqlAllowances
from gateway.storage.open import Stores
from gateway.storage.reading import SqlBooks


def open_desk(
    stores: Stores,
    door: Door,
    terms: Callable[[], Terms],
    slugs: Callable[[], Collection[str]],
    now_ms: Callable[[], int],
) -> AdminDesk:
    """
    What answers for *stores*.

    Args:
        door: What keys come in by.
        terms: The tiers of the file that is in force now.
        slugs: What its models are called.
        now_ms: Epoch milliseconds.
    """
    database, forget = stores.database, stores.keys.invalidate
    accounts = SqlAccounts(database, terms, chance=os.urandom, now_ms=now_ms, on_change=forget)
    rules = SqlRules(database, terms, now_ms=now_ms, on_change=forget)
    reading = ReadingDesk(SqlBooks(database, now_ms))
    desks = (
        AccountsDesk(accounts, slugs), RulesDesk(rules), reading, AllowancesDesk(SqlAllowances(database, terms)),
        LimitsDesk(stores.counters),
    )  # fmt: skip
    return AdminDesk(AdminTable([route for desk in desks for route in desk.routes()]), door, now_ms)
