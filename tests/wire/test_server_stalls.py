"""Clients that take nothing of what is written to them, whatever it is, and what closing costs then (H6)."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from gateway.core.exchange import Answer
from gateway.http.answers import JsonAnswer
from gateway.http.sinks import StreamSink
from tests.support.door import Door, Handler, all_gone, open_door, polite, request

WRITE_STALL_S = 0.2
DROPPED_S = (WRITE_STALL_S + 1) * 9 / 8 + 0.6  # the margin behind a stream's deadline, one look more, a busy core
RCVBUF = 2048  # few bytes hide in the client's kernel


@asynccontextmanager
async def stuck(door: Door, data: bytes) -> AsyncIterator[asyncio.Task[None]]:
    """A client that sends *data*, as far as it is taken, and reads nothing. The task ends with the sending."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RCVBUF)
    sock.settimeout(0)
    await loop.sock_connect(sock, ("127.0.0.1", door.port))
    sending = asyncio.ensure_future(loop.sock_sendall(sock, data))
    try:
        yield sending
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        sock.close()


def small_kernel(request: web.BaseRequest) -> None:
    """Let little hide in our own kernel either, so that few answers fill it."""
    assert request.transport is not None
    sock = request.transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


async def gone(door: Door, within_s: float) -> float:
    """Wait until the server is rid of its connections; seconds that took."""
    began_s = time.monotonic()
    async with asyncio.timeout(within_s):
        while door.server.connections:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)
    return time.monotonic() - began_s


async def plain(_request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=b"x" * 500)


async def whole(_request: web.BaseRequest) -> web.StreamResponse:
    return JsonAnswer(Answer(200, b"x" * 500))


async def large(_request: web.BaseRequest) -> web.StreamResponse:
    return JsonAnswer(Answer(200, b"x" * 8_000_000))


@pytest.mark.parametrize("handler", [plain, whole, large, polite], ids=lambda handler: handler.__name__)
async def test_stuck_reader_is_dropped(handler: Handler) -> None:
    """A client that reads no answer of any kind is dropped after the write-stall deadline, key or no key."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        small_kernel(request)
        return await handler(request)

    async with open_door(answer, write_stall_s=WRITE_STALL_S, keepalive_s=60, first_byte_s=60) as door:
        async with stuck(door, request("/v1/models", key="nobody", method="GET", body=b"") * 2000):
            await started(door)
            took_s = await gone(door, 5)

        assert WRITE_STALL_S + 1 <= took_s < DROPPED_S
        assert door.crashes == []
        assert door.logged == []


async def started(door: Door) -> None:
    async with asyncio.timeout(1):
        while not door.server.requests_count:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0)


async def test_reader_that_goes_on_is_not_dropped() -> None:
    """A client that takes bytes all the time gets the whole of a long answer, however long that takes."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        small_kernel(request)
        return JsonAnswer(Answer(200, b"x" * 60_000))

    async with open_door(answer, write_stall_s=0, keepalive_s=60) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port, limit=1024)
        writer.write(request("/v1", "Connection: close"))
        got, began_s = 0, time.monotonic()
        while piece := await reader.read(1024):
            got += len(piece)
            await asyncio.sleep(0.03)

        assert got > 60_000
        assert time.monotonic() - began_s > 1.5
        writer.close()


async def test_answers_do_not_pile_up() -> None:
    """The next request of a connection is not taken while the client has not read the answers before it."""
    sizes: list[int] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        small_kernel(request)
        assert request.transport is not None
        sizes.append(request.transport.get_write_buffer_size())
        return JsonAnswer(Answer(200, b"x" * 15_000))

    async with open_door(answer, keepalive_s=60) as door, stuck(door, request() * 400):
        await all_quiet(lambda: len(sizes))

        assert len(sizes) < 400
        assert max(sizes) <= 16_384


async def all_quiet(count: Callable[[], int]) -> None:
    """Wait until *count* stands still."""
    before = -1
    while before != (before := count()):  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("how", ["idle", "close"])
async def test_close_does_not_wait_for_a_stuck_reader(how: str) -> None:
    """A connection with unsent bytes too few to pause writing is gone soon after it was closed, flushed or not."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        small_kernel(request)
        assert request.transport is not None
        while not request.transport.get_write_buffer_size():
            request.transport.write(b"x" * 4096)
        assert not request.protocol.writing_paused
        if how == "close":
            request.protocol.close()
        sink = StreamSink(request)
        sink.open(())
        stays = b"Connection: keep-alive" in sink._head
        assert stays == (how == "idle")
        sink.close(b"")
        assert sink.response is not None
        return sink.response

    async with open_door(answer, write_stall_s=WRITE_STALL_S, keepalive_s=0.1) as door:
        async with stuck(door, request()):
            await started(door)
            took_s = await gone(door, 5)

        assert WRITE_STALL_S + 1 <= took_s < DROPPED_S + 0.1
        assert door.crashes == []


async def test_stream_below_http_1_1_ends_the_connection() -> None:
    """A stream to a client that knows no chunks ends with its connection, even if the client asked to keep that."""

    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        sink = StreamSink(request)
        sink.open(())
        sink.close(b"data: [DONE]\n\n")
        assert sink.response is not None
        return sink.response

    async with open_door(stream, keepalive_s=60) as door:
        old = request("/v1", "Connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0", 1)
        got = await door.raw(old, within_s=1)

        head, _, body = got.partition(b"\r\n\r\n")
        assert body == b"data: [DONE]\n\n"
        assert b"keep-alive" not in head.lower()
        await all_gone(lambda: door.server.connections)


async def test_a_stream_leaves_no_cycle() -> None:
    """What it leaves is freed at once: a collector that has to look for it holds every other stream up."""
    sinks: list[weakref.ref[StreamSink]] = []

    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        sink = StreamSink(request)
        sinks.append(weakref.ref(sink))
        sink.open(())
        sink.close(b"data: [DONE]\n\n")
        assert sink.response is not None
        return sink.response

    gc.disable()
    try:
        async with open_door(stream) as door:
            await door.raw(request("/v1", "Connection: close"))

            assert [sink() for sink in sinks] == [None]
    finally:
        gc.enable()


async def test_an_abort_below_http_1_1_is_a_reset() -> None:
    """Where the end of the body is the connection's, a stream that is given up must not end like a whole one."""

    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        sink = StreamSink(request)
        sink.open(())
        sink.write(b"data: half\n\n")
        await asyncio.sleep(0.05)
        sink.abort()
        assert sink.response is not None
        return sink.response

    async with open_door(stream) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(request().replace(b"HTTP/1.1", b"HTTP/1.0", 1))

        with pytest.raises(ConnectionResetError):
            await reader.read(-1)

        writer.close()


async def test_vanished_clients_are_the_kernel_s_business() -> None:
    """Every connection has a deadline for what is sent and not acknowledged, behind the write-stall deadline."""
    seen: list[int] = []

    async def look(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        sock = request.transport.get_extra_info("socket")
        seen.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        return web.Response()

    async with open_door(look, write_stall_s=7.0) as door:
        await door.ask(request("/", "Connection: close"))

    assert seen == [10_000]
