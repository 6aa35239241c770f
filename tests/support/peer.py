"""One TCP connection as a test sees it: what came, what left, and when and how the other side went away."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

How = Literal["fin", "rst", "ours"]

_LINGER_ZERO = struct.pack("ii", 1, 0)  # on, 0 s: close() drops what is queued and sends RST instead of FIN


@dataclass(frozen=True, slots=True)
class Closed:
    """The end of a connection: monotonic seconds, and who ended it how ("ours": this side did)."""

    when_s: float
    how: How


class Peer(asyncio.Protocol):
    """A connection that always reads, so that the end of it is noticed whatever the test is waiting for.

    The kernel answers a close over unread bytes with RST; "rst" therefore also means "closed without reading all".

    Attributes:
        closed: Done as soon as the connection is over. Await it through `gone`, which cannot cancel it.
        opened_s: Monotonic seconds when the connection was made.
    """

    def __init__(self, on_open: Callable[[Peer], None] | None = None) -> None:
        self.closed: asyncio.Future[Closed] = asyncio.get_running_loop().create_future()
        self.opened_s = 0.0
        self._on_open = on_open
        self._inbox = bytearray()
        self._news = asyncio.Event()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self._lost = asyncio.Event()
        self._written = 0
        self._transport: asyncio.Transport | None = None

    @property
    def transport(self) -> asyncio.Transport:
        """The transport; only after the connection was made."""
        if self._transport is None:
            raise RuntimeError("not connected")
        return self._transport

    @property
    def port(self) -> int:
        """The local port."""
        return int(self.transport.get_extra_info("sockname")[1])

    @property
    def sent_bytes(self) -> int:
        """How many bytes the kernel has taken."""
        return self._written - self.transport.get_write_buffer_size()

    # -- asyncio.Protocol --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # create_connection and create_server give no other
        self._transport.set_write_buffer_limits(high=0)  # "flushed" means: the kernel has it
        self.opened_s = time.monotonic()
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        self._inbox += data
        self._news.set()

    def eof_received(self) -> None:
        self._close("fin")

    def connection_lost(self, exc: Exception | None) -> None:
        # A write that meets a FIN and then its RST fails with EPIPE, one that meets a bare RST with ECONNRESET.
        self._close("rst" if isinstance(exc, ConnectionResetError) else "fin")
        self._flushed.set()
        self._lost.set()

    def pause_writing(self) -> None:
        self._flushed.clear()

    def resume_writing(self) -> None:
        self._flushed.set()

    def _close(self, how: How) -> None:
        if not self.closed.done():
            self.closed.set_result(Closed(time.monotonic(), how))
        self._news.set()

    # -- for tests --

    async def receive(self) -> bytes:
        """All bytes that came since the last call, waiting for some; b"" when the connection is over."""
        while not self._inbox and not self.closed.done():
            self._news.clear()
            await self._news.wait()
        data = bytes(self._inbox)
        self._inbox.clear()
        return data

    async def send(self, data: bytes) -> None:
        """Write *data* and wait until the kernel has all of it.

        Raises:
            ConnectionError: The connection is over.
        """
        self._raise_if_closed()
        self._written += len(data)
        self.transport.write(data)
        await self._flushed.wait()
        self._raise_if_closed()

    def _raise_if_closed(self) -> None:
        if self.closed.done():
            raise ConnectionError(f"connection is over ({self.closed.result().how})")

    async def gone(self, within_s: float = 5.0) -> Closed:
        """The end of the connection.

        Raises:
            TimeoutError: It is still open after *within_s*.
        """
        async with asyncio.timeout(within_s):
            return await asyncio.shield(self.closed)

    def fin(self) -> float:
        """Close in the ordinary way; what was written still leaves. Returns the monotonic second."""
        self._close("ours")
        self.transport.close()
        return time.monotonic()

    def rst(self) -> float:
        """Drop the connection with a reset. Returns the monotonic second."""
        self._close("ours")
        if not self._lost.is_set():
            sock: socket.socket = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
            self.transport.abort()
        return time.monotonic()

    def half_close(self) -> None:
        """Send FIN and go on reading."""
        self.transport.write_eof()

    def pause(self) -> None:
        """Stop reading. The end of the connection is not noticed until `resume`."""
        self.transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        self.transport.resume_reading()

    async def dispose(self) -> None:
        """Close whatever is left and wait until the socket is free."""
        if not self._lost.is_set():
            self._close("ours")
            self.transport.abort()
        await self._lost.wait()
