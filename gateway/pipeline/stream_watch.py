"""The deadlines of a stream, and the heartbeats between its frames."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import Protocol, TypeVar

from gateway.core.errors import FIRST_TOKEN_TIMEOUT, IDLE_TIMEOUT, UpstreamFailed
from gateway.core.exchange import Exchange
from gateway.core.ports import Sink
from gateway.dialects.base import Lane
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.pipeline.services import Services
from gateway.pipeline.watch import Watch

T = TypeVar("T")

_SLOTS = 4  # in the time that something is held back


class ClientStalled(Exception):
    """The client has not taken a byte for the length of the write-stall deadline."""


class UsageOverdue(Exception):
    """The answer is complete; its usage or terminator is late and no longer waited for."""


class Held(Protocol):
    """What is held back of a stream."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more may leave but the end."""

    def ease(self) -> bytes:
        """What may leave since nothing has come for a while."""


class StreamWatch(Watch):
    """
    Until the stream has started only the first-token deadline counts; from then on progress is what resets the idle
    timer. Heartbeats are written here, by the very task that writes frames, so they can never land inside one.

    Args:
        held: What guards hold back.
    """

    def __init__(self, services: Services, exchange: Exchange, sink: Sink, held: Held | None = None) -> None:
        first_token_s = services.deadlines.first_token_s
        super().__init__(services, sink, exchange.started_s + first_token_s, FIRST_TOKEN_TIMEOUT)
        self._exchange = exchange
        self._place = exchange.place
        self._times = services.deadlines
        self._commit_s = exchange.started_s + self._times.commit_after_s
        self.last_start_s = min(self.deadline_s, self._commit_s)  # the 200 must not go out while an attempt is awaited
        self.written_s = exchange.started_s
        self._progress_s = exchange.started_s
        self._complete_s: float | None = None
        self._blocked_s: float | None = None
        self._started = False
        self._held = held
        self._ease_s = inf
        self._heartbeat = CLIENT_DIALECTS[exchange.call.dialect].heartbeat

    async def step(self, step: Callable[[], Awaitable[T]]) -> T:
        return await self.until(step)

    def tick(self) -> None:
        """Do what is due. Raises UpstreamFailed, ClientStalled or UsageOverdue."""
        now_s, times = self.now_s(), self._times
        if self._blocked_s is not None:
            if now_s - self._blocked_s >= times.write_stall_s:
                raise ClientStalled
            return
        if self._complete_s is not None:
            if now_s - self._complete_s >= times.usage_grace_s:
                raise UsageOverdue
        elif self._started:
            if now_s - self._progress_s >= times.idle_s:
                raise UpstreamFailed(IDLE_TIMEOUT)
        elif now_s >= self.deadline_s:
            raise UpstreamFailed(self.expired)
        elif not self.sink.committed and now_s >= self._commit_s:
            self.commit()
            self._beat()
        if now_s >= self._ease_s:
            self._let_go(now_s)
        if self.sink.committed and now_s - self.written_s >= times.heartbeat_s:
            self._beat()

    def next_wake_s(self) -> float:
        """The nearest of the deadlines that count in this phase."""
        if self._blocked_s is not None:
            return self._blocked_s + self._times.write_stall_s
        return min(self._ease_s, self._nearest_s())

    def _nearest_s(self) -> float:
        times = self._times
        if self._complete_s is not None:
            nearest = self._complete_s + times.usage_grace_s
        elif self._started:
            nearest = self._progress_s + times.idle_s
        else:
            nearest = self.deadline_s
            if not self.sink.committed:
                return min(nearest, self._commit_s)
        return min(nearest, self.written_s + times.heartbeat_s) if self.sink.committed else nearest

    def heard(self) -> None:
        """Words came that the lane still holds: they are no silence, so more are waited for as within a stream."""
        self.deadline_s = max(self.deadline_s, self.now_s() + self._times.idle_s)

    def started(self, lane: Lane) -> float:
        """The first good frame is here; monotonic seconds of it."""
        self._started = True
        self._ease_s = inf  # what a part that broke has held back waits for the first frame of the rest
        self._progress_s = now_s = self.now_s()
        self._complete_s = now_s if lane.complete else None
        self._place.moved(lane.deltas, now_s)
        return now_s

    def await_rest(self) -> None:
        """The answer broke, and another provider is asked for the rest: as long as for a first token, from now on."""
        self._started, self._complete_s = False, None
        self.deadline_s = self.last_start_s = self.now_s() + self._times.first_token_s

    def moved(self, lane: Lane, now_s: float) -> None:
        """The upstream moved the answer on."""
        self.services.observe_gap(now_s - self._progress_s)
        self._progress_s = now_s
        self._complete_s = (self._complete_s or now_s) if lane.complete else None
        self._place.moved(lane.deltas, now_s)

    def commit(self) -> None:
        """Settle the 200; it leaves with the next bytes. From here on every failure is a frame."""
        exchange = self._exchange
        exchange.status = 200
        self.sink.open(self.services.headers(exchange, None))
        exchange.committed_s = self.written_s = self.now_s()

    def hold(self, now_s: float, hold_s: float) -> None:
        """
        Something is held back that may leave *hold_s* from now, or a quarter of that earlier, unless more comes before.

        Streams share the times at which they let go: a wake-up of the loop costs more than all that is done in it.
        """
        slot_s = hold_s / _SLOTS
        due_s = (now_s + hold_s) // slot_s * slot_s
        if due_s != self._ease_s:
            self._ease_s = due_s
            self.arm(due_s)

    def _fire(self) -> None:
        """
        As in `Watch`; but words that have been held back for long enough leave from here: the task that waits for more
        need not be woken for them. It has handed over all that it had before it began to wait.
        """
        now_s = self.now_s()
        if self._task is not None and self._blocked_s is None and now_s >= self._ease_s:
            try:
                self._let_go(now_s)
            except ConnectionError:
                self._cut()  # it will meet it too
        super()._fire()

    def _let_go(self, now_s: float) -> None:
        self._ease_s = inf
        if self._held is None:
            return
        frames = self._held.ease()
        if frames:
            self.written_s = now_s
            self.sink.write(frames)
        if self._held.has_ended:
            self._cut()  # what waits has nothing to wait for

    def _beat(self) -> None:
        self.written_s = self.now_s()
        self.sink.write(self._heartbeat)

    async def write(self, data: bytes) -> None:
        """Hand whole frames to the client and wait while it is behind."""
        self.written_s = self.now_s()
        self.sink.write(data)
        if self.sink.blocked:
            await self.drain()

    async def drain(self) -> None:
        """Wait for a slow client; resumable, and bounded by the write-stall deadline."""
        if self.sink.blocked:
            if self._blocked_s is None:
                self._blocked_s = self.now_s()
                self.arm(self.next_wake_s())
            await self.sink.drain()
        self._blocked_s = None
        # The upstream was not read meanwhile, so its silence proves nothing.
        self._progress_s = now_s = self.now_s()
        if self._complete_s is not None:
            self._complete_s = now_s
        self.arm(self.next_wake_s())  # nearer than the stall's own deadline, for which the timer may be armed
