"""One connection: deadlines, bounded buffers, and our own answers to what the framework would answer itself."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web
from aiohttp.http import StreamWriter
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import ERROR, RequestHandler, RequestPayloadError, _ErrInfo

from gateway.core.errors import INTERNAL_ERROR, GatewayError
from gateway.http.errors import error_response
from gateway.http.overload import MAX_TURNED_AWAY, TurnedAway
from gateway.http.refusals import HEADER_TIMEOUT, HEADERS_TOO_LONG, Refused, peeked_path, refusal_of
from gateway.http.segments import EMPTY_LINE, Request, behind_chunks, behind_requests
from gateway.http.stalls import StallWatch, forget_vanished, reset

if TYPE_CHECKING:
    from gateway.http.server import GatewayServer

PEEK_BYTES = 64  # of an unfinished head: enough for the longest method and the prefix that picks the envelope

# What the framework logs quotes requests: it has no way out but the two callbacks of the server.
_SILENT = logging.Logger("gateway.http.silent")
_SILENT.disabled = True

REQUEST_ID = "request_id"  # where a handler that crashes leaves the id that its exchange was settled with


class GatewayProtocol(RequestHandler):
    """
    The framework's request handler with deadlines and with every answer in our envelope.

    One timer serves what is read, the framework's keep-alive timer. It is re-armed only when it fires or when a head
    arrives in pieces, so a request that comes whole costs no timer at all. Another one runs while the client takes less
    than we write: whatever the answer is, and whether or not the connection is being closed behind it.

    Attributes:
        came_s: Monotonic seconds when the request under way was here; from then on it is our time.
    """

    __slots__ = (
        "_broken",
        "_chunked",
        "_head",
        "_head_due_s",
        "_idle",
        "_leave",
        "_payload",
        "_server",
        "_stall",
        "came_s",
    )

    def __init__(self, server: GatewayServer, loop: asyncio.AbstractEventLoop, options: dict[str, Any]) -> None:
        super().__init__(server, loop=loop, logger=_SILENT, **options)
        self._server = server
        self.came_s = 0.0
        self._idle: asyncio.Future[None] | None = None  # while it waits for a request to come
        self._broken = False  # nothing that the client still sends is looked at
        self._head = b""  # what the parser has got and not told of: the head that is arriving
        self._head_due_s = 0.0  # loop time by which it must be whole; 0 when none is arriving
        self._payload: StreamReader = EMPTY_PAYLOAD  # body of the newest request
        self._chunked = False  # how that body is framed
        self._leave: Callable[[], None] | None = None  # while a request is under way
        self._stall: StallWatch | None = None  # while the client owes us reading

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        real = cast(asyncio.Transport, transport)
        server = self._server
        if server.is_full:
            self._turn_away(real)
            return
        super().connection_made(transport)
        real.set_write_buffer_limits(high=server.limits.write_buffer_bytes)
        forget_vanished(real, server.limits.write_stall_s)
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

    def on_leave(self, leave: Callable[[], None]) -> None:
        """Have *leave* called when the client goes before the request under way is answered."""
        self._leave = leave
        if self._buffer_paused and self._stop_listening():  # so much came in one piece with this very request
            self._resume_reading_for_buffer()

    def eof_received(self) -> None:
        """The client has closed: what is done for it ends here and now, not some turns of a busy loop later."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()
            if self._task_handler is not None:
                self._task_handler.cancel()

    def connection_lost(self, exc: BaseException | None) -> None:
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()
        super().connection_lost(exc)
        self._stop_watching()
        # Both know this object; without them nothing is left for the garbage collector, which would stop the loop.
        self._keepalive_handle, self._payload = None, EMPTY_PAYLOAD

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.transport is not None:
            self._watch_writing(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.transport is not None and not self.transport.is_closing():
            self._stop_watching()  # a connection that is being closed stays watched to its last byte

    def _watch_writing(self, transport: asyncio.Transport) -> None:
        if self._stall is None and transport.get_write_buffer_size():
            self._stall = StallWatch(self._loop, transport, self._server.limits.write_stall_s)

    def _stop_watching(self) -> None:
        if self._stall is not None:
            self._stall.stop()
            self._stall = None

    def data_received(self, data: bytes) -> None:
        if self._broken:
            return  # the parser would report its error again for every further segment
        seen, body = self._request_count, self._payload
        had, was_chunked = -1 if body.is_eof() else body.total_bytes, self._chunked
        try:
            super().data_received(data)
        except Exception as error:
            # The parser is fed by strangers: whatever it raises is a bad request, and must not reach the loop's log.
            self._reject(error)
            return
        if self._close or self._force_close:
            return
        held = self._head + data if self._head else data
        fresh = self._request_count - seen
        if fresh:
            self._wake()
            message, payload = newest = self._messages[-1]
            if isinstance(message, _ErrInfo):
                self._messages.pop()
                self._head = held
                self._reject(message.exc)
                return
            self._payload, self._chunked = payload, message.chunked
        if fresh == 1 and had < 0 and held.find(EMPTY_LINE) + 4 + payload.total_bytes == len(held):
            held = b""  # nearly always: one request and no more
        else:
            if had >= 0:
                read, whole = body.total_bytes - had, body.is_eof()
                held = behind_chunks(held, is_whole=whole) if was_chunked else held[read:]
            if fresh:
                requests = (newest,) if fresh == 1 else list(self._messages)[-fresh:]
                held = behind_requests(held, cast("Sequence[Request]", requests))
        if fresh or had >= 0:
            self._head_due_s = 0.0
        if self._upgraded:
            # Nothing here speaks another protocol: the request is answered, what follows it is not HTTP to be trusted.
            self._close = True
            self._message_tail = self._head = b""
            return
        if held:
            self._keep(held)
        else:
            self._head = held

    def _keep(self, held: bytes) -> None:
        """*held* is with the parser: of a body, of requests for which there is no room yet, or of the next head."""
        if not self._payload.is_eof() or len(self._messages) >= self._max_msg_queue_size:
            self._head = held
            return
        self._head = held if self._head_due_s else held.lstrip(b"\r\n")
        if self._head:
            self._head_grew()

    def pause_reading(self) -> None:
        if not self._stop_listening():
            super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Only what was paused: the framework calls this for every read, and each time parses nothing."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

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

    def _head_grew(self) -> None:
        limits = self._server.limits
        if not self._head_due_s:
            self._head_due_s = self._loop.time() + limits.header_s
            self._arm(self._head_due_s)
        if len(self._head) > limits.max_head_bytes:
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
        self._wake()

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
        if self._idle is None:
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
        super().close()
        if self._idle is not None:
            self.force_close()

    def force_close(self) -> None:
        """Close; the framework would wait for ever for what is left to write."""
        transport = self.transport
        super().force_close()
        if self._idle is not None:
            self._idle.cancel()
        if transport is not None:
            self._watch_writing(transport)

    async def start(self) -> None:
        """
        Serve the connection, one request after the other; the end of it is watched like every other close.

        The framework runs every request in a task of its own. Here it runs in the connection's: nothing of ours needs a
        context of its own, and it saves two turns of the loop and some 3 % of a request's CPU.
        """
        while not self._force_close:
            await self._take_turn()
            await self._serve_next()
            if self._close or self._force_close or not self._keepalive:
                break
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
            if self._keepalive_handle is None:
                self._arm(self._next_keepalive_close_time)
        if self.transport is not None:
            self._task_handler = None  # nobody is to cancel it any more
            self.transport.close()
            self._watch_writing(self.transport)

    async def _take_turn(self) -> None:
        """Wait for the next request, and for its turn."""
        turnstile, place = self._server.turnstile, self._loop.create_future()
        if self._messages:
            self.came_s = turnstile.let_in(place)
        else:
            self._idle = place
        try:
            await place
        finally:
            self._idle = None
        turnstile.begin()

    def _wake(self) -> None:
        """A request is here: it begins when its turn comes. From now on the connection is not idle any more."""
        idle, self._idle = self._idle, None
        if idle is not None and not idle.done():
            self.came_s = self._server.turnstile.let_in(idle)

    async def _serve_next(self) -> None:
        """Take the next message and answer it; what goes wrong past every handler closes the connection."""
        server, (message, payload) = self._server, self._messages.popleft()
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()
        server.requests_count += 1
        if isinstance(message, _ErrInfo):
            handler, message = self._make_error_handler(message), ERROR
        else:
            handler = server.request_handler
        assert self._task_handler is not None  # the connection stands: its end would have cancelled this very task
        request = server.request_factory(message, payload, self, StreamWriter(self, self._loop), self._task_handler)
        try:
            response, is_lost = await self._handle_request(request, None, handler)
            self._keepalive = bool(response.keep_alive) and not is_lost
            if not is_lost and not payload.is_eof():
                await self._read_away(payload)
        except ConnectionError:
            self._keepalive = False
        except asyncio.CancelledError:
            self.force_close()
            raise
        except Exception as error:
            self.log_exception(exc_info=error)
            self.force_close()
        finally:
            request._task = None  # type: ignore[assignment]  # the task holds this frame, and the frame the request

    async def _read_away(self, payload: StreamReader) -> None:
        """What is left of a request that was answered before it was read; it ends the connection if there is much."""
        try:
            async with asyncio.timeout(self._lingering_time):
                while not payload.is_eof() and not self._force_close:
                    await payload.readany()
        except TimeoutError:
            self.close()

    def _make_error_handler(self, err_info: _ErrInfo) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        refusal = refusal_of(err_info.exc)

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            self._broken = True
            server = self._server
            request_id = server.new_request_id()
            server.on_bad_request(refusal.reason, refusal.kind.status, request_id)
            path = peeked_path(self._head[:PEEK_BYTES])
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
        self._leave = None
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


def connection_of(request: web.BaseRequest) -> GatewayProtocol:
    """The connection that *request* came by."""
    return cast(GatewayProtocol, request.protocol)  # the server makes no others
