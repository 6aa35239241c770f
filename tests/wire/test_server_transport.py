"""Sockets: disconnects, backpressure, the connection limit, closing (H1, H6)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from typing import cast

import pytest
from aiohttp import web

from gateway.http.overload import MAX_TURNED_AWAY
from gateway.http.protocol import GatewayProtocol
from gateway.http.stalls import reset
from tests.support.door import all_gone, hang_up, open_door, request


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_h1_disconnect_while_silent(how: str) -> None:
    """A client that leaves while nothing is written is noticed within 50 ms: the handler is cancelled."""
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def silent(_request: web.BaseRequest) -> web.StreamResponse:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    async with open_door(silent) as door:
        _, writer = await door.connect()
        writer.write(request())
        await started.wait()
        if how == "rst":
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        left_s = time.monotonic()
        writer.transport.abort() if how == "rst" else writer.close()
        async with asyncio.timeout(1):
            await cancelled.wait()

        assert time.monotonic() - left_s < 0.05
        assert door.crashes == []
        assert door.refused == []


async def test_h6_stuck_reader_is_bounded() -> None:
    """A client that stops reading blocks the writer with little more than the high-water mark buffered."""
    blocked = asyncio.Event()
    seen: list[int] = []

    async def firehose(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        transport = request.transport
        assert transport is not None
        seen.append(transport.get_write_buffer_limits()[1])
        while True:
            if request.protocol.writing_paused:
                seen.append(transport.get_write_buffer_size())
                blocked.set()
                await request.writer.drain()
            await response.write(b"x" * 4096)

    async with open_door(firehose) as door:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(0)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", door.port))
        await asyncio.get_running_loop().sock_sendall(sock, request())
        async with asyncio.timeout(5):
            await blocked.wait()

        assert seen[0] == 16_384
        assert 16_384 <= seen[1] < 16_384 + 2 * 4096
        sock.close()


async def test_h6_socket_options() -> None:
    """Small frames leave at once (no Nagle), and a dead peer is found by keep-alive probes."""
    options: list[int] = []

    async def look(request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        sock = transport.get_extra_info("socket")
        options.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        options.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        return web.json_response({})

    async with open_door(look) as door:
        await door.ask(request())

        assert all(options)
        assert len(options) == 2


@pytest.mark.parametrize(("path", "error_type"), [("/v1/chat/completions", None), ("/anthropic/v1/messages", "error")])
async def test_connection_limit(path: str, error_type: str | None) -> None:
    """A connection above the limit gets a 503 in its envelope and a close; room is made by any close."""
    async with open_door(max_connections=2, keepalive_s=30, first_byte_s=30) as door:
        holders = [await door.connect() for _ in range(2)]
        reply = await door.ask(request(path))
        refused = list(door.refused)
        for _, writer in holders:
            await hang_up(writer)
        await all_gone(lambda: door.server.connections)
        after = await door.ask(request(path, "Connection: close"))

        assert (reply.status, reply.code, reply.json.get("type")) == (503, "overloaded", error_type)
        assert reply.header("retry-after") == "1"
        assert reply.header("connection") == "close"
        assert reply.header("server") == "anoman"
        assert refused == [("too_many_connections", 503)]
        assert after.status == 200


async def test_connection_limit_silent_and_head() -> None:
    """A turned-away client that says nothing is dropped unanswered; one that says HEAD gets no body."""
    async with open_door(max_connections=0) as door:
        silent = await door.raw(b"")
        head = await door.raw(request("/v1/models", method="HEAD", body=b""))

        assert silent == b""
        assert head.startswith(b"HTTP/1.1 503 ")
        assert head.endswith(b"\r\n\r\n")
        await all_gone(lambda: door.server.turned_away)


async def test_connection_limit_flood() -> None:
    """No more than a handful of turned-away clients wait at once: the others are dropped."""
    async with open_door(max_connections=0, lingering_s=30) as door:
        opened = [await door.connect() for _ in range(MAX_TURNED_AWAY + 20)]
        ends = [asyncio.ensure_future(_end(reader)) for reader, _ in opened]
        await asyncio.wait(ends, timeout=0.3)

        assert len(door.server.turned_away) == MAX_TURNED_AWAY
        assert sum(end.done() for end in ends) == 20
        for _, writer in opened:
            await hang_up(writer)
        await asyncio.gather(*ends)


async def _end(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        await reader.read()


async def test_pre_shutdown_closes_idle_connections() -> None:
    """When the door closes, idle connections end at once and running requests are finished and then closed."""
    started, release = asyncio.Event(), asyncio.Event()

    async def slow(_request: web.BaseRequest) -> web.StreamResponse:
        started.set()
        await release.wait()
        return web.json_response({})

    async with open_door(slow, keepalive_s=30, first_byte_s=30) as door:
        idle_reader, idle_writer = await door.connect()
        reader, writer = await door.connect()
        writer.write(request())
        await started.wait()
        door.server.pre_shutdown()
        async with asyncio.timeout(1):
            idle_got = await idle_reader.read()
        release.set()
        async with asyncio.timeout(1):
            got = await reader.read()

        assert idle_got == b""
        assert got.startswith(b"HTTP/1.1 200 ")
        assert b"Connection: close" in got
        await hang_up(idle_writer)
        await hang_up(writer)


async def test_nothing_is_left_behind() -> None:
    """When every client is gone, no connection, task or timer of theirs remains."""
    before = len(asyncio.all_tasks())
    async with open_door() as door:
        await asyncio.gather(*(door.raw(data) for data in [b"", request(), b"\x00", b"GET / HTT", request()[:-1]] * 5))
        await all_gone(lambda: door.server.connections)

        assert len(asyncio.all_tasks()) == before


@pytest.mark.parametrize("kind", ["fin", "rst"])
async def test_leaving_is_told_before_the_exchange_is_cancelled(kind: str) -> None:
    """What an exchange wants done when its client leaves is done once, at the first sign of it; then it is ended."""
    told: list[str] = []
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        protocol = cast(GatewayProtocol, request.protocol)

        def leave() -> None:
            transport = protocol.transport
            told.append("left" if transport is not None and not transport.is_closing() else "left, closed already")

        protocol.on_leave(leave)
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("cancelled")
            raise
        finally:
            ended.set()
        raise AssertionError

    async with open_door(endless) as door:
        _, writer = await door.connect()
        writer.write(request())
        await begun.wait()

        if kind == "rst":
            reset(writer.transport)
        else:
            await hang_up(writer)
        async with asyncio.timeout(2):
            await ended.wait()

    # A reset is told by the loop only when it has given the connection up.
    assert told == ["left" if kind == "fin" else "left, closed already", "cancelled"]


@pytest.mark.parametrize("count", [1, 31, 32, 33, 200])
async def test_leaving_with_many_requests_in_one_write(count: int) -> None:
    """However much a client sends in advance, its leaving ends the request that is being answered."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        cast(GatewayProtocol, request.protocol).on_leave(lambda: None)
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
            raise
        raise AssertionError

    async with open_door(endless) as door:
        _, writer = await door.connect()
        writer.write(request() * count)
        await begun.wait()
        await hang_up(writer)

        async with asyncio.timeout(1):
            await ended.wait()


async def test_leaving_after_the_answer_is_nobody_s_business() -> None:
    """An exchange that has been answered is not told that its client has closed the connection."""
    told: list[str] = []

    async def quick(request: web.BaseRequest) -> web.StreamResponse:
        cast(GatewayProtocol, request.protocol).on_leave(lambda: told.append("left"))
        return web.Response()

    async with open_door(quick) as door:
        reader, writer = await door.connect()
        writer.write(request())
        await reader.readuntil(b"\r\n\r\n")
        await hang_up(writer)
        await all_gone(lambda: door.server.connections)

    assert told == []
