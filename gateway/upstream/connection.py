"""aiohttp's connection, made to let go at once and never to be used again after a doubt.

The stock client waits for its write buffer before it closes a socket, takes a reset for the proper end of a body that
has no length, and hands out pooled connections on which bytes came that nobody asked for. The classes here change
that, and send our requests without its client session. They lean on a few private names of aiohttp 3.14, and the tests
hold each of them down.
"""

from __future__ import annotations

import asyncio
import functools
import os
import select
import socket
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, cast

from aiohttp import (
    ClientPayloadError,
    ClientRequest,
    ClientTimeout,
    ConnectionTimeoutError,
    ServerDisconnectedError,
    TCPConnector,
)
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader

from gateway.sockets import set_reset_on_close

if sys.platform != "win32":
    import fcntl
    import termios

# In one go; the event loops take up to 256 KiB, and all of it is held as long as the client does not read. A live event
# has some 300 bytes; of a flood, one receive more or less is nothing beside the work on what it brings.
MAX_LAST_READS = 4  # of a socket that failed: an error body of 64 KiB is looked at, and no more of it
RECEIVE_BYTES = 16_384
SLICE_BYTES = 65536  # asyncio's default high-water mark for writing: more in one write only fills its buffer
MAX_INTERIM = 8  # 1xx heads before an answer; servers send one or two, and nobody waits through a flood of them
LISTEN_TURNS = 2  # a loop asks its sockets after it has run what was ready, and runs what they bring in the next turn

_NO_TIMEOUT = ClientTimeout(total=None)
_dials: ContextVar[bool] = ContextVar("dials", default=False)  # of a task that connects: whether it has got its slot
_NO_OPTIONS: Mapping[str, Any] = {}
_NOTHING = memoryview(b"")


class NoSlot(ConnectionTimeoutError):
    """All connections that our limit allows were in use all the time."""


class Wire(ResponseHandler):
    """One connection to a provider."""

    has_heard = False  # whether a byte has come since the request under way was sent
    _interim = 0
    _unsent = _NOTHING  # of the request under way
    _on_sent: Callable[[], None]  # while there is anything unsent
    was_used = False  # whether it has carried a request before the one under way

    def __init__(self, loop: asyncio.AbstractEventLoop, parsing: Mapping[str, Any], inbox: memoryview) -> None:
        super().__init__(loop)
        self._parsing = parsing  # bounds for the parser of answers
        self._inbox = inbox

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        cast(asyncio.Transport, transport).set_protocol(Receiver(self, self._inbox))
        self._has_sent = _listener(cast(asyncio.Transport, transport))
        # TLS transports would take half a MiB, and write it without a look at what the peer has to say.
        cast(asyncio.Transport, transport).set_write_buffer_limits(high=SLICE_BYTES)

    def ask(self, head: bytes, body: bytes, on_sent: Callable[[], None]) -> None:
        """Send a request now; what the peer does not take at once follows as it does, while its answer is read.

        *on_sent* is called right before the last of it goes to the kernel: the peer may be at work before that call
        returns, and should the process be killed in it, nobody would know that it had been asked.
        """
        transport = self.transport
        assert transport is not None
        self.has_heard = False
        self.set_response_params(read_until_eof=True, auto_decompress=False, **self._parsing)
        if len(body) <= SLICE_BYTES:
            on_sent()
            transport.write(head + body)
            return
        self._unsent, self._on_sent = memoryview(body), on_sent
        transport.write(head)
        self._send()

    def data_received(self, data: bytes) -> None:
        self.has_heard = True
        super().data_received(data)

    async def answer(self) -> tuple[RawResponseMessage, StreamReader]:
        """The head of the answer, and its body to come; heads with 1xx are skipped. Resumable.

        Raises:
            HttpProcessingError: What came is no head.
            ClientConnectionError: None came.
        """
        while True:
            message, content = await self.read()
            if not 100 <= message.code < 200 or message.code == 101:
                return message, content

    @property
    def is_sending(self) -> bool:
        """Whether the request under way has not been sent whole."""
        return bool(self._unsent)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._send()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Only what was paused: the library calls this for every read, and each time parses nothing."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def _send(self, turns: int = LISTEN_TURNS) -> None:
        """Write until the transport has enough; it asks for more by `resume_writing`.

        Before every slice the loop may take what the peer has sent, if it has: one that refuses a request early closes
        at once, a write that fails would throw the refusal away unread, and all we could tell is a reset.
        """
        while self._unsent and not self._paused:
            transport = self.transport
            if transport is None or transport.is_closing():
                return
            if turns and self._has_sent():
                self._loop.call_soon(self._send, turns - 1)
                return
            data, self._unsent = self._unsent[:SLICE_BYTES], self._unsent[SLICE_BYTES:]
            turns = LISTEN_TURNS
            if not self._unsent:
                self._on_sent()
                self._unsent = _NOTHING  # even an empty view would keep the body for as long as the connection lives
                del self._on_sent
            transport.write(data)

    def close(self) -> None:
        """Close the socket in this turn of the loop, whatever is still to be written.

        A FIN queues behind the bytes before it, so a peer that does not read would never see one: as long as anything
        is unsent or unacknowledged it gets a reset instead. Otherwise a FIN, which TCP repeats until it has arrived.
        """
        transport = self.transport
        if transport is not None:
            if _is_unsent(transport):
                set_reset_on_close(transport)
            else:
                _send_fin(transport)
        self.abort()

    def is_connected(self) -> bool:
        """Whether it is open, and no byte has come since the last answer ended, as far as the loop has read."""
        return super().is_connected() and not (self._buffer or self._tail or self._exception is not None)

    def rest(self) -> None:
        """Between two exchanges: without a parser, whatever arrives stays visible to `is_connected`."""
        self._parser = None
        self.was_used = True

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Take a head, unless it is one 1xx too many: the library skips any number of them."""
        if self._exception is not None:
            return  # it came in one piece with those
        interim = data[0].code < 200
        self._interim = self._interim + 1 if interim else 0
        if self._interim <= MAX_INTERIM:
            super().feed_data(data, size)
            return
        self.set_exception(HttpProcessingError(message=f"more than {MAX_INTERIM} interim answers"))
        if self.transport is not None:
            self.transport.abort()

    def is_fit(self) -> bool:
        """Whether the connection may serve a request: as `is_connected`, but a used one as far as the kernel has got.

        A provider drops idle connections when it likes, and a request that meets its FIN is lost; what it sends without
        having been asked would be taken for the answer to the request that comes next.
        """
        return self.is_connected() and not (self.was_used and self._has_sent())

    def is_new(self) -> bool:
        """Whether it has carried no request yet and may carry one."""
        return not self.was_used and self.is_connected()

    def doubt(self) -> Exception:
        """Why a connection that is not fit is not."""
        if self._tail:
            return HttpProcessingError(message="an answer before the request")
        return ServerDisconnectedError()

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """Fail the answer's body too: a parse error inside it would otherwise leave the reader waiting for ever."""
        payload = self._payload
        super().set_exception(exc, *cause)
        if isinstance(exc, HttpProcessingError) and payload is not None and not payload.is_eof():
            payload.set_exception(_broken_body(cause[0] if cause else exc))

    def _read_last(self) -> None:
        """Take what the kernel still has: a loop whose write fails gives up the socket with an answer unread in it."""
        transport = self.transport
        if transport is None or transport.get_extra_info("sslcontext") is not None:
            return  # under TLS only its own layer could read it
        sock = _socket_of(transport)
        if sock is None:
            return
        try:
            for _ in range(MAX_LAST_READS):
                if not (data := os.read(sock.fileno(), RECEIVE_BYTES)):
                    break
                self.data_received(data)
        except (OSError, ValueError):  # there is no more, or the socket is closed already
            pass

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell a reset from an end: stock aiohttp ends a body without length normally on either."""
        if exc is not None:
            self._read_last()
        payload = self._payload
        if payload is None or payload.is_eof():
            super().connection_lost(exc)
            return
        broken = payload.exception()
        if broken is None and exc is not None:
            broken = _broken_body(exc)
            payload.set_exception(broken)  # before the parser feeds its end of file: a waiting reader gets this
        super().connection_lost(exc)
        if broken is not None:
            payload.set_exception(broken)  # a later reader gets it too, not the parser's complaint about the length


class Receiver(asyncio.BufferedProtocol):
    """
    Between the transport and its `Wire`, so that one receive brings no more than *inbox* has room for.

    The library's protocols take what the event loop has read, however much it is; only a protocol with a buffer of its
    own has a say in that. What is in it is copied out before the next connection gets it.
    """

    __slots__ = ("_inbox", "_wire")

    def __init__(self, wire: Wire, inbox: memoryview) -> None:
        self._wire = wire
        self._inbox = inbox

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._inbox

    def buffer_updated(self, nbytes: int) -> None:
        self._wire.data_received(bytes(self._inbox[:nbytes]))

    def eof_received(self) -> None:
        self._wire.eof_received()

    def pause_writing(self) -> None:
        self._wire.pause_writing()

    def resume_writing(self) -> None:
        self._wire.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wire.connection_lost(exc)


class Connector(TCPConnector):
    """
    Makes `Wire`s, and keeps to a limit of them. The pool that it is as well serves the library's session, and those who
    wait because of the limit.

    Args:
        parsing: Bounds for the parser of answers, in the words of aiohttp's `ResponseHandler.set_response_params`.
        options: Those of `TCPConnector`.
    """

    def __init__(self, parsing: Mapping[str, Any] = _NO_OPTIONS, **options: Any) -> None:
        super().__init__(**options)
        make_wire: Callable[..., ResponseHandler] = Wire
        inbox = memoryview(bytearray(RECEIVE_BYTES))  # one for all: it is empty again before the loop goes on
        self._factory = functools.partial(make_wire, self._loop, parsing, inbox)

    def is_waited_for(self, key: ConnectionKey) -> bool:
        """Whether somebody waits for a connection with *key*, because there may be no more of them."""
        return bool(self._waiters) and bool(self._waiters.get(key))

    def lend(self, key: ConnectionKey, wire: Wire) -> Connection:
        """*wire*, which was taken back before, for one request more."""
        return Connection(self, key, wire, self._loop)

    def take_back(self, connection: Connection) -> Wire:
        """The wire of *connection*, which is of no use to its holders any more. It still counts for the limit."""
        wire = wire_of(connection)
        connection._protocol = None
        return wire

    def drop(self, key: ConnectionKey, wire: Wire) -> None:
        """Close *wire*, which was taken back before."""
        self._release(key, wire, should_close=True)

    async def dial(self, request: ClientRequest, usable: Callable[[Wire], bool], within_s: float) -> Connection:
        """A connection for *request* that is *usable*: a new one, or where one had to be waited for also a used one.

        Raises:
            ClientConnectionError: There is none to be had.
            HttpProcessingError: A new one began to speak by itself.
        """
        try:
            async with asyncio.timeout(within_s):
                while True:
                    connection = await self.connect(request, [], _NO_TIMEOUT)
                    wire = wire_of(connection)
                    if usable(wire):
                        return connection
                    doubt = None if wire.was_used else wire.doubt()
                    connection.close()
                    if doubt is not None:
                        raise doubt
        except TimeoutError as exc:
            error = ConnectionTimeoutError if _dials.get() else NoSlot
            raise error(f"no connection to {request.url.host}") from exc

    async def _create_connection(self, *args: Any) -> ResponseHandler:
        _dials.set(True)
        return await super()._create_connection(*args)

    def _release(self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        super()._release(key, protocol, should_close=should_close)
        if isinstance(protocol, Wire):
            protocol.rest()


def wire_of(connection: Connection) -> Wire:
    """The wire of an open *connection* that came from a `Connector`."""
    wire = connection.protocol
    assert isinstance(wire, Wire)
    return wire


def _broken_body(cause: BaseException) -> ClientPayloadError:
    error = ClientPayloadError(f"the body broke off: {cause!r}")
    error.__cause__ = cause
    return error


def _socket_of(transport: asyncio.Transport) -> socket.socket | None:
    """None when it is gone: a TLS transport forgets it some turns before it tells that the connection is lost."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    return sock


def _is_unsent(transport: asyncio.Transport) -> bool:
    if transport.get_write_buffer_size():
        return True
    if sys.platform == "win32":
        return True  # the kernel's queue cannot be asked there
    sock = _socket_of(transport)
    if sock is None:
        return False
    try:
        queued: bytes = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    except (OSError, ValueError):  # the socket is closed already
        return False
    return queued != b"\0\0\0\0"


def _listener(transport: asyncio.Transport) -> Callable[[], bool]:
    """Tells, while *transport* is open, whether there is something to read, or the peer is gone."""
    sock = _socket_of(transport)
    if sys.platform == "win32" or sock is None:
        return lambda: False  # there is no `poll`, and received bytes are thrown away there when a reset comes
    poller = select.poll()
    poller.register(sock.fileno(), select.POLLIN)
    poll = poller.poll
    return lambda: bool(poll(0))


def _send_fin(transport: asyncio.Transport) -> None:
    """Say goodbye now: the loop closes the socket only after it has run everything that is ready."""
    sock = _socket_of(transport)
    if sock is None:
        return
    try:
        with socket.fromfd(sock.fileno(), sock.family, sock.type) as twin:  # uvloop's socket has no shutdown
            twin.shutdown(socket.SHUT_WR)
    except OSError:  # the socket is closed already, or the peer has closed it
        pass
