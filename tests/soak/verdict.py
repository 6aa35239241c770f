"""The books of the provider, of the customers and of the gateway held against each other. Pure: no clock, no store.

The provider's own record is the truth. What was answered in full has to agree to the token and the nano-USD; of what
broke, the gateway may miss what was on its way when it broke, and may never count more than there was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace as altered

from .books import Books, Row, Trace
from .records import Attempt, Told
from .script import Script
from .visits import MARGIN, Visit
from .world import price_nano_usd, weigh

# Of a call that was cut: between a token's writing and its being read by a gateway that shares two cores with its load.
CUT_WINDOW_MS = 1_000
# Of a process that was killed: progress reaches the journal with a lease's renewal, each 1 to 2 s (reliability, 5.4).
KILLED_WINDOW_MS = 3_000
_AMOUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens", "weighted_tokens", "cost_nano_usd")
_SOON_MS, _CLOCK_MS = 10_000, 5  # from admission to a provider, at most; and what whole milliseconds cut off
RECONCILED_S = 60.0  # reliability C1
PACED_MS = 8  # between two tokens, at least: some 100 in a second, as G4 has it
KILL_SHADOW_S = 2.0  # a killed worker's sockets are closed at once; the rest is for a busy machine


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
        loses_s: How long before a kill an attempt may have begun of which nothing came to be on record: with a journal
            in Redis what a process writes is on its way there, and is lost with it; one on disk has it at once.
    """

    visits: Mapping[str, Visit]
    attempts: Sequence[Attempt]
    told: Sequence[Told]
    books: Books
    kills_s: Sequence[float] = ()
    budgets: Mapping[str, int] = field(default_factory=dict)
    loses_s: float = 0.0


@dataclass(slots=True)
class Gap:
    """By how many tokens the ledger stays behind the provider where a call did not end well.

    At the pace of a model it is what G4 speaks of. What a provider wrote in one go may be on its way as a whole, and of
    a family that makes more tokens of a text than there are events, a killed process has noted the events.
    """

    paced: list[int] = field(default_factory=list)
    others: list[int] = field(default_factory=list)

    def add(self, tokens: int, script: Script, *, is_stream: bool) -> None:
        is_paced = is_stream and script.interval_ms >= PACED_MS and script.percent == 100
        (self.paced if is_paced else self.others).append(tokens)

    def __str__(self) -> str:
        return f"{_spread('paced', self.paced)}; {_spread('others', self.others)}"


def _spread(name: str, tokens: list[int]) -> str:
    mean = sum(tokens) / len(tokens) if tokens else 0.0
    return f"{name} {len(tokens)}, mean {mean:.2f}, most {max(tokens, default=0)}"


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
    """
    What came of it: figures by name, in the order in which they are to be read, and everything that is wrong.

    Attributes:
        lost: Calls of which an attempt was lost with its process, as `Evidence.loses_s` has it.
    """

    figures: dict[str, object] = field(default_factory=dict)
    offences: list[Offence] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)

    def blame(self, rule: str, marker: str, detail: object = "") -> None:
        self.offences.append(Offence(rule, marker, str(detail)))


def judge(evidence: Evidence) -> Verdict:
    """The verdict on *evidence*."""
    verdict = Verdict()
    attempts = _by_marker(evidence.attempts)
    accounts = _accounts(evidence, attempts, verdict)
    told = _told_by_marker(evidence.told)
    cut, killed, exact = Gap(), Gap(), 0
    for marker in {**attempts, **accounts}:
        visit = evidence.visits.get(marker)
        if visit is None:
            verdict.blame("unknown marker", marker)
            continue
        mine = accounts.get(marker, [])
        seen = sorted(attempts.get(marker, ()), key=lambda attempt: attempt.arrived_s)
        seen = _without_lost(marker, mine, seen, evidence, verdict)
        for account, pairs in _matched(marker, mine, seen, verdict):
            _judge_account(visit, account, verdict)
            exact += _judge_tokens(visit, account, pairs, verdict, cut, killed)
    for marker, answers in told.items():
        _judge_told(marker, answers, accounts.get(marker, []), evidence, verdict)
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
        "lost with their process": len(verdict.lost),
        "extra": sum(offence.rule == "extra" for offence in verdict.offences),
        "charges": len(rows),
        "exact to the token and nano-USD": exact,
        "left or broken, tokens behind": cut,
        "killed, tokens behind": killed,
        "over": sum(offence.rule.startswith("over") for offence in verdict.offences),
        "nano-USD charged": sum(row.cost_nano_usd for row in rows),
    }
    return verdict


def _accounts(
    evidence: Evidence, attempts: Mapping[str, Sequence[Attempt]], verdict: Verdict
) -> dict[str, list[Account]]:
    """Requests by marker; each has its rows."""
    by_request: dict[str, Account] = defaultdict(Account)
    for trace in evidence.books.traces:
        by_request[trace.request_id].trace = trace
    for row in evidence.books.ledger:
        (by_request[row.request_id].costs if row.kind == "cost" else by_request[row.request_id].charges).append(row)
    by_marker: dict[str, list[Account]] = defaultdict(list)
    names = {told.request_id: told.marker for told in evidence.told if told.request_id}
    nameless = []
    for request_id, account in by_request.items():
        if account.trace is None:
            verdict.blame("row without a trace", request_id, account.charges or account.costs)
        elif (marker := account.trace.user or names.get(request_id)) is not None:
            by_marker[marker].append(account)
        elif account.costs or any(row.cost_nano_usd for row in account.charges):
            nameless.append(account)
    for account in sorted(nameless, key=lambda account: account.admitted_ms):
        marker = _name_of(account, evidence.visits, attempts, by_marker)
        if marker is None:
            verdict.blame("row without a call", account.costs[0].request_id if account.costs else "-", account)
        else:
            by_marker[marker].append(account)
    return dict(by_marker)


def _name_of(
    account: Account,
    visits: Mapping[str, Visit],
    attempts: Mapping[str, Sequence[Attempt]],
    accounts: Mapping[str, Sequence[Account]],
) -> str | None:
    """
    The call of *account*, which a killed process has left behind: no word of a customer's is kept for that.

    It is the one of the same key and of such a prompt that reached the same model soonest after the admission, and
    stands in no account yet.
    """
    row = account.costs[0] if account.costs else account.charges[0]
    found: tuple[float, str] | None = None
    for marker, seen in attempts.items():
        visit = visits.get(marker)
        if visit is None or visit.customer.key_id != row.key_id or seen[0].model != row.provider_model:
            continue
        if row.prompt_tokens and not 0 <= seen[0].prompt - row.prompt_tokens <= MARGIN:
            continue
        since_ms = max(one.arrived_s for one in seen) * 1000 - row.admitted_ms
        if not -_CLOCK_MS <= since_ms < _SOON_MS or (found is not None and found[0] <= since_ms):
            continue
        if sum(len(one.costs) for one in accounts.get(marker, ())) + len(account.costs) <= len(seen):
            found = since_ms, marker
    return found and found[1]


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


def _without_lost(
    marker: str, accounts: list[Account], seen: list[Attempt], evidence: Evidence, verdict: Verdict
) -> list[Attempt]:  # fmt: skip
    """*seen* without what may be missing: no more than is, and nothing but what had begun just before a kill."""
    missing = len(seen) - sum(len(account.costs) for account in accounts)
    doomed = [one for one in seen if any(0 <= at_s - one.arrived_s <= evidence.loses_s for at_s in evidence.kills_s)]
    if missing <= 0 or len(doomed) < missing:
        return seen
    verdict.lost.add(marker)
    lost = doomed[-missing:]
    return [one for one in seen if one not in lost]


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
    visit: Visit, account: Account, pairs: list[tuple[Row, Attempt]], verdict: Verdict, cut: Gap, killed: Gap
) -> int:
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
    _judge_bounded(visit, charge, attempt, verdict, killed if charge.state == "reconciled" else cut)
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


def _judge_bounded(visit: Visit, charge: Row, attempt: Attempt, verdict: Verdict, gap: Gap) -> None:
    """Never more than the provider did, and behind it by no more than was on its way."""
    behind = attempt.tokens - charge.completion_tokens
    if behind < 0 or charge.prompt_tokens > attempt.prompt:
        verdict.blame("over", visit.marker, f"{charge} {attempt}")
    if charge.cost_nano_usd > price_nano_usd(visit.model, attempt.prompt, 0, attempt.tokens):
        verdict.blame("over: USD", visit.marker, f"{charge} {attempt}")
    gap.add(max(0, behind), visit.script, is_stream=attempt.stream)
    window_ms = KILLED_WINDOW_MS if charge.state == "reconciled" else CUT_WINDOW_MS
    moving = sum(age_ms <= window_ms for age_ms in attempt.ages_ms)
    # Of an answer that was over, all may still have been on its way.
    if attempt.stream and attempt.end in ("cut", "left") and behind > visit.script.counted(moving) + 1:
        verdict.blame("behind by more than the window", visit.marker, f"{behind} > {moving}: {charge} {attempt}")


def _judge_told(
    marker: str, answers: list[Told], accounts: list[Account], evidence: Evidence, verdict: Verdict
) -> None:
    """What customers were told stands in the books; nobody was told of another's call, or left without an end."""
    charges = [row for account in accounts for row in account.charges]
    for answer in answers:
        if not answer.is_own:
            verdict.blame("another call's answer", marker, answer)
        if answer.seen == "lost" and answer.status and not _killed(answer, evidence.kills_s):
            verdict.blame("no end", marker, answer)
        if answer.seen != "whole" or answer.cost_nano_usd is None:
            continue
        if marker in verdict.lost and sum(row.cost_nano_usd for row in charges) <= answer.cost_nano_usd:
            continue
        if not any(_agrees(row, answer.cost_nano_usd) for row in charges):
            verdict.blame("told and charged differ", marker, f"{answer} {charges}")


def _agrees(charge: Row, told_nano_usd: int) -> bool:
    """A charge is what was told; one that had to be reconciled is of what was known by then."""
    return charge.cost_nano_usd == told_nano_usd or (
        charge.state == "reconciled" and charge.cost_nano_usd <= told_nano_usd
    )


def _killed(answer: Told, kills_s: Sequence[float]) -> bool:
    return any(answer.sent_s - KILL_SHADOW_S <= at_s <= answer.over_s + KILL_SHADOW_S for at_s in kills_s)


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
        if row.kind != "cost":
            spent[row.key_id] += row.cost_nano_usd
    for key_id, limit in evidence.budgets.items():
        verdict.figures[f"spent of the budget of {key_id}"] = f"{spent[key_id]} of {limit} nano-USD"
        if spent[key_id] > limit:
            verdict.blame("over: budget", key_id, f"{spent[key_id]} of {limit}")
