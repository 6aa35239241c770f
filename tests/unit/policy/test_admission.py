"""Admission as a state machine: what is held, granted, booked, loaded and lost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.core.accounts import Budget, Key
from gateway.core.ports import Draw, Order, Spent
from gateway.policy.admission import DONE_MS, KEPT_MS, Admission
from gateway.policy.entitlement import Entitlements, entitlement, part_of
from gateway.policy.verdict import Open, Verdict
from tests.support.books import USD, key

START_MS = int(datetime(2026, 11, 30, 23, 59, tzinfo=UTC).timestamp() * 1000)  # a Monday, and the last of its month
MINUTE_MS, DAY_MS = 60_000, 86_400_000
POOR = key("poor", budgets=(Budget("key", "day", 100),))


class Desk:
    """A machine whose accounts are loaded as they are asked for, and a clock."""

    def __init__(self, spent: int = 0, **times: int) -> None:
        self.machine = Admission(**{"lease_ms": 30_000, "hold_ms": 90_000, **times})
        self.now_ms, self.spent, self.number = START_MS, spent, 0
        self.limits = Entitlements()

    def admit(self, mine: Key, need: int = 0, floor: int | None = None, **more: object) -> tuple[Verdict, Open]:
        self.number += 1
        draw = Draw(need, need if floor is None else floor)
        order = Order(mine, f"r{self.number}", nano_usd=draw, weighted=draw, **more)  # type: ignore[arg-type]
        limits = self.limits.of(mine, order.session_id)
        verdict = self.machine.admit(order, limits, self.now_ms)
        if verdict.step == "load":
            for account, count in zip(limits.accounts, verdict.standing.tallies, strict=True):
                self.machine.load(account, count.period, self.spent, (), self.now_ms)
            verdict = self.machine.admit(order, limits, self.now_ms)
        return verdict, verdict.open_of(order, limits) if verdict.step == "admitted" else Open("none")

    def settle(self, open_: Open, amount: int, tokens: int = 0) -> None:
        self.machine.settle(open_, Spent(tokens, amount, amount), self.now_ms)

    def stands(self, mine: Key) -> tuple[int, int]:
        """Used and held of its first account."""
        (count, *_) = self.machine.standing(self.limits.of(mine, None), self.now_ms).tallies
        return count.used, count.held


def held_of(desk: Desk) -> tuple[int, int]:
    """As `Desk.stands` of the day before this one."""
    tally = desk.machine._accounts["key:poor:day"]
    return tally.used, tally.held


def test_what_is_held_takes_room_until_it_is_settled() -> None:
    """Two calls of 40 fit into 100; the third does when the first has come to less."""
    desk = Desk()
    (_, first), _, (third, _) = desk.admit(POOR, 40), desk.admit(POOR, 40), desk.admit(POOR, 40)
    desk.settle(first, 10)

    assert (third.step, desk.stands(POOR)) == ("account", (10, 40))
    assert desk.admit(POOR, 40)[0].step == "admitted"


def test_settling_twice_changes_nothing() -> None:
    """The hold is gone with the first."""
    desk = Desk()
    _, open_ = desk.admit(POOR, 40)
    for _ in range(3):
        desk.settle(open_, 25)

    assert desk.stands(POOR) == (25, 0)


@pytest.mark.parametrize("is_held_again", [False, True])
@pytest.mark.parametrize("guesses", [(0,), (12,), (40,), (5, 30)])
def test_a_process_that_was_taken_for_dead_has_the_last_word(guesses: Sequence[int], is_held_again: bool) -> None:
    """What it says takes the place of what was booked for it meanwhile; later words change nothing."""
    desk = Desk()
    _, open_ = desk.admit(POOR, 40)

    for guess in guesses:
        desk.settle(Open(open_.request_id), guess)
    there = desk.stands(POOR)
    if is_held_again:
        desk.machine.register(open_, desk.now_ms)
    for _ in range(2):
        desk.settle(open_, 25)
    desk.settle(Open(open_.request_id), 7)

    assert there == (guesses[-1], 0)
    assert desk.stands(POOR) == (25, 0)


def test_guesses_are_forgotten_in_time() -> None:
    """Nobody comes back later than calls run."""
    desk = Desk()
    _, open_ = desk.admit(POOR, 40)
    desk.settle(Open(open_.request_id), 12)
    before = len(desk.machine)

    desk.now_ms += KEPT_MS - 1
    desk.machine.sweep(desk.now_ms)
    there = len(desk.machine)
    desk.now_ms += 1
    desk.machine.sweep(desk.now_ms)

    assert (before - there, before - len(desk.machine)) == (0, 1)


@pytest.mark.parametrize(
    ("turns", "stands"),
    [
        ((), (40, 0)),
        (("hold",), (40, 0)),
        (("hold", "sweep"), (40, 0)),
        (("adopt",), (12, 0)),
        (("adopt", "hold"), (12, 28)),
        (("adopt", "hold", "sweep"), (40, 0)),
    ],
)
def test_a_hold_that_ran_out_is_a_guess(turns: Sequence[str], stands: tuple[int, int]) -> None:
    """What it is booked at, however often, takes room once, and goes when its own process says what was spent."""
    desk = Desk()
    _, open_ = desk.admit(POOR, 40)
    steps = {
        "hold": lambda: desk.machine.register(open_, desk.now_ms),
        "adopt": lambda: desk.settle(Open(open_.request_id), 12),
        "sweep": lambda: desk.machine.sweep(desk.now_ms + 90_000),
    }

    for turn in ("sweep", *turns):
        steps[turn]()
    there = desk.stands(POOR)
    for _ in range(2):
        desk.settle(open_, 25)

    assert (there, desk.stands(POOR)) == (stands, (25, 0))


def test_a_hold_that_ran_out_when_the_ledger_had_it() -> None:
    """Its account was loaded with what the call had come to: nothing was booked, and nothing is taken back."""
    desk = Desk()
    _, open_ = desk.admit(POOR, 40)
    (account,) = desk.limits.of(POOR, None).accounts
    desk.machine.lose(2, desk.now_ms)
    desk.machine.register(open_, desk.now_ms)
    desk.machine.load(account, open_.parts[0].period, 25, [open_.request_id], desk.now_ms)

    desk.machine.sweep(desk.now_ms + 90_000)
    there = desk.stands(POOR)
    desk.settle(open_, 25)

    assert (there, desk.stands(POOR)) == ((25, 0), (25, 0))


@pytest.mark.parametrize(
    ("left", "step", "money"),
    [
        (60, "admitted", 50),
        (50, "admitted", 50),
        (49, "admitted", 49),
        (20, "admitted", 20),
        (19, "account", 0),
        (0, "account", 0),
    ],
)
def test_a_call_that_can_be_stopped_gets_what_is_left(left: int, step: str, money: int) -> None:
    """Between the floor and the need; below the floor it is refused."""
    verdict, _ = Desk(spent=100 - left).admit(POOR, 50, 20)

    assert (verdict.step, verdict.money) == (step, money)


def test_a_free_call_passes_a_budget_that_is_used_up() -> None:
    """It draws nothing."""
    assert Desk(spent=500).admit(POOR, 0)[0].step == "admitted"


def test_all_or_nothing() -> None:
    """A call that one of its budgets refuses takes nothing of the other, of the minute, or a place."""
    mine = key(rpm=5, inflight=2, tpm=50, budgets=(Budget("key", "day", 100), Budget("key", "month", 30)))
    desk = Desk()
    verdict, _ = desk.admit(mine, 40, tokens=10)

    standing = desk.machine.standing(desk.limits.of(mine, None), desk.now_ms)
    assert verdict.step == "account"
    assert (standing.used, standing.tokens_used, standing.running) == (0, 0, 0)
    assert [(count.used, count.held) for count in standing.tallies] == [(0, 0), (0, 0)]


def test_lim_12_a_call_belongs_to_the_period_of_its_admission() -> None:
    """LIM-12: what is admitted at 23:59 and ends tomorrow is yesterday's; today begins with nothing."""
    desk = Desk()
    _, open_ = desk.admit(POOR, 90)
    desk.now_ms += MINUTE_MS
    verdict, _ = desk.admit(POOR, 90)
    desk.settle(open_, 80)

    assert (verdict.step, desk.stands(POOR)) == ("admitted", (0, 90))


def test_a_clock_put_back_does_not_bring_an_old_period_back() -> None:
    """Else a day could be spent twice."""
    desk = Desk()
    desk.now_ms += MINUTE_MS
    desk.settle(desk.admit(POOR, 90)[1], 90)
    desk.now_ms -= 2 * MINUTE_MS

    assert desk.admit(POOR, 90)[0].step == "account"


def test_tokens_are_reconciled_within_their_minute() -> None:
    """What was reserved too much comes back, and what came too much counts, until the minute is over."""
    desk, mine = Desk(), key(tpm=100)
    _, open_ = desk.admit(mine, tokens=80)
    assert desk.admit(mine, tokens=30)[0].step == "tpm"
    desk.settle(open_, 0, tokens=20)
    _, second = desk.admit(mine, tokens=80)
    desk.settle(second, 0, tokens=500)
    assert desk.admit(mine, tokens=1)[0].step == "tpm"

    desk.now_ms += MINUTE_MS
    _, late = desk.admit(mine, tokens=500)  # more than the limit: it has a minute of its own
    desk.now_ms += MINUTE_MS
    desk.admit(mine, tokens=10)
    desk.settle(late, 0, tokens=500)
    assert desk.machine.standing(desk.limits.of(mine, None), desk.now_ms).tokens_used == 10


def test_places_end_with_their_leases() -> None:
    """A place that nobody renews is free after its lease; one that is renewed stays."""
    desk, mine = Desk(), key(inflight=2)
    (_, kept), _ = desk.admit(mine), desk.admit(mine)
    desk.now_ms += 29_999
    assert desk.admit(mine)[0].step == "inflight"
    desk.machine.renew(kept, desk.now_ms)
    desk.now_ms += 1

    assert [desk.admit(mine)[0].step for _ in range(2)] == ["admitted", "inflight"]


def test_a_hold_that_nobody_renews_is_taken_to_be_spent() -> None:
    """Money of a process that died is not given out again."""
    desk = Desk()
    desk.admit(POOR, 40)
    desk.now_ms += 40_000  # the day is over at 60,000
    _, alive = desk.admit(POOR, 30)
    desk.now_ms += 19_000
    desk.machine.renew(alive, desk.now_ms)
    before = desk.stands(POOR)
    desk.machine.sweep(START_MS + 90_000)

    assert (before, held_of(desk)) == ((0, 70), (40, 30))


def test_what_was_lost_is_loaded_and_counted_once() -> None:
    """
    The counters are lost while four calls run. One is settled before the load and is in the ledger, one is and is not;
    one is settled after it and is in the ledger, one is and is not. Each counts once, whatever is told twice.
    """
    desk = Desk()
    opens = [desk.admit(POOR, 10)[1] for _ in range(4)]
    desk.machine.lose(2, desk.now_ms)
    (account,) = desk.limits.of(POOR, None).accounts
    desk.settle(opens[0], 1)
    desk.settle(opens[1], 2)
    assert set(desk.machine.pending(account, desk.now_ms)) == {"r1", "r2"}

    desk.machine.load(account, opens[0].parts[0].period, 5, ["r1", "r3"], desk.now_ms)  # 1 of r1 and 4 of r3
    for _ in range(2):
        for open_, amount in zip(opens, (1, 2, 4, 8), strict=True):
            desk.settle(open_, amount)

    assert desk.stands(POOR) == (15, 0)


def test_holds_are_told_again() -> None:
    """What runs on is registered in the new epoch, takes room there, and is settled there."""
    desk = Desk()
    _, open_ = desk.admit(POOR, 60)
    desk.machine.lose(2, desk.now_ms)
    assert not desk.machine.renew(open_, desk.now_ms)
    for _ in range(2):
        desk.machine.register(open_, desk.now_ms)

    assert desk.admit(POOR, 50)[0].step == "account"
    desk.settle(open_, 20)
    assert desk.stands(POOR) == (20, 0)


def test_calls_on_accounts_wait_for_a_new_epoch() -> None:
    """Others do not."""
    desk = Desk(rejoin_ms=5_000)
    desk.machine.lose(2, desk.now_ms)
    desk.now_ms += 2_000
    verdict, _ = desk.admit(POOR, 1)

    assert (verdict.step, verdict.retry_ms, desk.admit(key(rpm=1))[0].step) == ("wait", 3_000, "admitted")


def test_nobody_waits_for_a_clock_that_was_put_back() -> None:
    """An epoch that was born by a wrong clock holds nobody up until that hour has come again."""
    desk = Desk(rejoin_ms=5_000)
    desk.machine.lose(2, desk.now_ms)
    desk.now_ms -= 3_600_000

    assert desk.admit(POOR, 1)[0].step == "admitted"


def test_accounts_without_calls_are_forgotten() -> None:
    """Sessions come and go; what they spent is in the ledger."""
    desk = Desk()
    for number in range(500):
        mine = key(f"k{number}", budgets=(Budget("key", "total", 100),))
        desk.settle(desk.admit(mine, 1)[1], 1)
        desk.now_ms += KEPT_MS // 50

    assert len(desk.machine) <= 101


@pytest.mark.parametrize(
    ("mine", "refusal"),
    [
        (key("fast", rpm=1, budgets=(Budget("session", "total", 100),)), "rpm"),
        (key("poor", budgets=(Budget("session", "total", 100), Budget("key", "day", 1))), "account"),
    ],
)
def test_who_is_refused_leaves_nothing(mine: Key, refusal: str) -> None:
    """Callers name their sessions: of a thousand refused calls, each of its own, none is loaded or takes memory."""
    desk = Desk()
    desk.admit(mine, 1, session_id="first")
    before, limits = len(desk.machine), [entitlement(mine, f"s{number}") for number in range(1000)]
    order = Order(mine, "r", nano_usd=Draw(1, 1))
    steps = {desk.machine.admit(order, one, desk.now_ms).step for one in limits}

    assert (steps, len(desk.machine)) == ({refusal}, before)


def test_allowances_with_overage_are_counted_only() -> None:
    """They refuse nothing, hold nothing, and tell how far beyond they are."""
    mine = key(allowance=10, overage=1)
    desk = Desk()
    for _ in range(3):
        verdict, open_ = desk.admit(mine, 8)
        assert (verdict.step, desk.stands(mine)[1]) == ("admitted", 0)
        desk.settle(open_, 8)

    assert desk.stands(mine) == (24, 0)


def test_scopes_share_their_counters() -> None:
    """Keys of a tenant spend its budget together, sessions each their own; of two budgets alike the smaller counts."""
    tenant, session = Budget("tenant", "month", 50), Budget("session", "total", 30)
    one, two = (key(name, budgets=(tenant, session, Budget("tenant", "month", 70))) for name in ("one", "two"))
    desk = Desk()

    assert desk.admit(one, 30, session_id="s")[0].step == "admitted"
    assert desk.admit(two, 1, session_id="s")[0].step == "account"
    assert desk.admit(two, 20, session_id="t")[0].step == "admitted"
    assert desk.admit(two, 1)[0].step == "account"


def test_parts_are_never_more_than_the_whole() -> None:
    """Of four processes each has at least one request a minute, and at most a quarter of the money."""
    part = part_of(entitlement(key(rpm=2, inflight=9, tpm=10, budgets=(Budget("key", "day", 103),)), None), 4)

    assert part.rate is not None
    assert (part.rate.rpm, part.inflight, part.tpm, part.accounts[0].limit) == (1, 3, 3, 25)


def test_limits_are_said_in_words() -> None:
    """As they are told to whoever meets them."""
    budgets = (Budget("key", "month", 5 * USD), Budget("session", "total", USD // 1000))
    limits = entitlement(key(budgets=budgets, allowance=7), "s")

    assert [account.words for account in limits.accounts] == [
        "5.00 USD per month for this key",
        "0.001 USD in all for this session",
        "7 weighted tokens per month for this tenant",
    ]  # fmt: skip


class Money(RuleBasedStateMachine):
    """Random calls on one budget: what is held is what runs, and never more is given out than there is."""

    LIMIT = 100

    def __init__(self) -> None:
        super().__init__()
        self.desk, self.limits = Desk(), entitlement(POOR, None)
        self.desk.now_ms += MINUTE_MS
        self.open: dict[str, tuple[Open, int]] = {}
        self.spent = 0

    @rule(need=st.integers(1, 60), floor=st.integers(0, 60))
    def admit(self, need: int, floor: int) -> None:
        verdict, open_ = self.desk.admit(POOR, need, min(need, floor))
        if verdict.step == "admitted":
            self.open[open_.request_id] = open_, verdict.money

    @precondition(lambda self: self.open)
    @rule(share=st.floats(0, 1), again=st.booleans())
    def settle(self, share: float, again: bool) -> None:
        open_, granted = self.open.pop(next(iter(self.open)))
        amount = int(granted * share)
        self.spent += amount
        for _ in range(2 if again else 1):
            self.desk.settle(open_, amount)

    @rule()
    def lose(self) -> None:
        """Everything is told again, and loaded from what was spent."""
        desk = self.desk
        desk.machine.lose(desk.machine.epoch + 1, desk.now_ms)
        for open_, _ in self.open.values():
            desk.machine.register(open_, desk.now_ms)
        desk.spent = self.spent

    @invariant()
    def money_is_conserved(self) -> None:
        used, held = self.desk.stands(POOR)
        assert held == sum(granted for _, granted in self.open.values())
        (count,) = self.desk.machine.standing(self.limits, self.desk.now_ms).tallies
        assert not count.is_loaded or used == self.spent
        assert self.spent + held <= self.LIMIT


TestMoney = Money.TestCase
TestMoney.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_ids_of_a_load_are_forgotten_in_time() -> None:
    """A settlement comes within seconds; after an hour nobody asks any more."""
    desk = Desk()
    desk.machine.lose(2, desk.now_ms)
    mine = key("total", budgets=(Budget("key", "total", 100),))
    (account,) = entitlement(mine, None).accounts
    desk.machine.load(account, 0, 5, ["r9"], desk.now_ms)
    desk.machine.sweep(desk.now_ms + DONE_MS)

    assert desk.machine._accounts[account.name].done == {}
