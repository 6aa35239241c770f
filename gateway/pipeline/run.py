"""One pipeline for every exchange: stages, relay, receipt."""

from __future__ import annotations

import asyncio

from gateway.core.errors import INTERNAL_ERROR, ErrorKind, GatewayError, UpstreamFailed
from gateway.core.exchange import Answer, Exchange
from gateway.core.ports import Sink
from gateway.pipeline.relay_count import CountRelay
from gateway.pipeline.relay_json import JsonRelay
from gateway.pipeline.relay_stream import StreamRelay
from gateway.pipeline.services import Services
from gateway.pipeline.settlement import Settlement
from gateway.pipeline.stage import Stage
from gateway.pipeline.watch import Watch


class Pipeline:
    """Runs exchanges and knows which are under way.

    Args:
        stages: In order of admission; they are settled in reverse.
        running: The exchanges under way; shared by the pipelines before and after a reload.
    """

    def __init__(self, stages: tuple[Stage, ...], services: Services, running: set[Watch]) -> None:
        self._stages = stages
        self._services = services
        self._running = running

    async def run(self, exchange: Exchange, sink: Sink) -> Answer | None:
        """
        The answer to *exchange*, or None when it went out through *sink*.

        Raises:
            GatewayError: It was refused or failed while it could still be a plain HTTP error. It is settled by then.
        """
        settlement = Settlement(exchange, self._services)
        try:
            for stage in self._stages:
                answer = await stage.admit(exchange)
                settlement.admitted(stage)
                if answer is not None:
                    exchange.status = answer.status
                    settlement.settle("completed")
                    return answer
            return await self._relay(exchange, sink, settlement)
        except GatewayError as error:
            self._refuse(exchange, settlement, error.kind)
            raise
        except UpstreamFailed as exc:
            self._refuse(exchange, settlement, exc.failure.error)
            raise exc.failure.as_error() from exc  # by no name of this frame, which its traceback keeps
        except asyncio.CancelledError:
            if not settlement.is_deferred:
                settlement.settle("cancelled")
            raise
        except BaseException:
            self._refuse(exchange, settlement, INTERNAL_ERROR)
            raise

    async def _relay(self, exchange: Exchange, sink: Sink, settlement: Settlement) -> Answer | None:
        relay: StreamRelay | JsonRelay | CountRelay
        if exchange.call.stream:
            relay = StreamRelay(exchange, self._services, sink, settlement)
        elif exchange.call.task == "count":
            relay = CountRelay(exchange, self._services, sink, settlement)
        else:
            relay = JsonRelay(exchange, self._services, sink, settlement)
        relay.watch.key_id = exchange.key.id
        self._running.add(relay.watch)
        try:
            return await relay.run()
        finally:
            self._running.discard(relay.watch)
            relay.watch.close()

    def _refuse(self, exchange: Exchange, settlement: Settlement, kind: ErrorKind) -> None:
        exchange.status, exchange.error_code = kind.status, kind.code
        settlement.settle("rejected" if kind.status < 500 else "failed")
