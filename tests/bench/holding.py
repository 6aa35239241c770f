"""Clients that open a stream, read one event and then only wait."""

from __future__ import annotations

import asyncio
import contextlib
import time

from .client import Channel, connect, request
from .frames import Script

OPEN_PER_S = 500
_FIRST_EVENT_S = 10.0
_SILENT_MS = 600_000


class _Held:
    """A stream that counts when its first bytes are there; implements `Reply`."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._begun = False

    def payload(self, data: bytes) -> None:
        if not self._begun and data:
            self._begun = True
            self._crowd.heard(1, 0)

    def ended(self, status: int) -> None:
        self.lost()

    def lost(self) -> None:
        self._crowd.heard(0, 1)


class Crowd:
    """Open, silent streams; grows, then leaves all at once.

    Attributes:
        begun: Streams whose first event arrived.
        lost: Streams that ended or were refused.
    """

    def __init__(self, port: int) -> None:
        self.begun = 0
        self.lost = 0
        self._port = port
        self._bytes = request(port, "openai", Script(events=2, interval_ms=_SILENT_MS), stream=True)
        self._channels: list[Channel] = []
        self._wanted = 0
        self._complete = asyncio.Event()

    def heard(self, begun: int, lost: int) -> None:
        """So many streams more have begun or are lost."""
        self.begun += begun
        self.lost += lost
        if self.begun + self.lost >= self._wanted:
            self._complete.set()

    async def grow_to(self, size: int) -> None:
        """Open streams at 500 a second until there are *size*, and wait for their first events, 10 s at most."""
        self._wanted = size
        self._complete.clear()
        start, had = time.monotonic(), len(self._channels)
        while len(self._channels) < size:
            try:
                channel = await connect(self._port)
            except OSError:
                self.lost += 1
                return
            self._channels.append(channel)
            channel.send(self._bytes, _Held(self))
            ahead = (len(self._channels) - had) / OPEN_PER_S - (time.monotonic() - start)
            if ahead > 0:
                await asyncio.sleep(ahead)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._complete.wait(), _FIRST_EVENT_S)

    async def leave(self) -> None:
        """Close all, 500 at a time so that the loop stays responsive."""
        for place, channel in enumerate(self._channels, 1):
            if channel.alive:
                channel.drop("fin")
            if place % OPEN_PER_S == 0:
                await asyncio.sleep(0.05)
        self._channels.clear()
        await asyncio.sleep(0.5)
