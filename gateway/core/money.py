"""Exact money: integers inside, decimal strings outside.

A price of "2.50" USD per million tokens is 2,500,000 pico-USD per token, so every price with up to six decimals is a
whole number and every cost is a sum of products of integers. What is charged, counted and added up is whole nano-USD:
each exchange is rounded once, and from there on nothing is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod
from zlib import crc32

from gateway.core.usage import Usage

PICO_PER_USD = 10**12
NANO_PER_USD = 10**9
_DECIMALS = 12
_MIN_PLACES = 6
_MAX_USD_PER_MILLION = 1_000_000
_PLAIN = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,6}))?")
_AMOUNT = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?")


def parse_price(text: str) -> int:
    """Pico-USD per token of *text*, USD per million tokens.

    Raises:
        ValueError: Not a plain decimal, negative, over a million, or with more than six decimals.
    """
    pico = _millionths(text)
    if pico > _MAX_USD_PER_MILLION * 10**6:
        raise ValueError(f"{text!r} is not a price between 0 and {_MAX_USD_PER_MILLION} USD per million tokens")
    return pico


def _millionths(text: str) -> int:
    """*text* in millionths, by digits alone: `Decimal` would round beyond 28 of them and takes "1e3" and "1_0"."""
    match = _PLAIN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a plain decimal with at most six places")
    whole, places = match.groups(default="")
    return int(whole + places.ljust(6, "0"))


@lru_cache(maxsize=1024)  # everything said of an exchange says its cost
def format_usd(pico_usd: int) -> str:
    """*pico_usd* as a plain decimal of USD: exact, at least six places, never an exponent."""
    sign = "-" if pico_usd < 0 else ""
    whole, fraction = divmod(abs(pico_usd), PICO_PER_USD)
    digits = f"{fraction:0{_DECIMALS}d}".rstrip("0").ljust(_MIN_PLACES, "0")
    return f"{sign}{whole}.{digits}"


def charged(pico_usd: int) -> int:
    """Nano-USD that a cost of *pico_usd*, at least 0, is charged as: rounded half up."""
    return (pico_usd + 500) // 1000


def per_million(tokens: int, nano_usd: int) -> int:
    """Nano-USD of *tokens*, at least 0, at *nano_usd* for a million of them: rounded half up."""
    return (tokens * nano_usd + 500_000) // 1_000_000


def format_nano(nano_usd: int) -> str:
    """As `format_usd`."""
    return format_usd(nano_usd * 1000)


def usd_words(nano_usd: int) -> str:
    """For sentences, as in `0.50 USD`: with two places, or as many as it takes."""
    whole, _, places = format_nano(nano_usd).partition(".")
    return f"{whole}.{places.rstrip('0').ljust(2, '0')} USD"


def parse_nano(text: str) -> int:
    """
    Nano-USD of *text*, a plain decimal of USD: what `format_nano` tells can be read again.

    Raises:
        ValueError: Anything else, or more than 10^9 USD (which with all there is in a ledger stay within 64 bits).
    """
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a plain decimal of USD with at most nine places")
    whole, places = match.groups(default="")
    return int(whole + places.ljust(9, "0"))


@dataclass(frozen=True, slots=True)
class Price:
    """Pico-USD per token of each class. A class without a price of its own costs what plain input does.

    Attributes:
        long: Prices of calls with a longer prompt than so many tokens, which then hold for all of their tokens; by
            ascending length.
        cache_write_1h: Of tokens written to be kept for an hour; None where they cost what others do.
    """

    input: int
    output: int
    cached_input: int
    cache_write: int
    long: tuple[tuple[int, Price], ...] = ()
    cache_write_1h: int | None = None

    @property
    def version(self) -> str:
        """A name of these very figures, for the ledger."""
        return f"{crc32(repr(self).encode()):08x}"

    def cost(self, usage: Usage) -> int:
        """Pico-USD of *usage*. Cached and written tokens are taken out of the prompt, so nothing is charged twice."""
        for above, price in reversed(self.long):
            if usage.prompt_tokens > above:
                return price.cost(usage)
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        written = min(usage.cache_write_tokens, usage.prompt_tokens - cached)
        kept = min(usage.cache_write_1h_tokens, written)
        plain = usage.prompt_tokens - cached - written
        return (
            plain * self.input
            + cached * self.cached_input
            + (written - kept) * self.cache_write
            + kept * (self.cache_write if self.cache_write_1h is None else self.cache_write_1h)
            + usage.completion_tokens * self.output
        )

    def dearest(self, prompt_tokens: int) -> tuple[int, int]:
        """Pico-USD of a token of a prompt of that length and of its answer at most, whatever of it is cached."""
        for above, price in reversed(self.long):
            if prompt_tokens > above:
                return price.dearest(0)
        kept = self.cache_write if self.cache_write_1h is None else self.cache_write_1h
        return max(self.input, self.cached_input, self.cache_write, kept), self.output


@dataclass(frozen=True, slots=True)
class Weight:
    """An exact factor as a fraction of two positive integers (the denominator a power of ten)."""

    numerator: int
    denominator: int


def weigh(tokens: int, *weights: Weight) -> int:
    """*tokens* times every one of *weights*, rounded half up once at the end."""
    numerator, denominator = 2 * tokens, 2
    for weight in weights:
        numerator *= weight.numerator
        denominator *= weight.denominator
    return (numerator + denominator // 2) // denominator


def weigh_parts(*parts: tuple[int, tuple[Weight, ...]]) -> int:
    """The sum of `weigh` over *parts*, tokens and weights, rounded half up once at the end as well."""
    total = sum(
        (Fraction(tokens) * prod(Fraction(w.numerator, w.denominator) for w in weights) for tokens, weights in parts),
        start=Fraction(1, 2),
    )
    return total.numerator // total.denominator


def parse_weight(text: str) -> Weight:
    """The exact factor of a decimal such as "0.3".

    Raises:
        ValueError: Not a plain decimal from 0 to 10,000 with at most six places.
    """
    millionths = _millionths(text)
    if millionths > 10_000 * 10**6:
        raise ValueError(f"{text!r} is not a weight between 0 and 10000")
    return Weight(millionths, 10**6)
