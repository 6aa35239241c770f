"""Money is exact: integers inside, plain decimals outside."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import reduce
from itertools import repeat
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.money import PICO_PER_USD, Price, Weight, format_usd, parse_price, parse_weight, weigh, weigh_parts
from gateway.core.usage import Usage

PLAIN = re.compile(r"-?(0|[1-9]\d*)\.\d{6,12}")
tokens = st.integers(0, 10**8)
prices = st.integers(0, 10**12)


def usd(pico: int) -> Decimal:
    return Decimal(pico) / PICO_PER_USD


@given(st.integers(-(10**24), 10**24))
def test_format_is_exact(pico: int) -> None:
    """What is printed is the amount itself, for every amount, in plain notation with six places at least."""
    text = format_usd(pico)

    assert PLAIN.fullmatch(text)
    assert usd(pico) == Decimal(text)


@pytest.mark.parametrize(
    ("pico", "text"),
    [
        (0, "0.000000"),
        (1, "0.000000000001"),
        (41_000_000, "0.000041"),
        (41_500_000, "0.0000415"),
        (-41_000_000, "-0.000041"),
        (PICO_PER_USD, "1.000000"),
        (1_234_567 * PICO_PER_USD, "1234567.000000"),
    ],
)
def test_format_examples(pico: int, text: str) -> None:
    """Zeros are cut down to six places and no further; there is never an exponent."""
    assert text == format_usd(pico)


@given(st.integers(0, 10**12))
def test_price_round_trip(pico_per_token: int) -> None:
    """A price of up to six places is one whole number of pico-USD per token and back."""
    text = f"{Decimal(pico_per_token).scaleb(-6):f}"

    assert pico_per_token == parse_price(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "free",
        "-1",
        "-0.000001",
        "NaN",
        "sNaN",
        "Infinity",
        "1000000.000001",
        "0.0000001",
        "1,5",
        "2.50 USD",
        "1e3",
        "1_000",
        " 2",
        "+5",
        ".5",
        "5.",
        "１",
        "1.0000000",
        "1.00000000000000000000000000000001",
    ],
)
def test_price_refused(text: str) -> None:
    """What is no price between 0 and a million with six places is refused, with the text in the message."""
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse_price(text)


@pytest.mark.parametrize(
    ("text", "tokens", "weighted"),
    [("0.3", 10, 3), ("0.3", 1, 0), ("0.5", 1, 1), ("0.5", 3, 2), ("0.499999", 1, 0), ("17", 3, 51), ("0", 99, 0)],
)
def test_weight_rounds_half_up(text: str, tokens: int, weighted: int) -> None:
    """Weighted tokens are whole; a half is rounded up, also where it would be even to round it down."""
    assert weighted == weigh(tokens, parse_weight(text))


@pytest.mark.parametrize("text", ["", "one", "-0.1", "10000.1", "NaN", "Infinity", "0.0000001"])
def test_weight_refused(text: str) -> None:
    """What is no factor between 0 and 10,000 with six places is refused."""
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse_weight(text)


def test_documented_weights() -> None:
    """The documents' stream example: 11 tokens of a mid model at a vendor's own API, in real time, weigh 44."""
    provider, model_class, mode = parse_weight("1.0"), parse_weight("4"), parse_weight("1.0")

    weighted = weigh(7 + 4, provider, model_class, mode)

    assert weighted == 44


@given(tokens, *(st.integers(0, 10**10) for _ in range(3)))
def test_weights_multiply_before_rounding(count: int, provider: int, model: int, mode: int) -> None:
    """Three factors are rounded once, at the end: the result is within half a token of the exact product."""
    factors = [Weight(numerator, 10**6) for numerator in (provider, model, mode)]

    weighted = weigh(count, *factors)

    twice_the_error = 2 * (weighted * 10**18 - count * provider * model * mode)
    assert -(10**18) < twice_the_error <= 10**18


def test_use_07_cached_tokens_are_part_of_the_prompt() -> None:
    """USE-07: cached tokens are inside the prompt and are charged once, at their own price: 0.005615 exactly."""
    price = Price(parse_price("2.50"), parse_price("10"), parse_price("1.25"), parse_price("2.50"))

    cost = price.cost(Usage(prompt_tokens=2006, completion_tokens=300, cached_tokens=1920))

    assert format_usd(cost) == "0.005615"


def test_an_hour_in_the_cache_has_its_own_price() -> None:
    """Of the written tokens those kept for an hour cost what an hour does, without one what the others do."""
    usage = Usage(100, 1, cached_tokens=10, cache_write_tokens=50, cache_write_1h_tokens=20)
    liar = Usage(100, 1, cached_tokens=10, cache_write_tokens=50, cache_write_1h_tokens=10**8)

    assert Price(4, 0, 0, 5, cache_write_1h=8).cost(usage) == 40 * 4 + 30 * 5 + 20 * 8
    assert Price(4, 0, 0, 5, cache_write_1h=8).cost(liar) == 40 * 4 + 50 * 8
    assert Price(4, 0, 0, 5).cost(usage) == 40 * 4 + 50 * 5


def test_use_17_a_hundred_thousand_small_calls() -> None:
    """USE-17, C11: the sum of 100,000 calls of 0.000041 is 4.1 exactly, where binary fractions drift."""
    one = parse_price("41")  # one token at 41 USD per million

    total = sum(one for _ in range(100_000))

    assert format_usd(one) == "0.000041"
    assert format_usd(total) == "4.100000"
    assert reduce(add, repeat(0.000041, 100_000)) != 4.1  # `sum` compensates from Python 3.12 on


@given(st.lists(st.builds(Usage, tokens, tokens, tokens, tokens), max_size=20), prices, prices, prices, prices)
def test_rows_add_up(usages: list[Usage], plain: int, output: int, cached: int, written: int) -> None:
    """C11: what the rows say, added up as printed, is the total to the last digit."""
    price = Price(plain, output, cached, written)
    costs = [price.cost(usage) for usage in usages]

    printed = [Decimal(format_usd(cost)) for cost in costs]

    # In whole pico-USD, because a decimal context would round long sums.
    assert sum(costs) == sum(int(amount.scaleb(12)) for amount in printed)


@given(st.builds(Usage, tokens, tokens, tokens, tokens), prices, prices)
def test_cost_charges_each_token_once(usage: Usage, per_token: int, output: int) -> None:
    """With one price for every prompt token the split cannot matter, not even one that exceeds the prompt."""
    price = Price(per_token, output, per_token, per_token)

    assert price.cost(usage) == usage.prompt_tokens * per_token + usage.completion_tokens * output


@given(st.builds(Usage, tokens, tokens, tokens, tokens), prices, prices, prices, prices)
def test_cost_is_never_negative(usage: Usage, plain: int, output: int, cached: int, written: int) -> None:
    """Whatever a provider claims to have cached, nobody is paid for asking."""
    assert Price(plain, output, cached, written).cost(usage) >= 0


@pytest.mark.parametrize(("prompt", "expected"), [(200, 230), (201, 442), (301, 1565)])
def test_long_prompts_have_their_own_price(prompt: int, expected: int) -> None:
    """Beyond a length of the prompt all tokens of the call, the answer's too, have the price of that length."""
    price = Price(1, 3, 1, 1, long=((200, Price(2, 4, 2, 2)), (300, Price(5, 6, 5, 5))))

    assert price.cost(Usage(prompt_tokens=prompt, completion_tokens=10)) == expected


def test_cached_tokens_make_a_prompt_long() -> None:
    """Tokens read from the provider's cache count for the length, and are charged by the long price of cached ones."""
    price = Price(10, 10, 1, 10, long=((200, Price(20, 20, 2, 20)),))

    assert price.cost(Usage(prompt_tokens=300, cached_tokens=250)) == 50 * 20 + 250 * 2


def test_parts_are_rounded_once() -> None:
    """Two halves of a token of different weights are one token, where each rounded by itself would be two."""
    half, third = parse_weight("0.5"), parse_weight("0.3")

    assert weigh_parts((1, (half,)), (1, (half,))) == 1
    assert weigh_parts((1, (half,)), (3, (third,))) == 1  # 1.4
    assert weigh_parts((11, (parse_weight("1"), parse_weight("4")))) == weigh(11, parse_weight("1"), parse_weight("4"))
    assert weigh_parts() == 0
