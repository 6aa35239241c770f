"""What counters are loaded from, on both databases."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gateway.core.accounts import session_key
from gateway.core.ports import Booked, StoreUnavailable
from gateway.storage.database import Database
from gateway.storage.spending import RECENT_MS, SqlSpending
from gateway.storage.tables import ledger

NOW_MS = 1_800_000_000_000
LONG_AGO_MS = NOW_MS - RECENT_MS - 1


def row(request_id: str, cost: int, **more: Any) -> dict[str, Any]:
    """A charge of the key k1 of acme, admitted and recorded a moment ago."""
    texts = dict.fromkeys(("basis", "model", "routing_mode", "outcome", "writer"), "x")
    counts = ("prompt", "completion", "cached", "cache_write", "reasoning")
    facts = {"request_id": request_id, "attempt": -1, "kind": "charge", "state": "settled"}
    owner = {"tenant": "acme", "key_id": "k1", "session_key": session_key("acme", "s")}
    money = {"cost_nano_usd": cost, "weighted_tokens": cost * 10, "reserved_nano_usd": 0}
    times = {"admitted_ms": NOW_MS, "settled_ms": NOW_MS, "recorded_ms": NOW_MS}
    return {**texts, **{f"{name}_tokens": 0 for name in counts}, **facts, **owner, **money, **times, **more}


async def spending(database: Database, *rows: dict[str, Any]) -> SqlSpending:
    async with database.engine.begin() as connection:
        await connection.execute(ledger.insert(), list(rows))
    return SqlSpending(database, lambda: NOW_MS / 1000)


async def test_charges_and_corrections_of_the_period_count(tabled: Database) -> None:
    """Costs of providers, other owners and calls of before the period do not; what was recorded of late is named."""
    books = await spending(
        tabled,
        row("r1", 5),
        row("r1", -2, kind="correction", attempt=-2),
        row("r1", 900, kind="cost", attempt=0),
        row("r2", 7, recorded_ms=LONG_AGO_MS),
        row("r3", 11, key_id="k2", session_key=None),
        row("r4", 13, tenant="other", key_id="k9", session_key=session_key("other", "s")),
        row("r5", 17, admitted_ms=NOW_MS - 1),
    )

    found = [
        await books.booked("key", "k1", NOW_MS, ()),
        await books.booked("tenant", "acme", NOW_MS, ()),
        await books.booked("session", session_key("acme", "s"), 0, ()),
        await books.booked("tenant", "nobody", 0, ()),
    ]

    assert found == [
        Booked(10, 100, ("r1",)),
        Booked(21, 210, ("r1", "r3")),
        Booked(27, 270, ("r1", "r5")),
        Booked(),
    ]


async def test_what_is_asked_about_is_named_however_old(tabled: Database) -> None:
    """And only if it is there, and is in the sum."""
    books = await spending(
        tabled, row("old", 5, recorded_ms=LONG_AGO_MS), row("theirs", 5, tenant="other", key_id="k9")
    )

    booked = await books.booked("key", "k1", 0, ["old", "theirs", "none", *[f"n{number}" for number in range(1200)]])

    assert booked == Booked(5, 50, ("old",))


async def test_a_database_without_tables_cannot_tell(database: Database) -> None:
    """The counters then refuse what they would have to know."""
    with pytest.raises(StoreUnavailable):
        await SqlSpending(database, time.time).booked("key", "k1", 0, ())
