"""Routing: the slug becomes a model and the routes that can serve this call, as far as its key's policy goes."""

from __future__ import annotations

import asyncio

from gateway.core.call import Call
from gateway.core.catalog import Catalog
from gateway.core.errors import POLICY_DENIED, GatewayError
from gateway.core.exchange import Answer, Exchange
from gateway.core.guarding import CallTerms, Verdict
from gateway.core.receipt import Receipt
from gateway.dialects.families import ANY_FAMILY
from gateway.dialects.prompt_tokens import prompt_tokens_steps
from gateway.policy.call_terms import bounded, measured
from gateway.policy.routing import choose, find, length_matters

NO_TERMS = CallTerms()


class Choose:
    """Sets `exchange.model` and `exchange.candidates`, and the length of the answer where the policy has to."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def admit(self, exchange: Exchange) -> Answer | None:
        """Choose. When nothing can serve the call, that is noted: limits come first."""
        key, call = exchange.key, exchange.call
        terms = key.rules.calls
        if terms != NO_TERMS:
            exchange.verdicts["policy"] = Verdict("pass")
        try:
            model = find(self._catalog, key, call.slug)
            exchange.call = call = bounded(call, terms, model.max_output_tokens)
            for _ in measured(call, terms):
                await asyncio.sleep(0)
            tokens = await _count(call) if length_matters(model, call) else 0
            exchange.model, exchange.candidates = model, choose(model, key, call, tokens)
        except GatewayError as refusal:
            exchange.refusal = refusal
            if refusal.kind is POLICY_DENIED:
                exchange.verdicts["policy"] = Verdict("block", place=refusal.param or "")
        return None

    def settle(self, exchange: Exchange, receipt: Receipt) -> None:
        """Nothing to give back."""


async def _count(call: Call) -> int:
    """Our estimate of *call*'s tokens, made in pieces: others are served in between."""
    steps = prompt_tokens_steps(call, ANY_FAMILY)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return int(end.value)
        await asyncio.sleep(0)
