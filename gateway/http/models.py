"""`GET /v1/models`: what this key may use."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import msgspec

from gateway.core.accounts import Key
from gateway.core.catalog import Catalog, Model, routes_for
from gateway.core.money import Price, format_usd
from gateway.http.endpoints import MODELS_PREFIX
from gateway.policy.suggestions import not_found

_CREATED = 1_735_689_600  # 2025-01-01: the field is required, and a catalogue entry has no birthday


def models_body(path: str, catalog: Catalog, key: Key, epoch_s: float) -> bytes:
    """
    The list for `/v1/models`, one entry for `/v1/models/{id}`, with the prices of *epoch_s*.

    Raises:
        GatewayError: `model_not_found`, also for a model that the key's tier does not include.
    """
    visible = catalog.visible_to(key)
    if not path.startswith(MODELS_PREFIX):
        return msgspec.json.encode({"object": "list", "data": [_entry(model, key, epoch_s) for model in visible]})
    slug = unquote(path.removeprefix(MODELS_PREFIX))
    for model in visible:
        if model.slug == slug:
            return msgspec.json.encode(_entry(model, key, epoch_s))
    raise not_found(catalog, key, slug)


def _entry(model: Model, key: Key, epoch_s: float) -> dict[str, Any]:
    price, routes = model.price_at(epoch_s), routes_for(key, model)
    return {
        "id": model.slug,
        "object": "model",
        "created": _CREATED,
        "owned_by": "anoman",
        "_anoman": {
            "class": model.model_class,
            "price_usd_per_million": {
                **_rates(price),
                "long": [{"above_prompt_tokens": above, **_rates(rates)} for above, rates in price.long],
            },
            "context_window": model.context_window,
            "max_output_tokens": model.max_output_tokens,
            "modality": list(model.input),
            "tools": model.tools,
            "residency": sorted({route.provider.region.upper() for route in routes}),
            "batch": model.batch,
            "dialects": sorted({route.provider.dialect for route in routes}),
        },
    }


def _rates(price: Price) -> dict[str, str]:
    return {
        "input": format_usd(price.input * 1_000_000),
        "cached_input": format_usd(price.cached_input * 1_000_000),
        "cache_write": format_usd(price.cache_write * 1_000_000),
        "output": format_usd(price.output * 1_000_000),
    }
