"""A stream from the first byte asked for to the last frame written."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gateway.core.errors import SHUTDOWN, Failure, UpstreamFailed
from gateway.core.exchange import Exchange, Outcome
from gateway.core.ports import Sink, UpstreamAnswer
from gateway.core.receipt import Receipt
from gateway.core.usage import Usage
from gateway.dialects.base import Journey, Lane
from gateway.dialects.failures import in_band_failure
from gateway.dialects.prompt import prompt_tokens
from gateway.pipeline.opening import Opening, record_failure
from gateway.pipeline.services import Services
from gateway.pipeline.settlement import Settlement
from gateway.pipeline.stream_watch import ClientStalled, StreamWatch, UsageOverdue

_FAREWELL_S = 2.0  # for a client to take its last frames when we are leaving: 22 s of drain + 2 s < 27 s to the exit


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
        self._dialect = services.dialects[exchange.call.dialect]
        self._lane: Lane | None = None
        self._answer: UpstreamAnswer | None = None
        self._patience_s = services.deadlines.write_stall_s
        self.watch = StreamWatch(services, exchange, sink)

    async def run(self) -> None:
        """
        Relay the stream.

        Raises:
            UpstreamFailed: It failed before anything was sent, so it can still be a plain HTTP error.
        """
        try:
            try:
                await self._open()
                await self._flow()
            except UsageOverdue:
                pass
            except UpstreamFailed as exc:
                await self._failed(exc.failure)
                return
            await self._finished()
        except (asyncio.CancelledError, ConnectionError, ClientStalled) as exc:
            self._cancelled()
            if isinstance(exc, asyncio.CancelledError):
                raise
            self._sink.abort()
        finally:
            if self._answer is not None:
                self._answer.close()

    async def _open(self) -> None:
        """Get to the first good frame, commit, and write it."""
        exchange, watch = self._exchange, self.watch
        flow = await Opening(exchange, watch).run(self._accept)
        self._answer, self._lane = flow.answer, flow.lane
        exchange.answered_s = watch.started(flow.lane)
        if flow.lane.talking:
            exchange.first_token_s = exchange.answered_s
        if not self._sink.committed:
            await watch.commit()
        if flow.first:
            await watch.until(lambda: self._write_once(flow))

    async def _write_once(self, flow: _Flow) -> None:
        """The held-back start, written once however often the wait for a slow client is resumed."""
        data, flow.first = flow.first, b""
        if data:
            await self.watch.write(data)
        else:
            await self.watch.drain()

    async def _accept(self, answer: UpstreamAnswer, journey: Journey) -> _Flow:
        """Read *answer* up to its first good frame. Raises UpstreamFailed when there is none."""
        if "json" in answer.headers.get("Content-Type", ""):
            raise UpstreamFailed(in_band_failure(await self.watch.until(answer.read)))
        lane = self._dialect.open_lane(journey)
        self.watch.heartbeat = lane.heartbeat()
        first = b""
        while not first and not lane.started:
            data = await self.watch.until(answer.read)
            first = lane.feed(data) if data else lane.end()
            if not first and lane.failure is not None:
                raise UpstreamFailed(lane.failure)
        return _Flow(answer, lane, first)

    async def _flow(self) -> None:
        """Everything after the first good frame, up to the end of the upstream's answer."""
        lane = self._lane
        assert lane is not None
        while not lane.ended and lane.failure is None:
            await self.watch.until(self._pump)
        if lane.failure is not None:
            raise UpstreamFailed(lane.failure)

    async def _pump(self) -> None:
        """Read, translate, write, until the answer is complete, has ended or has failed."""
        lane, answer, watch = self._lane, self._answer, self.watch
        assert lane is not None
        assert answer is not None
        if self._sink.blocked:
            await watch.drain()
        complete, progress, read, feed = lane.complete, lane.progress, answer.read, lane.feed
        while not lane.ended and lane.failure is None and lane.complete == complete:
            data = await read()
            out = feed(data) if data else lane.end()
            if lane.progress != progress:
                progress = lane.progress
                watch.moved(lane, watch.now_s())
                if self._exchange.first_token_s is None and lane.talking:
                    self._exchange.first_token_s = watch.now_s()
            if out:
                await watch.write(out)

    async def _finished(self) -> None:
        """Settle, then say the last words: the client may close on the terminator, and that is no cancellation."""
        lane = self._lane
        assert lane is not None
        receipt = self._settle("completed")
        await self._last_words(lane.finish(receipt), self._patience_s)
        if self._answer is not None:
            self._answer.release()
            self._answer = None

    async def _failed(self, failure: Failure) -> None:
        """The documented error frame once the 200 is out; before that it is the caller's to answer."""
        self._exchange.failure = failure
        if not self._sink.committed:
            raise UpstreamFailed(failure)
        if self._answer is not None:
            self._answer.close()
        lane = self._lane or self._dialect.open_lane(self._journey())
        if self._lane is not None:  # the attempt had gone well; a failed opening is in the books already
            record_failure(self._exchange, self._services, failure)
        self._settle("interrupted")
        await self._last_words(lane.fail(failure), _FAREWELL_S if failure is SHUTDOWN else self._patience_s)

    def _cancelled(self) -> None:
        """The client is gone: upstream first, then the books. Synchronous, so a second cancellation changes nothing."""
        exchange = self._exchange
        exchange.gone_s = self._services.clock.monotonic_s()
        if self._answer is not None:
            self._answer.close()
        if self._lane is not None and self._lane.complete:
            self._settle("completed")  # all that was asked for had been produced
            return
        if exchange.attempts and exchange.attempts[-1].result == "ok":
            exchange.attempts[-1].result = "cancelled"
        self._settle("cancelled")

    def _settle(self, outcome: Outcome) -> Receipt:
        exchange, lane = self._exchange, self._lane
        if lane is not None:
            exchange.usage, exchange.basis = lane.measure()
            exchange.note = lane.note
        elif outcome == "cancelled" and exchange.dispatched_s is not None:
            # The provider has the prompt and may bill it, though it has not said a word.
            exchange.usage, exchange.basis = Usage(prompt_tokens=prompt_tokens(exchange.call)), "estimated"
        return self._settlement.settle(outcome)

    async def _last_words(self, data: bytes, patience_s: float) -> None:
        """The final frames and a proper end; a client that does not take them gets no clean end either."""
        try:
            async with asyncio.timeout(patience_s):
                await self._sink.write(data)
                await self._sink.close()
        except TimeoutError:
            self._sink.abort()

    def _journey(self) -> Journey:
        exchange, services = self._exchange, self._services
        route = exchange.route or exchange.candidates[0]
        return Journey(
            exchange.call, route, exchange.request_id, int(services.clock.epoch_s()), services.lanes
        )
