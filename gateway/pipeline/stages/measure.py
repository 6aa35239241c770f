"""Length: a prompt that is surely longer than the model's context is refused before a provider is asked."""

from __future__ import annotations

import asyncio

from gateway.core.errors import CONTEXT_LENGTH_EXCEEDED, GatewayError
from gateway.core.exchange import Answer, Exchange
from gateway.core.receipt import Receipt
from gateway.dialects.errors import TOO_LONG
from gateway.dialects.length import least_tokens, may_be_too_long
from gateway.policy.routing import window_of


class Measure:
    """Lets everything pass that a provider might take."""

    async def admit(self, exchange: Exchange) -> Answer | None:
        """Look at the length. When it is too much, that is noted: limits come first."""
        model = exchange.model
        if model is None or exchange.refusal is not None:
            return None
        if may_be_too_long(exchange.call, model.context_window):
            windows = [window_of(route, model) for route in exchange.candidates]
            await _count(exchange, max(windows, default=model.context_window))
        return None

    def settle(self, exchange: Exchange, receipt: Receipt) -> None:
        """Nothing to give back."""


async def _count(exchange: Exchange, window: int) -> None:
    """Count in pieces, and let others be served in between."""
    for tokens in least_tokens(exchange.call, window):
        if tokens > window:
            message = f"{TOO_LONG}: at least {tokens} tokens > {window} maximum, the context window of the model."
            exchange.refusal = GatewayError(CONTEXT_LENGTH_EXCEEDED, message, param="messages")
            return
        await asyncio.sleep(0)
