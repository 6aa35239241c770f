"""Where frames leave: the client's side of an exchange."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion11
from aiohttp_sse import EventSourceResponse

from gateway.http.answer_headers import Headers
from gateway.http.output import begin, head, may_stay, send
from gateway.http.protocol import connection_of
from gateway.http.stalls import reset

CONTENT_TYPE = "text/event-stream; charset=utf-8"


def _fixed_lines() -> str:
    """What every event stream says of itself, in the words of the library, but for the connection's future."""
    headers = EventSourceResponse().headers
    headers["Content-Type"] = CONTENT_TYPE
    del headers["Connection"]
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


_FIXED = _fixed_lines()
_CHUNKED = f"{_FIXED}Transfer-Encoding: chunked\r\n"


class FrameResponse(EventSourceResponse):
    """
    An event stream, as far as the framework has to know of it; its bytes leave through a `StreamSink`.

    What the base does more is left out: its ping runs in a task of its own and could land inside a frame, its deadline
    for unacknowledged data is the connection's here, set once (`GatewayProtocol.connection_made`), and its head would
    be a packet of its own, built anew for every stream.
    """

    def __init__(self, *, stays: bool) -> None:
        # The base class is deliberately not initialised, as in `JsonAnswer`. Nor is the sink known here: the two would
        # hold each other, and collecting what some 2,000 streams left behind took 30 ms of the loop's time.
        self.ended = False  # whether the end of the body has been written
        self._stays = stays

    @property
    def keep_alive(self) -> bool:
        """Whether the connection serves another request."""
        return self._stays

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        return request._payload_writer

    async def write_eof(self, data: bytes = b"") -> None:
        """All has been written. Raises ConnectionResetError when it has not: the stream was given up."""
        if not self.ended:
            raise ConnectionResetError("the stream was given up")


class StreamSink:
    """Implements the pipeline's `Sink` on an aiohttp request.

    Attributes:
        response: What the handler answers with; None until the 200 is committed.
    """

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self._protocol = connection_of(request)
        self._head = b""  # until it has left
        self._chunked = False
        self.response: FrameResponse | None = None

    def on_leave(self, leave: Callable[[], None]) -> None:
        """Have *leave* called in the very moment in which the client is seen to be gone; the newest one counts."""
        self._protocol.on_leave(leave)

    @property
    def committed(self) -> bool:
        """Whether the 200 is settled: it leaves with the next bytes."""
        return self.response is not None

    @property
    def blocked(self) -> bool:
        """Whether the client reads slower than we write."""
        return self._protocol.writing_paused

    def open(self, headers: Headers) -> None:
        """Commit the 200. The head leaves together with the first bytes of the body."""
        # Below 1.1 there are no chunks: the end of the stream is the connection's, whatever the client wished.
        self._chunked = self._request.version >= HttpVersion11
        stays = self._chunked and may_stay(self._request)
        self._head = head(200, _CHUNKED if self._chunked else _FIXED, headers, stays=stays)
        self.response = FrameResponse(stays=stays)

    def write(self, data: bytes) -> None:
        """Hand over whole frames in one piece, without waiting for a slow client. Raises ConnectionResetError."""
        self._send(_chunk(data) if self._chunked else data)

    async def drain(self) -> None:
        """Wait until the client has caught up."""
        await self._protocol._drain_helper()

    def close(self, data: bytes) -> None:
        """Hand over the last frames and end the body properly, in one piece. Raises ConnectionResetError."""
        self._send(_chunk(data) + b"0\r\n\r\n" if self._chunked else data)
        assert self.response is not None
        self.response.ended = True

    def _send(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
            begin(self._request, data)
        else:
            send(self._protocol, data)

    def abort(self) -> None:
        """Drop the connection, so that the client cannot take the body for a whole one."""
        transport = self._request.transport
        if transport is not None:
            reset(transport)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""  # an empty one would be the end
