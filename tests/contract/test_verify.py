"""Books that agree, and every way in which they may not: each is found by its rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core.accounts import session_key
from gateway.core.usage import Usage
from gateway.storage.database import Database
from gateway.storage.retention import ERASED
from gateway.storage.tables import audit
from gateway.storage.verifying import verify
from tests.contract.test_commands import run
from tests.contract.test_writing import ended, entries, left_open, writer
from tests.support.booked import DAY_MS, NOON_MS, Row, book, charge, cost, request_id, session, trace

SESSION = "s'1"


def books() -> dict[str, list[Row]]:
    """Four calls of two tenants that agree in everything: one in a session, one corrected, one refused, one counted."""
    own = {"session_key": session_key("acme", SESSION)}
    calls = [
        charge(request_id=request_id(1), **own), charge(request_id=request_id(2), tenant="umbrella"),
        charge(request_id=request_id(3), state="voided", outcome="failed", cost_nano_usd=0, weighted_tokens=0),
    ]  # fmt: skip
    refused = charge(request_id=request_id(4), provider=None, cost_nano_usd=0, weighted_tokens=0, **own)
    counted = charge(request_id=request_id(5), cost_nano_usd=0, weighted_tokens=0)
    correction = {**calls[1], "attempt": -2, "kind": "correction", "cost_nano_usd": -500, "weighted_tokens": -2}
    corrected = {name: calls[1][name] + correction[name] for name in ("cost_nano_usd", "weighted_tokens")}
    totals = {name: calls[0][name] + refused[name] for name in ("prompt_tokens", "completion_tokens")}
    return {
        "ledger_rows": [*calls, cost(calls[0]), cost(calls[0], 1), cost(calls[1]), correction],
        "trace_rows": [
            trace(calls[0], session_id=SESSION), trace(calls[1], **corrected), trace(calls[2]),
            trace(refused, session_id=SESSION),
            trace(counted, endpoint="count_tokens"),
        ],
        "session_rows": [session(session_id=SESSION, requests=2, **totals)],
    }  # fmt: skip


async def found(database: Database, rows: dict[str, list[Row]], since_ms: int = 0) -> dict[str, tuple[str, ...]]:
    """The examples of the rules that do not hold, by rule."""
    async with database.engine.begin() as connection:
        await book(connection, **rows)
        return {one.rule: (one.kind, *one.examples) for one in await verify(connection, since_ms) if one.count}


async def test_books_that_agree(tabled: Database) -> None:
    """Nothing is found where nothing is wrong."""
    assert await found(tabled, books()) == {}


def without(rows: dict[str, list[Row]], table: str, number: int, kind: str | None = None) -> dict[str, list[Row]]:
    gone = [row for row in rows[table] if row["request_id"] == request_id(number) and kind in (None, row.get("kind"))]
    return {**rows, table: [row for row in rows[table] if row not in gone]}


def changed(rows: dict[str, list[Row]], table: str, at: int, **changes: Any) -> dict[str, list[Row]]:
    return {**rows, table: [{**row, **(changes if n == at else {})} for n, row in enumerate(rows[table])]}


ASKED = "a call that a provider was asked for has a charge"
SAME = "a trace and its charge name the same tenant, key, cost and weighted tokens"
WRONG: list[tuple[str, dict[str, list[Row]], dict[str, tuple[str, ...]]]] = [
    ("no charge", without(books(), "ledger_rows", 3), {ASKED: ("missing", request_id(3))}),
    (
        "no trace", without(books(), "trace_rows", 2),
        {"a charge has a trace, for as long as traces are kept": ("missing", request_id(2))},
    ),
    (
        "costs alone", without(books(), "ledger_rows", 2, "charge"),
        {ASKED: ("missing", request_id(2)), "a cost or a correction has a charge": ("missing", request_id(2)),
         "a charge and its corrections are not below nothing": ("mismatch", request_id(2))},
    ),
    (
        "two final states",
        {**books(), "ledger_rows": [*books()["ledger_rows"], {**books()["ledger_rows"][1], "attempt": -7}]},
        {"a call has one charge": ("extra", request_id(2)), SAME: ("mismatch", request_id(2))},
    ),
    *(
        (
            f"another {name}", changed(books(), "trace_rows", 1, **{name: value}),
            {SAME: ("mismatch", request_id(2))},
        )
        for name, value in (("tenant", "acme"), ("key_id", "x"), ("cost_nano_usd", 1), ("weighted_tokens", 1))
    ),
    (
        "corrected too far", changed(books(), "ledger_rows", 6, cost_nano_usd=-97_501),
        {"a charge and its corrections are not below nothing": ("mismatch", request_id(2)),
         SAME: ("mismatch", request_id(2))},
    ),
    (
        "a session's count", changed(books(), "session_rows", 0, requests=3),
        {"a session's totals are those of its traces": ("mismatch", SESSION)},
    ),
    (
        "a session's cost", changed(books(), "session_rows", 0, cost_nano_usd=1),
        {"a session's totals are those of its traces": ("mismatch", SESSION),
         "a session's cost is what the ledger charged since it began": ("mismatch", SESSION)},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "rules"), [pytest.param(*row[1:], id=row[0]) for row in WRONG])
async def test_what_is_wrong(tabled: Database, rows: dict[str, list[Row]], rules: dict[str, tuple[str, ...]]) -> None:
    """What is missing, extra or differs is found by its rule, and by no other."""
    assert await found(tabled, rows) == rules


async def test_the_last_word(tabled: Database) -> None:
    """
    A call that was reconciled and then told by its own process agrees in everything: its trace and its session say what
    the charge and its correction do together.
    """
    guess, word = left_open("r1", 4), ended("r1", Usage(11, 22), 41_000)
    for receipt in (guess, word):
        booking = replace(receipt.booking, session_key=session_key(receipt.tenant, SESSION))
        await writer(tabled).write(entries(replace(receipt, session_id=SESSION, booking=booking)))

    assert await found(tabled, {}) == {}


async def test_what_has_been_deleted(tabled: Database) -> None:
    """Traces that are not kept any more are missed by nobody, nor is a session that bore the same name before."""
    rows = without(without(books(), "trace_rows", 1), "trace_rows", 2)
    rows = {**rows, "session_rows": [session(session_id=SESSION, first_ms=NOON_MS - DAY_MS, requests=9)]}
    before = {"session_key": session_key("acme", SESSION), "admitted_ms": NOON_MS - 2 * DAY_MS}
    booked = [*rows["ledger_rows"], charge(request_id=request_id(7), **before)]

    assert await found(tabled, {**rows, "ledger_rows": booked}, NOON_MS + 1) == {}


async def test_what_has_been_erased(tabled: Database) -> None:
    """A session that goes on in the minute in which what was kept of it was erased has its later calls alone."""
    later = {"session_key": session_key("acme", SESSION), "admitted_ms": NOON_MS + 9000, "settled_ms": NOON_MS + 9900}
    after = charge(request_id=request_id(7), **later)
    noted: Row = {
        "at_ms": NOON_MS + 5000, "tenant": "acme", "actor": "cli", "action": ERASED, "target": "acme", "details": {},
    }  # fmt: skip
    async with tabled.engine.begin() as connection:
        await connection.execute(audit.insert().values(noted))
    rows = {
        "ledger_rows": [charge(request_id=request_id(1), session_key=later["session_key"]), after],
        "trace_rows": [trace(after, session_id=SESSION)],
        "session_rows": [session(session_id=SESSION, first_ms=NOON_MS + 9000, last_ms=NOON_MS + 9000)],
    }

    assert await found(tabled, rows) == {}


async def test_the_command(tabled: Database, url: str, tmp_path: Path) -> None:
    """`ledger verify` says 0/0/0 and exits 0; else it names what is wrong and exits 1."""
    async with tabled.engine.begin() as connection:
        await book(connection, **books())
    good = await run(url, "ledger", "verify", cwd=tmp_path)
    async with tabled.engine.begin() as connection:
        await book(connection, ledger_rows=[cost(charge(request_id=request_id(9)))])

    bad = await run(url, "ledger", "verify", cwd=tmp_path)
    told = await run(url, "ledger", "verify", "--json", cwd=tmp_path)

    assert good == (0, "missing/extra/mismatch = 0/0/0; no counters in Redis looked at.\n", "")
    assert (bad[0], bad[1].splitlines()) == (
        1,
        [
            "missing: 1 times not so: a cost or a correction has a charge.", f"  {request_id(9)}",
            "missing/extra/mismatch = 1/0/0; no counters in Redis looked at.",
        ],
    )  # fmt: skip
    assert json.loads(told[1].splitlines()[-1]) == {"missing": 1, "extra": 0, "mismatch": 0, "counters": None}
