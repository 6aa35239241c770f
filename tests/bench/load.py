"""Simulated users of one target: closed loops and paced requests of JSON and streams, and what they saw."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .client import Channel, DialectName, FrameCounter, connect, request
from .frames import Script

_CONNECT_GAP_S = 0.002  # 500 connections a second: an accept queue is not what is measured
_RECONNECT_S = 0.05
_MAX_RECONNECTS = 20


@dataclass(slots=True)
class Tally:
    """What the users of one load saw; times in nanoseconds.

    Attributes:
        requests: JSON answers with status 200.
        streams: Streams that ended with every content frame and the terminator.
        frames: Content frames received.
        failed: Other statuses, lost connections, short or unterminated streams.
        missed: Paced requests not sent because the one before was still running.
    """

    requests: int = 0
    streams: int = 0
    frames: int = 0
    failed: int = 0
    missed: int = 0
    latencies: list[int] = field(default_factory=list)
    first_bytes: list[int] = field(default_factory=list)
    delays: list[int] = field(default_factory=list)

    @property
    def answered(self) -> int:
        """Good answers of both kinds."""
        return self.requests + self.streams


@dataclass(frozen=True, slots=True)
class Plan:
    """A load: so many users, each on one kept-alive connection.

    Attributes:
        script: What each request asks of the provider.
        period_s: Between two requests of one user; 0 sends the next as soon as the answer is there.
        timed: Keep every latency; left out where only CPU is wanted.
        model: Asked for instead of the dialect's native one.
    """

    script: Script
    users: int
    dialect: DialectName = "openai"
    stream: bool = False
    period_s: float = 0.0
    timed: bool = False
    model: str = ""


class User:
    """One user of a load; implements `Reply`."""

    def __init__(self, port: int, plan: Plan, tally: Tally) -> None:
        self._port = port
        self._plan = plan
        self._tally = tally
        self._bytes = request(port, plan.dialect, plan.script, stream=plan.stream, model=plan.model)
        self._loop = asyncio.get_running_loop()
        self._channel: Channel | None = None
        self._counter = FrameCounter()
        self._sent_ns = 0
        self._busy = False
        self._running = True
        self._reconnects = 0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, offset_s: float) -> None:
        """Connect, then ask for the first time after *offset_s*. Raises OSError."""
        self._channel = await connect(self._port)
        self._timer = self._loop.call_later(offset_s, self._tick)

    def stop(self) -> None:
        """Leave at once."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._channel is not None and self._channel.alive:
            self._channel.drop("fin")

    def _tick(self) -> None:
        if self._plan.period_s:
            self._timer = self._loop.call_later(self._plan.period_s, self._tick)
        if self._busy:
            self._tally.missed += 1
        else:
            self._ask()

    def _ask(self) -> None:
        if self._channel is None or not self._channel.alive:
            if self._task is None or self._task.done():
                self._task = self._loop.create_task(self._reconnect())
            return
        self._busy = True
        self._counter = FrameCounter()
        self._sent_ns = time.monotonic_ns()
        self._channel.send(self._bytes, self)

    async def _reconnect(self) -> None:
        self._reconnects += 1
        if self._reconnects > _MAX_RECONNECTS:
            return
        await asyncio.sleep(_RECONNECT_S)
        try:
            self._channel = await connect(self._port)
        except OSError:
            self._tally.failed += 1
        if self._running:
            self._loop.call_soon(self._ask)

    def payload(self, data: bytes) -> None:
        """Count frames as they come."""
        if not self._plan.stream:
            return
        before = self._counter.content
        fresh = self._counter.feed(data)
        self._tally.frames += fresh
        if not fresh or not self._plan.timed:
            return
        now = time.monotonic_ns()
        if before == 0:
            self._tally.first_bytes.append(now - self._sent_ns)
        self._tally.delays.extend([now - stamp for stamp in self._counter.stamps])

    def ended(self, status: int) -> None:
        """Note the answer; a closed loop asks again."""
        self._busy = False
        tally, plan = self._tally, self._plan
        whole = not plan.stream or (self._counter.terminated and self._counter.content == plan.script.events)
        if status != 200 or not whole:
            tally.failed += 1
        elif plan.stream:
            tally.streams += 1
        else:
            tally.requests += 1
            if plan.timed:
                tally.latencies.append(time.monotonic_ns() - self._sent_ns)
        self._again()

    def lost(self) -> None:
        """The answer broke off."""
        self._busy = False
        self._tally.failed += 1
        self._again()

    def _again(self) -> None:
        if self._running and not self._plan.period_s:
            self._ask()


class Load:
    """A running load. Use as an async context manager; leaving it closes every connection."""

    def __init__(self, port: int, plan: Plan) -> None:
        self.tally = Tally()
        self._plan = plan
        self._users = [User(port, plan, self.tally) for _ in range(plan.users)]

    async def __aenter__(self) -> Load:
        """Start all users, spread over a period where there is one."""
        spread = self._plan.period_s / max(1, len(self._users))
        for place, user in enumerate(self._users):
            await user.start(place * spread)
            await asyncio.sleep(_CONNECT_GAP_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop all users and let the far sides see it."""
        for user in self._users:
            user.stop()
        await asyncio.sleep(0.05)


@dataclass(frozen=True, slots=True)
class Window:
    """Differences over a measuring window."""

    requests: int
    streams: int
    frames: int
    failed: int
    cpu_s: float
    wall_s: float


async def window(tally: Tally, seconds: float, cpu_s: Callable[[], float]) -> Window:
    """Let a load run for *seconds* and say what happened; *cpu_s* reads a running total."""
    requests, streams, frames, failed = tally.requests, tally.streams, tally.frames, tally.failed
    cpu, start = cpu_s(), time.monotonic()
    await asyncio.sleep(seconds)
    wall, used = time.monotonic() - start, cpu_s() - cpu
    return Window(
        requests=tally.requests - requests,
        streams=tally.streams - streams,
        frames=tally.frames - frames,
        failed=tally.failed - failed,
        cpu_s=used,
        wall_s=wall,
    )
