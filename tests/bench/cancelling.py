"""Clients that leave, and how long it takes until the provider sees it."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from dataclasses import dataclass, field, replace
from typing import Literal

from .client import Channel, DialectName, FrameCounter, connect, request
from .frames import Script
from .upstream import Provider

How = Literal["fin", "rst"]
Kind = tuple[DialectName, How]
KINDS: tuple[Kind, ...] = (("openai", "fin"), ("openai", "rst"), ("anthropic", "fin"), ("anthropic", "rst"))

LINGER_S = 3.0  # a provider connection still there after that is called left open
_ATTEMPT_S = 5.0  # a proxy that takes longer to forward a request or a frame is counted as not sent
_CLIENTS = 10

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Leaving:
    """When a client leaves.

    Attributes:
        after_frames: Content frames to wait for; 0 leaves while the provider is silent.
        wait_s: Least and most time between that moment and the close.
    """

    script: Script
    stream: bool
    after_frames: int
    wait_s: tuple[float, float]


@dataclass(slots=True)
class Cancels:
    """Cancel latencies in nanoseconds by kind; `left_open` and `not_sent` count the rest."""

    latencies: dict[Kind, list[int]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    left_open: int = 0
    not_sent: int = 0


class _Watcher:
    """Sets an event after so many content frames; implements `Reply`."""

    def __init__(self, frames: int) -> None:
        self.reached = asyncio.Event()
        self.over = False
        self._frames = frames
        self._counter = FrameCounter()

    def payload(self, data: bytes) -> None:
        self._counter.feed(data)
        if self._counter.content >= self._frames > 0:
            self.reached.set()

    def ended(self, status: int) -> None:
        self.lost()

    def lost(self) -> None:
        self.over = True
        self.reached.set()


@dataclass(frozen=True, slots=True)
class _Left:
    """A client that left; its channel knows when."""

    number: int
    kind: Kind
    channel: Channel


class _Client:
    """Opens, waits for its moment, leaves, starts over."""

    def __init__(self, port: int, provider: Provider, leaving: Leaving) -> None:
        self._port = port
        self._records = provider.records
        self._leaving = leaving

    async def once(self, kind: Kind) -> _Left | None:
        """One cancelled request; None when it never got as far as it should."""
        number = next(_numbers)
        script = replace(self._leaving.script, id=number)
        watcher = _Watcher(self._leaving.after_frames)
        if not self._leaving.after_frames:
            self._records.on_arrival[number] = watcher.reached.set
        channel = await connect(self._port)
        channel.send(request(self._port, kind[0], script, stream=self._leaving.stream), watcher)
        try:
            await asyncio.wait_for(watcher.reached.wait(), _ATTEMPT_S)
            await asyncio.sleep(random.uniform(*self._leaving.wait_s))
        except TimeoutError:
            watcher.over = True
        if watcher.over:
            self._records.on_arrival.pop(number, None)
            channel.drop("fin")
            return None
        channel.drop(kind[1])
        return _Left(number, kind, channel)


async def cancel_for(
    port: int, provider: Provider, leaving: Leaving, seconds: float, *, linger_s: float = LINGER_S
) -> Cancels:
    """Ten clients cancel all kinds in turn for *seconds*; *linger_s* more are given for the stragglers."""
    result, left = Cancels(), list[_Left]()
    end = time.monotonic() + seconds
    kinds = itertools.cycle(KINDS)

    async def keep_leaving() -> None:
        client = _Client(port, provider, leaving)
        while time.monotonic() < end:
            gone = await client.once(next(kinds))
            if gone is None:
                result.not_sent += 1
            else:
                left.append(gone)

    async with asyncio.TaskGroup() as group:
        for _ in range(_CLIENTS):
            group.create_task(keep_leaving())
    await _all_cut(provider, {one.number for one in left}, linger_s)
    for one in left:
        cut_ns = provider.records.cut.pop(one.number, None)
        if cut_ns is None:
            result.left_open += 1
        else:
            result.latencies[one.kind].append(cut_ns - one.channel.closed_ns)
    return result


async def _all_cut(provider: Provider, numbers: set[int], linger_s: float) -> None:
    """Wait until the provider has lost all of *numbers*, *linger_s* at most."""
    records, done = provider.records, asyncio.Event()

    def look() -> None:
        if numbers <= records.cut.keys():
            done.set()

    records.on_cut = look
    look()
    try:
        await asyncio.wait_for(done.wait(), linger_s)
    except TimeoutError:
        pass
    finally:
        records.on_cut = None
