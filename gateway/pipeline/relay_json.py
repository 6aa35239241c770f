"""A request without streaming: one body in, one body out."""

from __future__ import annotations

import asyncio
from functools import partial

from gateway.core.errors import UpstreamFailed
from gateway.core.exchange import Answer, Exchange
from gateway.core.ports import Sink, UpstreamAnswer
from gateway.dialects.base import Completion, Journey
from gateway.dialects.failures import malformed
from gateway.dialects.pairs import read_completion
from gateway.pipeline.opening import Opening, charge_prompt
from gateway.pipeline.services import Services
from gateway.pipeline.settlement import Settlement
from gateway.pipeline.watch import JsonWatch

MAX_BODY_BYTES = 64 * 1024 * 1024  # images in an answer are tens of megabytes at the most; more is an attack


class JsonRelay:
    """One request. `run` gives the answer, or raises what becomes a plain HTTP error."""

    def __init__(self, exchange: Exchange, services: Services, sink: Sink, settlement: Settlement) -> None:
        self._exchange = exchange
        self._services = services
        self._settlement = settlement
        self.watch = JsonWatch(services, sink, exchange.started_s)
        self._opening = Opening(exchange, self.watch)

    async def run(self) -> Answer:
        """
        Relay the request.

        Raises:
            UpstreamFailed: No attempt went well.
        """
        exchange = self._exchange
        try:
            completion = await self.watch.until(partial(self._opening.run, self._accept))
        except asyncio.CancelledError:
            exchange.gone_s = self.watch.gone_s or self._services.clock.monotonic_s()
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
        exchange.usage, exchange.basis, exchange.note = completion.usage, completion.basis, completion.note
        exchange.status = 200
        receipt = self._settlement.settle("completed")
        return Answer(200, completion.render(receipt), self._services.headers(exchange, receipt))

    async def _accept(self, answer: UpstreamAnswer, journey: Journey) -> Completion:
        """Read the whole body. Raises UpstreamFailed when it is cut, too long or no completion."""
        body = await _read_all(answer)
        self._exchange.answered_s = self._services.clock.monotonic_s()
        completion = read_completion(body, journey)
        answer.release()
        return completion


async def _read_all(answer: UpstreamAnswer) -> bytes:
    parts: list[bytes] = []
    size = 0
    while data := await answer.read():
        parts.append(data)
        size += len(data)
        if size > MAX_BODY_BYTES:
            raise UpstreamFailed(malformed("body longer than the limit"))
        if answer.ended:
            break
    return b"".join(parts)
