"""The catalogue as lines for a terminal."""

from __future__ import annotations

from gateway.core.catalog import Catalog, Model
from gateway.core.money import format_usd


def models_text(catalog: Catalog, epoch_s: float) -> str:
    """
    A line for each model, in aligned columns: slug, class, USD per million tokens in and out for a call that begins at
    *epoch_s*, context window in tokens, routes in fallback order. Empty where there is no model.
    """
    rows = [_row(model, epoch_s) for model in catalog.models.values()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _row(model: Model, epoch_s: float) -> tuple[str, ...]:
    price = model.price_at(epoch_s)
    usd = [format_usd(pico * 1_000_000) for pico in (price.input, price.output)]
    routes = ", ".join(route.id for route in model.routes)
    return model.slug, model.model_class, *usd, str(model.context_window), routes
