"""The books of the provider, of the customers and of the gateway held against each other. Pure: no clock, no store.

The provider's own record is the truth. What was answered in full has to agree to the token and the nano-USD; of what
broke, the gateway may miss what was on its way when it broke, and may never count more than there was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from msgspec.structs import replace as altered

from .books import Books, Row, Trace
from .records import Attempt, Told
from .script import Script
from .visits import Visit
from .world import price_nano_usd, weigh

# What is on its way: between a token's writing and its being read by a gateway that shares two cores with its load, its
# provider and its neighbours. 38 ms were seen where a call was cut and 84 where a process was killed, among 25 kills on
# a machine with four times as much to do as it could, and 250 on one with eight times as much.
CUT_WINDOW_MS = KILLED_WINDOW_MS = 500
# Of a process whose progress reaches its journal with a lease's renewal, each second (reliability, 5.4, has 1 to 2).
RENEWED_WINDOW_MS = 1_000 + 2 * KILLED_WINDOW_MS
BACK_S = 0.25  # from the end of an outage until calls pass: a round trip, on a machine that wakes up as a whole
CHARGED = ("charge", "correction")
COSTS_APART = 1_000  # between the numbers of an attempt's corrections, as docs/ledger.md has it
_AMOUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens", "weighted_tokens", "cost_nano_usd")
RECONCILED_S = 60.0  # reliability C1
CUT_MEAN, KILLED_MEAN = 2.0, 4.0  # events at a model's pace, by G4
KILLING_MS = 100  # at the most, from when the time of a kill is noted, which a busy machine may take
ENOUGH = 100  # calls, to speak of a mean: of two dozen it was 2.1 where 1,700 had 0.6
PACED_MS = 8  # between two tokens, at least: some 100 in a second, as G4 has it


@dataclass(frozen=True, slots=True)
class Offence:
    """Something that is wrong, and where to look."""

    rule: str
    marker: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.marker}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """
    Everything that was seen.

    Attributes:
        kills_s: When a process was killed, by the clock of `Told.sent_s`.
        budgets: Nano-USD that a key may spend, by its id.
        has_journal_in_redis: Whether progress reaches the journal with its renewals; on disk it is there at once.
        outages_s: When a store was away: its name, and epoch seconds of the begin and the end.
    """

    visits: Mapping[str, Visit]
    attempts: Sequence[Attempt]
    told: Sequence[Told]
    books: Books
    kills_s: Sequence[float] = ()
    budgets: Mapping[str, int] = field(default_factory=dict)
    has_journal_in_redis: bool = False
    outages_s: Sequence[tuple[str, float, float]] = ()


@dataclass(slots=True)
class Gap:
    """
    By how many events of a stream the ledger stays behind the provider where a call did not end well.

    At the pace of a model it is what G4 speaks of. What a provider wrote in one go may be on its way as a whole. A
    provider goes on for as long as the kernel takes to close what a killed process had open: that is counted apart.

    Attributes:
        window_ms: How long before the end an event may have been written that is missing.
        mean: Of the missing ones at a model's pace, at the most.
        oldest_ms: How long before the end the first of the missing events was written, at the most.
    """

    window_ms: int
    mean: float
    paced: list[int] = field(default_factory=list)
    others: list[int] = field(default_factory=list)
    behind_it: list[int] = field(default_factory=list)
    oldest_ms: int = 0

    def add(self, script: Script, attempt: Attempt, known: int, end_s: float) -> int:
        """Of *attempt*, which ended at *end_s*, so many events are *known*; how old the first missing one was then."""
        before = attempt.written_by(end_s)
        (self.paced if script.interval_ms >= PACED_MS else self.others).append(max(0, before - known))
        self.behind_it.append(len(attempt.written_ms) - max(known, before))
        if known >= before:
            return 0
        age_ms = int((end_s - attempt.arrived_s) * 1000) - attempt.written_ms[known]
        self.oldest_ms = max(self.oldest_ms, age_ms)
        return age_ms

    @property
    def mean_paced(self) -> float:
        """Events."""
        return sum(self.paced) / len(self.paced) if self.paced else 0.0

    def __str__(self) -> str:
        parts = {"paced": self.paced, "others": self.others, "and behind the end": self.behind_it}
        return "; ".join([*(_spread(*part) for part in parts.items()), f"oldest {self.oldest_ms} ms"])


@dataclass(slots=True)
class Gaps:
    """Those of calls that were left or cut, and those of calls whose process was killed."""

    kills_s: Sequence[float]
    cut: Gap
    killed: Gap

    def death_s(self, charge: Row, attempt: Attempt) -> float:
        """When the process of *charge* was killed: others may have been, while it went on with this."""
        after_s = [at_s for at_s in self.kills_s if at_s * 1000 >= charge.admitted_ms - KILLING_MS]
        if attempt.end == "left":
            return max((at_s for at_s in after_s if at_s <= attempt.over_s), default=attempt.over_s)
        return min(after_s, default=attempt.over_s)


def _spread(name: str, events: list[int]) -> str:
    mean = sum(events) / len(events) if events else 0.0
    return f"{name} {len(events)}, mean {mean:.2f}, most {max(events, default=0)}"


@dataclass(slots=True)
class Account:
    """One request in the gateway's books."""

    trace: Trace | None = None
    charges: list[Row] = field(default_factory=list)
    costs: list[Row] = field(default_factory=list)

    @property
    def admitted_ms(self) -> int:
        return min((row.admitted_ms for row in (*self.charges, *self.costs)), default=0)

    @property
    def net(self) -> Row:
        """The charge with its corrections: what was found out later is the last word."""
        first, *corrections = sorted(self.charges, key=lambda row: -row.attempt)
        sums = {name: sum(getattr(row, name) for row in self.charges) for name in _AMOUNTS}
        return altered((corrections or [first])[-1], **sums)


@dataclass(slots=True)
class Verdict:
    """What came of it: figures by name, in the order in which they are to be read, and everything that is wrong."""

    figures: dict[str, object] = field(default_factory=dict)
    offences: list[Offence] = field(default_factory=list)

    def blame(self, rule: str, marker: str, detail: object = "") -> None:
        self.offences.append(Offence(rule, marker, str(detail)))


def judge(evidence: Evidence) -> Verdict:
    """The verdict on *evidence*."""
    verdict = Verdict()
    attempts = _by_marker(evidence.attempts)
    accounts = _accounts(evidence, verdict)
    told = _told_by_marker(evidence.told)
    cut = Gap(CUT_WINDOW_MS, CUT_MEAN)
    killed = Gap(RENEWED_WINDOW_MS, inf) if evidence.has_journal_in_redis else Gap(KILLED_WINDOW_MS, KILLED_MEAN)
    gaps, exact = Gaps(evidence.kills_s, cut, killed), 0
    for marker in {**attempts, **accounts}:
        visit = evidence.visits.get(marker)
        if visit is None:
            verdict.blame("unknown marker", marker)
            continue
        mine = accounts.get(marker, [])
        seen = sorted(attempts.get(marker, ()), key=lambda attempt: attempt.arrived_s)
        for account, pairs in _matched(marker, mine, seen, verdict):
            _judge_account(visit, account, verdict)
            exact += _judge_tokens(visit, account, pairs, verdict, gaps)
    for marker, answers in told.items():
        _judge_told(marker, answers, accounts.get(marker, []), evidence, verdict)
    judge_means({"left or broken": gaps.cut, "killed": gaps.killed}, verdict)
    _judge_delay(evidence, verdict)
    _judge_sessions(evidence.books, verdict)
    _judge_budgets(evidence, verdict)
    for reason in evidence.books.dead_letters:
        verdict.blame("dead letter", "-", reason)
    rows = [row for group in accounts.values() for account in group for row in account.charges]
    verdict.figures |= {
        "requests of customers": len(evidence.told),
        "attempts seen by the provider": len(evidence.attempts),
        "attempts in the ledger": sum(row.kind == "cost" for row in evidence.books.ledger),
        "missing": sum(offence.rule == "missing" for offence in verdict.offences),
        "extra": sum(offence.rule == "extra" for offence in verdict.offences),
        "charges": len(rows),
        "exact to the token and nano-USD": exact,
        "left or broken, events behind": gaps.cut,
        "killed, events behind": gaps.killed,
        "over": sum(offence.rule.startswith("over") for offence in verdict.offences),
        "nano-USD charged": sum(row.cost_nano_usd for row in rows),
    }
    return verdict


def _accounts(evidence: Evidence, verdict: Verdict) -> dict[str, list[Account]]:
    """Requests by marker; each has its rows."""
    by_request: dict[str, Account] = defaultdict(Account)
    for trace in evidence.books.traces:
        by_request[trace.request_id].trace = trace
    for row in evidence.books.ledger:
        account = by_request[row.request_id]
        (account.charges if row.kind in CHARGED else account.costs).append(row)
    for account in by_request.values():
        account.costs = _corrected(account.costs)
    by_marker: dict[str, list[Account]] = defaultdict(list)
    names = {told.request_id: told.marker for told in evidence.told if told.request_id}
    for request_id, account in by_request.items():
        if account.trace is None:
            verdict.blame("row without a trace", request_id, account.charges or account.costs)
        elif (marker := account.trace.user or names.get(request_id)) is not None:
            by_marker[marker].append(account)
        elif account.costs or any(row.cost_nano_usd for row in account.charges):
            verdict.blame("row without a call", request_id, account)
    return dict(by_marker)


def _corrected(costs: Sequence[Row]) -> list[Row]:
    """A row for each attempt, what was found out later of it added."""
    by_attempt: dict[int, list[Row]] = defaultdict(list)
    for row in sorted(costs, key=lambda row: (row.attempt, row.kind)):
        by_attempt[row.attempt % COSTS_APART].append(row)
    return [
        altered(rows[0], **{name: sum(getattr(row, name) for row in rows) for name in _AMOUNTS})
        for rows in by_attempt.values()
    ]


def _by_marker(attempts: Sequence[Attempt]) -> dict[str, list[Attempt]]:
    out: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        out[attempt.marker].append(attempt)
    return dict(out)


def _told_by_marker(told: Sequence[Told]) -> dict[str, list[Told]]:
    out: dict[str, list[Told]] = defaultdict(list)
    for answer in told:
        out[answer.marker].append(answer)
    return dict(out)


def _matched(
    marker: str, accounts: list[Account], seen: list[Attempt], verdict: Verdict
) -> Iterator[tuple[Account, list[tuple[Row, Attempt]]]]:
    """
    Each account with its attempts, in the order in which both came; one call makes them one after the other.

    Where the two do not have the same number nothing is compared: which of them is which cannot be told.
    """
    accounts = sorted(accounts, key=lambda account: account.admitted_ms)
    costs = [row for account in accounts for row in sorted(account.costs, key=lambda row: row.attempt)]
    if len(costs) != len(seen):
        rule = "missing" if len(costs) < len(seen) else "extra"
        for _ in range(abs(len(costs) - len(seen))):
            verdict.blame(rule, marker, f"provider: {seen}; ledger: {costs}")
        return
    left = iter(seen)
    for account in accounts:
        yield account, [(row, next(left)) for row in sorted(account.costs, key=lambda row: row.attempt)]


def _judge_account(visit: Visit, account: Account, verdict: Verdict) -> None:
    """One charge for each request that reached a provider, the tenant's own, and the trace says the same."""
    trace = account.trace
    assert trace is not None
    charges = [row for row in account.charges if row.kind == "charge"]
    if len(charges) > 1 or (account.costs and not charges):
        verdict.blame("charges", visit.marker, f"{len(charges)} of one request: {charges}")
    if account.charges and not account.costs and any(row.cost_nano_usd for row in account.charges):
        verdict.blame("charge without an attempt", visit.marker, account.charges)
    for row in (*account.charges, *account.costs):
        if (row.tenant, row.key_id) != (visit.customer.tenant, visit.customer.key_id):
            verdict.blame("crossing", visit.marker, row)
    if (trace.tenant, trace.key_id) != (visit.customer.tenant, visit.customer.key_id):
        verdict.blame("crossing", visit.marker, trace)
    if account.charges and trace.cost_nano_usd != sum(row.cost_nano_usd for row in account.charges):
        verdict.blame("trace and ledger differ", visit.marker, f"{trace} {account.charges}")


def _judge_tokens(
    visit: Visit, account: Account, pairs: list[tuple[Row, Attempt]], verdict: Verdict, gaps: Gaps
) -> int:  # fmt: skip
    """Hold the charge against the attempt that answered, the last one; 1 where it agrees to the last digit."""
    for row, attempt in pairs:
        _judge_cost(visit, row, attempt, verdict)
    if not pairs or not account.charges:
        return 0
    charge, (_, attempt) = account.net, pairs[-1]
    if charge.outcome in ("failed", "rejected"):
        if charge.cost_nano_usd or charge.completion_tokens:
            verdict.blame("over: nothing was delivered", visit.marker, charge)
        return 0
    if charge.outcome == "completed" and charge.state == "settled" and attempt.reported is not None:
        return _judge_exact(visit, charge, attempt.reported, verdict)
    _judge_bounded(visit, charge, attempt, verdict, gaps)
    return 0


def _judge_cost(visit: Visit, row: Row, attempt: Attempt, verdict: Verdict) -> None:
    """A provider's cost row is of this attempt, and says no more than what it did."""
    if row.provider_model != attempt.model:
        verdict.blame("another model", visit.marker, f"{row} {attempt}")
    if row.completion_tokens > attempt.tokens or row.prompt_tokens > attempt.prompt:
        verdict.blame("over: cost", visit.marker, f"{row} {attempt}")
    if row.cost_nano_usd > price_nano_usd(visit.model, attempt.prompt, 0, attempt.tokens):
        verdict.blame("over: cost in USD", visit.marker, f"{row} {attempt}")


def _judge_exact(visit: Visit, charge: Row, reported: tuple[int, int, int], verdict: Verdict) -> int:
    prompt, cached, completion = reported
    said = (charge.prompt_tokens, charge.cached_tokens, charge.completion_tokens)
    cost = price_nano_usd(visit.model, prompt, cached, completion)
    weighted = weigh(visit.model, prompt + completion, is_cached=cached > 0)
    if said != reported:
        over = "over: " if said > reported else ""
        verdict.blame(f"{over}completed, tokens differ", visit.marker, f"{said} for {reported}")
    elif charge.cost_nano_usd != cost:
        over = "over: " if charge.cost_nano_usd > cost else ""
        verdict.blame(f"{over}completed, cost differs", visit.marker, f"{charge.cost_nano_usd} for {cost}")
    elif charge.weighted_tokens != weighted:
        verdict.blame("completed, weighted tokens differ", visit.marker, f"{charge.weighted_tokens} for {weighted}")
    else:
        return 1
    return 0


def _judge_bounded(visit: Visit, charge: Row, attempt: Attempt, verdict: Verdict, gaps: Gaps) -> None:
    """Never more than the provider did, and behind it by no more than was on its way."""
    if charge.completion_tokens > attempt.tokens or charge.prompt_tokens > attempt.prompt:
        verdict.blame("over", visit.marker, f"{charge} {attempt}")
    if charge.cost_nano_usd > price_nano_usd(visit.model, attempt.prompt, 0, attempt.tokens):
        verdict.blame("over: USD", visit.marker, f"{charge} {attempt}")
    if not attempt.stream:
        return  # of a body nothing is there before its end
    if charge.state == "reconciled":  # by the events that were noted
        gap, known, end_s = gaps.killed, charge.completion_tokens, gaps.death_s(charge, attempt)
    else:
        gap, known, end_s = gaps.cut, visit.script.events(charge.completion_tokens), attempt.over_s
    age_ms = gap.add(visit.script, attempt, known, end_s)
    if age_ms > gap.window_ms:
        verdict.blame("behind by more than the window", visit.marker, f"{age_ms} ms: {charge} {attempt}")


def judge_means(gaps: Mapping[str, Gap], verdict: Verdict) -> None:
    """What is missing on average, of enough calls."""
    for name, gap in gaps.items():
        if len(gap.paced) >= ENOUGH and gap.mean_paced > gap.mean:
            verdict.blame("behind on average", "-", f"{name}: {gap}")


def _judge_told(
    marker: str, answers: list[Told], accounts: list[Account], evidence: Evidence, verdict: Verdict
) -> None:
    """What customers were told stands in the books; nobody was told of another's call, or left without an end."""
    charges = [row for account in accounts for row in account.charges]
    for answer in answers:
        if not answer.is_own:
            verdict.blame("another call's answer", marker, answer)
        if answer.code == "ledger_unavailable" and not _is_away(answer, evidence):
            verdict.blame("refused with the journal there", marker, answer)
        if answer.seen == "lost" and answer.status and not _killed(answer, evidence.kills_s):
            verdict.blame("no end", marker, answer)
        if answer.seen != "whole" or answer.cost_nano_usd is None:
            continue
        if not any(account.net.cost_nano_usd == answer.cost_nano_usd for account in accounts if account.charges):
            verdict.blame("told and charged differ", marker, f"{answer} {charges}")


def _is_away(answer: Told, evidence: Evidence) -> bool:
    away_s = [span for name, *span in evidence.outages_s if name == "redis" and evidence.has_journal_in_redis]
    return any(begin_s <= answer.over_s and answer.sent_s <= end_s + BACK_S for begin_s, end_s in away_s)


def _killed(answer: Told, kills_s: Sequence[float]) -> bool:
    return any(answer.sent_s <= at_s <= answer.over_s for at_s in kills_s)


def _judge_delay(evidence: Evidence, verdict: Verdict) -> None:
    """What a killed process had begun is in the books soon after."""
    most_s = 0.0
    for row in evidence.books.ledger:
        died_s = [at_s for at_s in evidence.kills_s if at_s * 1000 >= row.admitted_ms]
        if row.state == "reconciled" and died_s:
            most_s = max(most_s, row.recorded_ms / 1000 - died_s[0])
    if evidence.kills_s:
        verdict.figures["seconds from a kill to its last row"] = round(most_s, 1)
    if most_s > RECONCILED_S:
        verdict.blame("late", "-", f"{most_s:.1f} s from a kill to its rows")


def _judge_sessions(books: Books, verdict: Verdict) -> None:
    """A session's totals are the sums over its charges, and every session with calls has its row."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    for trace in books.traces:
        if trace.session_id is not None:
            said = (1, trace.prompt_tokens, trace.completion_tokens, trace.weighted_tokens, trace.cost_nano_usd)
            total = sums[trace.tenant, trace.session_id]
            for at, amount in enumerate(said):
                total[at] += amount
    rows = {(row.tenant, row.session_id): row for row in books.sessions}
    for name in {**sums, **rows}:
        row, total = rows.get(name), sums.get(name)
        said = row and [
            row.requests, row.prompt_tokens, row.completion_tokens, row.weighted_tokens, row.cost_nano_usd,
        ]  # fmt: skip
        if said != total:
            verdict.blame("session", "/".join(name), f"{said} for {total}")


def _judge_budgets(evidence: Evidence, verdict: Verdict) -> None:
    spent: dict[str, int] = defaultdict(int)
    for row in evidence.books.ledger:
        if row.kind in CHARGED:
            spent[row.key_id] += row.cost_nano_usd
    for key_id, limit in evidence.budgets.items():
        verdict.figures[f"spent of the budget of {key_id}"] = f"{spent[key_id]} of {limit} nano-USD"
        if spent[key_id] > limit:
            verdict.blame("over: budget", key_id, f"{spent[key_id]} of {limit}")
