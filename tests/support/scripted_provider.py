"""A provider in memory that plays from a script."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from multidict import CIMultiDict

from gateway.core.call import UpstreamRequest
from gateway.core.errors import Failure, UpstreamFailed

NEVER = math.inf
EOF = b""
SSE = CIMultiDict({"Content-Type": "text/event-stream"})
JSON = CIMultiDict({"Content-Type": "application/json"})

Step = float | bytes | Failure
"""Seconds to let pass, bytes to send (`EOF` ends the body), or how the body breaks. After the last one it is silent."""


@dataclass(frozen=True, slots=True)
class Play:
    """
    What a provider does with one request.

    Attributes:
        head_s: Seconds from the request to the head, or to *failure*, which comes instead of a head.
        sent_s: Seconds until the whole request is on its way.
    """

    body: tuple[Step, ...] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: SSE)
    head_s: float = 0.0
    sent_s: float = 0.0
    failure: Failure | None = None


def tell(*body: Step, head_s: float = 0.0) -> Play:
    """An event stream."""
    return Play(body, head_s=head_s)


def fail(failure: Failure, after_s: float = 0.0) -> Play:
    """No head, but *failure*."""
    return Play(failure=failure, head_s=after_s)


def status(code: int, *body: Step, head_s: float = 0.0, **headers: str) -> Play:
    """An answer with *code*; `retry_after="2"` becomes a header."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Play(body, code, CIMultiDict({**JSON, **named}), head_s)


class ScriptedAnswer:
    """Implements `UpstreamAnswer`. The body comes at its own times, whether or not somebody reads."""

    def __init__(self, play: Play) -> None:
        self.status = play.status
        self.headers = play.headers
        self.is_closed = False
        self.is_released = False
        self.closed_s: float | None = None
        self._pieces: deque[bytes | Failure] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._play_on(iter(play.body))

    def _play_on(self, steps: Iterator[Step]) -> None:
        """Everything up to the next pause; one timer at a time, since those of one instant have no order."""
        for step in steps:
            if not isinstance(step, bytes | Failure):
                self._timer = asyncio.get_running_loop().call_later(step, self._play_on, steps)
                return
            self._pieces.append(step)
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)

    @property
    def ended(self) -> bool:
        return bool(self._pieces) and self._pieces[0] == EOF

    async def read(self) -> bytes:
        assert not self.is_closed, "read after close"
        while not self._pieces:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        piece = self._pieces[0]
        if isinstance(piece, Failure):
            raise UpstreamFailed(piece)
        if piece != EOF:
            self._pieces.popleft()
        return piece

    def close(self) -> None:
        if not self.is_closed and not self.is_released:
            self.is_closed = True
            self.closed_s = asyncio.get_running_loop().time()
            self._stop()

    def release(self) -> None:
        if not self.is_closed:
            self.is_released = True
            self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class ScriptedAsking:
    """
    Implements `Asking`, and keeps what a test wants to know of it.

    Attributes:
        at_s: Loop seconds of the request.
        dropped_s: Loop seconds at which it was given up, when there was no head yet.
        given: The answer.
    """

    def __init__(self, play: Play, url: str, on_sent: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._play = play
        self._head: asyncio.Future[None] = self._loop.create_future()
        self._timers: list[asyncio.TimerHandle] = []
        self.host = url.split("/")[2].partition(".")[0]
        self.at_s = self._loop.time()
        self.dropped_s: float | None = None
        self.given: ScriptedAnswer | None = None
        self._after(play.sent_s, on_sent)
        self._after(play.head_s, self._arrive)

    def _after(self, wait_s: float, call: Callable[[], None]) -> None:
        if not wait_s:
            call()
        elif wait_s < NEVER:
            self._timers.append(self._loop.call_later(wait_s, call))

    def _arrive(self) -> None:
        if self._play.failure is None:
            self.given = ScriptedAnswer(self._play)
        if not self._head.done():
            self._head.set_result(None)

    async def answer(self) -> ScriptedAnswer:
        await asyncio.shield(self._head)
        if self.given is None:
            assert self._play.failure is not None
            raise UpstreamFailed(self._play.failure)
        return self.given

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
        if self.given is not None:
            self.given.close()
        elif self.dropped_s is None and not self._head.done():
            self.dropped_s = self._loop.time()

    @property
    def left_s(self) -> float | None:
        """Loop seconds at which the connection was dropped."""
        return self.dropped_s if self.given is None else self.given.closed_s

    @property
    def is_open(self) -> bool:
        """Whether nobody has closed it or handed it back, and it has not failed by itself."""
        if self.given is None:
            return self.dropped_s is None and not self._head.done()
        return not self.given.is_closed and not self.given.is_released


class ScriptedUpstream:
    """Implements `Upstream`: the first request gets the first play, and so on."""

    def __init__(self, *plays: Play) -> None:
        self._plays = deque(plays)
        self.asked: list[ScriptedAsking] = []
        self.fresh: list[bool] = []  # which of them were to have a connection of their own
        self.headers: list[dict[str, str]] = []

    def ask(self, request: UpstreamRequest, on_sent: Callable[[], None]) -> ScriptedAsking:
        assert self._plays, "asked more often than the script has it"
        asking = ScriptedAsking(self._plays.popleft(), request.url, on_sent)
        self.asked.append(asking)
        self.fresh.append(request.fresh)
        self.headers.append(dict(request.headers + request.signature))
        return asking

    @property
    def unclosed(self) -> list[ScriptedAsking]:
        return [asking for asking in self.asked if asking.is_open]
