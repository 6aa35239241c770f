"""Routing: the slug becomes a model and the routes that can serve this call."""

from __future__ import annotations

from gateway.core.catalog import Catalog
from gateway.core.exchange import Answer, Exchange
from gateway.core.receipt import Receipt
from gateway.policy.routing import choose


class Choose:
    """Sets `exchange.model` and `exchange.candidates`."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def admit(self, exchange: Exchange) -> Answer | None:
        """Choose. Raises GatewayError (400) when nothing can serve the call."""
        exchange.model, exchange.candidates = choose(self._catalog, exchange.key, exchange.call)
        return None

    def settle(self, exchange: Exchange, receipt: Receipt) -> None:
        """Nothing to give back."""
