"""Breaker and retry budget, with the clock in the test's hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.breaker import Breaker, BreakerBoard, BreakerRules, BudgetRules, Permit, RetryBudget, name_of

RULES = BreakerRules()


class Calls:
    """Calls of one route as a caller makes them: one at a time, each reported with the permit it was given."""

    def __init__(self) -> None:
        self.breaker = Breaker(RULES)
        self._permit: Permit | None = None

    def state(self, now_s: float) -> str:
        return self.breaker.state(now_s)

    def allow(self, now_s: float) -> bool:
        permit = self.breaker.admit(now_s)
        self._permit = permit or self._permit
        return permit is not None

    def succeeded(self, now_s: float) -> None:
        self._current(now_s).succeeded(now_s)

    def failed(self, now_s: float) -> None:
        self._current(now_s).failed(now_s)

    def abandoned(self, now_s: float) -> None:
        self._current(now_s).abandoned()

    def _current(self, now_s: float) -> Permit:
        """The permit of the call that reports: a new one while closed, the last that was given otherwise."""
        if self._permit is None or self.breaker.state(now_s) == "closed":
            self._permit = self.breaker.admit(now_s)
        assert self._permit is not None
        return self._permit


def opened(at_s: float = 0.0) -> Calls:
    """Calls of a route whose breaker opened at *at_s*."""
    breaker = Calls()
    for _ in range(RULES.failures):
        breaker.failed(at_s)
    return breaker


def test_opens_at_the_tenth_failure() -> None:
    """Nine failures in ten seconds are borne, the tenth opens."""
    breaker = Calls()
    for _ in range(9):
        breaker.failed(1.0)
    before = breaker.state(1.0)
    breaker.failed(1.0)

    assert (before, breaker.state(1.0), breaker.allow(1.0)) == ("closed", "open", False)


def test_failures_below_half_of_the_calls_do_not_open() -> None:
    """A busy route may fail often as long as it succeeds more often."""
    breaker = Calls()
    for _ in range(50):
        breaker.succeeded(1.0)
    for _ in range(49):
        breaker.failed(1.0)
    before = breaker.state(1.0)
    breaker.failed(1.0)

    assert (before, breaker.state(1.0)) == ("closed", "open")


def test_old_failures_are_forgotten() -> None:
    """Failures of more than ten seconds ago do not count."""
    breaker = Calls()
    for second in range(200):
        breaker.failed(second * 1.2)  # 8.3 in ten seconds

    assert breaker.state(240.0) == "closed"


def test_stays_open_for_five_seconds_then_admits_one_probe() -> None:
    """After the open time one call goes through, and only one."""
    breaker = opened()

    allowed = [breaker.allow(4.99), breaker.allow(5.0), breaker.allow(5.0), breaker.allow(34.9)]

    assert (allowed, breaker.state(5.0)) == ([False, True, False, False], "half_open")


def test_successful_probe_closes() -> None:
    """A probe that succeeds closes the breaker with a clean slate."""
    breaker = opened()
    breaker.allow(5.0)
    breaker.succeeded(6.0)
    for _ in range(9):
        breaker.failed(6.0)

    assert (breaker.state(6.0), breaker.allow(6.0)) == ("closed", True)


def test_failed_probes_double_the_open_time_up_to_thirty_seconds() -> None:
    """5, 10, 20, 30, 30 seconds; and 5 again after a success."""
    breaker, now_s, times = opened(), 0.0, []
    for _ in range(5):
        start_s = now_s
        while not breaker.allow(now_s):
            now_s += 1.0
        times.append(now_s - start_s)
        breaker.failed(now_s)
    while not breaker.allow(now_s):
        now_s += 1.0
    breaker.succeeded(now_s)
    for _ in range(RULES.failures):
        breaker.failed(now_s)

    assert (
        times,
        [breaker.allow(now_s + 4.9), breaker.allow(now_s + 5.0)],
    ) == ([5.0, 10.0, 20.0, 30.0, 30.0], [False, True])


def test_abandoned_probe_frees_the_slot() -> None:
    """A probe whose caller left tells nothing, and the next call may probe at once."""
    breaker = opened()
    breaker.allow(5.0)
    breaker.abandoned(5.5)

    assert (breaker.state(5.5), breaker.allow(5.5)) == ("half_open", True)


def test_lost_probe_expires() -> None:
    """A probe that never reports keeps others out for `probe_s` and no longer."""
    breaker = opened()
    breaker.allow(5.0)

    assert [breaker.allow(34.9), breaker.allow(35.0), breaker.allow(35.1)] == [False, True, False]


def test_reports_of_old_calls_change_nothing_while_open() -> None:
    """Calls from before it opened that end now neither close it nor prolong it."""
    breaker = opened()
    breaker.succeeded(1.0)
    breaker.failed(2.0)
    states = breaker.state(4.9), breaker.state(5.0)
    breaker.succeeded(5.0)

    assert (states, breaker.state(5.0)) == (("open", "half_open"), "half_open")


def permits(breaker: Breaker, now_s: float, count: int) -> list[Permit]:
    """*count* calls that start at *now_s*."""
    return [permit for permit in (breaker.admit(now_s) for _ in range(count)) if permit is not None]


def test_a_success_that_breaks_later_is_one_failed_call() -> None:
    """Streams that begin well and then break open the breaker, also when none of them fails at its start."""
    breaker = Breaker(RULES)
    calls = permits(breaker, 0.0, 12)
    for permit in calls:
        permit.succeeded(1.0)
    for permit in calls[:10]:
        permit.failed(2.0)

    assert breaker.state(2.0) == "open"


def test_the_first_word_counts() -> None:
    """A call that was given up and then fails, or fails twice, is not counted again."""
    breaker = Breaker(RULES)
    calls = permits(breaker, 0.0, 20)
    for permit in calls[:10]:
        permit.abandoned()
        permit.succeeded(1.0)
    for permit in calls[10:19]:
        permit.failed(1.0)
        permit.failed(1.0)
    before = breaker.state(1.0)
    calls[19].failed(1.0)

    assert (before, breaker.state(1.0)) == ("closed", "open")


def test_an_old_call_does_not_speak_for_the_probe() -> None:
    """While a probe is out, calls from before it neither close the breaker, open it anew, nor free the slot."""
    breaker = Breaker(RULES)
    old = permits(breaker, 0.0, 13)
    for permit in old[:10]:
        permit.failed(0.0)
    probe = breaker.admit(5.0)
    old[10].succeeded(6.0)
    old[11].failed(6.0)
    old[12].abandoned()
    meanwhile = breaker.state(6.0), breaker.admit(6.0)
    assert probe is not None
    probe.succeeded(7.0)

    assert (meanwhile, breaker.state(7.0)) == (("half_open", None), "closed")


ACTS = st.sampled_from(["allow", "succeeded", "failed", "abandoned"])


@given(st.lists(st.tuples(ACTS, st.floats(0, 8)), max_size=200))
def test_never_wedges(steps: list[tuple[str, float]]) -> None:
    """Whatever happened before, within 30 s of open time and 30 s of a lost probe a call is allowed."""
    breaker, now_s = Calls(), 0.0
    for name, pause_s in steps:
        now_s += pause_s
        getattr(breaker, name)(now_s)

    assert any(breaker.allow(now_s + second) for second in range(62))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2000)), max_size=300))
def test_window_matches_a_plain_list(calls: list[tuple[bool, int]]) -> None:
    """It never opens on fewer than ten failures within ten seconds, and always on ten within nine without a success."""
    breaker, now_ms, failures = Calls(), 0, list[int]()
    for success, pause_ms in calls:
        now_ms += pause_ms
        if breaker.state(now_ms / 1000) != "closed":
            break
        if success:
            breaker.succeeded(now_ms / 1000)
            continue
        failures.append(now_ms)
        breaker.failed(now_ms / 1000)
        recent = sum(now_ms - at < 10_000 for at in failures)
        opened_now = breaker.state(now_ms / 1000) == "open"
        assert not opened_now or recent >= 10
        if sum(now_ms - at <= 9_000 for at in failures) >= 10 and not any(ok for ok, _ in calls):
            assert opened_now


def test_budget_is_the_minimum_plus_ten_percent() -> None:
    """With 100 requests in the window, 3 + 10 extra attempts may start."""
    budget = RetryBudget(BudgetRules(percent=10, minimum=3))
    for _ in range(100):
        budget.started(1.0)

    spent = sum(budget.may_retry(1.0) for _ in range(100))

    assert spent == 13


def test_budget_refills_as_the_window_moves() -> None:
    """What was spent more than a window ago does not count against the budget."""
    budget = RetryBudget(BudgetRules(percent=10, minimum=2))
    spent = [budget.may_retry(at_s) for at_s in (0.0, 0.0, 0.0, 8.0, 10.0)]

    assert spent == [True, True, False, False, True]


def test_board_makes_one_pair_per_route() -> None:
    """A route keeps its breaker and budget; another has its own; a route that is gone is forgotten, for counts too."""
    board = BreakerBoard(RULES, BudgetRules())
    first, other = board.of("a/m"), board.of("b/m")
    for _ in range(RULES.failures):
        permit = first[0].admit(0.0)
        assert permit is not None
        permit.failed(0.0)
    same = board.of("a/m") is first
    states = [board.of(name)[0].state(0.0) for name in ("a/m", "b/m")]
    counts = [board.of(name_of(route_id, "count")) for route_id in ("a/m", "b/m")]
    board.keep({"b/m"})

    assert [board.of(name) is pair for name, pair in zip(("a/m#count", "b/m#count"), counts, strict=True)] == [0, 1]
    assert (same, states) == (True, ["open", "closed"])
    assert board.of("b/m") is other
    assert board.of("a/m")[0].state(0.0) == "closed"
