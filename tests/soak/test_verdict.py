"""The verdict notices what it is there to notice. Books of a good run, and the same ones with a single thing wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace as altered

from .books import Books, Row, Session, Trace
from .records import Attempt, Told
from .rest import DRIFT_BYTES, Growth, Rest, judge_rest
from .service import Service
from .verdict import CUT_MEAN, CUT_WINDOW_MS, ENOUGH, Evidence, Gap, Verdict, judge, judge_means
from .visits import Leave, Visit, visit
from .world import customers, price_nano_usd, weigh

KEYS = customers("1.00")
SEED = 7
PROMPT, CACHED, TOKENS = 120, 20, 9


def a_visit(number: int) -> Visit:
    """Number *number*, answered in full."""
    plain = visit(SEED, number, KEYS)
    said = replace(plain.script, tokens=TOKENS, percent=100, prompt=PROMPT, cached=CACHED, acts=("ok",))
    script = replace(said, interval_ms=10)
    return replace(plain, customer=KEYS[number % len(KEYS)], script=script, stream=True, bad=None, name=None)


WHOLE, LEFT, RETRIED = a_visit(1), replace(a_visit(2), leave=Leave("token", "fin", tokens=4)), a_visit(3)
BEHIND = (
    "paced 1, mean 2.00, most 2; others 0, mean 0.00, most 0; and behind the end 1, mean 0.00, most 0; oldest 25 ms"
)
COST = price_nano_usd(WHOLE.model, PROMPT, CACHED, TOKENS)


def attempt(of: Visit, **more: Any) -> Attempt:
    """A finished one."""
    name, reported = of.model.names[0], (PROMPT, CACHED, TOKENS)
    plain = Attempt(of.marker, name, 100.0, of.stream, PROMPT, TOKENS, "finished", reported)
    return altered(plain, **more)


def row(of: Visit, kind: str, number: int, **more: Any) -> Row:
    """A row of a completed request."""
    plain = Row(
        request_id=f"req_{of.number}",
        attempt=number,
        kind=kind,
        state="settled",
        basis="provider_final",
        tenant=of.customer.tenant,
        key_id=of.customer.key_id,
        provider_model=of.model.names[0],
        outcome="completed",
        prompt_tokens=PROMPT,
        completion_tokens=TOKENS,
        cached_tokens=CACHED,
        weighted_tokens=weigh(of.model, PROMPT + TOKENS, is_cached=True),
        cost_nano_usd=price_nano_usd(of.model, PROMPT, CACHED, TOKENS),
        admitted_ms=100_000 + of.number,
        settled_ms=100_500,
        recorded_ms=101_000,
    )
    return altered(plain, **more)


def trace(of: Visit, charge: Row) -> Trace:
    """The trace of *charge*."""
    return Trace(
        request_id=charge.request_id,
        user=of.marker,
        tenant=of.customer.tenant,
        key_id=of.customer.key_id,
        session_id="s",
        outcome=charge.outcome,
        status=200,
        error_code=None,
        prompt_tokens=charge.prompt_tokens,
        completion_tokens=charge.completion_tokens,
        weighted_tokens=charge.weighted_tokens,
        cost_nano_usd=charge.cost_nano_usd,
    )


def cut_row(kind: str, number: int, tokens: int, **more: Any) -> Row:
    """A row of the call whose customer left."""
    cost = price_nano_usd(LEFT.model, 110, 0, tokens)
    said = {"prompt_tokens": 110, "cached_tokens": 0, "completion_tokens": tokens, "cost_nano_usd": cost, **more}
    return row(LEFT, kind, number, **{"basis": "received", "outcome": "cancelled", **said})


REFUSED = row(
    RETRIED, "cost", 0, outcome="failed", prompt_tokens=0, completion_tokens=0, cached_tokens=0, cost_nano_usd=0
)
CHARGES = (row(WHOLE, "charge", -1), cut_row("charge", -1, 4), row(RETRIED, "charge", -1))
COSTS = (row(WHOLE, "cost", 0), cut_row("cost", 0, 4), REFUSED, row(RETRIED, "cost", 1))
TRACES = tuple(trace(of, charge) for of, charge in zip((WHOLE, LEFT, RETRIED), CHARGES, strict=True))
ATTEMPTS = (
    attempt(WHOLE),
    attempt(LEFT, end="left", tokens=6, reported=None, written_ms=(10, 20, 30, 40, 50, 60), over_ms=75),
    attempt(RETRIED, end="refused", tokens=0, reported=None),
    attempt(RETRIED, arrived_s=101.0),
)
TOLD = (
    Told(WHOLE.marker, 100.0, 101.0, "whole", 200, "req_1", "", TOKENS, COST),
    Told(LEFT.marker, 100.0, 101.0, "left", 200, "req_2", "", 4),
    Told(RETRIED.marker, 100.0, 101.0, "whole", 200, "req_3", "", TOKENS, CHARGES[2].cost_nano_usd),
)


def sessions() -> tuple[Session, ...]:
    """The totals of the traces."""
    tenants = {one.tenant for one in TRACES}
    return tuple(
        Session(
            tenant=tenant,
            session_id="s",
            requests=sum(one.tenant == tenant for one in TRACES),
            prompt_tokens=sum(one.prompt_tokens for one in TRACES if one.tenant == tenant),
            completion_tokens=sum(one.completion_tokens for one in TRACES if one.tenant == tenant),
            weighted_tokens=sum(one.weighted_tokens for one in TRACES if one.tenant == tenant),
            cost_nano_usd=sum(one.cost_nano_usd for one in TRACES if one.tenant == tenant),
        )
        for tenant in sorted(tenants)
    )


GOOD = Evidence(
    visits={one.marker: one for one in (WHOLE, LEFT, RETRIED)},
    attempts=ATTEMPTS,
    told=TOLD,
    books=Books((*CHARGES, *COSTS), TRACES, sessions()),
)


def rules(evidence: Evidence) -> set[str]:
    """The names of what is wrong with *evidence*."""
    return {offence.rule for offence in judge(evidence).offences}


def with_ledger(*rows: Row) -> Evidence:
    return replace(GOOD, books=replace(GOOD.books, ledger=rows))


def with_charge(charge: Row, place: int = 0, **more: Any) -> Evidence:
    """The good books, with one charge and its trace replaced."""
    charges, traces = list(CHARGES), list(TRACES)
    charges[place] = charge
    traces[place] = trace((WHOLE, LEFT, RETRIED)[place], charge)
    return replace(GOOD, books=Books((*charges, *COSTS), traces, ()), **more)


def test_good_books() -> None:
    """Books that agree offend nobody, and the figures say what was compared."""
    verdict = judge(GOOD)

    assert verdict.offences == []
    assert verdict.figures["attempts seen by the provider"] == verdict.figures["attempts in the ledger"] == 4
    assert verdict.figures["exact to the token and nano-USD"] == 2
    assert str(verdict.figures["left or broken, events behind"]) == BEHIND


FAULTY = {
    "missing": with_ledger(*CHARGES, *COSTS[1:]),
    "extra": with_ledger(*CHARGES, *COSTS, altered(COSTS[0], attempt=1)),
    "charges": with_ledger(*CHARGES[1:], *COSTS),
    "charges ": with_ledger(*CHARGES, altered(CHARGES[0], attempt=-2), *COSTS),
    "row without a trace": replace(GOOD, books=replace(GOOD.books, traces=TRACES[1:])),
    "over: completed, tokens differ": with_charge(altered(CHARGES[0], completion_tokens=TOKENS + 1)),
    "completed, tokens differ": with_charge(altered(CHARGES[0], completion_tokens=TOKENS - 1)),
    "over: completed, cost differs": with_charge(altered(CHARGES[0], cost_nano_usd=COST + 1)),
    "completed, cost differs": with_charge(altered(CHARGES[0], cost_nano_usd=COST - 1)),
    "completed, weighted tokens differ": with_charge(altered(CHARGES[0], weighted_tokens=1)),
    "over": with_charge(cut_row("charge", -1, 7), 1),
    "over: USD": with_charge(altered(CHARGES[1], cost_nano_usd=10**9), 1),
    "over: cost": with_ledger(*CHARGES, COSTS[0], altered(COSTS[1], completion_tokens=7), *COSTS[2:]),
    "over: cost in USD": with_ledger(*CHARGES, COSTS[0], altered(COSTS[1], cost_nano_usd=10**9), *COSTS[2:]),
    "over: nothing was delivered": with_charge(altered(CHARGES[2], outcome="failed"), 2),
    "another model": with_ledger(*CHARGES, altered(COSTS[0], provider_model="other"), *COSTS[1:]),
    "charge without an attempt": replace(
        GOOD, attempts=ATTEMPTS[1:], books=replace(GOOD.books, ledger=(*CHARGES, *COSTS[1:]))
    ),
    "crossing": with_ledger(altered(CHARGES[0], tenant="other"), *CHARGES[1:], *COSTS),
    "trace and ledger differ": with_ledger(altered(CHARGES[0], cost_nano_usd=COST - 5), *CHARGES[1:], *COSTS),
    "session": replace(GOOD, books=replace(GOOD.books, sessions=(altered(sessions()[0], cost_nano_usd=1),))),
    "dead letter": replace(GOOD, books=replace(GOOD.books, dead_letters=("poison",))),
    "told and charged differ": replace(GOOD, told=(altered(TOLD[0], cost_nano_usd=COST + 1), *TOLD[1:])),
    "another call's answer": replace(GOOD, told=(altered(TOLD[0], is_own=False), *TOLD[1:])),
    "no end": replace(GOOD, told=(altered(TOLD[0], seen="lost"), *TOLD[1:]), kills_s=(50.0, 150.0)),
    "late": with_charge(altered(CHARGES[0], state="reconciled", recorded_ms=10**6), kills_s=(200.0,)),
    "over: budget": replace(GOOD, budgets={WHOLE.customer.key_id: COST - 1}),
    "row without a call": replace(
        GOOD,
        told=TOLD[1:],
        books=replace(
            GOOD.books,
            ledger=(*(altered(row, key_id="other") for row in (CHARGES[0], COSTS[0])), *CHARGES[1:], *COSTS[1:]),
            traces=(altered(TRACES[0], user=None), *TRACES[1:]),
        ),
    ),
    "unknown marker": replace(GOOD, attempts=(*ATTEMPTS, altered(ATTEMPTS[0], marker="s7-999999"))),
    "behind by more than the window": replace(
        GOOD, attempts=(ATTEMPTS[0], altered(ATTEMPTS[1], over_ms=51 + CUT_WINDOW_MS), *ATTEMPTS[2:])
    ),
}


@pytest.mark.parametrize("rule", FAULTY)
def test_faulty_books(rule: str) -> None:
    """One thing that is wrong is noticed by its name."""
    assert rule.strip() in rules(FAULTY[rule])


def test_killed() -> None:
    """What a killed process had delivered may be charged for less by what was on its way, never for more."""
    little = {"prompt_tokens": PROMPT - 3, "completion_tokens": 7, "cost_nano_usd": COST - 100}
    charge = altered(CHARGES[0], state="reconciled", **little)
    cut = altered(ATTEMPTS[0], end="left", reported=None, written_ms=tuple(range(10, 100, 10)), over_ms=110)
    lost = altered(TOLD[0], seen="lost", request_id="", cost_nano_usd=None)
    traces = (trace(WHOLE, charge), *TRACES[1:])
    books = replace(GOOD.books, ledger=(charge, *CHARGES[1:], *COSTS), traces=traces, sessions=())
    killed = replace(GOOD, attempts=(cut, *ATTEMPTS[1:]), told=(lost, *TOLD[1:]), books=books, kills_s=(100.105,))

    verdict = judge(killed)

    assert {offence.rule for offence in verdict.offences} == {"session"}
    assert str(verdict.figures["killed, events behind"]) == BEHIND


@pytest.mark.parametrize(
    ("sent_s", "wrong"),
    [(99.5, {"refused with the journal there"}), (100.1, set()), (103.2, set()),
     (103.3, {"refused with the journal there"})],
)  # fmt: skip
def test_refused(sent_s: float, wrong: set[str]) -> None:
    """A call is refused for the journal while that is away, and for a moment after."""
    refused = Told("refused", sent_s, sent_s + 0.1, "refused", 503, code="ledger_unavailable")
    evidence = replace(GOOD, told=(*TOLD, refused), outages_s=(("redis", 100.0, 103.0),))

    assert rules(replace(evidence, has_journal_in_redis=True)) == wrong
    assert rules(evidence) == {"refused with the journal there"}


@pytest.mark.parametrize(("behind", "wrong"), [(2, set()), (3, {"behind on average"})])
def test_behind_on_average(behind: int, wrong: set[str]) -> None:
    """Of calls that were left at a model's pace two events on average may be missing, though each was on its way."""
    gap, verdict = Gap(CUT_WINDOW_MS, CUT_MEAN), Verdict()
    for _ in range(ENOUGH):
        gap.add(WHOLE.script, ATTEMPTS[1], 6 - behind, 100.075)

    judge_means({"left or broken": gap}, verdict)

    assert {offence.rule for offence in verdict.offences} == wrong


def test_behind_a_kill() -> None:
    """What a provider wrote behind the end of a killed process is told apart from what that had not noted."""
    gap = Gap(CUT_WINDOW_MS, CUT_MEAN)

    age_ms = gap.add(WHOLE.script, ATTEMPTS[1], 2, 100.045)

    assert (age_ms, gap.paced, gap.behind_it) == (15, [2], [2])


@pytest.mark.parametrize(
    ("event", "second", "is_problem"),
    [
        ("storage.lost", 102, False),
        ("storage.lost", 99, True),
        ("storage.lost", 120, True),
        ("ledger.refusing", 102, True),
        ("internal.error", 102, True),
    ],
)
def test_errors_of_outages(event: str, second: int, is_problem: bool) -> None:
    """An error is expected while the store of which it tells is away, and shortly after, but at no other time."""
    service = Service({}, 1, {"storage.lost": "postgres", "ledger.refusing": "redis"})
    service.outages_s.append(("postgres", 100.0, 104.0))
    line = {"timestamp": datetime.fromtimestamp(second, UTC).isoformat(), "level": "error", "event": event}

    assert service.is_problem(line) is is_problem


def test_corrected() -> None:
    """A charge and its corrections count together, and so do an attempt's cost and what was corrected of it."""
    booked = altered(CHARGES[0], state="reconciled", completion_tokens=TOKENS - 2, cost_nano_usd=COST - 50)
    more = altered(
        CHARGES[0], kind="correction", attempt=-2, prompt_tokens=0, cached_tokens=0, completion_tokens=2,
        weighted_tokens=0, cost_nano_usd=50,
    )  # fmt: skip
    guess = altered(COSTS[0], state="reconciled", completion_tokens=0, cost_nano_usd=0)
    rest = altered(COSTS[0], kind="cost_correction", prompt_tokens=0, cached_tokens=0)
    again = altered(rest, attempt=1_000, completion_tokens=0, cost_nano_usd=0)
    books = replace(GOOD.books, ledger=(booked, more, *CHARGES[1:], again, rest, guess, *COSTS[1:]))

    assert rules(replace(GOOD, books=books)) == set()


@pytest.mark.parametrize(
    ("rest", "rule"),
    [
        (Rest(left={"leases": 1}), "left behind"),
        (Rest(memory=Growth(DRIFT_BYTES + 1, 2_000)), "memory"),
        (Rest(verified=(1, "missing 1")), "ledger verify"),
    ],
)
def test_leaks(rest: Rest, rule: str) -> None:
    """A lease that is still held, memory that grew, and what the gateway itself finds wrong are offences."""
    verdict = Verdict()

    judge_rest(rest, verdict)

    assert [offence.rule for offence in verdict.offences] == [rule]
