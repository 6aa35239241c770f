"""How PostgreSQL finds what the routes ask for: by an index, however many others' rows there are."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Executable, text
from sqlalchemy.dialects import postgresql

from gateway.core.reading import SessionsAsked, TracesAsked, UsageAsked
from gateway.storage.database import Database
from gateway.storage.reading_traces import (
    bodies_statement,
    receipt_statement,
    session_statement,
    sessions_statement,
    trace_statement,
    traces_statement,
)
from gateway.storage.reading_usage import usage_statement
from tests.support.booked import DAY_MS, NOON_MS, book, charge, request_id, session, trace

TENANTS, CALLS = 40, 50  # of each: 2,000 rows, of which a tenant has 2.5 %
DAY = (NOON_MS, NOON_MS + DAY_MS)
OF_TENANT = TracesAsked("t7")
ASKED: dict[str, Executable] = {
    "usage": usage_statement(UsageAsked("t7", ("day", "model"), 0, 2**53)),
    "usage, by user": usage_statement(UsageAsked("t7", ("user",), 0, 2**53)),
    "usage of one day, everybody's": usage_statement(UsageAsked(None, ("tenant",), NOON_MS, NOON_MS + 5)),
    "usage of a key": usage_statement(UsageAsked("t7", ("day",), 0, 2**53, {"key": "key_7"})),
    "traces": traces_statement(OF_TENANT),
    "traces, next page": traces_statement(TracesAsked("t7", after=(NOON_MS + 20, request_id(1)))),
    "traces, everybody's": traces_statement(TracesAsked(None)),
    "traces, everybody's, next page": traces_statement(TracesAsked(None, after=(NOON_MS + 20, request_id(1)))),
    "traces of a session": traces_statement(TracesAsked("t7", filters={"session_id": "s3"})),
    "traces by response": traces_statement(TracesAsked("t7", filters={"response_id": "chatcmpl-x"})),
    "traces that failed": traces_statement(TracesAsked("t7", filters={"outcome": "failed"})),
    "a trace": trace_statement("t7", request_id(5)),
    "a receipt": receipt_statement("t7", request_id(5)),
    "a receipt of a key": receipt_statement("t7", request_id(5), "key_7"),
    "bodies": bodies_statement("t7", request_id(5), NOON_MS),
    "sessions": sessions_statement(SessionsAsked("t7")),
    "sessions, everybody's": sessions_statement(SessionsAsked(None, after=(NOON_MS, "t7", "s3"))),
    "a session": session_statement("t7", "s3"),
}


@pytest.fixture(params=["postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """PostgreSQL alone: SQLite tells its plans in other words."""
    found: str = request.getfixturevalue("postgres").create_database("plans")
    return found


async def test_no_table_is_read_whole(tabled: Database) -> None:
    """Every statement of the routes goes by an index."""
    charges = [
        charge(tenant=f"t{tenant}", key_id=f"key_{tenant}", admitted_ms=NOON_MS + call)
        for tenant in range(TENANTS)
        for call in range(CALLS)
    ]
    sessions = [
        session(tenant=f"t{tenant}", session_id=f"s{call}", last_ms=NOON_MS + call)
        for tenant in range(TENANTS)
        for call in range(CALLS)
    ]
    kept = [{"tenant": row["tenant"], "request_id": row["request_id"], "expires_ms": 2**53} for row in charges]
    async with tabled.engine.begin() as connection:
        await book(
            connection,
            ledger_rows=charges,
            trace_rows=[trace(row, session_id=f"s{row['admitted_ms'] - NOON_MS}") for row in charges],
            session_rows=sessions,
            body_rows=kept,
        )
    plans: dict[str, str] = {}

    async with tabled.engine.connect() as connection:
        await connection.exec_driver_sql("COMMIT")
        await connection.exec_driver_sql("ANALYZE")
        for name, statement in ASKED.items():
            said: Any = statement
            sql = said.compile(dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True})
            found = await connection.execute(text(f"EXPLAIN {str(sql).replace(':', chr(92) + ':')}"))
            plans[name] = "\n".join(row[0] for row in found)

    scanned = {name: plan for name, plan in plans.items() if "Seq Scan" in plan}
    assert scanned == {}
