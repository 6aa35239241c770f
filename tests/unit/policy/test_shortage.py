"""What callers are told of budgets that do not bear a call."""

from __future__ import annotations

from fractions import Fraction

from gateway.core.accounts import Budget, Key, Tier
from gateway.core.errors import GatewayError
from gateway.core.ports import Admitted, Draw, Left, Order, Refused
from gateway.policy.admission import Admission
from gateway.policy.entitlement import entitlement, part_of
from gateway.policy.limits import answer
from gateway.policy.shortage import budget_reached, shortage, tightest
from gateway.policy.worst_case import WorstCase

CASE = WorstCase(10, 100, 2, (2_000_000, 10_000_000), (Fraction(4),), 16)  # 2 and 10 USD a million tokens, weight 4
KEY = Key("k", "t", Tier("t"), budgets=(Budget("key", "day", 2_000_000), Budget("tenant", "total", 1_500_000)))
MONEY = Draw(CASE.nano_usd(100), CASE.nano_usd(32))


def admitted(share: int, *orders: Order) -> list[Admitted | Refused]:
    """What a process says to *orders* that enforces one of *share* parts, with nothing spent."""
    whole = entitlement(KEY, None)
    limits, machine = part_of(whole, share), Admission(lease_ms=1000, hold_ms=1000)
    for account in limits.accounts:
        machine.load(account, 0 if account.period == "total" else 1, 0, (), 86_400_000)
    return [answer(machine.admit(order, limits, 86_400_000), limits, whole) for order in orders]


def told(refused: Admitted | Refused, case: WorstCase = CASE) -> GatewayError:
    """The error of the call that was *refused*."""
    assert isinstance(refused, Refused)
    return shortage(tightest(refused.lefts, case), case, "max_tokens")


def test_what_calls_under_way_hold_is_told() -> None:
    """Of two budgets that do not bear it the one with less left is named, and the advice fits both."""
    _, second = admitted(1, Order(KEY, "a", nano_usd=MONEY), Order(KEY, "b", nano_usd=Draw(MONEY.need, MONEY.need)))

    error = told(second)

    assert (error.message, error.param) == (
        "The budget does not cover this request: at worst it comes to 0.00102 USD, for 10 tokens of prompt and 100 of "
        "answer, and 0.00048 USD are left of 0.0015 USD in all for this tenant, besides 0.00102 USD that calls under "
        "way hold. It would fit with `max_tokens` of at most 23.",
        "max_tokens",
    )


def test_the_tightest_counts_across_measures() -> None:
    """Money and weighted tokens are compared by the answer that they bear; what costs nothing is no bound."""
    money, few = Left("1 USD", "budget", 520_000), Left("200", "allowance", 200)  # for 50 tokens of answer, and for 40
    many, nothing = Left("400", "allowance", 400), Left("0 USD", "budget", 0)
    free = WorstCase(10, 100, 2, (0, 0), (Fraction(4),), 16)

    named = [tightest(lefts, CASE) for lefts in ((money, few), (few, money), (many, money))]

    assert [one.limit for one in named] == ["200", "200", "1 USD"]
    assert tightest((nothing, many), free) == many


def test_a_workers_part_is_what_is_left() -> None:
    """Without shared counters the limit is the whole key's, and what is left is said to be of this process's part."""
    (refused,) = admitted(4, Order(KEY, "a", nano_usd=Draw(MONEY.need, MONEY.need)))

    message = told(refused).message

    assert "0.000375 USD are left of this process's part of 0.0015 USD in all for this tenant. " in message


def test_nothing_is_advised_that_would_not_help() -> None:
    """Where the prompt alone is more than what is left, no member is at fault."""
    (refused,) = admitted(1, Order(KEY, "a", nano_usd=Draw(3_000_000, 3_000_000)))

    error = told(refused, WorstCase(2_000, 100, 2, CASE.rates, CASE.weights, 16))

    assert (error.message.rsplit(", ", 1)[1], error.param) == (
        "and 0.0015 USD are left of 0.0015 USD in all for this tenant.", None,
    )  # fmt: skip


def test_the_budget_that_ends_is_named() -> None:
    """Of an admission that takes the last of a budget, that one, in words; none where something is left of all."""
    first, second = admitted(1, Order(KEY, "a", nano_usd=MONEY), Order(KEY, "b", nano_usd=MONEY))

    assert isinstance(first, Admitted)
    assert isinstance(second, Admitted)
    assert (first.granted_nano_usd, first.budget) == (1_020_000, "")
    assert (second.granted_nano_usd, second.budget) == (480_000, "0.0015 USD in all for this tenant")


def test_a_stop_names_its_limit() -> None:
    """The frame that ends a stream has the limit in its message, behind the words of the table."""
    assert budget_reached("5.00 USD per day for this key").public_message == (
        "The budget does not cover this request: the answer was stopped before it passes 5.00 USD per day for this key."
    )
