"""Where frames leave: the client's side of an exchange."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion11
from aiohttp_sse import EventSourceResponse

from gateway.http.answer_headers import Headers
from gateway.http.protocol import GatewayProtocol

CONTENT_TYPE = "text/event-stream; charset=utf-8"


class FrameResponse(EventSourceResponse):
    """
    An event stream that sends bytes as given; the head leaves together with the first of them.

    The base's ping is left out: it runs in a task of its own and could land inside a frame. Its deadline for
    unacknowledged data is the connection's here, set once (`GatewayProtocol.connection_made`).
    """

    _send_headers_immediately = False  # a second packet, and a second system call, for every stream

    def __init__(self, headers: Headers) -> None:
        super().__init__(allow_all_methods=True, send_timeout=None)
        self.headers["Content-Type"] = CONTENT_TYPE
        for name, value in headers:
            self.headers[name] = value

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        if self.prepared:
            return self._payload_writer
        if request.version < HttpVersion11 or not request.keep_alive:
            # Below 1.1 there are no chunks: the end of the stream is the connection's, whatever the client wished.
            self.force_close()
            self.headers["Connection"] = "close"  # the base promises the contrary
        return await web.StreamResponse.prepare(self, request)


class StreamSink:
    """Implements the pipeline's `Sink` on an aiohttp request."""

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self._protocol = cast(GatewayProtocol, request.protocol)  # the server makes no others
        self._writer: AbstractStreamWriter | None = None
        self.response: FrameResponse | None = None

    def on_leave(self, leave: Callable[[], None]) -> None:
        """Have *leave* called in the very moment in which the client is seen to be gone; the newest one counts."""
        self._protocol.on_leave(leave)

    @property
    def committed(self) -> bool:
        """Whether the 200 is settled: it leaves with the next bytes."""
        return self._writer is not None

    @property
    def blocked(self) -> bool:
        """Whether the client reads slower than we write."""
        return self._protocol.writing_paused

    async def open(self, headers: Headers) -> None:
        """Commit the 200. The head leaves together with the first bytes of the body."""
        self.response = FrameResponse(headers)
        self._writer = await self.response.prepare(self._request)

    def write(self, data: bytes) -> Awaitable[None]:
        """Hand over whole frames in one piece, without waiting for a slow client."""
        assert self._writer is not None
        # Once per frame, so the framework's coroutine is handed on instead of being awaited in one of ours.
        return self._writer.write(data, drain=False)  # type: ignore[call-arg]  # the base class does not name it

    async def drain(self) -> None:
        """Wait until the client has caught up."""
        assert self._writer is not None
        await self._writer.drain()

    async def close(self, data: bytes) -> None:
        """Hand over the last frames and end the body properly, in one piece; waits until the client has caught up."""
        assert self.response is not None
        await self.response.write_eof(data)

    def abort(self) -> None:
        """Drop the connection, so that the client cannot take the body for a whole one."""
        transport = self._request.transport
        if transport is not None:
            transport.abort()
