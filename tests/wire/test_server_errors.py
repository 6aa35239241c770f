"""Everything the framework would answer itself: our envelope, nothing echoed, one line, connection closed."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from aiohttp import web

from gateway.core.errors import MODEL_NOT_FOUND, GatewayError
from gateway.http.turnstile import STARTS
from tests.support.door import CANARY, Door, Handler, Reply, hang_up, open_door, polite, replies, request

INVALID = (400, "invalid_request")
LARGE = (431, "headers_too_large")
HOST = (400, "invalid_host")
CHUNKED = "Transfer-Encoding: chunked"
END = b"0\r\n\r\n"

KEY = f"Authorization: Bearer {CANARY}"


def raw(*lines: str, body: str = "") -> bytes:
    return ("\r\n".join([*lines, "", ""]) + body).encode("latin-1")


def assert_ours(door: Door, reply: Reply) -> None:
    """The answer is one of ours, and neither it nor any log line nor the report holds the credential."""
    assert reply.header("content-type") == "application/json"
    assert reply.header("server") == "anoman"
    assert reply.header("x-request-id") == reply.header("request-id") == "req_1"
    assert CANARY.encode() not in reply.body
    assert CANARY not in repr([reply.head, door.refused, door.crashes, door.logged])


UNREADABLE = [
    ("bad header name", raw("GET /v1 HTTP/1.1", "Host: a", KEY, f"X {CANARY}: 1"), *INVALID),
    ("header without colon", raw("GET /v1 HTTP/1.1", "Host: a", KEY, f"X{CANARY}"), *INVALID),
    ("NUL in a header", raw("GET /v1 HTTP/1.1", "Host: a", f"Authorization: Bearer \0{CANARY}"), *INVALID),
    ("obs-fold", raw("GET /v1 HTTP/1.1", "Host: a", "A: b", f" {CANARY}"), *INVALID),
    ("bare LF", f"GET /v1 HTTP/1.1\nHost: a\n{KEY}\n\n".encode(), *INVALID),
    ("bare CR", raw("GET /v1 HTTP/1.1", "Host: a", f"A: b\r{KEY}"), *INVALID),
    ("space before colon", raw("GET /v1 HTTP/1.1", "Host: a", f"Authorization : Bearer {CANARY}"), *INVALID),
    ("long target", raw(f"GET /{'a' * 9000} HTTP/1.1", "Host: a", KEY), *LARGE),
    ("long header", raw("GET /v1 HTTP/1.1", "Host: a", f"Authorization: Bearer {CANARY * 600}"), *LARGE),
    ("long name", raw("GET /v1 HTTP/1.1", "Host: a", f"{'a' * 9000}: b", KEY), *LARGE),
    ("200 headers", raw("GET /v1 HTTP/1.1", "Host: a", KEY, *(f"a{n}: b" for n in range(200))), *LARGE),
    ("no Host", raw("GET /v1 HTTP/1.1", KEY), *HOST),
    ("two Hosts", raw("GET /v1 HTTP/1.1", "Host: a", "Host: a", KEY), *HOST),
    ("unknown method", raw("FROB /v1 HTTP/1.1", "Host: a", KEY), *INVALID),
    ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", *INVALID),
    ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + CANARY.encode(), *INVALID),
    ("HTTP/0.9", b"GET /v1\r\n\r\n", *INVALID),
    ("HTTP/2.0", raw("GET /v1 HTTP/2.0", "Host: a", KEY), *INVALID),
    ("version", raw("GET /v1 HTTP/1.7", "Host: a", KEY), *INVALID),
    ("space in target", raw("GET /v1 x HTTP/1.1", "Host: a", KEY), *INVALID),
    ("bad authority", raw("GET http://[::1/ HTTP/1.1", "Host: a", KEY), *INVALID),
    ("length and chunked", request("/v1", "Content-Length: 5", CHUNKED, body=END), *INVALID),
    ("chunked and length", request("/v1", CHUNKED, "Content-Length: 5", body=END), *INVALID),
    ("two lengths", request("/v1", "Content-Length: 2", "Content-Length: 3"), *INVALID),
    ("signed length", request("/v1", "Content-Length: +2"), *INVALID),
    ("negative length", request("/v1", "Content-Length: -2"), *INVALID),
    ("list of lengths", request("/v1", "Content-Length: 2, 2"), *INVALID),
    ("huge length", request("/v1", "Content-Length: 99999999999999999999999"), *INVALID),
    ("bad chunk size", request("/v1", CHUNKED, body=b"zz\r\nhi\r\n0\r\n\r\n"), *INVALID),
    ("huge chunk size", request("/v1", CHUNKED, body=b"f" * 40 + b"\r\n"), *INVALID),
    ("chunk without end", request("/v1", CHUNKED, body=b"2\r\nhello\r\n0\r\n\r\n"), *INVALID),
    ("chunked twice", request("/v1", "Transfer-Encoding: chunked, chunked", body=END), *INVALID),
    ("chunked not last", request("/v1", "Transfer-Encoding: chunked, gzip", body=END), *INVALID),
]  # fmt: skip


@pytest.mark.parametrize(("data", "status", "code"), [pytest.param(*row[1:], id=row[0]) for row in UNREADABLE])
async def test_h5_unreadable_request(data: bytes, status: int, code: str) -> None:
    """An unreadable request gets one JSON answer that quotes nothing, one report, and a closed connection (B10)."""
    async with open_door() as door:
        reply = await door.ask(data)

        assert (reply.status, reply.code) == (status, code)
        assert reply.header("connection") == "close"
        assert_ours(door, reply)
        assert len(door.refused) == 1
        assert door.crashes == []
        assert door.logged == []


AMBIGUOUS = [
    ("absolute form", raw("GET http://evil.test/v1 HTTP/1.1", "Host: a", KEY), *INVALID),
    ("absolute form, port", raw("GET http://evil.test:99999/v1 HTTP/1.1", "Host: a", KEY), *INVALID),
    ("asterisk", raw("OPTIONS * HTTP/1.1", "Host: a", KEY), *INVALID),
    ("CONNECT", raw("CONNECT evil.test:443 HTTP/1.1", "Host: a", KEY), *INVALID),
    ("double slash", raw("GET //evil.test/v1 HTTP/1.1", "Host: a", KEY), 404, "not_found"),
    ("Host with a path", raw("GET /v1 HTTP/1.1", "Host: a/b", KEY), *HOST),
    ("Host with a bad port", raw("GET /v1 HTTP/1.1", "Host: a:99999", KEY), *HOST),
    ("Host with a user", raw("GET /v1 HTTP/1.1", "Host: u@a", KEY), *HOST),
    ("empty Host", raw("GET /v1 HTTP/1.1", "Host:", KEY), *HOST),
    ("1.0 without Host", raw("GET /v1 HTTP/1.0", "Connection: keep-alive", KEY), *HOST),
    ("1.0 chunked", b"POST /v1 HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", *INVALID),
    ("gzip, chunked", request("/v1", "Transfer-Encoding: gzip, chunked", body=END), *INVALID),
    ("two Authorizations", request("/v1", KEY), *INVALID),
    ("two x-api-keys", request("/v1", f"x-api-key: {CANARY}", f"x-api-key: {CANARY}"), *INVALID),
    ("two credentials", request("/v1", "x-api-key: other"), *INVALID),
    ("Basic and a key", raw("GET /v1 HTTP/1.1", "Host: a", "x-api-key: a", "Authorization: Basic Og=="), *INVALID),
]  # fmt: skip


@pytest.mark.parametrize(("data", "status", "code"), [pytest.param(*row[1:], id=row[0]) for row in AMBIGUOUS])
async def test_b11_ambiguous_request(data: bytes, status: int, code: str) -> None:
    """A head that two readers could take differently is refused, and nothing behind it is read (H8)."""
    async with open_door() as door:
        reply = await door.ask(data + request("/v1/smuggled"))

        assert (reply.status, reply.code) == (status, code)
        assert reply.header("connection") == "close"
        assert_ours(door, reply)
        assert [status for _, status in door.refused] == [reply.status]
        assert door.logged == []


@pytest.mark.parametrize(
    "target",
    ["/v1/%2e%2e/admin", "/v1/..%2fadmin", "/v1/../x", "/v1/%00", "/v1/./x", "/v1//x", "/%", "/v1;x", "/v1?a=/../b"],
)  # fmt: skip
async def test_h8_path_is_not_decoded(target: str) -> None:
    """Routing sees the path as it was sent: nothing is decoded, resolved or folded."""
    async with open_door() as door:
        reply = await door.ask(request(target, "Connection: close"))

        assert reply.json["path"] == target.partition("?")[0]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([f"Authorization: Bearer {CANARY}"], 200),
        ([f"authorization: bearer  {CANARY} "], 200),
        ([f"X-Api-Key: {CANARY}"], 200),
        ([f"x-api-key: {CANARY}", f"Authorization: Bearer {CANARY}"], 200),
        ([f"x-api-key: {CANARY}", "Authorization: Bearer"], 200),
        (["Authorization: Basic Og=="], 401),
        (["Authorization: Bearer"], 401),
        (["Authorization: Bearer \xff\xfe"], 401),
        (["x-api-key: \xc3\xa9"], 401),
        ([], 401),
    ],
)
async def test_credential(headers: list[str], status: int) -> None:
    """The key is taken from either header; no key, or one of bytes no key has, is a 401."""
    async with open_door() as door:
        reply = await door.ask(raw("GET /v1/models HTTP/1.1", "Host: a", "Connection: close", *headers))

        assert reply.status == status
        assert door.crashes == []


async def test_h5_envelope_by_path() -> None:
    """The envelope of an unreadable request is that of its path; HEAD gets none at all."""
    bad = ["Host: a", "a b: c"]
    async with open_door() as door:
        anthropic = await door.ask(raw("POST /anthropic/v1/messages?beta=true HTTP/1.1", *bad))
        openai = await door.ask(raw("POST /anthropical HTTP/1.1", *bad))
        head = await door.ask(raw("HEAD /anthropic HTTP/1.1", *bad))

        assert anthropic.json["type"] == "error"
        assert anthropic.json["error"]["details"] == {"error_code": "invalid_request"}
        assert "type" not in openai.json
        assert (head.status, head.body) == (400, b"")


async def test_h5_envelope_of_a_request_line_in_pieces() -> None:
    """The path is put together from segments when the request breaks in a later one."""
    async with open_door() as door:
        reader, writer = await door.connect()
        for piece in (b"POST /anth", b"ropic/v1/messages HTTP/1.1\r\nHost: a\r\nb c: d\r\n\r\n"):
            writer.write(piece)
            await asyncio.sleep(0.03)  # segments of their own
        (reply,) = replies(await reader.read())
        await hang_up(writer)

        assert (reply.status, reply.json["type"]) == (400, "error")


async def test_e15_pipelined_after_error() -> None:
    """After bytes that cannot be parsed nothing else is, not in later segments either; one line is logged."""
    async with open_door(lingering_s=0.3) as door:
        reader, writer = await door.connect()
        writer.write(b"GARBAGE\x00\r\n\r\n")
        for _ in range(20):
            writer.write(request())
            await asyncio.sleep(0.005)  # segments of their own
        async with asyncio.timeout(2):
            got = await reader.read()
        await hang_up(writer)

        assert [reply.status for reply in replies(got)] == [400]
        assert len(door.refused) == 1
        assert door.server.requests_count == 1


async def test_e15_garbage_behind_a_running_request() -> None:
    """Garbage that keeps coming while a request runs is not collected: one refusal waits for its turn."""
    started, release = asyncio.Event(), asyncio.Event()

    async def slow(_request: web.BaseRequest) -> web.StreamResponse:
        started.set()
        await release.wait()
        return web.json_response({})

    async with open_door(slow) as door:
        reader, writer = await door.connect()
        writer.write(request())
        await started.wait()
        for _ in range(20):
            writer.write(b"\x00garbage\r\n")
            await asyncio.sleep(0.005)  # segments of their own
        waiting = [len(connection._messages) for connection in door.server.connections]
        release.set()
        async with asyncio.timeout(2):
            got = await reader.read()
        await hang_up(writer)

        assert waiting == [1]
        assert [reply.status for reply in replies(got)] == [200, 400]


async def test_b11_pipelining() -> None:
    """Pipelined requests are answered one for one and in order; garbage behind them ends the connection after them."""
    paths = [f"/v1/{number}" for number in range(50)]
    async with open_door() as door:
        reader, writer = await door.connect()
        for path in paths:
            writer.write(request(path))
        await reader.readuntil(b'"/v1/49", "bytes": 2}')
        writer.write(request("/v1/last"))
        await asyncio.sleep(0.05)  # the garbage is a segment of its own
        writer.write(b"\x00\r\n\r\n")
        async with asyncio.timeout(2):
            rest = await reader.read()
        await hang_up(writer)

        assert [reply.status for reply in replies(rest)] == [200, 400]
        assert door.server.requests_count == 52


async def test_pipelined_requests_take_turns() -> None:
    """However many come in one piece, a few begin in each turn of the loop, and it looks at its sockets in between."""
    began: list[int] = []
    now = 0

    async def count_turns() -> None:
        nonlocal now
        while True:
            now += 1
            await asyncio.sleep(0)  # a turn of the loop is the event

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        began.append(now)
        return await polite(request)

    async with open_door(handler) as door:
        reader, writer = await door.connect()
        writer.write(b"".join(request(f"/v1/{number}") for number in range(9)))
        counting = asyncio.create_task(count_turns())
        await reader.readuntil(b'"/v1/8", "bytes": 2}')
        counting.cancel()
        await hang_up(writer)

    # The turns counted here and those of the turnstile do not begin at the same place.
    assert max(began.count(number) for number in began) <= 2 * STARTS


@pytest.mark.parametrize("body", [b"5\r\nhello\r\n", b"5\r\nhel"])
async def test_e15_chunk_breaks_mid_body(body: bytes) -> None:
    """Framing that breaks after the handler has begun to read gives one 400 in the envelope, and a close."""
    async with open_door() as door:
        reader, writer = await door.connect()
        writer.write(request("/anthropic/v1/messages", CHUNKED, body=body))
        await asyncio.sleep(0.05)  # the handler reads the first part
        writer.write(b"\x00\x00\x00\r\n")
        async with asyncio.timeout(2):
            (reply,) = replies(await reader.read())
        await hang_up(writer)

        assert (reply.status, reply.code, reply.json["type"]) == (400, "invalid_request", "error")
        assert reply.header("connection") == "close"
        assert door.refused == [("invalid_request", 400)]
        assert door.crashes == []


async def test_e15_chunk_breaks_after_the_answer() -> None:
    """A body that breaks while it is only being read away is no crash and gets no second answer."""

    async def at_once(_request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({})

    async with open_door(at_once) as door:
        reader, writer = await door.connect()
        writer.write(request("/v1", CHUNKED, body=b"5\r\nhel"))
        await reader.readuntil(b"{}")
        writer.write(b"\x00\x00\x00\r\n\x00")
        async with asyncio.timeout(2):
            rest = await reader.read()
        await hang_up(writer)

        assert rest == b""
        assert door.crashes == []


@pytest.mark.parametrize("same_segment", [True, False])
async def test_b11_upgrade_is_ignored(same_segment: bool) -> None:
    """An upgrade is not done: the request is answered as it is, and nothing behind it is read."""
    data, smuggled = request("/v1", "Upgrade: websocket", "Connection: Upgrade"), request("/v1/smuggled")
    async with open_door() as door:
        reader, writer = await door.connect()
        writer.write(data + smuggled if same_segment else data)
        got = await reader.readuntil(b"}")
        writer.write(smuggled)
        with contextlib.suppress(ConnectionResetError):  # bytes that nobody reads make the close a reset
            async with asyncio.timeout(2):
                got += await reader.read()
        await hang_up(writer)

        (reply,) = replies(got)
        assert (reply.status, reply.json["path"], reply.header("connection")) == (200, "/v1", "close")
        assert door.server.requests_count == 1


async def test_b11_h2c_upgrade_is_ignored() -> None:
    """An offer of HTTP/2, as curl makes it, changes nothing."""
    data = request("/v1", "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABk")
    async with open_door() as door:
        assert (await door.ask(data)).status == 200


async def crash(_request: web.BaseRequest) -> web.StreamResponse:
    raise ValueError(f"secret {CANARY}")


async def answer_nothing(_request: web.BaseRequest) -> web.StreamResponse:
    return None  # type: ignore[return-value]  # the mistake under test


async def raise_http(_request: web.BaseRequest) -> web.StreamResponse:
    raise web.HTTPRequestEntityTooLarge(1, 2)


async def time_out(_request: web.BaseRequest) -> web.StreamResponse:
    raise TimeoutError


async def bad_header(_request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(headers={"x-anoman-region": "id\r\nSet-Cookie: a=b"})


async def bad_stream_header(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"x-anoman-region": "id\nx"})
    await response.prepare(request)
    return response


@pytest.mark.parametrize("handler", [crash, answer_nothing, raise_http, time_out, bad_header, bad_stream_header])
async def test_h5_crash_of_the_handler(handler: Handler) -> None:
    """Whatever a handler does wrong, H10's line break in a header too, is a JSON 500 with ids alone, reported once."""
    async with open_door(handler) as door:
        reply = await door.ask(request("/anthropic/v1/messages", "Accept: text/html"))

        assert (reply.status, reply.code, reply.json["type"]) == (500, "internal_error", "error")
        assert reply.header("content-type") == "application/json"
        assert reply.header("set-cookie") is None
        assert CANARY.encode() not in reply.body
        assert [request_id for request_id, _ in door.crashes] == [reply.json["request_id"]]
        assert door.logged == []


async def test_gateway_error_of_the_handler() -> None:
    """A `GatewayError` that leaves the handler is rendered, and the connection goes on."""

    async def refuse(_request: web.BaseRequest) -> web.StreamResponse:
        raise GatewayError(MODEL_NOT_FOUND, param="model")

    async with open_door(refuse) as door:
        first, second = replies(await door.raw(request() * 2))

        assert (first.status, first.code, first.json["error"]["param"]) == (400, "model_not_found", "model")
        assert second.status == 400
        assert door.refused == [("model_not_found", 400)] * 2


async def test_crash_after_the_answer_began() -> None:
    """A crash mid-answer resets the connection, so that the half body cannot be taken for a whole one."""

    async def half(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        raise ValueError

    async with open_door(half) as door:
        reader, writer = await door.connect()
        writer.write(request())
        await reader.readuntil(b"half")

        with pytest.raises(ConnectionResetError):
            await reader.read()
        await hang_up(writer)
        assert len(door.crashes) == 1


async def test_client_gone_is_no_crash() -> None:
    """A write that finds the client gone is reported neither as a crash nor as a bad request."""
    done = asyncio.Event()

    async def late(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        transport = request.transport
        assert transport is not None
        transport.close()
        try:
            await response.write(b"x")
        finally:
            done.set()
        return response

    async with open_door(late) as door:
        await door.raw(request())
        await done.wait()

        assert door.crashes == []
        assert door.refused == []


async def test_answer_survives_a_flood() -> None:
    """A refused client that is still sending sees the answer and not a reset."""
    async with open_door(lingering_s=1) as door:
        reader, writer = await door.connect()
        writer.write(b"BAD\x00\r\n" + b"x" * 3_000_000)
        async with asyncio.timeout(3):
            got = await reader.read()
        await hang_up(writer)

        assert [reply.status for reply in replies(got)] == [400]
