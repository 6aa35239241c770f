"""One connection: deadlines, bounded buffers, and our own answers to what the framework would answer itself."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web
from aiohttp.http import StreamWriter
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError, _ErrInfo

from gateway.core.errors import INTERNAL_ERROR, GatewayError
from gateway.http.errors import error_response
from gateway.http.overload import MAX_TURNED_AWAY, TurnedAway
from gateway.http.refusals import HEADER_TIMEOUT, HEADERS_TOO_LONG, Refused, peeked_path, refusal_of

if TYPE_CHECKING:
    from gateway.http.server import GatewayServer

PEEK_BYTES = 64  # of an unfinished head: enough for the longest method and the prefix that picks the envelope

# What the framework logs quotes requests: it has no way out but the two callbacks of the server.
_SILENT = logging.Logger("gateway.http.silent")
_SILENT.disabled = True

_NO_LINGER = struct.pack("ii", 1, 0)  # on, 0 s: closing sends RST, for only a reset cannot pass for a proper end


def reset(transport: asyncio.Transport) -> None:
    """Drop the connection with a TCP reset, whatever is still buffered."""
    sock = transport.get_extra_info("socket")
    if sock is not None and not transport.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()

REQUEST_ID = "request_id"  # where a handler that crashes leaves the id that its exchange was settled with


class GatewayProtocol(RequestHandler):
    """
    The framework's request handler with deadlines and with every answer in our envelope.

    One timer serves the connection, the framework's keep-alive timer. It is re-armed only when it fires or when a head
    arrives in pieces, so a request that comes whole costs no timer at all.
    """

    __slots__ = ("_broken", "_head", "_head_bytes", "_head_due_s", "_payload", "_server")

    def __init__(self, server: GatewayServer, loop: asyncio.AbstractEventLoop, options: dict[str, Any]) -> None:
        super().__init__(server, loop=loop, logger=_SILENT, **options)
        self._server = server
        self._broken = False  # nothing that the client still sends is looked at
        self._head = b""  # first bytes of the head that is arriving
        self._head_bytes = 0
        self._head_due_s = 0.0  # loop time by which it must be whole; 0 when none is arriving
        self._payload: StreamReader = EMPTY_PAYLOAD  # body of the newest request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        real = cast(asyncio.Transport, transport)
        server = self._server
        if server.is_full:
            self._turn_away(real)
            return
        super().connection_made(transport)
        real.set_write_buffer_limits(high=server.limits.write_buffer_bytes)
        self._next_keepalive_close_time = self._loop.time() + server.limits.first_byte_s
        self._arm(self._next_keepalive_close_time)

    def _turn_away(self, transport: asyncio.Transport) -> None:
        waiting = self._server.turned_away
        if len(waiting) >= MAX_TURNED_AWAY:
            transport.abort()
            return
        protocol = TurnedAway(self._server, transport)
        waiting.add(protocol)
        transport.set_protocol(protocol)

    def data_received(self, data: bytes) -> None:
        if self._broken:
            return  # the parser would report its error again for every further segment
        seen = self._request_count
        try:
            super().data_received(data)
        except Exception as error:
            # The parser is fed by strangers: whatever it raises is a bad request, and must not reach the loop's log.
            self._reject(error)
            return
        if self._request_count == seen:
            if data and not self._close and self._payload.is_eof():
                self._head_grew(data)
            return
        message, payload = self._messages[-1]
        if isinstance(message, _ErrInfo):
            del self._messages[-1]
            self._head = (self._head + data[:PEEK_BYTES])[:PEEK_BYTES]
            self._reject(message.exc)
            return
        self._payload = payload
        self._head_due_s = 0.0
        self._head = b""
        if self._upgraded:
            # Nothing here speaks another protocol: the request is answered, what follows it is not HTTP to be trusted.
            self._close = True
            self._message_tail = b""

    def pause_reading(self) -> None:
        if not self._stop_listening():
            super().pause_reading()

    def _pause_reading_for_buffer(self) -> None:
        if not self._stop_listening():
            super()._pause_reading_for_buffer()

    def _stop_listening(self) -> bool:
        """
        Drop what a client sends in advance, in such amounts that it would have to wait, while a whole request is being
        answered: reading must go on, for a paused transport does not notice that the client leaves. The connection ends
        with that answer, and the client knows what was not answered.
        """
        request = self._current_request
        if request is None or not request.content.is_eof():
            return False
        self._broken = self._close = True
        return True

    def _head_grew(self, data: bytes) -> None:
        limits = self._server.limits
        if not self._head_due_s:
            self._head_due_s = self._loop.time() + limits.header_s
            self._head_bytes = 0
            self._arm(self._head_due_s)
        if len(self._head) < PEEK_BYTES:
            self._head = (self._head + data[:PEEK_BYTES])[:PEEK_BYTES]
        self._head_bytes += len(data)
        if self._head_bytes > limits.max_head_bytes:
            self._reject(Refused(HEADERS_TOO_LONG))

    def _reject(self, error: BaseException) -> None:
        """Stop reading; the error is answered in its turn, behind the requests that came whole before it."""
        self._broken = True
        if not self._payload.is_eof():
            # It broke inside a body: its reader is told and answers; a second answer would follow the first.
            self._close = True
            self._payload.set_exception(RequestPayloadError("broken body"))
            return
        self._messages.append((_ErrInfo(status=400, exc=error, message=""), EMPTY_PAYLOAD))
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _arm(self, when_s: float) -> None:
        if self._keepalive_handle is not None:
            self._keepalive_handle.cancel()
        self._keepalive_handle = self._loop.call_at(when_s, self._process_keepalive)

    def _process_keepalive(self) -> None:
        """The timer fired: for the first byte, a head, or the pause between requests. Silent unless a head is here."""
        self._keepalive_handle = None
        if self._force_close or self._broken:
            return
        now_s = self._loop.time()
        if self._waiter is None or self._waiter.done():
            # A request runs and has deadlines of its own; the framework re-arms when it is answered. Half a head
            # pipelined behind it has no other timer: look again later.
            if self._head_due_s:
                self._arm(now_s + self._server.limits.header_s)
            return
        due_s = self._head_due_s or self._next_keepalive_close_time
        if now_s < due_s:
            self._arm(due_s)
        elif self._head_due_s:
            self._reject(Refused(HEADER_TIMEOUT))
        else:
            self.force_close()

    def close(self) -> None:
        """Finish what was asked and close; at once when nothing was (the framework leaves idle sockets open)."""
        idle = self._waiter is not None and not self._messages
        super().close()
        if idle:
            self.force_close()

    def _make_error_handler(self, err_info: _ErrInfo) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        refusal = refusal_of(err_info.exc)

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            self._broken = True
            server = self._server
            request_id = server.new_request_id()
            server.on_bad_request(refusal.reason, refusal.kind.status, request_id)
            path = peeked_path(self._head)
            response = error_response(path, GatewayError(refusal.kind), request_id)
            response.force_close()
            if self._head.startswith(b"HEAD "):
                response.body = None
            await response.prepare(request)
            await response.write_eof()
            await self._see_off()
            return response

        return answer

    async def _see_off(self) -> None:
        """Read away what the client still sends: closing on unread bytes is a reset, which takes the answer along.

        Ends early, by cancellation, when the client closes.
        """
        transport = self.transport
        if transport is not None and transport.can_write_eof():
            transport.write_eof()
        await asyncio.sleep(self._lingering_time)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """
        The answer to an exception of the handler; a `GatewayError` is rendered, everything else is a crash.

        Raises:
            ConnectionError: There is nobody to answer, or an answer had begun; it is cut so that it cannot pass for
                a whole one.
        """
        error = exc or sys.exc_info()[1] or RuntimeError(f"status {status} without an exception")
        transport = self.transport
        if isinstance(error, ConnectionError) and (transport is None or transport.is_closing()):
            raise error
        server = self._server
        request_id = request.get(REQUEST_ID) or server.new_request_id()
        if isinstance(error, GatewayError):
            server.on_bad_request(error.kind.code, error.kind.status, request_id)
        else:
            server.on_crash(request_id, error)
            error = GatewayError(INTERNAL_ERROR)
        writer = request.writer
        if writer.output_size > 0:
            if transport is not None:
                reset(transport)
            raise ConnectionResetError("the answer had begun")
        if isinstance(writer, StreamWriter):
            writer.chunked = False  # left behind by a head that could not be sent
        response = error_response(request.raw_path, error, request_id)
        if error.kind is INTERNAL_ERROR:
            response.force_close()
        return response

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send *resp*; what cannot be sent (no response at all, a header with a line break) is a crash, answered."""
        try:
            # Not isinstance: responses are abstract mappings, which makes it the dearest line of a request.
            if not hasattr(resp, "prepare") or hasattr(resp, "__http_exception__"):
                raise TypeError(f"the handler answered with {type(resp).__name__}")
            return await super().finish_response(request, resp, start_time)
        except Exception as error:
            # Outermost place of an exchange: past it the framework drops the connection without a word.
            response = self.handle_error(request, 500, error)
            return await super().finish_response(request, response, start_time)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """What the framework has no answer for goes to the crash callback, unless a client's broken body caused it."""
        error = kw.get("exc_info")
        if isinstance(error, BaseException) and not isinstance(error, RequestPayloadError):
            self._server.on_crash(self._server.new_request_id(), error)
