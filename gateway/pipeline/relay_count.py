"""A prompt that is only to be counted: by its provider where that can, by ourselves where not. It costs nothing."""

from __future__ import annotations

import asyncio
import math
from functools import partial

from msgspec import Raw

from gateway.core.errors import UpstreamFailed
from gateway.core.exchange import Answer, Exchange
from gateway.core.ports import Sink, UpstreamAnswer
from gateway.core.usage import Basis
from gateway.dialects.base import Counting, Journey
from gateway.dialects.prompt_tokens import prompt_tokens
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.pipeline.body import Body
from gateway.pipeline.opening import Opening
from gateway.pipeline.services import Services
from gateway.pipeline.settlement import Settlement
from gateway.pipeline.watch import JsonWatch
from gateway.providers.families import family_of
from gateway.providers.requests import can_count

NATIVE_S = 10.0  # for all attempts: providers take some 0.3 s, and whoever asks wants to know before it asks for more
# On our own estimates: clients compare them with a context window, where too low a count is a refused call. Of the
# texts that the families' factors were measured with, the worst is then a tenth too low: Indonesian for Llama 3 and
# GPT-4.
MARGIN = 1.1


class CountRelay:
    """One request. `run` gives the answer, or raises what becomes a plain HTTP error."""

    def __init__(self, exchange: Exchange, services: Services, sink: Sink, settlement: Settlement) -> None:
        self._exchange = exchange
        self._services = services
        self._settlement = settlement
        self.watch = JsonWatch(services, sink, exchange.started_s, NATIVE_S)

    async def run(self) -> Answer:
        """
        Count the prompt.

        A provider that cannot is no reason to fail: then the answer is our estimate.

        Raises:
            UpstreamFailed: The provider says that the caller's request is at fault.
        """
        exchange, services = self._exchange, self._services
        counting = CLIENT_DIALECTS[exchange.call.dialect].counting
        assert counting is not None  # else its endpoint would not be
        try:
            counted, basis = await self._count(counting)
        except asyncio.CancelledError:
            exchange.gone_s = self.watch.gone_s or services.clock.monotonic_s()
            self._settlement.settle("cancelled")
            raise
        except UpstreamFailed as exc:
            exchange.failure = exc.failure
            raise
        exchange.committed_s = services.clock.monotonic_s()
        exchange.status = 200
        receipt = self._settlement.settle("completed")
        body = counting.write_count(exchange.call, counted, basis)
        return Answer(200, body, services.headers(exchange, receipt))

    async def _count(self, counting: Counting) -> tuple[dict[str, Raw] | int, Basis]:
        exchange = self._exchange
        assert exchange.model is not None
        first = (exchange.candidates or exchange.model.routes)[0]  # none is left where its pictures would be work
        exchange.candidates = tuple(route for route in exchange.candidates if can_count(exchange.call, route))
        if exchange.candidates:
            try:
                return await self._ask(counting), "provider_final"
            except UpstreamFailed as exc:
                if exc.failure.error.status < 500:
                    raise
            exchange.route = None  # none has served it
        tokens = prompt_tokens(exchange.call, family_of(first.model, exchange.call.slug))
        return math.ceil(tokens * MARGIN), "estimated"

    async def _ask(self, counting: Counting) -> dict[str, Raw]:
        async def accept(answer: UpstreamAnswer, journey: Journey) -> dict[str, Raw]:
            body = await Body(answer).read()
            self._exchange.answered_s = self._services.clock.monotonic_s()
            members = counting.read_count(body)
            answer.release()
            return members

        return await self.watch.until(partial(Opening(self._exchange, self.watch).run, accept))
