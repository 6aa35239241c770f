"""Dropping clients: at once, or when they have taken nothing for too long."""

from __future__ import annotations

import asyncio
import socket

from gateway.sockets import set_reset_on_close

LOOKS = 8  # per deadline: a client is dropped at most an eighth of it late
# On top of the setting: the pipeline has the same deadline for its streams and must be first, for it keeps the books.
MARGIN_S = 1.0

_USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)


def reset(transport: asyncio.Transport) -> None:
    """Drop the connection with a TCP reset, whatever is still buffered: only a reset cannot pass for a proper end."""
    if not transport.is_closing():
        set_reset_on_close(transport)
    transport.abort()


def forget_vanished(transport: asyncio.Transport, stall_s: float) -> None:
    """
    Have the kernel drop a connection whose peer does not acknowledge what it was sent (Linux).

    It is the last to look, for it takes a client that does not read for one that has vanished.
    """
    silence_s = (stall_s + MARGIN_S) * (1 + 2 / LOOKS)
    sock = transport.get_extra_info("socket")
    if _USER_TIMEOUT is not None and sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, int(silence_s * 1000))


class StallWatch:
    """
    Resets a connection of whose write buffer the client takes nothing for *stall_s* and the margin.

    What is left of the buffer is compared, not the time since writing stopped: a client that takes bytes all the time
    may take as long as it wants for a large answer. Whoever makes one stops it no later than when the connection is
    lost.
    """

    __slots__ = ("_every_s", "_left", "_loop", "_still", "_timer", "_transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, stall_s: float) -> None:
        self._loop = loop
        self._transport = transport
        self._every_s = (stall_s + MARGIN_S) / LOOKS
        self._left = transport.get_write_buffer_size()
        self._still = 0
        self._timer = loop.call_later(self._every_s, self._look)

    def stop(self) -> None:
        """The client has caught up, or is gone."""
        self._timer.cancel()

    def _look(self) -> None:
        left = self._transport.get_write_buffer_size()
        self._still = self._still + 1 if left == self._left else 0
        self._left = left
        if self._still < LOOKS:
            self._timer = self._loop.call_later(self._every_s, self._look)
            return
        # Not `reset`: a transport that waits for its buffer is closing, but its socket is still open.
        set_reset_on_close(self._transport)
        self._transport.abort()
