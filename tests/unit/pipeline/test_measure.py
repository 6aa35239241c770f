"""A prompt that is surely too long is refused before a provider is asked, while others are served."""

from __future__ import annotations

import json

import pytest

from gateway.core.call import CallOptions
from gateway.core.catalog import Model, Route
from gateway.core.exchange import Exchange
from gateway.core.money import Price
from gateway.dialects.registry import DIALECTS
from gateway.pipeline.stages.measure import Measure
from tests.unit.pipeline.scene import ONE, Scene, route, turns_during

PROSE = "The quick brown fox jumps over the lazy dog. "  # 11 tokens


def exchange(text: str, window: int = 1000) -> Exchange:
    """An exchange that asks a model of *window* tokens for *text*."""
    asked = Scene().exchange
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    asked.call = DIALECTS["openai_chat"].read_call(json.dumps(body).encode(), CallOptions(), ())
    asked.model = Model("m", "mid", ONE, Price(1, 1, 1, 1), (route("a"),), context_window=window)
    return asked


async def test_surely_too_long() -> None:
    """The refusal has the code, the member at fault, both figures, and Anthropic's own words."""
    asked = exchange(PROSE * 1_000)

    await Measure().admit(asked)

    error = asked.refusal
    assert error is not None
    assert (error.kind.code, error.kind.status, error.param) == ("context_length_exceeded", 400, "messages")
    assert error.message.startswith("prompt is too long: at least 1")
    assert " tokens > 1000 maximum" in error.message


@pytest.mark.parametrize("text", ["Hi", PROSE * 20, PROSE * 150, "x" * 3_900])
async def test_what_may_fit_passes(text: str) -> None:
    """What is not surely too long is the provider's to judge, also where our own count is over the window."""
    asked = exchange(text)

    await Measure().admit(asked)

    assert asked.refusal is None


@pytest.mark.parametrize(("longest", "fits"), [(1_500, False), (100_000, True)])
async def test_the_longest_window_counts(longest: int, fits: bool) -> None:
    """Where a route has a window of its own, what is surely longer than the longest of them is refused."""
    asked, short = exchange(PROSE * 1_000), route("a")
    asked.candidates = short, Route(short.provider, "long", context_window=longest)

    await Measure().admit(asked)

    assert (asked.refusal is None) == fits


async def test_others_are_served_meanwhile() -> None:
    """Between two pieces the loop turns, so that nobody waits for the whole count."""
    asked = exchange(PROSE * 4_000, window=10_000)

    turns = await turns_during(Measure().admit(asked))

    assert asked.refusal is not None
    assert turns > 5
