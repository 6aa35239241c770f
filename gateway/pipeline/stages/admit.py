"""Limits: one atomic admission per exchange, its slot given back at the end."""

from __future__ import annotations

from gateway.core.catalog import Tier
from gateway.core.errors import INFLIGHT_CAP, ErrorKind, GatewayError
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
            message = _message(verdict.kind, exchange.key.tier)
            raise GatewayError(verdict.kind, message, retry_after_s=verdict.retry_after_s)
        return None

    def settle(self, exchange: Exchange, receipt: Receipt) -> None:
        """Give the slot back."""
        self._counters.release(exchange.key, exchange.request_id)


def _message(kind: ErrorKind, tier: Tier) -> str:
    """The sentence of *kind* with the limit that was met: the whole key's, as in the headers, not a worker's part."""
    limit = tier.inflight if kind is INFLIGHT_CAP else tier.rpm
    return f"{kind.message.removesuffix('.')}; its limit is {limit}."
