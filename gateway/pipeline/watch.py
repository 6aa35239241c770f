"""Deadlines of one exchange behind a single timer.

A stream has half a dozen deadlines (first token, idle, heartbeat, commit, write stall, usage grace), and nearly every
frame moves some of them. Arming a timer per read would cost more than the frame. So one timer is armed at the nearest
deadline and left alone; when it fires, `tick` looks at what is really due, and the wait is taken up again.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.core.call import UpstreamRequest
from gateway.core.errors import NON_STREAM_TIMEOUT, Failure, UpstreamFailed
from gateway.core.exchange import Attempt
from gateway.core.ports import Asking, Sink, UpstreamAnswer
from gateway.pipeline.services import Services

T = TypeVar("T")


class Watch(ABC):
    """
    Runs steps under the exchange's deadlines. A step must be resumable: it is begun anew after a wake-up.

    Attributes:
        deadline_s: Monotonic seconds of the end of all attempts.
        last_start_s: Monotonic seconds from which on no further attempt may start.
        expired: The failure when `deadline_s` has passed.
        gone_s: Monotonic seconds when the client was seen to leave; None while it has not been, or nothing was asked.
        attempt: The attempt under way whose provider may be read on without the client; None while there is none.
        key_id: Whose exchange it is.
        outlives: Whether it is to be: the client has left, and its asking is still open.
    """

    def __init__(self, services: Services, sink: Sink, deadline_s: float, expired: Failure) -> None:
        self.services = services
        self.sink = sink
        self.deadline_s = self.last_start_s = deadline_s
        self.expired = expired
        self.gone_s: float | None = None
        self.attempt: Attempt | None = None
        self.outlives = False
        self.key_id = ""
        self._asking: Asking | None = None  # the newest
        self.now_s = services.clock.monotonic_s
        self._interruption: Failure | None = None
        self._task: asyncio.Task[object] | None = None  # set while a step may be cut short
        self._cancelling = 0  # of that task when the step was begun
        self._is_cut = False
        self._timer: asyncio.TimerHandle | None = None
        self._armed_s = 0.0

    def interrupt(self, failure: Failure) -> None:
        """End the exchange with *failure* at its next breath; called from outside, as at shutdown."""
        self._interruption = failure
        self._cut()

    async def ask(self, request: UpstreamRequest, on_sent: Callable[[], None]) -> UpstreamAnswer:
        """
        Send *request* and wait for the head of the answer.

        Should the client leave, here or later, the connection is closed before anything else is done: under load some
        turns of the loop may lie between that moment and the one in which the exchange's own task is told. A provider
        that is to be read on keeps its connection; whoever ends the exchange takes it, or `close` closes it.

        Raises:
            UpstreamFailed: None came, or not in time.
        """
        asking = self._asking = self.services.upstream.ask(request, on_sent)
        del request  # the caller has not kept it either

        def leave() -> None:
            self.client_left()
            if not self.outlives:
                asking.close()

        self.sink.on_leave(leave)
        try:
            return await self.step(asking.answer)
        except asyncio.CancelledError:
            if not self.outlives:
                asking.close()
            raise
        except BaseException:
            asking.close()
            raise

    def client_left(self) -> None:
        """The client is gone: decide what becomes of the provider. The first call counts."""
        if self.gone_s is not None:
            return
        self.gone_s = self.now_s()
        attempt = self.attempt
        if attempt is not None and attempt.was_sent and attempt.route.provider.drain is not None:
            self.outlives = self.services.drains.has_room

    def take(self) -> Asking:
        """The asking of an attempt that outlives its client, for whoever reads it on."""
        asking, self._asking = self._asking, None
        assert asking is not None
        return asking

    async def until(self, step: Callable[[], Awaitable[T]]) -> T:
        """
        The result of *step*, whatever wake-ups lie between.

        As in `asyncio.timeout`, a wake-up is a cancellation that is taken back; one that came from elsewhere as well
        stays one. Unlike there, the timer outlives the step.

        Raises:
            UpstreamFailed: A deadline passed, or the exchange was interrupted.
        """
        task = asyncio.current_task()
        assert task is not None
        cancelling = task.cancelling()
        try:
            while True:
                if self._interruption is not None:
                    raise UpstreamFailed(self._interruption)
                self.tick()
                self.arm(self.next_wake_s())
                self._task, self._cancelling = task, cancelling
                try:
                    return await step()
                except asyncio.CancelledError:
                    if not self._is_cut or task.cancelling() > cancelling + 1:
                        raise
                finally:
                    if self._is_cut:
                        task.uncancel()
                    self._task = None
                    self._is_cut = False
        finally:
            del task  # it keeps the exception that ends it, that this frame, and this frame it: a cycle of 100 objects

    def close(self) -> None:
        """The exchange is over: no more wake-ups, and nothing is left open for readers that never came."""
        if self.outlives and self._asking is not None:
            self._asking.close()
        self._asking = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def arm(self, wake_s: float) -> None:
        """See to it that the timer fires no later than *wake_s*; that it may fire earlier is what makes it cheap."""
        if self._timer is not None:
            if self._armed_s <= wake_s:
                return
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._armed_s = wake_s
        self._timer = loop.call_later(max(0.0, wake_s - self.now_s()), self._fire)

    def _fire(self) -> None:
        self._timer = None
        wake_s = self.next_wake_s()
        if wake_s > self.now_s():
            self.arm(wake_s)
        else:
            self._cut()

    def _cut(self) -> None:
        """Wake the exchange up if it waits."""
        if self._task is not None and not self._is_cut:
            self._is_cut = True
            self._task.cancel()

    @property
    def cut_by(self) -> Failure | None:
        """What has just cut the running step short, None when it was nobody here, or the client left in that turn."""
        if not self._is_cut or self._task is None or self._task.cancelling() > self._cancelling + 1:
            return None
        return self._interruption or self.expired

    @abstractmethod
    async def step(self, step: Callable[[], Awaitable[T]]) -> T:
        """The result of *step*, one of those that make up the exchange. Raises UpstreamFailed as `until` does."""

    @abstractmethod
    def tick(self) -> None:
        """Do what is due now. Raises UpstreamFailed when a deadline is over."""

    @abstractmethod
    def next_wake_s(self) -> float:
        """Monotonic seconds of the nearest deadline."""


class JsonWatch(Watch):
    """A request without streaming has one deadline for everything: it is one step, and the first wake-up the last."""

    def __init__(self, services: Services, sink: Sink, started_s: float, limit_s: float | None = None) -> None:
        limit_s = services.deadlines.non_stream_s if limit_s is None else limit_s
        super().__init__(services, sink, started_s + limit_s, NON_STREAM_TIMEOUT)

    async def step(self, step: Callable[[], Awaitable[T]]) -> T:
        return await step()  # the relay has the whole exchange watched at once

    def tick(self) -> None:
        if self.now_s() >= self.deadline_s:
            raise UpstreamFailed(self.expired)

    def next_wake_s(self) -> float:
        return self.deadline_s
