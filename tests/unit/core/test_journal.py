"""Records of the journal, and what they come to."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.entries import AMOUNTS, CHARGE, CORRECTION, Booked, LedgerRow, correction, ledger_rows, trace_row
from gateway.core.exchange import Outcome
from gateway.core.journal import (
    Admitted,
    Book,
    Grant,
    Open,
    Opened,
    Progress,
    Record,
    Settled,
    decode,
    encode,
    left_behind,
    reconcile,
)
from gateway.core.receipt import Receipt
from gateway.core.usage import NO_USAGE, Usage
from tests.unit.admissions import admission, ended

NOW_MS = 2_000_000


def reconciled(progress: Progress | None, *sent: tuple[int, int], bill_interrupted: bool = True) -> Receipt:
    """`admission()` without its end; *sent* as records tell of it, attempt and way."""
    case = Open(Admitted(admission(), 3, 7), dict(sent))
    return reconcile(case, progress, bill_interrupted=bill_interrupted, now_ms=NOW_MS)


def rows(receipt: Receipt) -> tuple[LedgerRow, ...]:
    return ledger_rows(receipt, writer="here", recorded_ms=NOW_MS)


@pytest.mark.parametrize(
    "record",
    [Admitted(admission(), 3, 7, is_early=True), Opened("r1", 1, 0, Grant(5, 6)), Settled(ended(user="u"))],
)
def test_records_come_back(record: Record) -> None:
    """A record is read as it was written."""
    assert decode(encode(record)) == record


def test_newer_records_are_read() -> None:
    """A member that a later version has added at the end does not keep this one from reading a record."""
    fields = msgspec.msgpack.decode(encode(Admitted(admission(), 3, 7)))
    fields[1].append("from the future")

    assert decode(msgspec.msgpack.encode([*fields, 1])) == Admitted(admission(), 3, 7)


def test_older_records_are_read() -> None:
    """A member that this version has added is not missed in a record of an earlier one."""
    early, opened = (msgspec.msgpack.decode(encode(one)) for one in (Admitted(admission(), 3, 7), Opened("r1", 1, 0)))

    assert decode(msgspec.msgpack.encode(early[:4])) == Admitted(admission(), 3, 7)
    assert decode(msgspec.msgpack.encode(opened[:4])) == Opened("r1", 1, 0)


def test_half_a_surrogate_costs_no_record() -> None:
    """A text that no database takes loses what is wrong with it; the record is kept."""
    record = Settled(ended(user="a\ud800b", metadata={"k\udfff": "v"}))

    kept = decode(encode(record))

    assert isinstance(kept, Settled)
    assert (kept.receipt.user, dict(kept.receipt.metadata)) == ("a?b", {"k?": "v"})
    assert kept.receipt.cost_nano_usd == record.receipt.cost_nano_usd


@pytest.mark.parametrize("data", [b"", b"\xc1", msgspec.msgpack.encode(["z", 1]), msgspec.msgpack.encode({"a": 1})])
def test_what_is_no_record(data: bytes) -> None:
    """What this version knows no record of is an error, and only that."""
    with pytest.raises(msgspec.DecodeError):
        decode(data)


@pytest.mark.parametrize(
    ("progress", "sent", "state", "counts", "cost"),
    [
        (None, (), "voided", (0, 0), 0),
        (Progress(), (), "voided", (0, 0), 0),
        (Progress((1,)), (), "reconciled", (11, 0), 0),  # nothing had come: waived, as a break before the first token
        (Progress((1,), 4), (), "reconciled", (11, 4), 23_000),
        (None, ((0, 1),), "reconciled", (11, 0), 0),  # the map is gone with the machine
        (Progress((0, 1), 4), ((0, 0),), "reconciled", (11, 4), 23_000),
        (Progress((1,), 4, Usage(20, 6), "provider_final", "completed"), (), "settled", (20, 6), 38_000),
        (Progress((1,), 4, Usage(20, 5), "received", "cancelled"), (), "settled", (20, 5), 35_000),
        (Progress((9,), 4), (), "voided", (0, 0), 0),  # no such way
    ],
)
def test_reconciling(
    progress: Progress | None, sent: tuple[tuple[int, int], ...], state: str, counts: tuple[int, int], cost: int
) -> None:
    """What a dead process leaves open is charged by its progress, or by its own last word if that was noted."""
    charge = rows(reconciled(progress, *sent))[0]

    assert (charge.kind, charge.state, charge.prompt_tokens, charge.completion_tokens) == (CHARGE, state, *counts)
    assert charge.cost_nano_usd == cost


@pytest.mark.parametrize(
    ("progress", "sent", "is_call"),
    [
        (None, {}, False),
        (Progress(), {}, False),
        (Progress(is_granted=True), {}, True),
        (Progress((1,), 4, is_granted=True), {}, True),
        (None, {0: 1}, True),  # the map is gone with the machine
    ],
)
def test_left_before_limits_had_decided(progress: Progress | None, sent: dict[int, int], *, is_call: bool) -> None:
    """An early admission that a dead process leaves is a call where limits are known to have let it in, or a provider
    was asked; any other is a call in any case."""
    early, other = Open(Admitted(admission("r1"), is_early=True), sent), Open(Admitted(admission("r2")), sent)

    ends, never = left_behind([early, other], lambda _: progress, bill_interrupted=True, now_ms=NOW_MS)

    assert [receipt.request_id for receipt in ends] == (["r1", "r2"] if is_call else ["r2"])
    assert never == ([] if is_call else [admission("r1")])


@pytest.mark.parametrize("is_late", [False, True])
def test_what_limits_granted(*, is_late: bool) -> None:
    """The first attempt tells what an early admission came to, whichever record is read first."""
    records = [Admitted(admission("r1"), is_early=True), Opened("r1", 0, 1, Grant(70_000, 1_000_007))]
    book = Book()

    for record in reversed(records) if is_late else records:
        book.take(record)

    case = book.open["r1"]
    assert case.sent == {0: 1}
    assert case.admitted.admission == admission("r1", reserved_nano_usd=70_000, admitted_ms=1_000_007)


def test_reconciling_costs() -> None:
    """Each attempt that was sent has its cost: the last what came, the one before it nothing that is known of."""
    costs = rows(reconciled(Progress((0, 1), 4)))[1:]

    assert [(row.attempt, row.provider, row.prompt_tokens, row.completion_tokens) for row in costs] == [
        (0, "azure", 0, 0),
        (1, "openai", 11, 4),
    ]
    assert [row.cost_nano_usd for row in costs] == [0, 23_000]


def test_reconciling_weighs() -> None:
    """Weighted tokens are those of the provider that was asked last, and of its cache where that is known."""
    plain = reconciled(Progress((1,), 4))
    cached = reconciled(Progress((1,), 4, Usage(11, 5, cached_tokens=2), "provider_final", "completed"))

    assert (plain.weighted_tokens, cached.weighted_tokens) == (15 * 2, 16)


def test_reconciling_names() -> None:
    """Whose call it was is known after a crash too: sums by user, session and agent are those of the ledger."""
    case = Open(Admitted(admission(user="u", session_id="s", agent_id="a")))

    receipt = reconcile(case, None, bill_interrupted=True, now_ms=NOW_MS)

    assert (receipt.user, receipt.session_id, receipt.agent_id) == ("u", "s", "a")


@pytest.mark.parametrize(
    ("progress", "status"),
    [
        (None, 0),
        (Progress((1,)), 0),
        (Progress((1,), 4), 200),
        (Progress((1,), 0, Usage(20, 6), "provider_final", "completed"), 200),
        (Progress((1,), 0, Usage(20), "estimated", "cancelled"), 0),
    ],
)
def test_reconciling_statuses(progress: Progress | None, status: int) -> None:
    """The 200 is known of an answer that had come, or had begun to; of all others no status is."""
    assert reconciled(progress).status == status


def test_nobody_knows_how_long_it_took() -> None:
    """Of a call whose process was killed the spans are unknown, and not nothing."""
    receipt = reconciled(Progress((1,), 4))
    row = trace_row(receipt, recorded_ms=NOW_MS)

    assert (receipt.total_ms, receipt.overhead_ms) == (None, None)
    assert (row.total_us, row.overhead_us, row.failure_class, row.failure_reason) == (
        None, None, "gateway_shutdown", "crash",
    )  # fmt: skip


def test_broken_streams_may_be_waived() -> None:
    """Where interrupted answers are not billed, neither is one that a crash interrupted; its cost is known."""
    charge, cost = rows(reconciled(Progress((1,), 4), bill_interrupted=False))

    assert (charge.cost_nano_usd, charge.weighted_tokens, charge.completion_tokens) == (0, 0, 4)
    assert cost.cost_nano_usd == 23_000


@given(st.permutations([Admitted(admission()), Opened("r1", 0, 1), Opened("r1", 1, 0)] * 2))
def test_what_is_open(records: list[Record]) -> None:
    """Whichever record comes first, and however often: what was sent of a call is known, and is nothing once it has
    ended."""
    book = Book()
    before = book.knows("r1")

    for record in records:
        book.take(record)
    sent, known = {name: case.sent for name, case in book.open.items()}, book.knows("r1")
    ends = [book.take(Settled(ended())) for _ in range(2)]
    for record in records:
        book.take(record)

    assert (before, sent, known) == (False, {"r1": {0: 1, 1: 0}}, True)
    assert (ends, book.open, book.knows("r1")) == ([ended(), None], {}, True)


# -- any history, against a reference --


@dataclass
class Truth:
    """The reference: what each request has to come to, whatever order its records come in."""

    said: dict[str, Receipt] = field(default_factory=dict)  # by its own process
    left: dict[str, Receipt] = field(default_factory=dict)  # by a reconciler

    def amounts(self, request_id: str) -> tuple[int, ...]:
        receipt = self.said.get(request_id) or self.left[request_id]
        return tuple(getattr(rows(receipt)[0], name) for name in AMOUNTS)


@dataclass
class Table:
    """A ledger with its unique key, as the database has it."""

    rows: dict[tuple[str, int, str], LedgerRow] = field(default_factory=dict)

    def write(self, receipt: Receipt) -> None:
        for row in rows(receipt):
            if self.rows.setdefault((row.request_id, row.attempt, row.kind), row) is row or row.kind != CHARGE:
                continue
            if receipt.booking is None or receipt.booking.is_reconciled:
                continue
            late = correction(row, [Booked(one.attempt, one.state, _amounts(one)) for one in self.owed(row.request_id)])
            if late is not None:
                self.rows.setdefault((late.request_id, late.attempt, late.kind), late)

    def owed(self, request_id: str) -> list[LedgerRow]:
        return [row for row in self.rows.values() if row.request_id == request_id and row.kind in (CHARGE, CORRECTION)]

    def sums(self, request_id: str) -> tuple[int, ...]:
        return tuple(map(sum, zip(*map(_amounts, self.owed(request_id)), strict=True)))


def _amounts(row: LedgerRow) -> tuple[int, ...]:
    return tuple(getattr(row, name) for name in AMOUNTS)


OUTCOMES: tuple[Outcome, ...] = ("completed", "cancelled", "interrupted", "rejected", "failed")
ENDS = st.tuples(st.sampled_from(OUTCOMES), st.integers(0, 50), st.integers(0, 90_000))


def end_of(request_id: str, end: tuple[Outcome, int, int]) -> Receipt:
    outcome, tokens, cost = end
    return ended(request_id, Usage(11, tokens) if tokens else NO_USAGE, cost if tokens else 0, outcome=outcome)


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.none() | ENDS, st.integers(0, 2), st.integers(0, 9))),
    st.randoms(use_true_random=False),
)
def test_any_history(cases: dict[str, tuple[tuple[Outcome, int, int] | None, int, int]], chance: random.Random) -> None:
    """Whatever comes twice, late or out of order: one final state each, and money is what the process said of it, or
    else the reconciler."""
    records: list[Record] = []
    truth, progress = Truth(), dict[str, Progress]()
    for request_id, (end, attempts, tokens) in cases.items():
        records.append(Admitted(admission(request_id)))
        records += [Opened(request_id, number, number) for number in range(attempts)]
        progress[request_id] = Progress(tuple(range(attempts)), tokens if attempts else 0)
        if end is not None:
            truth.said[request_id] = end_of(request_id, end)
            records.append(Settled(truth.said[request_id]))
    history = _shuffled(records, chance)
    table = Table()

    for _ in range(2):  # the journal is read up to some point, its process taken for dead, and read again
        book = Book()
        for record in history[: chance.randint(0, len(history))]:
            receipt = book.take(record)
            if receipt is not None:
                table.write(receipt)
        for request_id, case in book.open.items():
            truth.left.setdefault(request_id, reconcile(case, progress[request_id], bill_interrupted=True, now_ms=0))
            table.write(truth.left[request_id])
    book = Book()
    for receipt in filter(None, map(book.take, history)):
        table.write(receipt)
    for request_id, case in book.open.items():
        truth.left.setdefault(request_id, reconcile(case, progress[request_id], bill_interrupted=True, now_ms=0))
        table.write(truth.left[request_id])

    assert {request_id: table.sums(request_id) for request_id in cases} == {
        request_id: truth.amounts(request_id) for request_id in cases
    }
    assert all(sum(row.kind == CHARGE for row in table.owed(request_id)) == 1 for request_id in cases)


def _shuffled(records: list[Record], chance: random.Random) -> list[Record]:
    twice = [*records, *(record for record in records if chance.random() < 0.3)]
    chance.shuffle(twice)
    return twice


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**15)), max_size=200))
def test_sums_are_exact(calls: list[tuple[int, int]]) -> None:
    """The rows of any calls add up to what their receipts say, to the last nano-USD."""
    receipts = [ended(f"r{number}", Usage(1, tokens), cost) for number, (tokens, cost) in enumerate(calls)]

    written = [row for receipt in receipts for row in rows(receipt)]

    assert _total(written, CHARGE) == sum(cost for _, cost in calls)
    assert sum(row.completion_tokens for row in written if row.kind == CHARGE) == sum(tokens for tokens, _ in calls)


def _total(written: Iterable[LedgerRow], kind: str) -> int:
    return sum(row.cost_nano_usd for row in written if row.kind == kind)


def test_sums_of_very_many() -> None:
    """A hundred thousand calls of amounts that no float could add up: the rows do, to the last nano-USD (C11, H23)."""
    costs = [number * 9_007_199_254_740_993 % 10**17 for number in range(100_000)]

    charged = (rows(ended(f"r{number}", cost_nano_usd=cost))[0] for number, cost in enumerate(costs))

    assert sum(row.cost_nano_usd for row in charged) == sum(costs)
