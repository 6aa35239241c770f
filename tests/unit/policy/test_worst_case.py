"""What a call may come to at worst."""

from __future__ import annotations

import pytest

from gateway.core.catalog import Model, Provider, Route
from gateway.core.money import Price, Weight
from gateway.policy.worst_case import WorstCase, worst_case

ONE = Weight(1, 1)
ROUTE = Route(Provider("p", "openai_chat", "https://p.test", "cloud_direct", "US", ONE), "m")
PRICE = Price(1_000_000, 3_000_000, 500_000, 1_000_000, ((200_000, Price(2_000_000, 2_500_000, 0, 0)),))


MODEL = Model("m", "mid", ONE, PRICE, (ROUTE,), context_window=1_000_000)


def reckoned(prompt: int) -> WorstCase:
    return worst_case(MODEL, (ROUTE,), prompt=prompt, asked=10, count=1, price=PRICE, modes=(ONE,), margin=16)


@pytest.mark.parametrize(
    ("prompt", "rates"),
    [
        (1, (1_000_000, 3_000_000)),
        (160_000, (1_000_000, 3_000_000)),
        (160_001, (2_000_000, 3_000_000)),
        (200_000, (2_000_000, 3_000_000)),
        (200_001, (2_000_000, 2_500_000)),
    ],
)
def test_a_prompt_that_may_be_long(prompt: int, rates: tuple[int, int]) -> None:
    """Counted just below where another price begins, a prompt is held at the dearer of the two; so is the answer."""
    case = reckoned(prompt)

    assert case.rates == rates
    assert case.nano_usd(10) == (prompt * rates[0] + 10 * rates[1]) // 1000
