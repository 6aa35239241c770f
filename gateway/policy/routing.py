"""Which routes can serve a call. Pure."""

from __future__ import annotations

from gateway.core.call import Call
from gateway.core.catalog import Catalog, Key, Model, Route, allows
from gateway.core.errors import MODEL_NOT_FOUND, GatewayError
from gateway.dialects.pairs import is_native


def choose(catalog: Catalog, key: Key, call: Call) -> tuple[Model, tuple[Route, ...]]:
    """
    The model *call* asks for and its routes in fallback order: those that speak the call's dialect come first, since
    nothing is lost on them.

    Raises:
        GatewayError: `model_not_found` when there is no such model, or when the key's tier does not include it: the two
            read alike.
    """
    model = catalog.models.get(call.slug)
    if model is None or not allows(key, model):
        raise GatewayError(MODEL_NOT_FOUND, param="model")
    routes = model.routes
    if len(routes) > 1:
        routes = tuple(sorted(routes, key=lambda route: not is_native(call, route)))
    return model, routes
