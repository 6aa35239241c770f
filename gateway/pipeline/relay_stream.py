"""A stream from the first byte asked for to the last frame written."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from gateway.core.errors import SHUTDOWN, Failure, GatewayError, UpstreamFailed
from gateway.core.exchange import Exchange, Outcome
from gateway.core.ports import Sink, UpstreamAnswer
from gateway.core.receipt import Receipt
from gateway.dialects.base import Journey, Lane
from gateway.dialects.continuation import Begun, ContinuedLane, KeptLane, seam_of
from gateway.dialects.edited import EditedLane, unedited
from gateway.dialects.failures import in_band_failure
from gateway.dialects.pairs import open_lane
from gateway.pipeline.continuing import rest_of
from gateway.pipeline.draining import DrainedStream
from gateway.pipeline.gauge import Gauge
from gateway.pipeline.opening import Opening, charge_prompt, journey_of
from gateway.pipeline.services import Services
from gateway.pipeline.settlement import Settlement, measure
from gateway.pipeline.stream_watch import ClientStalled, StreamWatch, UsageOverdue
from gateway.policy.shortage import budget_reached
from gateway.providers.traits import traits_of

_FAREWELL_S = 1.5  # for a client to take its last frames when we are leaving; the process waits half a second longer


@dataclass(slots=True)
class _Flow:
    """A stream whose first good frame is here."""

    answer: UpstreamAnswer
    lane: Lane
    first: bytes


class StreamRelay:
    """One stream. `run` returns when the client has its terminator, or raises before the commit point."""

    def __init__(self, exchange: Exchange, services: Services, sink: Sink, settlement: Settlement) -> None:
        self._exchange = exchange
        self._services = services
        self._sink = sink
        self._settlement = settlement
        self._flow: _Flow | None = None
        self._opened: tuple[UpstreamAnswer, Lane] | None = None  # of the running attempt, once its head is here
        model = exchange.model
        may_go_on = model is not None and model.on_interrupt == "continue"
        self._seam = seam_of(exchange.call) if may_go_on else None
        self._gauge = Gauge(exchange.stop_tokens) if exchange.stop_tokens is not None else None
        self._patience_s = services.deadlines.write_stall_s
        self._way_out = services.answering.way_out(exchange)
        self.watch = StreamWatch(services, exchange, sink, self._way_out)
        self._opening = Opening(exchange, self.watch)

    async def run(self) -> None:
        """
        Relay the stream.

        Raises:
            UpstreamFailed: It failed before anything was sent, so it can still be a plain HTTP error.
        """
        try:
            try:
                flow = await self._open()
            except UpstreamFailed as exc:
                if not self._sink.committed:
                    self._exchange.failure = exc.failure
                    raise
                await self._fail(open_lane(journey_of(self._exchange, self._services)), exc.failure)
                return
            await self._relay(flow)
        except (asyncio.CancelledError, ConnectionError, ClientStalled) as exc:
            if not isinstance(exc, asyncio.CancelledError):
                self.watch.client_left()
            self._cancelled()
            if isinstance(exc, asyncio.CancelledError):
                raise
            self._sink.abort()
        finally:
            if self._flow is not None:
                self._flow.answer.close()
            self._opening.release()

    async def _open(self) -> _Flow:
        """Get to the first good frame, and commit."""
        exchange, watch = self._exchange, self.watch
        self._flow = flow = await self._opening.run(self._accept)
        exchange.answered_s = watch.started(flow.lane)
        if flow.lane.talking:
            exchange.first_token_s = exchange.answered_s
        if not self._sink.committed:
            watch.commit()
        return flow

    async def _accept(self, answer: UpstreamAnswer, journey: Journey, begun: Begun | None = None) -> _Flow:
        """
        Read *answer* up to its first good frame. Raises UpstreamFailed when there is none.

        Args:
            begun: What it goes on with.
        """
        lane = open_lane(journey)
        if begun is not None:
            lane = ContinuedLane(lane, begun, echoes=traits_of(journey.route.model).echoes)
        elif self._seam is not None:
            lane = KeptLane(lane, self._seam())
        if self._way_out is not None:
            lane = self._way_out.over(lane)
        self._opened = answer, lane
        try:
            return await self._first(answer, lane)
        except UpstreamFailed:
            self._opened = None
            raise

    async def _first(self, answer: UpstreamAnswer, lane: Lane) -> _Flow:
        if "json" in answer.headers.get("Content-Type", ""):
            raise UpstreamFailed(in_band_failure(await self.watch.until(answer.read)))
        first, progress = b"", lane.progress
        while not first and not lane.started:
            data = await self.watch.until(answer.read)
            first = lane.feed(data) if data else lane.end()
            if lane.talking and lane.progress != progress:
                progress = lane.progress
                self.watch.heard()
            if not first and lane.failure is not None and not lane.failure.is_ours:
                raise UpstreamFailed(lane.failure)
        return _Flow(answer, lane, first)

    async def _relay(self, flow: _Flow) -> None:
        """Everything after the commit point: the frames, then the last words."""
        while (failure := await self._pass_on(flow) or _concluded(flow.lane)) is not None:
            flow.answer.close()
            if failure.failure_class == "policy_stop":
                self._exchange.attempts[-1].result = "cancelled"  # the provider has done nothing wrong
                await self._fail(flow.lane, failure)
                return
            self._opening.failed(failure)
            rest = await self._go_on(flow, failure)
            if isinstance(rest, Failure):
                await self._fail(flow.lane, rest)
                return
            self._flow = flow = rest
        await self._finish(flow)

    async def _pass_on(self, flow: _Flow) -> Failure | None:
        """The frames of *flow*; how it broke, or None when its answer is complete."""
        lane = flow.lane
        try:
            while flow.first or not (lane.ended or lane.failure):
                await self.watch.until(partial(self._pump, flow))
            failure = lane.failure
        except UsageOverdue:
            failure, lane.note = None, lane.note or "usage_late"
        except UpstreamFailed as exc:
            failure = exc.failure
        if failure is not None and lane.complete:
            lane.note = lane.note or f"after_finish:{failure.reason}"
            return None
        return failure

    async def _go_on(self, broken: _Flow, failure: Failure) -> _Flow | Failure:
        """The rest of an answer that broke, by another route where the model wants that; else what to tell of it."""
        exchange, watch = self._exchange, self.watch
        rest = rest_of(exchange, broken.lane, failure)
        if rest is None:
            return failure
        first, route, params = exchange.attempts[-1], exchange.route, exchange.params
        begun = Begun(rest.seam, *broken.lane.measure(), broken.lane.response_id)
        first.usage = begun.usage
        self._opening = Opening(exchange, watch, rest)
        watch.await_rest()
        try:
            flow = await self._opening.run(partial(self._accept, begun=begun))
        except BaseException as exc:  # nothing of what the client has is the other's
            exchange.route, exchange.params = route, params
            if isinstance(exc, UpstreamFailed | GatewayError):
                return exc.failure if isinstance(exc, UpstreamFailed) and exc.failure.is_ours else failure
            raise
        watch.attempt = exchange.attempts[-1]
        watch.started(flow.lane)
        return flow

    async def _pump(self, flow: _Flow) -> None:
        """Read, translate, write, until the answer is complete, has ended or has failed. Resumable at every await."""
        watch, lane = self.watch, flow.lane
        if self._sink.blocked:
            await watch.drain()
        if flow.first:
            first, flow.first = flow.first, b""
            await watch.write(first)
            del first  # this frame lives as long as the stream
        complete, progress, read, feed = lane.complete, lane.progress, flow.answer.read, lane.feed
        sink, clock_s, gauge, way_out = self._sink, watch.now_s, self._gauge, self._way_out
        if way_out is not None and way_out.is_restless:  # since the first frame
            watch.hold(clock_s(), way_out.hold_s)
        while not lane.ended and lane.failure is None and lane.complete == complete:
            data = await read()
            out = feed(data) if data else lane.end()
            now_s = clock_s()
            if lane.progress != progress or lane.complete != complete:
                progress = lane.progress
                watch.moved(lane, now_s)
                if self._exchange.first_token_s is None and lane.talking:
                    self._exchange.first_token_s = now_s
                if gauge is not None and gauge.is_over(lane):
                    sink.write(out)  # it is counted, so it is the client's; the margin is for this
                    raise UpstreamFailed(budget_reached(self._exchange.stop_limit))
            if out:
                watch.written_s = now_s
                sink.write(out)
                if sink.blocked:
                    data = out = b""  # a stuck client is not to hold them too: the socket's buffer has its copy
                    await watch.drain()
            if way_out is not None and way_out.is_restless:
                watch.hold(now_s, way_out.hold_s)

    async def _finish(self, flow: _Flow) -> None:
        """Settle, then say the last words: the client may close on the terminator, and that is no cancellation."""
        receipt = self._settle("completed", flow.lane)
        flow.answer.release()  # a slow client shall not hold the provider's connection
        self._opening.release()
        self._flow = None
        await self._last_words(flow.lane.finish(receipt), self._patience_s)

    async def _fail(self, lane: Lane, failure: Failure) -> None:
        """Settle, then the documented error frame."""
        self._exchange.failure, self._exchange.error_code = failure, failure.told.code
        receipt = self._settle("interrupted", lane)
        await self._last_words(lane.fail(failure, receipt), _FAREWELL_S if failure is SHUTDOWN else self._patience_s)

    def _cancelled(self) -> None:
        """The client is gone: upstream first, then the books. Synchronous, so a second cancellation changes nothing."""
        exchange, flow = self._exchange, self._flow
        if self._settlement.is_settled:
            return  # it left at the last words
        exchange.gone_s = self.watch.gone_s or self._services.clock.monotonic_s()
        if self.watch.outlives and not (flow is not None and flow.lane.complete):
            self._read_on()
            return
        if flow is None:
            charge_prompt(exchange)
            self._settlement.settle("cancelled")
            return
        flow.answer.close()
        if flow.lane.complete and _concluded(flow.lane) is None:
            receipt = self._settle("completed", flow.lane)  # all that was asked for had been produced
            with suppress(ConnectionError):  # nobody hears it now, but whoever asks for the answer again will
                self._sink.close(flow.first + flow.lane.finish(receipt))
            return
        if exchange.attempts[-1].result == "ok":  # and not one that broke, while another is looked for
            exchange.attempts[-1].result = "cancelled"
        self._settle("cancelled", flow.lane)

    def _read_on(self) -> None:
        """The client is gone, and its provider is to be read on without it."""
        services, flow = self._services, self._flow
        asking, load = self.watch.take(), self._opening.take_load()
        reading = DrainedStream(self._exchange, services, self._settlement, asking, load)
        opened = (flow.answer, flow.lane) if flow is not None else self._opened
        reading.opened = (opened[0], unedited(opened[1])) if opened is not None else None
        self._flow = None
        if self._way_out is not None:
            self._way_out.tell()
        if reading.opened is not None:  # what has come by now, for whoever is told of it before the end is known
            self._exchange.usage, self._exchange.basis = reading.opened[1].measure()
        reading.start(services.drains)

    def _settle(self, outcome: Outcome, lane: Lane) -> Receipt:
        exchange = self._exchange
        measure(exchange, lane)
        if self._way_out is not None:
            self._way_out.tell()
        exchange.note = lane.note or exchange.note  # a stage may have left one
        return self._settlement.settle(outcome)

    async def _last_words(self, data: bytes, patience_s: float) -> None:
        """The final frames and a proper end; a client that does not take them gets no clean end either."""
        sink = self._sink
        sink.close(data)
        if not sink.blocked:
            return
        try:
            async with asyncio.timeout(patience_s):
                await sink.drain()
        except TimeoutError:
            sink.abort()


def _concluded(lane: Lane) -> Failure | None:
    """How a complete answer ended after all, now that the last of it is looked at; before it is settled."""
    return lane.conclude() if isinstance(lane, EditedLane) else None
