"""Which routes can serve a call. Pure."""

from __future__ import annotations

from gateway.core.call import Call
from gateway.core.catalog import Catalog, Key, Model, Route, allows
from gateway.core.errors import MODEL_NOT_FOUND, GatewayError
from gateway.dialects.registry import DIALECTS


def choose(catalog: Catalog, key: Key, call: Call) -> tuple[Model, tuple[Route, ...]]:
    """
    The model *call* asks for and its routes in fallback order.

    Raises:
        GatewayError: `model_not_found` when there is no such model, when the key's tier does not include it (the two
            read alike), or when no route of it speaks the endpoint's dialect.
    """
    model = catalog.models.get(call.slug)
    if model is None or not allows(key, model):
        raise GatewayError(MODEL_NOT_FOUND, param="model")
    routes = tuple(route for route in model.routes if route.provider.dialect == call.dialect)
    if not routes:
        spoken = sorted({DIALECTS[route.provider.dialect].path for route in model.routes})
        raise GatewayError(
            MODEL_NOT_FOUND, f"This model is not served by this endpoint; use {' or '.join(spoken)}.", param="model"
        )
    return model, routes
