"""Limits: one atomic admission per exchange, its slot given back at the end.

Counting a prompt is outside of a tier's limits: agents ask for dozens of counts in a burst, and neither may those take
the places of answers, nor an answer under way keep a client from counting. It has limits of its own, since a count
costs work as well.
"""

from __future__ import annotations

from gateway.core.accounts import Key, Tier
from gateway.core.errors import INFLIGHT_CAP, ErrorKind, GatewayError
from gateway.core.exchange import Answer, Exchange
from gateway.core.ports import Counters, Order, Refused, Spent
from gateway.core.receipt import Receipt

# The bursts that agents send have up to 25 counts. Ten a second come to a fifth of a core at the very worst: a count of
# our own takes 0.5 ms for prose and 18 ms for noise (measured). No picture is fetched or converted for one.
COUNTING = Tier("count", rpm=600, inflight=32)


class Admit:
    """Takes the key's slot or refuses with 429."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    async def admit(self, exchange: Exchange) -> Answer | None:
        """Let *exchange* pass. Raises GatewayError when the key is over a limit."""
        key = _holder(exchange)
        verdict = await self._counters.admit(Order(key, exchange.request_id))
        if key is exchange.key:
            exchange.limits = verdict.limits
        if isinstance(verdict, Refused):
            message = _message(verdict.kind, key.tier)
            raise GatewayError(verdict.kind, message, retry_after_s=verdict.retry_after_s)
        return None

    def settle(self, exchange: Exchange, receipt: Receipt) -> None:
        """Give the slot back, and book what the call has come to."""
        usage = receipt.usage
        spent = Spent(usage.total_tokens, receipt.weighted_tokens, receipt.cost_nano_usd)
        self._counters.settle(exchange.request_id, spent)


def _holder(exchange: Exchange) -> Key:
    """Whose places the exchange takes: its key's, or those that the key has for counts."""
    key = exchange.key
    return key if exchange.call.task == "answer" else Key(f"{key.id}#count", key.tenant, COUNTING)


def _message(kind: ErrorKind, tier: Tier) -> str:
    """The sentence of *kind* with the limit that was met: the whole key's, as in the headers, not a worker's part."""
    limit = tier.inflight if kind is INFLIGHT_CAP else tier.rpm
    return f"{kind.message.removesuffix('.')}; its limit is {limit}."


class Refuse:
    """Tells why nothing can serve a call, once it is within its key's limits: a flood of wrong ones is limited."""

    async def admit(self, exchange: Exchange) -> Answer | None:
        """Let *exchange* pass. Raises GatewayError when an earlier stage could find nothing for it."""
        if exchange.refusal is not None:
            raise exchange.refusal
        return None

    def settle(self, exchange: Exchange, receipt: Receipt) -> None:
        """Nothing to give back."""
