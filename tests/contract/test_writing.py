"""What receipts come to in SQLite and PostgreSQL, written once, twice, and by several at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import astuple, replace
from sqlalchemy import text

from gateway.core.booking import Sent
from gateway.core.guarding import Verdict
from gateway.core.journal import Admitted, Open, Progress, Settled, decode, encode, reconcile
from gateway.core.receipt import Receipt
from gateway.core.reconciling import Counted
from gateway.core.usage import NO_USAGE, Usage
from gateway.storage.database import Database
from gateway.storage.journal.carrying import Carrier, CarrierReports
from gateway.storage.reconciling import count_days, count_ids
from gateway.storage.spending import SqlSpending
from gateway.storage.verifying import verify
from gateway.storage.writing import BookWriter, Entry
from tests.unit.admissions import admission, ended

NOW_MS = 3_000_000
# Each has broken somebody's writer: NUL and half surrogates, control characters, quotes, operators of JSON and SQL,
# what is wider than it is long, right-to-left marks, and 300 KB in one value.
POISON = (
    "a\0b", "\ud800", "\udfff\ud800", "\x01\x1f\x7f", "'; DROP TABLE ledger; --", '{"a": 1}', "$1 :rows %s ?",
    "\\u0000", "👩‍👩‍👧‍👦", "\u202e\u2028\ufeff", "x" * 300_000, "NaN", "",
)  # fmt: skip


async def table(database: Database, name: str, columns: str) -> list[tuple[Any, ...]]:
    async def step(connection: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await connection.execute(text(f"SELECT {columns} FROM {name} ORDER BY 1, 2"))]

    return await database.read(step)


def entries(*receipts: Receipt) -> list[Entry]:
    return [Entry(receipt, "here:1:2") for receipt in receipts]


def writer(tabled: Database) -> BookWriter:
    return BookWriter(tabled, lambda: NOW_MS)


def left_open(request_id: str, tokens: int) -> Receipt:
    """What a reconciler makes of a request whose process died."""
    case = Open(Admitted(admission(request_id)), {0: 1})
    return reconcile(case, Progress((1,), tokens), bill_interrupted=True, now_ms=NOW_MS)


async def test_rows(tabled: Database) -> None:
    """Every member of a receipt is in its column, as it was."""
    receipt = ended("r1", user="u", session_id="s", agent_id="a", metadata={"k": "v"}, stream=True, on_cancel="drain")

    await writer(tabled).write(entries(receipt))

    columns = "request_id, attempt, kind, state, basis, prompt_tokens, cost_nano_usd, admitted_ms, recorded_ms, writer"
    assert await table(tabled, "ledger", columns) == [
        ("r1", -1, "charge", "settled", "provider_final", 11, 41_000, 1_000_000, NOW_MS, "here:1:2"),
        ("r1", 0, "cost", "settled", "none", 0, 0, 1_000_000, NOW_MS, "here:1:2"),
        ("r1", 1, "cost", "settled", "provider_final", 11, 41_000, 1_000_000, NOW_MS, "here:1:2"),
    ]
    (trace,) = await table(tabled, "traces", 'request_id, trace_id, "user", session_id, stream, ttft_us, total_us')
    assert (*trace[:4], bool(trace[4]), *trace[5:]) == ("r1", "t1", "u", "s", True, 250_000, 900_000)


async def test_json_columns(tabled: Database) -> None:
    """What stands in JSON columns is read as it was written, and nothing is NULL."""
    await writer(tabled).write(entries(ended("r1", metadata={"k": "v"}), ended("r2")))

    found = await table(tabled, "traces", "request_id, metadata IS NULL, params IS NULL, verdicts IS NULL")

    assert [tuple(map(bool, row)) for row in found] == [(True, False, True, True), (True, True, True, True)]


async def test_verdicts(tabled: Database) -> None:
    """What guards said of a call is in its trace, without a word of what they read."""
    await writer(tabled).write(entries(ended("r1", verdicts={"pii": Verdict("flag", 1.0, {"nik": 2}, "messages[0]")})))

    ((request_id, said),) = await table(tabled, "traces", "request_id, CAST(verdicts AS TEXT)")

    kept = {"status": "flag", "score": 1.0, "findings": {"nik": 2}, "place": "messages[0]"}
    assert (request_id, json.loads(said)) == ("r1", {"pii": kept})


async def test_twice(tabled: Database) -> None:
    """A batch that is written again, alone or among others, changes nothing (USE-18)."""
    first, second = ended("r1", session_id="s"), ended("r2", session_id="s")

    await writer(tabled).write(entries(first))
    await writer(tabled).write(entries(second, first, first))
    await writer(tabled).write(entries(first, second))

    assert len(await table(tabled, "ledger", "request_id, attempt")) == 6
    assert await table(tabled, "sessions", "session_id, requests, cost_nano_usd, prompt_tokens") == [
        ("s", 2, 82_000, 22)
    ]


async def test_corrections(tabled: Database) -> None:
    """A process that was taken for dead has the last word, in a row of its own, and only once."""
    await writer(tabled).write(entries(left_open("r1", 4)))
    await writer(tabled).write(entries(ended("r1", Usage(11, 22), 41_000)))
    await writer(tabled).write(entries(ended("r1", Usage(11, 22), 41_000), left_open("r1", 4)))

    rows = await table(tabled, "ledger", "kind, attempt, state, completion_tokens, cost_nano_usd")
    assert rows == [
        ("charge", -1, "reconciled", 4, 23_000),
        ("correction", -1, "settled", 18, 18_000),
        ("cost", 0, "reconciled", 4, 23_000),
        ("cost", 1, "settled", 22, 41_000),
        ("cost_correction", 0, "settled", -4, -23_000),
    ]


async def test_a_correction_is_everywhere(tabled: Database) -> None:
    """The trace is the process's own from then on, and its session has what that says, once."""
    guess = reconcile(
        Open(Admitted(admission("r1", session_id="s")), {0: 1}), Progress((1,), 4), bill_interrupted=True, now_ms=NOW_MS
    )
    own = ended("r1", Usage(11, 22), 41_000, session_id="s")
    await writer(tabled).write(entries(guess, ended("r0", session_id="s")))
    before = await table(tabled, "sessions", "requests, failed, completion_tokens, cost_nano_usd")

    for _ in range(2):
        await writer(tabled).write(entries(own))
        await writer(tabled).write(entries(guess))

    assert before == [(2, 1, 26, 64_000)]
    assert await table(tabled, "traces", "request_id, outcome, completion_tokens, cost_nano_usd") == [
        ("r0", "completed", 22, 41_000),
        ("r1", "completed", 22, 41_000),
    ]
    assert await table(tabled, "sessions", "requests, failed, completion_tokens, cost_nano_usd") == [(2, 0, 44, 82_000)]


async def test_dead_after_all(tabled: Database) -> None:
    """A process that was taken for dead goes on, and dies: what was found later counts, less than that does not."""
    session = {"session_id": "s"}

    def found(tokens: int) -> Receipt:
        case = Open(Admitted(admission("r1", **session)), {0: 1})
        return reconcile(case, Progress((1,), tokens), bill_interrupted=True, now_ms=NOW_MS)

    for tokens in (4, 9, 9, 4):
        await writer(tabled).write(entries(found(tokens)))

    rows = await table(tabled, "ledger", "kind, attempt, completion_tokens, cost_nano_usd")
    assert rows == [
        ("charge", -1, 4, 23_000), ("correction", -1, 5, 15_000),
        ("cost", 0, 4, 23_000), ("cost_correction", 0, 5, 15_000),
    ]  # fmt: skip
    assert await table(tabled, "traces", "request_id, completion_tokens") == [("r1", 9)]
    assert await table(tabled, "sessions", "requests, completion_tokens, cost_nano_usd") == [(1, 9, 38_000)]


async def test_costs_have_the_last_word(tabled: Database) -> None:
    """What a provider bills is counted as its process said in the end, however often it was guessed before (USE-19)."""
    sent = (Sent(0, "azure", "gpt-x", "cloud_direct", "SG", "ok", Usage(11, 22), "provider_final", 41_000),)
    own = ended("r1", Usage(11, 22), 41_000)
    assert own.booking is not None
    own = replace(own, booking=replace(own.booking, sent=sent))
    refused = ended("r2", NO_USAGE, 0, outcome="failed")
    assert refused.booking is not None
    refused = replace(refused, booking=replace(refused.booking, sent=(Sent(*astuple(sent[0])[:5], "failed"),)))
    case = Open(Admitted(admission("r1")), {0: 0})
    for tokens in (4, 9):
        guess = reconcile(case, Progress((0,), tokens), bill_interrupted=True, now_ms=NOW_MS)
        await writer(tabled).write(entries(guess))
    case = Open(Admitted(admission("r2")), {0: 0})
    await writer(tabled).write(entries(reconcile(case, Progress((0,), 3), bill_interrupted=True, now_ms=NOW_MS)))

    for _ in range(2):
        await writer(tabled).write(entries(own, refused))

    rows = await table(tabled, "ledger", "request_id, attempt, completion_tokens, kind")
    assert {row for row in rows if row[3].startswith("cost")} == {
        ("r1", 0, 4, "cost"), ("r1", 0, 5, "cost_correction"), ("r1", 1000, 13, "cost_correction"),
        ("r2", 0, 3, "cost"), ("r2", 0, -3, "cost_correction"),
    }  # fmt: skip
    place = ("1970-01-01", "gpt-x")
    expected = Counted(1, 11, 22, 0, 0, 41_000, uncertain=0)
    assert await tabled.read(lambda found: count_days(found, [place], None)) == {place: expected}
    assert await tabled.read(lambda found: count_ids(found, [("r1",)], "azure")) == {("r1",): expected}
    assert [one for one in await tabled.read(lambda found: verify(found, 0)) if "cost" in one.rule and one.count] == []


async def test_nothing_voided_stays_void(tabled: Database) -> None:
    """Taken for never sent, a call has its attempts and its charge as soon as its process says so."""
    void = reconcile(Open(Admitted(admission("r1"))), None, bill_interrupted=True, now_ms=NOW_MS)
    await writer(tabled).write(entries(void))

    await writer(tabled).write(entries(ended("r1", Usage(11, 22), 41_000)))

    rows = await table(tabled, "ledger", "kind, attempt, state, cost_nano_usd")
    assert rows == [
        ("charge", -1, "voided", 0), ("correction", -1, "settled", 41_000),
        ("cost", 0, "settled", 0), ("cost", 1, "settled", 41_000),
    ]  # fmt: skip
    assert await table(tabled, "traces", "request_id, outcome") == [("r1", "completed")]


async def test_the_first_word_stands(tabled: Database) -> None:
    """A reconciliation that comes too late changes nothing, and neither does a second word of the same process."""
    await writer(tabled).write(entries(ended("r1")))
    await writer(tabled).write(entries(left_open("r1", 4)))
    await writer(tabled).write(entries(ended("r1", Usage(1, 1), 5)))

    assert len(await table(tabled, "ledger", "request_id, attempt")) == 3


async def test_sessions(tabled: Database) -> None:
    """Totals of a session are those of its traces: when, how many, how many failed, and the newest agent."""
    some = [
        ended("r1", session_id="s", agent_id="a1", started_ms=50),
        ended("r2", session_id="s", agent_id="a2", started_ms=10, outcome="failed", cost_nano_usd=0),
        ended("r3", session_id="other", started_ms=20),
        ended("r4", session_id="s", started_ms=90),
        ended("r5"),
    ]

    for receipt in some:
        await writer(tabled).write(entries(receipt))

    assert await table(tabled, "sessions", "session_id, agent_id, first_ms, last_ms, requests, failed") == [
        ("other", None, 20, 20, 1, 0),
        ("s", "a2", 10, 90, 3, 1),
    ]


async def test_two_at_once(tabled: Database) -> None:
    """Two that write the same batches at the same time, in different orders, come to one of each row."""
    batches = [
        entries(*(ended(f"r{batch}-{number}", session_id=f"s{number % 7}") for number in range(40)))
        for batch in range(8)
    ]

    async def carry(own: Sequence[Sequence[Entry]]) -> None:
        for batch in own:
            await writer(tabled).write(batch)

    await asyncio.gather(carry(batches), carry(batches[::-1]))

    assert len(await table(tabled, "ledger", "request_id, attempt")) == 8 * 40 * 3
    assert sum(row[1] for row in await table(tabled, "sessions", "session_id, requests")) == 8 * 40


class Told:
    """What a carrier reports."""

    def __init__(self) -> None:
        self.buried: list[tuple[str, str]] = []
        self.log: list[str] = []

    def carrier(self, database: Database, shelf: BookWriter | None = None) -> Carrier:
        return Carrier(shelf or writer(database), CarrierReports(
            lambda exc: self.log.append("delayed"),
            lambda: self.log.append("caught_up"),
            lambda request_id, reason: self.buried.append((request_id, reason)),
        ))  # fmt: skip


class Late:
    """A database whose first transaction is committed after whoever waited for it has given up."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.dialect = database.dialect
        self.asked = 0

    async def write(self, step: Any) -> Any:
        self.asked += 1
        if self.asked > 1:
            return await self._database.write(step)

        async def late(connection: Any) -> None:
            await step(connection)
            await asyncio.sleep(0.3)

        return await self._database.write(late, within_s=0.1)


async def test_use_18_a_time_out_before_the_commit(tabled: Database) -> None:
    """USE-18: an insert that times out, is committed all the same, and tried again: a row each, spent once."""
    told, database = Told(), Late(tabled)
    shelf = BookWriter(database, lambda: NOW_MS)  # type: ignore[arg-type]  # all that it needs of one
    receipts = [ended(f"r{number}", session_id="s") for number in range(5)]

    await told.carrier(tabled, shelf).carry(entries(*receipts))
    await asyncio.sleep(0.4)  # until the first is committed too, whichever came first

    charges = [row for row in await table(tabled, "ledger", "request_id, kind, cost_nano_usd") if row[1] == "charge"]
    spent = await SqlSpending(tabled).booked("tenant", receipts[0].tenant, 0, ())
    assert (database.asked, told.log) == (2, ["delayed", "caught_up"])
    assert charges == [(f"r{number}", "charge", 41_000) for number in range(5)]
    assert await table(tabled, "sessions", "session_id, requests, cost_nano_usd") == [("s", 5, 205_000)]
    assert spent.nano_usd == 205_000


@pytest.mark.parametrize("poison", POISON, ids=range(len(POISON)))
async def test_poison_costs_nothing_else(tabled: Database, poison: str) -> None:
    """Whatever text a caller got past the door, the rows of all others are written, and its money is not lost (C12)."""
    told = Told()
    bad = ended("bad", user=poison, session_id=poison, agent_id=poison, metadata={poison or "k": poison}, note=poison)
    kept = decode(encode(Settled(bad)))
    assert isinstance(kept, Settled)
    before, after = [ended(f"r{number}") for number in range(10)], [ended(f"s{number}") for number in range(10)]
    batch = entries(*before, kept.receipt, *after)

    await told.carrier(tabled).carry(batch)

    written = {row[0] for row in await table(tabled, "ledger", "request_id, attempt")}
    dead = await table(tabled, "dead_letters", "request_id, record")
    assert written >= {receipt.request_id for receipt in (*before, *after)}
    if len(poison) > 10_000 and tabled.dialect == "postgresql":  # more than an index takes: the door lets 256 through
        assert [row[0] for row in dead] == [row[0] for row in told.buried] == ["bad"]
    else:
        assert ("bad" in written, dead, told.buried) == (True, [], [])


@pytest.mark.parametrize("wrong", [{"status": None}, {"weighted_tokens": 2**63}], ids=["missing", "too large"])
async def test_dead_letters(tabled: Database, wrong: dict[str, Any]) -> None:
    """What the database refuses is put aside once, however often it comes, and can be read again."""
    told = Told()
    bad = ended("bad", **wrong)

    await told.carrier(tabled).carry(entries(ended("r1"), bad, ended("r2")))
    await told.carrier(tabled).carry(entries(bad))

    assert {row[0] for row in await table(tabled, "ledger", "request_id, attempt")} == {"r1", "r2"}
    ((request_id, record),) = await table(tabled, "dead_letters", "request_id, record")
    assert request_id == "bad"
    assert len(bytes(record)) > 100
    assert told.log == []
