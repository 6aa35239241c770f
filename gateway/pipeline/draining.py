"""
Answers that are read on after their clients have left.

Some providers bill what they produce after a connection has closed. Where the operator says so (`on_cancel = "drain"`),
the answer is read to its end or to a bound instead of being left, so that the books have what the provider has. Nobody
waits for that: it is a task of the house. The exchange is settled once, as cancelled, when the reading ends.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from gateway.core.errors import UpstreamFailed
from gateway.core.exchange import Exchange
from gateway.core.ports import Asking, UpstreamAnswer
from gateway.core.usage import NO_USAGE, Basis, Usage
from gateway.dialects.base import Lane
from gateway.dialects.pairs import open_lane, read_completion
from gateway.dialects.prompt_tokens import prompt_tokens
from gateway.pipeline.body import Body
from gateway.pipeline.drains import Drains
from gateway.pipeline.gauge import Gauge
from gateway.pipeline.opening import journey_of
from gateway.pipeline.services import Services
from gateway.pipeline.settlement import Settlement, measure
from gateway.policy.loads import Load

_COUNT_EVERY = 64  # events between two counts of tokens: a count of what is kept takes up to 0.5 ms


class Drained(ABC):
    """
    The answer to the newest attempt of *exchange*, which is read on.

    Args:
        asking: Its own from here on, with the answer that it gave.
        load: What counts the attempt, if anything does; released at the end.
    """

    def __init__(
        self, exchange: Exchange, services: Services, settlement: Settlement, asking: Asking, load: Load | None
    ) -> None:  # fmt: skip
        attempt = exchange.attempts[-1]
        drain = attempt.route.provider.drain
        assert drain is not None, "the watch has looked"
        attempt.result, exchange.on_cancel = "cancelled", "drain"
        self.journey = journey_of(exchange, services)
        self.asking = asking
        self._exchange = exchange
        self._settlement = settlement
        self._drain = drain
        self._grace_s = services.deadlines.usage_grace_s
        self._load = load
        self._is_over = False

    def start(self, drains: Drains) -> None:
        """Have it read by a task of the house; nobody else settles the exchange from here on."""
        self._settlement.is_deferred = True
        drains.start(self)

    async def run(self) -> None:
        """Read until the end or a bound, then settle."""
        ending = "drain:shutdown"
        try:
            async with asyncio.timeout(self._drain.max_s):
                ending = await self._read()
        except TimeoutError:
            ending = "drain:max_s"
        except UpstreamFailed as exc:
            ending = f"drain:{exc.failure.reason}"
        finally:
            self._conclude(ending)

    def conclude(self) -> None:
        """Leave the provider and settle, if that has not been done: at a task that never began."""
        self._conclude("drain:shutdown")

    def _conclude(self, ending: str) -> None:
        """The first call counts. Synchronous, so that nothing can come between; it settles even if measuring fails."""
        if self._is_over:
            return
        self._is_over = True
        self.asking.close()
        if self._load is not None:
            self._load.release()
        self._exchange.note = ending
        try:
            self._measure()
        finally:  # the key's place and the record hang on it; the exception is reported as the task's
            self._settlement.settle("cancelled")

    @abstractmethod
    async def _read(self) -> str:
        """How the reading ended: the note of the receipt. Raises UpstreamFailed when the provider breaks off."""

    @abstractmethod
    def _measure(self) -> None:
        """Put what has come into the books, as it would be counted for a client that stays."""

    def _book(self, usage: Usage, basis: Basis) -> None:
        self._exchange.usage, self._exchange.basis = usage, basis

    def _book_prompt(self) -> None:
        """Nothing intelligible has come, but the provider has the prompt."""
        self._book(Usage(prompt_tokens=prompt_tokens(self._exchange.call, self.journey.family)), "estimated")


class DrainedStream(Drained):
    """
    A stream that is read on.

    Attributes:
        opened: The answer and its lane, where its head was here before the client left.
    """

    opened: tuple[UpstreamAnswer, Lane] | None = None
    _is_refusal = False

    async def _read(self) -> str:
        if self.opened is None:
            answer = await self.asking.answer()
            if answer.status != 200:
                self._is_refusal = True
                return f"drain:status_{answer.status}"
            self.opened = answer, open_lane(self.journey)
        answer, lane = self.opened
        limit, counted_at = self._drain.max_tokens, lane.progress
        most = lane.received_tokens() + limit
        gauge = Gauge(self._exchange.stop_tokens) if self._exchange.stop_tokens is not None else None
        while not lane.ended and lane.failure is None:
            try:
                async with asyncio.timeout(self._grace_s if lane.complete else None):
                    data = await answer.read()
            except TimeoutError:
                return "drain:usage_late"
            lane.feed(data) if data else lane.end()  # the frames are nobody's
            if gauge is not None and gauge.is_over(lane):
                return "drain:budget"
            if lane.progress - counted_at >= min(_COUNT_EVERY, limit):
                counted_at = lane.progress
                if lane.received_tokens() >= most:
                    return "drain:max_tokens"
        return "drain:end" if lane.complete or lane.failure is None else f"drain:{lane.failure.reason}"

    def _measure(self) -> None:
        lane = self.opened[1] if self.opened is not None else None
        if self._is_refusal or (lane is not None and lane.failure is not None and not lane.talking):
            self._book(NO_USAGE, "none")  # an error in place of an answer
        elif lane is None:
            self._book_prompt()
        else:
            measure(self._exchange, lane)


class DrainedBody(Drained):
    """A JSON answer that is read on. There is no count of tokens before its end, so seconds alone bound it."""

    body: Body | None = None
    _counted: tuple[Usage, Basis] | None = None

    async def _read(self) -> str:
        if self.body is None:
            answer = await self.asking.answer()
            if answer.status != 200:
                self._counted = NO_USAGE, "none"
                return f"drain:status_{answer.status}"
            self.body = Body(answer)
        completion = read_completion(await self.body.read(), self.journey)
        self._counted = completion.usage, completion.basis
        self._exchange.response_id = completion.response_id
        return "drain:end"

    def _measure(self) -> None:
        if self._counted is None:
            self._book_prompt()
        else:
            self._book(*self._counted)
