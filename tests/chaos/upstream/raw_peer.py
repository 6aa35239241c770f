"""A provider made of bare sockets: it reads and writes exactly when the test says so, and sees how it is left."""

from __future__ import annotations

import asyncio
import select
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Any, Literal, Self

from gateway.aio import Tasks
from gateway.core.call import UpstreamRequest
from gateway.core.ports import UpstreamAnswer
from gateway.upstream.client import AiohttpUpstream, UpstreamLimits

LIMITS = UpstreamLimits(connect_s=0.5, dns_s=0.3)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
WAIT_S = 2.0  # no step of a test on loopback needs more; a test that runs into it has failed

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def request(url: str, body: bytes = b"{}") -> UpstreamRequest:
    return UpstreamRequest(url, (("Content-Type", "application/json"),), body)


crashes: list[BaseException] = []
"""What tasks of clients have died of; a fixture sees to it that there is nothing after each test."""


def client(limits: UpstreamLimits = LIMITS, **options: Any) -> AiohttpUpstream:
    """A client whose tasks may not die of anything."""
    return AiohttpUpstream(limits, Tasks(lambda name, exc: crashes.append(exc)), **options)


async def dial(
    upstream: AiohttpUpstream, request: UpstreamRequest, on_sent: Callable[[], None] = lambda: None
) -> UpstreamAnswer:
    """The answer to *request*; the asking is closed when it does not come, as the port wants it."""
    asking = upstream.ask(request, on_sent)
    try:
        return await asking.answer()
    except BaseException:
        asking.close()
        raise


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def answer(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class Conn:
    """One accepted connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    async def request(self) -> tuple[bytes, bytes]:
        """Read one whole request: head and body."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += await self._recv()
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += await self._recv()
        return head, body

    async def some(self) -> bytes:
        """Read what there is of a request, at least one byte."""
        return await self._recv()

    async def _recv(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            data = await asyncio.get_running_loop().sock_recv(self.sock, 1 << 16)
        if not data:
            raise EOFError
        return data

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    def fin(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def rst(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    async def left(self) -> tuple[Literal["fin", "rst", "open"], float]:
        """Wait, without reading a byte, until the other side is gone: how, and at which monotonic second."""
        poller = select.poll()
        poller.register(self.sock.fileno(), select.POLLRDHUP)
        events = await asyncio.to_thread(poller.poll, WAIT_S * 1000)
        now_s = time.monotonic()
        if not events:
            return "open", now_s
        return ("rst" if events[0][1] & select.POLLERR else "fin"), now_s

    def is_left(self) -> bool:
        poller = select.poll()
        poller.register(self.sock.fileno(), select.POLLRDHUP)
        return bool(poller.poll(0))


class RawPeer:
    """A listening socket and the connections taken from it."""

    def __init__(self, backlog: int = 300) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=backlog)
        self._listener.settimeout(0)
        self._conns: list[Conn] = []
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1/chat/completions"

    async def accept(self) -> Conn:
        async with asyncio.timeout(WAIT_S):
            sock, _ = await asyncio.get_running_loop().sock_accept(self._listener)
        self._conns.append(Conn(sock))
        return self._conns[-1]

    def has_caller(self) -> bool:
        """Whether a connection waits to be accepted."""
        return bool(select.select([self._listener], [], [], 0)[0])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for conn in self._conns:
            conn.sock.close()


@asynccontextmanager
async def serving(handler: Handler, tls: SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """The port of a server that runs *handler* for each connection and closes it afterwards."""

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(run, host, 0, ssl=tls, backlog=300)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """One request whose body is `{}`."""
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(2)
    return head
