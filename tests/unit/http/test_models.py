"""What `GET /v1/models` tells of a model."""

from __future__ import annotations

import json
from typing import Any

from gateway.core.accounts import Key, Tier
from gateway.core.catalog import Catalog, Model, Provider, Route
from gateway.core.money import Price, Weight
from gateway.http.models import models_body

ONE = Weight(1, 1)
KEY = Key("k", "acme", Tier("t"))
CHEAP, DEAR = Price(100_000, 500_000, 10_000, 125_000), Price(500_000, 2_500_000, 50_000, 625_000)


def catalog(**facts: Any) -> Catalog:
    """One model `m` at a provider in Singapore and one in Indonesia."""
    routes = tuple(
        Route(Provider(region, "openai_chat", "https://x", "cloud_direct", region, ONE), "m") for region in ("sg", "ID")
    )
    model = Model("m", "mid", ONE, routes=routes, context_window=9, **{"price": CHEAP, **facts})
    return Catalog({"m": model}, {})


def told(models: Catalog, epoch_s: float = 0.0) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(models_body("/v1/models/m", models, KEY, epoch_s))["_anoman"]
    return facts


def test_prices_are_those_of_now() -> None:
    """The list has the prices that a call would have that began in that moment."""
    models = catalog(effective=((1000, DEAR),))

    inputs = [told(models, epoch_s)["price_usd_per_million"]["input"] for epoch_s in (999.9, 1000.0)]

    assert inputs == ["0.100000", "0.500000"]


def test_prices_of_long_prompts() -> None:
    """Each length of the prompt that has prices of its own is listed with all of them."""
    price = told(catalog(price=Price(1, 1, 1, 1, long=((100_000, DEAR),))))["price_usd_per_million"]

    assert price["long"] == [
        {
            "above_prompt_tokens": 100_000,
            "input": "0.500000",
            "cached_input": "0.050000",
            "cache_write": "0.625000",
            "output": "2.500000",
        }
    ]


def test_where_it_computes_and_whether_in_batches() -> None:
    """The regions are its providers', in upper case; whether a provider takes batches is said."""
    assert [told(catalog(batch=batch))["batch"] for batch in (True, False)] == [True, False]
    assert told(catalog())["residency"] == ["ID", "SG"]
