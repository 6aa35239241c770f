"""Connections that rest between two requests to one provider."""

from __future__ import annotations

import asyncio
from collections import deque

from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection

from gateway.upstream.connection import Connector, Wire, wire_of


class Shelf:
    """
    The resting connections of one place (host, port, TLS). They stay *connector*'s, and count for its limit.

    Its own pool does the same by a new object for every use, by sets and by a look at everybody's limits, which costs
    as much as parsing an answer. It keeps those for which somebody waits: only it knows the queue.

    Args:
        idle_s: How long one may rest; the oldest are closed by then.
    """

    def __init__(self, connector: Connector, key: ConnectionKey, idle_s: float) -> None:
        self._connector = connector
        self._key = key
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._resting: deque[tuple[Wire, float]] = deque()  # with the loop's time, oldest first
        self._timer: asyncio.TimerHandle | None = None

    def take(self) -> Connection | None:
        """The connection that was used last of those that may serve a request; it is the caller's from here on."""
        while self._resting:
            wire, _ = self._resting.pop()
            if wire.is_fit():
                return self._connector.lend(self._key, wire)
            self._connector.drop(self._key, wire)
        return None

    def put(self, connection: Connection) -> None:
        """
        Have *connection* rest, whose answer has ended; it is closed instead when the answer leaves a doubt.

        Whoever still holds it cannot do anything with it any more: the next request has it.
        """
        if wire_of(connection).should_close or self._connector.is_waited_for(self._key):
            connection.release()
            return
        wire = self._connector.take_back(connection)
        wire.rest()
        self._resting.append((wire, self._loop.time()))
        if self._timer is None:
            self._timer = self._loop.call_later(self._idle_s, self._close_old)

    def clear(self) -> None:
        """Close all of them."""
        while self._resting:
            self._connector.drop(self._key, self._resting.popleft()[0])
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_old(self) -> None:
        now_s, self._timer = self._loop.time(), None
        while self._resting:
            wire, since_s = self._resting[0]
            left_s = since_s + self._idle_s - now_s
            if left_s > 0:
                self._timer = self._loop.call_later(left_s, self._close_old)
                return
            self._resting.popleft()
            self._connector.drop(self._key, wire)
