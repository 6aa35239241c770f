"""Tools: what a call offers to the model has to be allowed by the policy of its key, before a provider is asked."""

from __future__ import annotations

import asyncio

from gateway.core.errors import TOOL_DENIED, GatewayError
from gateway.core.exchange import Answer, Exchange
from gateway.core.guarding import Verdict
from gateway.core.receipt import Receipt
from gateway.dialects.offered import offers
from gateway.guards.ruling import judge_offer

_AT_ONCE = 200  # tools judged in one go: some 2 ms with the longest lists of globs (measured)


class Abide:
    """Lets everything pass where there are no rules for tools."""

    async def admit(self, exchange: Exchange) -> Answer | None:
        """Let *exchange* pass. Raises GatewayError (403) naming the place of the first tool that is denied."""
        terms = exchange.key.rules.tools
        if terms.is_open:
            return None
        for number, offer in enumerate(offers(exchange.call), start=1):
            denied = judge_offer(offer, terms)
            if denied is not None:
                exchange.verdicts["policy"] = Verdict("block", place=offer.place)
                message = f"{offer.place}: The tool is not allowed: {denied.reason}."
                raise GatewayError(TOOL_DENIED, message, param=offer.place)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        exchange.verdicts["policy"] = Verdict("pass")  # behind all that it awaits: whoever leaves was not let pass
        return None

    def settle(self, exchange: Exchange, receipt: Receipt) -> None:
        """Nothing to give back."""
