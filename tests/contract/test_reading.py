"""The routes that read the books, over both kinds of database."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from gateway.storage.database import Database
from tests.contract.reading import CALLERS, NOW_MS, reading
from tests.support.booked import DAY_MS, NOON_MS, Row, book, charge, cost, request_id, session, trace

ACME, UMBRELLA = CALLERS.values()
STRANGE = "s/1 'or' 1=1 -- %\u00e9\u05d0"


async def fill(database: Database, **rows: list[Row]) -> None:
    async with database.engine.begin() as connection:
        await book(connection, **rows)


def ids(rows: list[Any]) -> list[int]:
    """The numbers of the requests."""
    return [int(row["request_id"].removeprefix("req_"), 16) for row in rows]


async def test_usage(tabled: Database) -> None:
    """Groups in order with exact decimals, the sums of all, the time they are of, and a cursor for what follows."""
    days = [charge(admitted_ms=NOON_MS - n * DAY_MS, cost_nano_usd=1 + 10**9 * n) for n in (0, 1, 2)]
    await fill(tabled, ledger_rows=[*days, charge(tenant="umbrella"), cost(days[0])])

    async with reading(tabled) as desk:
        first = await desk.json("usage?limit=2")
        second = await desk.json(f"usage?limit=2&cursor={first['next']}")

    assert [group["day"] for group in first["data"]] == ["2026-02-27", "2026-02-28"]
    assert [group["day"] for group in second["data"]] == ["2026-03-01"]
    assert second["data"][0]["cost_usd"] == "0.000000001"
    assert first["total"] == second["total"]
    assert (first["total"]["requests"], first["total"]["cost_usd"]) == (3, "3.000000003")
    assert (first["since"], second["since"], first["until"]) == (*["2026-01-30T12:01:00.000Z"] * 2, None)
    assert (first["object"], first["by"], second["next"]) == ("list", ["day"], None)


@pytest.mark.parametrize("path", ["usage.csv?", "usage?format=csv&"])
async def test_usage_as_a_table(tabled: Database, path: str) -> None:
    """CSV has all groups, texts that no spreadsheet runs, and exact decimals."""
    rows = [charge(cost_nano_usd=2**50 + 1), charge(cost_nano_usd=-5), charge()]
    await fill(tabled, ledger_rows=rows, trace_rows=[trace(rows[0], user='=cmd|"x",1'), trace(rows[1], user="-ani")])

    async with reading(tabled) as desk:
        reply = await desk.ask(f"{path}by=user,model")

    found = list(csv.DictReader(io.StringIO(reply.body.decode())))
    assert reply.header("content-type") == "text/csv; charset=utf-8"
    assert reply.header("content-disposition") == 'attachment; filename="usage.csv"'
    assert [(row["user"], row["cost_usd"]) for row in found] == [
        ("", "0.0000975"), ("'-ani", "-0.000000005"), ("'=cmd|\"x\",1", "1125899.906842625"),
    ]  # fmt: skip
    assert list(found[0])[:3] == ["user", "model", "requests"]


async def test_traces_newest_first(tabled: Database) -> None:
    """A tenant's traces come newest first, each once, also those of the same moment; operators see everybody's."""
    rows = [charge(request_id=request_id(n), admitted_ms=NOON_MS + n // 3) for n in range(7)]
    theirs = charge(request_id=request_id(99), tenant="umbrella")
    await fill(tabled, trace_rows=[trace(row) for row in (*rows, theirs)])

    async with reading(tabled) as desk:
        own = await desk.pages("traces")
        everybodys = await desk.pages("traces", "anm-ak-operator")
        named = await desk.pages("traces?tenant=umbrella", "anm-ak-operator")

    assert [ids(page) for page in own] == [[6, 5], [4, 3], [2, 1], [0]]
    assert sorted(ids([row for page in everybodys for row in page])) == [0, 1, 2, 3, 4, 5, 6, 99]
    assert [ids(page) for page in named] == [[99]]


FILTERS: list[tuple[str, Row]] = [
    ("key=key_0000000000ff", {"key_id": "key_0000000000ff"}), ("model=m%201", {"model": "m 1"}),
    ("provider=vendor", {"provider": "vendor"}), ("endpoint=messages", {"endpoint": "messages"}),
    ("session=s%2F1%20'or'%201%3D1%20--%20%25%C3%A9%D7%90", {"session_id": STRANGE}),
    ("agent=a", {"agent_id": "a"}), ("user=%27%22", {"user": "'\""}), ("trace_id=t", {"trace_id": "t"}),
    ("response_id=chatcmpl-x", {"response_id": "chatcmpl-x"}), ("status=402", {"status": 402}),
    ("outcome=cancelled", {"outcome": "cancelled"}), ("error_code=budget_exceeded", {"error_code": "budget_exceeded"}),
    ("routing_mode=streaming_cancelled", {"routing_mode": "streaming_cancelled"}),
    ("since=2026-03-02", {"started_ms": NOON_MS + DAY_MS}),
    ("until=2026-03-01T11:00:00Z", {"started_ms": NOON_MS - DAY_MS}),
    ("min_cost_usd=0.5", {"cost_nano_usd": 500_000_000}),
    ("min_cost_usd=0.5&status=402&until=2026-03-01", {"cost_nano_usd": 10**9, "status": 402, "started_ms": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("query", "changes"), FILTERS)
async def test_filters(tabled: Database, query: str, changes: Row) -> None:
    """Each filter finds what has the value, and nothing else."""
    await fill(tabled, trace_rows=[trace(charge(request_id=request_id(1)), **changes), trace()])

    async with reading(tabled) as desk:
        found = await desk.json(f"traces?{query}")

    assert ids(found["data"]) == [1]


async def test_one_trace(tabled: Database) -> None:
    """A trace has everything that is known of a call, what was charged for it, and the bodies until they expire."""
    one = charge(request_id=request_id(1))
    other = charge(request_id=request_id(2))
    correction = {**one, "attempt": -2, "kind": "correction", "cost_nano_usd": -500}
    more = {"metadata": {"team": "x"}, "ttfb_us": None, "session_id": "s"}
    kept = {"tenant": "acme", "request": "Hello", "response": "Hi"}
    bodies = [
        {**kept, "request_id": one["request_id"], "expires_ms": NOW_MS + 1},
        {**kept, "request_id": other["request_id"], "expires_ms": NOW_MS},
    ]
    await fill(
        tabled,
        ledger_rows=[one, cost(one), correction],
        trace_rows=[trace(one, **more), trace(other)],
        body_rows=bodies,
    )

    async with reading(tabled) as desk:
        told = await desk.json(f"traces/{request_id(1)}")
        to_operators = await desk.json(f"traces/{request_id(1)}", "anm-ak-operator")
        expired = await desk.json(f"traces/{request_id(2)}")

    assert (told["metadata"], told["ttfb_ms"], told["ttft_ms"], told["cost_usd"]) == (
        {"team": "x"}, None, 250.5, "0.0000975",
    )  # fmt: skip
    assert told["attempts"] == [{"provider": "openai", "model": "gpt-4o-2024", "result": "ok"}]
    assert [entry["kind"] for entry in told["ledger"]] == ["charge", "correction"]
    assert [entry["kind"] for entry in to_operators["ledger"]] == ["charge", "cost", "correction"]
    assert told["bodies"] == {"request": "Hello", "response": "Hi"}
    assert expired["bodies"] is None


async def test_sessions(tabled: Database) -> None:
    """Sessions come by their last use; one tells its totals and its own traces, whatever it is called."""
    rows = [session(session_id=f"s-{n}", last_ms=NOON_MS + n // 2, agent_id="a" if n else None) for n in range(4)]
    mine = session(session_id=STRANGE, last_ms=NOON_MS - 1, cost_nano_usd=10**9 + 1)
    theirs = session(tenant="umbrella", session_id=STRANGE, last_ms=NOON_MS + 9)
    calls = [charge(request_id=request_id(n), tenant="umbrella" if n == 3 else "acme") for n in range(4)]
    await fill(
        tabled,
        session_rows=[*rows, mine, theirs],
        trace_rows=[trace(call, session_id=STRANGE) for call in calls],
    )
    path = "sessions/s%2F1%20'or'%201=1%20--%20%25%C3%A9%D7%90"

    async with reading(tabled) as desk:
        pages = await desk.pages("sessions")
        everybodys = await desk.pages("sessions", "anm-ak-operator")
        of_agent = await desk.json("sessions?agent=a&since=2026-03-01T12:00:00.001Z")
        one = await desk.json(path)
        its_traces = await desk.pages(path)
        unclear = await desk.refusal(path, "anm-ak-operator")
        other = await desk.json(f"{path}?tenant=umbrella", "anm-ak-operator")

    assert [[row["session_id"] for row in page] for page in pages] == [["s-3", "s-2"], ["s-1", "s-0"], [STRANGE]]
    assert [len(page) for page in everybodys] == [2, 2, 2]
    assert [row["session_id"] for row in of_agent["data"]] == ["s-3", "s-2"]
    assert (one["session"]["cost_usd"], one["session"]["requests"]) == ("1.000000001", 1)
    assert [ids(page) for page in its_traces] == [[2, 1], [0]]
    assert unclear == (400, "invalid_request", "tenant")
    assert ids(other["data"]) == [3]


async def test_receipts(tabled: Database) -> None:
    """A receipt is what the caller pays, corrections included; what the provider took is for operators."""
    one = charge(request_id=request_id(1), key_id=ACME)
    panel = charge(request_id=f"{request_id(1)}-a_B", key_id=ACME)
    others = charge(request_id=request_id(2), key_id="key_00000000cccc")
    correction = {**one, "attempt": -2, "kind": "correction", "cost_nano_usd": -500, "weighted_tokens": -2}
    more = cost(one, kind="cost_correction", cost_nano_usd=1)
    await fill(tabled, ledger_rows=[one, cost(one, cost_nano_usd=1), correction, more, panel, others])
    path = f"receipts/{request_id(1)}"

    async with reading(tabled) as desk:
        to_caller = await desk.json(path, "anm-sk-acme")
        to_reader = await desk.json(path)
        to_operator = await desk.json(path, "anm-ak-operator")
        of_panel = await desk.json(f"{path}-a_B", "anm-sk-acme")
        of_other_key = await desk.refusal(f"receipts/{request_id(2)}", "anm-sk-acme")

    assert (to_caller["cost_usd"], to_caller["weighted_tokens"]) == ("0.000097", 70)
    assert to_caller == to_reader
    assert [entry["kind"] for entry in to_caller["entries"]] == ["charge", "correction"]
    assert [entry["kind"] for entry in to_operator["entries"]] == ["charge", "cost", "correction", "cost_correction"]
    assert to_operator["cost_usd"] == to_caller["cost_usd"]
    assert of_panel["request_id"] == f"{request_id(1)}-a_B"
    assert of_other_key == (404, "not_found", None)


CANARY = "umbrellas-own-7f3a"


async def test_e16_two_tenants(tabled: Database) -> None:
    """No route gives one tenant anything of the other, whatever it asks by: not a row, not a sum, not a difference."""
    theirs = charge(request_id=request_id(9), tenant="umbrella", key_id=UMBRELLA, model=CANARY, provider=CANARY)
    names = {"session_id": "shared", "agent_id": CANARY, "user": CANARY, "metadata": {"k": CANARY}}
    mine = charge(request_id=request_id(1), key_id=ACME)
    bodies = [{"request_id": theirs["request_id"], "tenant": "umbrella", "request": CANARY, "response": CANARY}]
    await fill(
        tabled,
        ledger_rows=[theirs, mine],
        trace_rows=[trace(theirs, **names), trace(mine, session_id="shared")],
        session_rows=[session(session_id="shared"), session(tenant="umbrella", session_id=CANARY)],
        body_rows=[{**row, "expires_ms": 2**53} for row in bodies],
    )
    listings = [
        "usage?by=model,user", "usage?by=tenant", "usage.csv?by=session,agent", f"usage?model={CANARY}", "traces",
        f"traces?model={CANARY}", f"traces?key={UMBRELLA}", "sessions", f"sessions?agent={CANARY}", "sessions/shared",
    ]  # fmt: skip
    single = [f"traces/{request_id(9)}", f"sessions/{CANARY}", f"receipts/{request_id(9)}"]

    async with reading(tabled) as desk:
        for path in listings:
            reply = await desk.ask(path)
            assert reply.status == 200, path
            assert CANARY.encode() not in reply.body.replace(path.encode(), b""), path
            assert b'"umbrella"' not in reply.body, path
        for path in single:
            unknown = path.replace(request_id(9), request_id(77)).replace(CANARY, "unknown")
            assert (await desk.ask(path)).body == (await desk.ask(unknown)).body, path
        as_caller = await desk.refusal(f"receipts/{request_id(9)}", "anm-sk-acme")
        named = await desk.refusal("usage?tenant=umbrella")
        own = await desk.json(f"traces/{request_id(9)}", "anm-ak-umbrella")

    assert (as_caller, named) == ((404, "not_found", None), (404, "not_found", None))
    assert own["bodies"]["request"] == CANARY  # there was something to see


@pytest.mark.parametrize("path", ["usage", "usage.csv", "traces", f"traces/{request_id(1)}", "sessions", "sessions/s"])
async def test_inference_keys(tabled: Database, path: str) -> None:
    """A key that may call models may not read the books."""
    async with reading(tabled) as desk:
        assert await desk.refusal(path, "anm-sk-acme") == (403, "right_denied", None)


async def test_more_groups_than_a_table_has(tabled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that would be cut is refused instead."""
    monkeypatch.setattr("gateway.http.admin.reading.MAX_GROUPS", 2)
    await fill(tabled, ledger_rows=[charge(model=name) for name in "abc"])

    async with reading(tabled) as desk:
        refused = await desk.refusal("usage.csv?by=model")
        day = await desk.ask("usage.csv")

    assert refused == (400, "invalid_request", "by")
    assert day.status == 200
