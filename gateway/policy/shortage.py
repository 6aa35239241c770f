"""What is told of a call, or of the rest of its answer, that a budget or an allowance does not bear."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gateway.core.errors import BUDGET_EXCEEDED, Failure, GatewayError
from gateway.core.money import usd_words
from gateway.core.ports import Left
from gateway.policy.worst_case import WorstCase

_BEGINNING = BUDGET_EXCEEDED.message.removesuffix(".")


def tightest(lefts: Iterable[Left], case: WorstCase) -> Left:
    """
    What refuses a call: of the *lefts* that it draws on the one that bears the shortest answer, whether of money or of
    weighted tokens; the first of those that bear the same.

    Raises:
        ValueError: It draws on none.
    """
    return min([left for left in lefts if _need(left, case)], key=lambda left: _fits(left, case))


def shortage(left: Left, case: WorstCase, bound: str) -> GatewayError:
    """
    The error of a call that is refused: what is left, what the call may come to, and which answer would fit.

    Args:
        left: The tightest.
        bound: The member of the call that bounds its answer: the one at fault, where less of it would help.
    """
    amount: Callable[[int], str] = usd_words if left.met == "budget" else _weighted_words
    whose = "this process's part of " if left.is_part else ""
    message = (
        f"{_BEGINNING}: at worst it comes to {amount(_need(left, case))}, for {case.prompt} tokens of prompt and "
        f"{case.answer} of answer, and {amount(left.amount)} are left of {whose}{left.limit}"
    )
    if left.held:
        message += f", besides {amount(left.held)} that calls under way hold"
    each = _fits(left, case) // case.count
    if each < 1:
        return GatewayError(BUDGET_EXCEEDED, f"{message}.")
    return GatewayError(BUDGET_EXCEEDED, f"{message}. It would fit with `{bound}` of at most {each}.", param=bound)


def budget_reached(limit: str) -> Failure:
    """The stop of a stream before it passes *limit*, which is in words."""
    message = f"{_BEGINNING}: the answer was stopped before it passes {limit}."
    return Failure("policy_stop", "budget", BUDGET_EXCEEDED, retryable=False, counts=False, public_message=message)


def _need(left: Left, case: WorstCase) -> int:
    """What the call comes to at worst, in the measure of *left*."""
    return case.nano_usd(case.answer) if left.met == "budget" else case.weighted(case.answer)


def _fits(left: Left, case: WorstCase) -> int:
    """The tokens of all answers that it bears, below 0 where it does not bear the prompt."""
    return case.within_nano_usd(left.amount) if left.met == "budget" else case.within_weighted(left.amount)


def _weighted_words(tokens: int) -> str:
    return f"{tokens} weighted tokens"
