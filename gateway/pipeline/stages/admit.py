"""Limits: one atomic admission per exchange, its slot given back at the end."""

from __future__ import annotations

from gateway.core.errors import GatewayError
from gateway.core.exchange import Answer, Exchange
from gateway.core.ports import Counters, Refused
from gateway.core.receipt import Receipt


class Admit:
    """Takes the key's slot or refuses with 429."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    async def admit(self, exchange: Exchange) -> Answer | None:
        """Let *exchange* pass. Raises GatewayError when the key is over a limit."""
        verdict = await self._counters.admit(exchange.key, exchange.request_id)
        exchange.limits = verdict.limits
        if isinstance(verdict, Refused):
            raise GatewayError(verdict.kind, retry_after_s=verdict.retry_after_s)
        return None

    def settle(self, exchange: Exchange, receipt: Receipt) -> None:
        """Give the slot back."""
        self._counters.release(exchange.key, exchange.request_id)
