"""The HTTP server: aiohttp's low-level server with our own protocol, limits and error answers.

There is no router and no middleware. The handler gets every request whose head could be parsed; everything that goes
wrong before, around or after it is answered by `GatewayProtocol`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion10, HttpVersion11, RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import ERROR, RequestHandler
from yarl import URL

from gateway.http.answer_headers import SERVER_NAME
from gateway.http.overload import TurnedAway
from gateway.http.protocol import GatewayProtocol
from gateway.http.turnstile import Turnstile

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

READ_BUFFER_BYTES = 32_768  # per connection; a body is handed on in pieces of at most twice this before reading pauses

_ROOT = URL("/")
# Answers to unreadable requests are HTTP/1.1 like all others; the framework would call them 1.0.
_UNREADABLE = ERROR._replace(version=HttpVersion11)


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Deadlines in seconds, sizes in bytes.

    Attributes:
        first_byte_s: A new connection may be silent this long.
        header_s: From the first byte of a request line to the end of its headers, however they drip in.
        keepalive_s: An idle connection between requests. Longer than the minute that load balancers commonly keep.
        lingering_s: How long a refused client's remaining bytes are read away, so that it sees the answer and no reset.
        max_line_bytes: Request target, and each header line; what the framework and nginx allow by default.
        max_headers: Header lines per request; the framework's own default.
        max_head_bytes: All of a head that arrives in pieces: what a stranger can make us hold.
        write_stall_s: A client that takes nothing of what is written to it is dropped, a second or so later than this:
            a stream has a deadline of its own, of the same length.
        write_buffer_bytes: High-water mark of a socket's write buffer; a reader that stops pins about this much.
        max_connections: Further connections are answered with 503.
    """

    first_byte_s: float = 5
    header_s: float = 10
    keepalive_s: float = 75
    lingering_s: float = 2
    write_stall_s: float = 30
    max_line_bytes: int = 8190
    max_headers: int = 128
    max_head_bytes: int = 65_536
    write_buffer_bytes: int = 16_384
    max_connections: int = 10_000


class GatewayRequest(web.BaseRequest):
    """A request whose answers carry our name, and end the connection when its body was left unread."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        headers = response.headers
        headers[hdrs.SERVER] = SERVER_NAME
        protocol = self._protocol
        if protocol._close or not self._payload.is_eof():
            response.force_close()
            headers[hdrs.CONNECTION] = "close"


class GatewayServer(web.Server):
    """Accepts connections for *handler*; pass it to `loop.create_server`. Needs a running loop.

    Args:
        turnstile: Where requests wait until they may begin.
        handler: Answers requests. It may raise `GatewayError`; anything else it raises is a crash.
        on_bad_request: Told once per refused request: our word for the reason, the status, and the request id that the
            client was given. Nothing of the request.
        on_crash: Told of every exception that is our fault: the request id the client was given, and the exception.
        new_request_id: Names the requests that never reached the handler.
    """

    def __init__(
        self,
        handler: Handler,
        limits: ServerLimits,
        turnstile: Turnstile,
        *,
        on_bad_request: Callable[[str, int, str], None],
        on_crash: Callable[[str, BaseException], None],
        new_request_id: Callable[[], str],
    ) -> None:
        super().__init__(
            handler,
            handler_cancellation=True,
            keepalive_timeout=limits.keepalive_s,
            lingering_time=limits.lingering_s,
            tcp_keepalive=True,
            max_line_size=limits.max_line_bytes,
            max_field_size=limits.max_line_bytes,
            max_headers=limits.max_headers,
            read_bufsize=READ_BUFFER_BYTES,
            auto_decompress=False,
            access_log=None,
        )
        self.limits = limits
        self.turnstile = turnstile
        self.on_bad_request = on_bad_request
        self.on_crash = on_crash
        self.new_request_id = new_request_id
        self.turned_away: set[TurnedAway] = set()

    def __call__(self) -> RequestHandler:
        return GatewayProtocol(self, self._loop, self._kwargs)

    @property
    def is_full(self) -> bool:
        """Whether one more connection would be too many."""
        return len(self._connections) >= self.limits.max_connections

    async def shutdown(self, timeout: float | None = None) -> None:
        for waiting in list(self.turned_away):
            waiting.abort()
        await super().shutdown(timeout)

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        if message is ERROR:
            message = _UNREADABLE
        elif message.version is not HttpVersion11 and message.version is not HttpVersion10:
            # The parser lets 0.9 and 2.0 through. Without a target `check_request` refuses it, and the answer is a 1.1.
            message = message._replace(version=HttpVersion11, path="", url=_ROOT, should_close=True)
        elif message.path[:1] != "/":
            # Absolute and authority targets name a host of the client's choice: never let the framework act on it.
            message = message._replace(url=_ROOT)
        return GatewayRequest(message, payload, protocol, writer, task, self._loop)
