"""What is told of a call, or of the rest of its answer, that a budget or an allowance does not bear."""

from __future__ import annotations

from collections.abc import Callable

from gateway.core.errors import BUDGET_EXCEEDED, Failure, GatewayError
from gateway.core.money import usd_words
from gateway.core.ports import Refused
from gateway.policy.worst_case import WorstCase

_BEGINNING = BUDGET_EXCEEDED.message.removesuffix(".")


def shortage(refused: Refused, case: WorstCase, bound: str) -> GatewayError:
    """
    The error of a call that was refused for it: what is left, what the call may come to, and which answer would fit.

    Args:
        bound: The member of the call that bounds its answer: the one at fault, where less of it would help.
    """
    amount: Callable[[int], str] = usd_words
    need, fits = case.nano_usd(case.answer), case.within_nano_usd(refused.left)
    if refused.met == "allowance":
        amount, need, fits = _weighted_words, case.weighted(case.answer), case.within_weighted(refused.left)
    message = (
        f"{_BEGINNING}: at worst it comes to {amount(need)}, for {case.prompt} tokens of prompt and {case.answer} of "
        f"answer, and {amount(refused.left)} are left of {refused.limit}"
    )
    if refused.held:
        message += f", besides {amount(refused.held)} that calls under way hold"
    each = fits // case.count
    if each < 1:
        return GatewayError(refused.kind, f"{message}.")
    return GatewayError(refused.kind, f"{message}. It would fit with `{bound}` of at most {each}.", param=bound)


def budget_reached(limit: str) -> Failure:
    """The stop of a stream before it passes *limit*, which is in words."""
    message = f"{_BEGINNING}: the answer was stopped before it passes {limit}."
    return Failure("policy_stop", "budget", BUDGET_EXCEEDED, retryable=False, counts=False, public_message=message)


def _weighted_words(tokens: int) -> str:
    return f"{tokens} weighted tokens"
