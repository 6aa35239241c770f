"""What a call may come to at worst."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.core.catalog import Model, Provider, Route
from gateway.core.money import Price, Weight
from gateway.core.ports import Draw
from gateway.policy.worst_case import WorstCase, worst_case

ONE = Weight(1, 1)
ROUTE = Route(Provider("p", "openai_chat", "https://p.test", "cloud_direct", "US", ONE), "m")
PRICE = Price(1_000_000, 3_000_000, 500_000, 1_000_000, ((200_000, Price(2_000_000, 2_500_000, 0, 0)),))
HEAVY = Route(Provider("h", "openai_chat", "https://h.test", "cloud_direct", "US", Weight(3, 1)), "m")
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


@pytest.mark.parametrize(
    ("asked", "most", "prompt", "answer"),
    [
        (10, 50, 900, 10),
        (60, 50, 900, 50),
        (None, 50, 900, 50),
        (None, None, 900, 100),
        (200, None, 900, 100),
        (None, None, 1_000, 1),
        (None, None, 2_000, 1),
    ],
)
def test_the_longest_answer(asked: int | None, most: int | None, prompt: int, answer: int) -> None:
    """What the call asks for and what the model may give, the less of the two, for each answer: one token at least."""
    model = Model("m", "mid", ONE, PRICE, (ROUTE,), context_window=1_000, max_output_tokens=most)

    cases = [
        worst_case(model, (ROUTE,), prompt=prompt, asked=asked, count=count, price=PRICE, modes=(ONE,), margin=16)
        for count in (1, 3)
    ]

    assert [(case.answer, case.count) for case in cases] == [(answer, 1), (3 * answer, 3)]


def test_the_heaviest_way() -> None:
    """Of the routes that may serve it, and of the modes that it may turn out to be of, the heaviest."""
    model = Model("m", "mid", Weight(5, 1), PRICE, (ROUTE, HEAVY), context_window=1_000)
    modes = (ONE, Weight(7, 1), Weight(1, 2))

    case = worst_case(
        model, (ROUTE, HEAVY, ROUTE), prompt=1, asked=1, count=1, price=PRICE, modes=modes, margin=16
    )  # fmt: skip

    assert case.weighted(1) == 2 * 3 * 5 * 7


CASE = WorstCase(100, 1_000, 1, (1_000_000, 3_000_000), (Weight(3, 10), Weight(7, 4)), 16)


def test_draws() -> None:
    """An answer that can be stopped needs no more than to be worth beginning; one that is short anyway, itself."""
    short = replace(CASE, answer=20)

    assert CASE.draws(can_stop=False) == (Draw(3_100_000, 3_100_000), Draw(578, 578))
    assert CASE.draws(can_stop=True) == (Draw(3_100_000, CASE.nano_usd(32)), Draw(578, CASE.weighted(32)))
    assert short.draws(can_stop=True) == short.draws(can_stop=False)


@pytest.mark.parametrize("most", [*range(0, 700, 7), 10**15])
def test_within(most: int) -> None:
    """As long an answer as *most* bears, and no longer: what it comes to is not more, with three tokens more it is."""
    tokens, weighed = CASE.within_nano_usd(most * 1000), CASE.within_weighted(most)

    assert CASE.nano_usd(tokens) <= most * 1000 < CASE.nano_usd(tokens + 1)
    assert CASE.weighted(weighed) <= most < CASE.weighted(weighed + 3)


@pytest.mark.parametrize(("tokens", "stop"), [(2_000, None), (1_000, None), (999, 983), (17, 1), (16, 0), (3, 0)])
def test_where_to_stop(tokens: int, stop: int | None) -> None:
    """The margin before its end; not at all where all of the answer fits."""
    assert CASE.stop_at(tokens) == stop
