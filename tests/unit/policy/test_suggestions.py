"""What whoever asks for a model that is not there is told."""

from __future__ import annotations

import time

import pytest

from gateway.core.accounts import Key, Tier
from gateway.core.catalog import Catalog, Model, ModelClass, Provider, Route
from gateway.core.errors import MODEL_NOT_FOUND
from gateway.core.money import Price, Weight
from gateway.policy.suggestions import not_found

SLUGS = (
    "gpt-4o", "gpt-4o-mini", "gpt-5", "claude-sonnet-4-6", "claude-haiku-4-5", "deepseek-v3", "openai/gpt-oss-120b",
)  # fmt: skip
KEY = Key("k", "acme", Tier("t"))


def catalog(*slugs: str, model_class: ModelClass = "mid") -> Catalog:
    one, price = Weight(1, 1), Price(1, 1, 1, 1)
    routes = (Route(Provider("a", "openai_chat", "https://x", "cloud_direct", "US", one), "m"),)
    return Catalog({slug: Model(slug, model_class, one, price, routes, context_window=9) for slug in slugs}, {})


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("gtp-4o", "gpt-4o"),
        ("GPT4o", "gpt-4o"),
        ("openai/gpt-4o", "gpt-4o"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("claude-sonnet-4.6", "claude-sonnet-4-6"),
        ("anthropic/claude-sonnet-4-6-20260217", "claude-sonnet-4-6"),
        ("deepseek-chat", "deepseek-v3"),
        ("gpt-oss-120b", "openai/gpt-oss-120b"),
    ],
)
def test_the_nearest_comes_first(asked: str, meant: str) -> None:
    """Slips, other spellings, dates and vendors' prefixes lead to the model that was meant."""
    error = not_found(catalog(*SLUGS), KEY, asked)

    assert (error.kind, error.param) == (MODEL_NOT_FOUND, "model")
    assert f"Did you mean {meant}" in error.message


def test_the_whole_sentence() -> None:
    """The refusal still says what it said, and at most three names."""
    error = not_found(catalog("a-1", "a-2", "a-3", "a-4"), KEY, "a-")

    assert error.message == (
        "The model does not exist or this key may not use it here. Did you mean a-1, a-2 or a-3? "
        "GET /v1/models lists those it may use."
    )


@pytest.mark.parametrize("asked", ["", "llama-3.3-70b", "x" * 64, "gpt-4o" * 22, "\x00\ud800", "模型"])
def test_nothing_alike(asked: str) -> None:
    """Where nothing is alike nothing is guessed, and what was asked for is never repeated."""
    assert not_found(catalog(*SLUGS), KEY, asked).message == MODEL_NOT_FOUND.message


def test_only_what_the_key_may_use() -> None:
    """A model of a class that the key's tier does not admit is not named, not even to who spells it right."""
    key = Key("k", "acme", Tier("t", classes=frozenset({"budget"})))

    assert not_found(catalog("gpt-4o"), key, "gpt-4o").message == MODEL_NOT_FOUND.message


def test_only_what_may_be_computed_where_the_key_wants_it() -> None:
    """A model that is computed nowhere the key's calls may go is not named."""
    key = Key("k", "acme", Tier("t"), residency="id_only")

    assert not_found(catalog("gpt-4o"), key, "gpt-4").message == MODEL_NOT_FOUND.message


def test_hostile_names_cost_little() -> None:
    """The longest name that is looked at takes milliseconds with a thousand models, a longer one none."""
    models = catalog(*(f"claude-sonnet-4-{number}" for number in range(1000)))
    not_found(models, KEY, "warm")
    start_s = time.perf_counter()

    for asked in ("claude-sonnet-" * 9, "claude-sonnet-" * 300_000):
        not_found(models, KEY, asked)

    assert time.perf_counter() - start_s < 0.1
