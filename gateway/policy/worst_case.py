"""What a call may come to at worst: what admission holds for it, and where a stream has to be stopped."""

from __future__ import annotations

from msgspec import Struct

from gateway.core.catalog import Mode, Model, Route
from gateway.core.money import Price, Weight, charged, weigh
from gateway.core.ports import Draw

_NANO_PICO = 1000
# A prompt may turn out to be longer than we count it by a part of so much: one vocabulary stands for all families, and
# texts that are not English differ most. A choice; it decides only which of two prices holds.
_UNSURE = 4
_BEGUN_TOKENS = 16  # of an answer that it is worth to begin for; as many as the margin by default. A choice


class WorstCase(Struct, frozen=True):
    """
    Attributes:
        answer: Tokens of all the answers that are asked for, at most; `count` of them.
        rates: Pico-USD of a token of the prompt and of the answer at most.
        weights: The factors of the heaviest way that it may take.
        margin: Tokens that a stream is stopped before its end, since events are not counted one by one.
    """

    prompt: int
    answer: int
    count: int
    rates: tuple[int, int]
    weights: tuple[Weight, ...]
    margin: int

    def nano_usd(self, answer: int) -> int:
        """The cost with an answer of so many tokens."""
        return charged(self.prompt * self.rates[0] + answer * self.rates[1])

    def weighted(self, answer: int) -> int:
        """The weighted tokens with an answer of so many."""
        return weigh(self.prompt + answer, *self.weights)

    def draws(self, *, can_stop: bool) -> tuple[Draw, Draw]:
        """
        What is asked of budgets and of the allowance.

        Args:
            can_stop: Whether the answer can be stopped on the way, so that less than all of it will do.
        """
        least = min(self.answer, self.margin + _BEGUN_TOKENS) if can_stop else self.answer
        return (
            Draw(self.nano_usd(self.answer), self.nano_usd(least)),
            Draw(self.weighted(self.answer), self.weighted(least)),
        )

    def within_nano_usd(self, most: int) -> int:
        """The tokens of all answers that together with the prompt cost at most so much; below 0 where that alone is
        more."""
        return (most * _NANO_PICO - self.prompt * self.rates[0]) // max(1, self.rates[1])

    def within_weighted(self, most: int) -> int:
        """The same of weighted tokens."""
        tokens = most
        for weight in self.weights:
            tokens = tokens * weight.denominator // max(1, weight.numerator)
        return tokens - self.prompt

    @property
    def overrun(self) -> int:
        """The tokens of an answer whose provider does not keep to its bound: our count may be a third too high."""
        return 2 * self.answer + self.margin

    def stop_at(self, tokens: int) -> int | None:
        """The tokens of the answer at which it is to be stopped so that it has at most so many; None for not at all."""
        return None if tokens >= self.answer else max(0, tokens - self.margin)


def worst_case(
    model: Model,
    routes: tuple[Route, ...],
    *,
    prompt: int,
    asked: int | None,
    count: int,
    price: Price,
    modes: tuple[Weight, ...],
    margin: int,
) -> WorstCase:
    """
    Args:
        routes: Those that may serve it.
        prompt: Tokens, by our estimate.
        asked: The longest answer that the call itself allows; None where it does not say.
        count: Answers that it asks for.
        modes: Factors of the modes that it may turn out to be of.
    """
    most = model.max_output_tokens or max(1, model.context_window - prompt)
    answer = min(asked, most) if asked is not None else most
    provider = max([route.provider.weight for route in routes], key=_size)
    weights = (provider, model.weight, max(modes, key=_size))
    return WorstCase(prompt, answer * count, count, _rates(price, prompt), weights, margin)


def _rates(price: Price, prompt: int) -> tuple[int, int]:
    """The dearest that tokens may cost if *prompt* is counted a little low: prices of long ones are for all of them."""
    counted, longer = price.dearest(prompt), price.dearest(prompt + prompt // _UNSURE)
    return max(counted[0], longer[0]), max(counted[1], longer[1])


def _size(weight: Weight) -> float:
    return weight.numerator / weight.denominator


ANSWERED: tuple[Mode, ...] = ("realtime", "provider_cache")
"""The modes of a call that a provider answers while its client waits."""
