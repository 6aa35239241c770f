"""A request without streaming: one body in, one body out."""

from __future__ import annotations

import asyncio
from functools import partial

from gateway.core.errors import GUARDS_CUT, UpstreamFailed
from gateway.core.exchange import Answer, Exchange
from gateway.core.ports import Sink, UpstreamAnswer
from gateway.dialects.base import Completion, Journey
from gateway.dialects.pairs import read_completion
from gateway.pipeline.body import Body
from gateway.pipeline.draining import DrainedBody
from gateway.pipeline.opening import Opening, charge_prompt
from gateway.pipeline.services import Services
from gateway.pipeline.settlement import Settlement
from gateway.pipeline.watch import JsonWatch


class JsonRelay:
    """One request. `run` gives the answer, or raises what becomes a plain HTTP error."""

    def __init__(self, exchange: Exchange, services: Services, sink: Sink, settlement: Settlement) -> None:
        self._exchange = exchange
        self._services = services
        self._settlement = settlement
        self.watch = JsonWatch(services, sink, exchange.started_s)
        self._opening = Opening(exchange, self.watch)
        self._way_out = services.answering.way_out(exchange)
        self._body: Body | None = None  # of the running attempt, once its head is here

    async def run(self) -> Answer:
        """
        Relay the request.

        Raises:
            UpstreamFailed: No attempt went well.
            GatewayError: The answer may not be given.
        """
        exchange = self._exchange
        try:
            completion = await self.watch.until(partial(self._opening.run, self._accept))
        except asyncio.CancelledError:
            exchange.gone_s = self.watch.gone_s or self._services.clock.monotonic_s()
            if self.watch.outlives:
                self._read_on()
            else:
                charge_prompt(exchange)
                self._settlement.settle("cancelled")
            raise
        except UpstreamFailed as exc:
            exchange.failure = exc.failure
            raise
        finally:
            self._opening.release()
        now_s = self._services.clock.monotonic_s()
        exchange.committed_s = exchange.first_token_s = now_s
        exchange.usage, exchange.basis = completion.usage, completion.basis
        exchange.response_id = completion.response_id
        exchange.note = completion.note or exchange.note  # a stage may have left one
        self._judge()
        exchange.status = 200
        receipt = self._settlement.settle("completed")
        return Answer(200, completion.render(receipt), self._services.headers(exchange, receipt))

    def _judge(self) -> None:
        """
        Note what guards saw of the answer. One that may not be given was made, so it is paid for; unless what should
        have looked at it failed.

        Raises:
            GatewayError: It calls a denied tool, or guards stop it.
        """
        exchange, way_out = self._exchange, self._way_out
        if way_out is None:
            return
        way_out.tell()
        denied = way_out.failure()
        if denied is None:
            return
        exchange.failure, exchange.error_code, exchange.status = denied, denied.error.code, denied.error.status
        self._settlement.settle("interrupted" if denied is not GUARDS_CUT else "failed")
        raise denied.as_error()

    async def _accept(self, answer: UpstreamAnswer, journey: Journey) -> Completion:
        """Read the whole body. Raises UpstreamFailed when it is cut, too long or no completion."""
        self._body = Body(answer)
        try:
            body = await self._body.read()
            self._exchange.answered_s = self._services.clock.monotonic_s()
            completion = read_completion(body, journey)
            if self._way_out is not None:
                await self._way_out.look_at(completion, len(body))
        except UpstreamFailed:
            self._body = None
            raise
        answer.release()
        return completion

    def _read_on(self) -> None:
        """The client is gone, and its provider is to be read on without it."""
        asking, load = self.watch.take(), self._opening.take_load()
        reading = DrainedBody(self._exchange, self._services, self._settlement, asking, load)
        reading.body = self._body
        reading.start(self._services.drains)
