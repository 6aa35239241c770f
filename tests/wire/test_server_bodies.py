"""Bodies: size, encoding, permission to send, images (H3, H9, B5, B6, PRX-08)."""

from __future__ import annotations

import asyncio
import gzip
import time

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.http import intake
from gateway.http.intake import holds_image
from tests.support.door import CANARY, LARGE_BYTES, SMALL_BYTES, hang_up, open_door, replies, request
from tests.support.scale import examples

IMAGE = b'{"type": "image"}'


def chunked(body: bytes, size: int = 1000) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 200),
        (b"x" * SMALL_BYTES, 200),
        (b"x" * (SMALL_BYTES + 1), 413),
        (IMAGE + b"x" * (LARGE_BYTES - len(IMAGE)), 200),
        (b"x" * (LARGE_BYTES - len(IMAGE)) + IMAGE, 200),
        (IMAGE + b"x" * (LARGE_BYTES - len(IMAGE) + 1), 413),
    ],
)
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_b5_size(body: bytes, status: int, framing: str) -> None:
    """The limit holds to the byte for both framings, and the large one only for bodies with an image (H9)."""
    if framing == "chunked":
        data = request("/v1", "Transfer-Encoding: chunked", "Connection: close", body=chunked(body))
    else:
        data = request("/v1", f"Content-Length: {len(body)}", "Connection: close", body=body)
    async with open_door() as door:
        reply = await door.ask(data)

        assert reply.status == status
        assert reply.json.get("bytes", len(body)) == len(body)
        assert str(reply.header("content-type")).startswith("application/json")


async def test_h9_megabytes() -> None:
    """A body of the real limit passes whole, far above the framework's own 1 MiB."""
    body = IMAGE + bytes(range(256)) * (4096 * 23)

    async def echo_length(request: web.BaseRequest) -> web.StreamResponse:
        got = await intake.read_body(request, small_bytes=4 << 20, large_bytes=24 << 20, body_s=30)
        return web.json_response({"same": got == body})

    async with open_door(echo_length) as door:
        reply = await door.ask(request("/v1", "Connection: close", body=body), within_s=20)

        assert reply.json == {"same": True}


async def test_b5_declared_too_large() -> None:
    """A declared length above the limit is refused before a byte of the body is read."""
    async with open_door() as door:
        reader, writer = await door.connect()
        writer.write(request("/v1", f"Content-Length: {LARGE_BYTES + 1}", body=b""))
        head = await reader.readuntil(b"\r\n\r\n")

        assert head.startswith(b"HTTP/1.1 413 ")
        assert b"Connection: close" in head
        await hang_up(writer)


async def test_b5_endless_chunks() -> None:
    """A chunked body without end is refused as soon as it is over the limit, and the rest is not read for long."""
    async with open_door() as door:
        reader, writer = await door.connect()
        answer = asyncio.ensure_future(reader.read())
        writer.write(request("/v1", "Transfer-Encoding: chunked", body=b""))
        sent = 0
        while not answer.done() and not writer.transport.is_closing():
            writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            sent += 4096
            await asyncio.sleep(0.001)

        assert sent > LARGE_BYTES
        assert b"request_too_large" in await asyncio.wait_for(_whatever(answer), 2)
        await hang_up(writer)


async def _whatever(answer: asyncio.Future[bytes]) -> bytes:
    try:
        return await answer
    except ConnectionError:
        return b"request_too_large"  # the flood outlasted the lingering: a reset is the right end of it


@pytest.mark.parametrize(
    "coding", ["gzip", "GZIP", "br", "deflate", "zstd", "x-gzip", "gzip, gzip", "identity, gzip", "aes128gcm"]
)
async def test_b6_encoded(coding: str) -> None:
    """An encoded body is a 415 in the envelope, unread."""
    async with open_door() as door:
        reply = await door.ask(request("/anthropic/v1/messages", f"Content-Encoding: {coding}", "Connection: close"))

        assert (reply.status, reply.code, reply.json["type"]) == (415, "unsupported_encoding", "error")


@pytest.mark.parametrize("coding", ["identity", "Identity", ""])
async def test_b6_identity(coding: str) -> None:
    """`identity` is no encoding."""
    async with open_door() as door:
        reply = await door.ask(request("/v1", f"Content-Encoding: {coding}", "Connection: close"))

        assert reply.status == 200


async def test_h3_bombs_are_not_inflated() -> None:
    """Sixteen gzip bombs cost nothing: the event loop never pauses for them."""
    bomb = gzip.compress(b"\0" * 60_000_000, 9)
    worst_s = 0.0
    async with open_door() as door:
        bombs = [
            asyncio.ensure_future(door.ask(request("/v1", "Content-Encoding: gzip", "Connection: close", body=bomb)))
            for _ in range(16)
        ]
        while not all(task.done() for task in bombs):
            began_s = time.perf_counter()
            await asyncio.sleep(0.001)
            worst_s = max(worst_s, time.perf_counter() - began_s)

        assert {task.result().status for task in bombs} == {415}
        assert worst_s < 0.25  # inflating one of them takes about that long, all sixteen seconds


async def test_prx_08_continue_comes_after_auth_and_size() -> None:
    """`100 Continue` is sent when the key is known and the declared size accepted; then the body is read."""
    async with open_door() as door:
        reader, writer = await door.connect()
        writer.write(request("/v1", "Expect: 100-continue", "Content-Length: 5", body=b""))
        interim = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"hello")
        final = await reader.readuntil(b"}")

        assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert final.startswith(b"HTTP/1.1 200 ")
        await hang_up(writer)


@pytest.mark.parametrize(
    ("key", "length", "status"),
    [("anm-sk-wrong", 5, 401), (CANARY, LARGE_BYTES + 1, 413), ("anm-sk-wrong", 1 << 30, 401)],
)
async def test_prx_08_no_continue_for_the_refused(key: str, length: int, status: int) -> None:
    """A refused upload is refused without being asked for, and the connection ends."""
    async with open_door() as door:
        reply = await door.ask(request("/v1", "Expect: 100-continue", f"Content-Length: {length}", body=b"", key=key))

        assert reply.status == status
        assert reply.header("connection") == "close"


@pytest.mark.parametrize("value", ["200-ok", "100-continue, other", "meow"])
async def test_prx_08_other_expectations(value: str) -> None:
    """Any other expectation is a 417 in the envelope."""
    async with open_door() as door:
        reply = await door.ask(request("/anthropic/v1/messages", f"Expect: {value}", "Connection: close"))

        assert (reply.status, reply.code, reply.json["type"]) == (417, "expectation_failed", "error")


async def test_prx_08_needless_continue() -> None:
    """No interim answer when the body is here already, nor to HTTP/1.0."""
    async with open_door() as door:
        whole = await door.ask(request("/v1", "Expect: 100-continue", "Connection: close"))
        old = await door.raw(request("/v1", "Expect: 100-continue").replace(b"HTTP/1.1", b"HTTP/1.0"))

        assert whole.status == 200
        assert [reply.status for reply in replies(old)] == [200]


async def test_unread_body_ends_the_connection() -> None:
    """An answer given before the body was read closes: its rest must never be taken for a request."""
    rest = request("/v1/smuggled")
    async with open_door() as door:
        reader, writer = await door.connect()
        writer.write(request("/v1", f"Content-Length: {len(rest) + 10}", body=b"0123456789", key="anm-sk-wrong"))
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(rest)
        async with asyncio.timeout(2):
            tail = await reader.read()
        writer.close()

        assert head.startswith(b"HTTP/1.1 401 ")
        assert b"Connection: close" in head
        assert b"HTTP/1.1" not in tail
        assert door.server.requests_count == 1


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"type":"image"}', True),
        (b'{"type" :\n\t"image"}', True),
        (b'{"type": "image_url", "image_url": {}}', True),
        (b'{"url":"data:image/png;base64,AA"}', True),
        (b'{"type":"images"}', False),
        (b'{"kind":"image"}', False),
        (b'"image"' * 500_000, False),
        (b"", False),
    ],
)
async def test_image_markers(body: bytes, expected: bool) -> None:
    """An image part is recognised by its type, its field or its data URL, and by nothing else."""
    assert await holds_image(body) is expected


@settings(max_examples=examples(100), deadline=None)
@given(
    marker=st.sampled_from([b'"image_url"', b'"type":"image"', b'"type" :\r\n "image"', b"data:image/"]),
    offset=st.integers(-40, 40),
    windows=st.integers(1, 2),
)
def test_image_marker_across_a_window(marker: bytes, offset: int, windows: int) -> None:
    """A marker is found wherever it lies, also across the edge of a scanning window."""
    at = windows * intake.SCAN_BYTES + offset
    body = b"x" * at + marker + b"x" * 100

    assert asyncio.run(holds_image(body))
    assert not asyncio.run(holds_image(body.replace(marker, marker[:-1])))
