"""Deadlines of a connection: silence, half heads, pauses, slow bodies (H4, B4)."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiohttp import web

from gateway.http import intake
from tests.support.door import BODY_S, QUICK, hang_up, open_door, replies, request

SLACK_S = 0.4  # two busy cores; each deadline under test is far shorter than the next candidate plus this


async def test_h4_silent_connection() -> None:
    """A connection that never sends a byte is closed without a word after `first_byte_s`."""
    async with open_door(first_byte_s=0.15, keepalive_s=60) as door:
        began_s = time.monotonic()
        got = await door.raw(b"")

        took_s = time.monotonic() - began_s
        assert got == b""
        assert 0.14 <= took_s < 0.15 + SLACK_S
        assert door.refused == []


@pytest.mark.parametrize(
    ("head", "error_type"),
    [
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n", None),
        (b"POST /anthropic/v1/messages HTTP/1.1\r\nHo", "error"),
        (b"POST /anthropic/v1/mess", "error"),
        (b"\r\nPOST /anthropic/v1/mess", "error"),
        (b"PO", None),
    ],
)
async def test_h4_half_a_head(head: bytes, error_type: str | None) -> None:
    """A head that stays unfinished is answered with 408, in the envelope of its path as far as that was seen."""
    async with open_door() as door:
        reply = await door.ask(head)

        assert (reply.status, reply.code) == (408, "request_timeout")
        assert reply.json.get("type") == error_type
        assert reply.header("x-should-retry") == "false"
        assert reply.header("connection") == "close"
        assert door.refused == [("header_timeout", 408)]


async def test_h4_half_a_head_on_a_used_connection() -> None:
    """The deadline of a head holds for every request of a connection, whatever the pause between requests may be."""
    async with open_door(first_byte_s=30, header_s=0.2, keepalive_s=60) as door:
        reader, writer = await door.connect()
        writer.write(request())
        await reader.readuntil(b"}")
        writer.write(b"POST /anthropic/v1/messages HT")
        async with asyncio.timeout(2):
            (reply,) = replies(await reader.read())

        assert (reply.status, reply.json["type"]) == (408, "error")
        await hang_up(writer)


async def test_b10_endless_head() -> None:
    """A head that arrives in pieces is refused when it is larger than any head, long before its lines are too many."""
    async with open_door(header_s=5, max_head_bytes=10_000) as door:
        reader, writer = await door.connect()
        writer.write(b"GET /v1/models HTTP/1.1\r\n")
        answer = asyncio.ensure_future(reader.read())
        while not answer.done():
            writer.write(b"a: " + b"x" * 1000 + b"\r\n")
            await asyncio.wait([answer], timeout=0.005)

        (reply,) = replies(answer.result())
        assert (reply.status, reply.code) == (431, "headers_too_large")
        assert door.refused == [("headers_too_long", 431)]
        await hang_up(writer)


async def test_b4_dripping_head() -> None:
    """Bytes that drip in do not move the deadline of the head."""
    async with open_door(header_s=0.3) as door:
        reader, writer = await door.connect()
        began_s = time.monotonic()
        answer = asyncio.ensure_future(reader.read())
        writer.write(b"GET /v1/models HTTP/1.1\r\n")
        while not answer.done():
            writer.write(b"x")
            await asyncio.wait([answer], timeout=0.02)

        took_s = time.monotonic() - began_s
        assert b" 408 " in answer.result()
        assert 0.29 <= took_s < 0.3 + SLACK_S
        await hang_up(writer)


async def test_b4_head_in_pieces_is_fine() -> None:
    """A head that is slow but in time is served, and its connection goes on."""
    async with open_door(header_s=5) as door:
        reader, writer = await door.connect()
        for piece in (request()[:10], request()[10:60], request()[60:]):
            writer.write(piece)
            await asyncio.sleep(0.03)  # the pieces must be separate segments
        first = await reader.readuntil(b"}")
        writer.write(request())
        second = await reader.readuntil(b"}")

        assert first.startswith(b"HTTP/1.1 200 ")
        assert second.startswith(b"HTTP/1.1 200 ")
        await hang_up(writer)


async def test_h4_idle_keepalive() -> None:
    """Between requests a connection may be idle for `keepalive_s`, not `first_byte_s`; then it is closed."""
    async with open_door(first_byte_s=0.1, keepalive_s=0.4) as door:
        began_s = time.monotonic()
        got = await door.raw(request())

        took_s = time.monotonic() - began_s
        assert [reply.status for reply in replies(got)] == [200]
        assert 0.39 <= took_s < 0.4 + SLACK_S
        assert door.refused == []


async def test_h4_running_request_has_no_connection_deadline() -> None:
    """A handler may take longer than every deadline of the connection."""
    release = asyncio.Event()

    async def slow(_request: web.BaseRequest) -> web.StreamResponse:
        await release.wait()
        return web.json_response({})

    async with open_door(slow, first_byte_s=0.05, header_s=0.05, keepalive_s=0.05) as door:
        answer = asyncio.ensure_future(door.ask(request()))
        await asyncio.wait([answer], timeout=0.3)
        waiting = not answer.done()
        release.set()

        assert waiting
        assert (await answer).status == 200


async def test_h4_half_a_head_behind_a_running_request() -> None:
    """A half head pipelined behind a request lets it finish, then gets its 408."""
    release = asyncio.Event()

    async def slow(_request: web.BaseRequest) -> web.StreamResponse:
        await release.wait()
        return web.json_response({})

    async with open_door(slow, header_s=0.1, keepalive_s=60) as door:
        reader, writer = await door.connect()
        writer.write(request())
        await asyncio.sleep(0.05)  # two segments
        writer.write(b"GET /v1/mod")
        await asyncio.sleep(0.25)
        release.set()
        async with asyncio.timeout(2):
            got = await reader.read()

        assert [reply.status for reply in replies(got)] == [200, 408]
        await hang_up(writer)


@pytest.mark.parametrize("framing", ["Content-Length: 100", "Transfer-Encoding: chunked"])
async def test_b4_body_that_stops(framing: str) -> None:
    """A body that stops arriving is answered with 408 after `body_s`, and the connection ends."""
    async with open_door() as door:
        began_s = time.monotonic()
        reply = await door.ask(request("/anthropic/v1/messages", framing, body=b"5\r\nhello\r\n"))

        took_s = time.monotonic() - began_s
        assert (reply.status, reply.code, reply.json["type"]) == (408, "request_timeout", "error")
        assert BODY_S - 0.01 <= took_s < BODY_S + QUICK.lingering_s + SLACK_S
        assert reply.header("connection") == "close"


async def test_b4_body_that_drips(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body below the minimum rate is cut long before `body_s`, however steadily it drips."""
    monkeypatch.setattr(intake, "BODY_GRACE_S", 0.1)
    async with open_door(_patient) as door:
        reader, writer = await door.connect()
        writer.write(request("/v1", "Content-Length: 100000", body=b""))
        began_s = time.monotonic()
        answer = asyncio.ensure_future(reader.readuntil(b"\r\n"))
        while not answer.done():
            writer.write(b"x")
            await asyncio.wait([answer], timeout=0.02)

        assert b" 408 " in answer.result()
        assert time.monotonic() - began_s < 0.1 + SLACK_S
        await hang_up(writer)


async def test_b4_steady_body_outlives_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body above the minimum rate may go on past the grace."""
    monkeypatch.setattr(intake, "BODY_GRACE_S", 0.1)
    async with open_door(_patient) as door:
        reader, writer = await door.connect()
        writer.write(request("/v1", "Content-Length: 10000", body=b""))
        for _ in range(10):
            writer.write(b"x" * 1000)
            await asyncio.sleep(0.03)

        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
        await hang_up(writer)


async def _patient(request: web.BaseRequest) -> web.StreamResponse:
    await intake.read_body(request, small_bytes=1 << 20, large_bytes=1 << 20, body_s=30)
    return web.json_response({})


CHUNKED = "Transfer-Encoding: chunked"
HALF = b"POST /anthropic/v1/messages HT"
TRAPS = b"0\r\n\r\nGET / HTTP/1.1\r\n\r\n{}"  # a body that looks like ends of messages
WHOLE = [
    pytest.param(request("/v1", method="GET", body=b""), id="no body"),
    pytest.param(request(), id="length"),
    pytest.param(request(body=TRAPS), id="length, traps"),
    pytest.param(request("/v1", CHUNKED, body=b"2\r\n{}\r\n0\r\n\r\n"), id="chunked"),
    pytest.param(b"\r\n" + request(), id="empty line before"),
    pytest.param(request() + request("/v1", method="GET", body=b"") + request(body=TRAPS), id="three"),
]


@pytest.mark.parametrize("whole", WHOLE)
@pytest.mark.parametrize("cut", [0, 20, -1], ids=lambda cut: f"cut at {cut}")
async def test_h4_half_a_head_behind_a_whole_request(whole: bytes, cut: int) -> None:
    """Half a head in the segment that ends a request has the deadline of every head, wherever segments begin."""
    async with open_door(_hasty, first_byte_s=30, header_s=0.2, keepalive_s=60) as door:
        reader, writer = await door.connect()
        if cut:
            writer.write(whole[:cut])
            await asyncio.sleep(0.02)  # two segments
        writer.write((whole[cut:] if cut else whole) + HALF)
        async with asyncio.timeout(2):
            got = replies(await reader.read())

        assert [reply.status for reply in got[:-1]] == [200] * whole.count(b"gateway.test")
        assert (got[-1].status, got[-1].json["type"]) == (408, "error")
        await hang_up(writer)


@pytest.mark.parametrize("whole", [*WHOLE, pytest.param(request(body=b"x" * 300_000), id="large")])
@pytest.mark.parametrize("cut", [0, 20, -1], ids=lambda cut: f"cut at {cut}")
async def test_h4_nothing_behind_a_whole_request(whole: bytes, cut: int) -> None:
    """Whole requests leave the connection idle, not waiting for a head, however they came in."""
    async with open_door(_hasty, first_byte_s=0.2, header_s=0.1, keepalive_s=0.3) as door:
        reader, writer = await door.connect()
        if cut:
            writer.write(whole[:cut])
            await asyncio.sleep(0.02)  # two segments
        writer.write((whole[cut:] if cut else whole) + b"\r\n")
        async with asyncio.timeout(2):
            got = replies(await reader.read())

        assert [reply.status for reply in got] == [200] * whole.count(b"gateway.test")
        assert door.refused == []
        await hang_up(writer)


async def test_h4_half_a_head_behind_many_requests() -> None:
    """Requests that wait for room are not taken for a head; the half head behind the last of them is."""
    async with open_door(_hasty, first_byte_s=30, header_s=0.2, keepalive_s=60) as door:
        reader, writer = await door.connect()
        writer.write(request() * 300 + HALF)
        async with asyncio.timeout(5):
            got = replies(await reader.read())

        assert [reply.status for reply in got] == [200] * 300 + [408]
        await hang_up(writer)


async def _hasty(request: web.BaseRequest) -> web.StreamResponse:
    await intake.read_body(request, small_bytes=1 << 20, large_bytes=1 << 20, body_s=30)
    return web.json_response({})
