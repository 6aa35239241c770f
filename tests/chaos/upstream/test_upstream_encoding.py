"""Bodies that come compressed although identity was asked for."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib

from gateway.core.errors import Failure, UpstreamFailed
from gateway.core.ports import UpstreamAnswer
from gateway.upstream.client import AiohttpUpstream
from tests.chaos.upstream.raw_peer import Conn, RawPeer, answer, chunk, dial, request

BOMB = gzip.compress(bytes(64 << 20))


async def opened(upstream: AiohttpUpstream, peer: RawPeer, reply: bytes) -> tuple[UpstreamAnswer, Conn]:
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    conn = await peer.accept()
    await conn.request()
    await conn.send(reply)
    return await task, conn


async def test_flushed_events_come_one_by_one(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """SSE-21: each event that is flushed into a gzip stream is handed out, plain, as soon as it is here."""
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    got, conn = await opened(upstream, peer, head)
    deflate = zlib.compressobj(wbits=31)

    seen = []
    for number in range(3):
        event = deflate.compress(b"data: %d\n\n" % number) + deflate.flush(zlib.Z_SYNC_FLUSH)
        await conn.send(chunk(event))
        async with asyncio.timeout(1):
            seen.append(await got.read())
    await conn.send(chunk(deflate.flush()) + b"0\r\n\r\n")

    assert seen == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"]
    assert await got.read() == b""
    assert "content-encoding" not in got.headers


async def test_length_of_a_compressed_body(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """The announced length counts compressed bytes, so it is not passed on either."""
    got, _ = await opened(upstream, peer, answer(gzip.compress(b"hello"), b"Content-Encoding: GZIP", b"X-Kept: 1"))

    assert await got.read() == b"hello"
    assert "content-length" not in got.headers
    assert got.headers["x-kept"] == "1"


async def test_identity_is_no_encoding(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """`Content-Encoding: identity` is a plain body."""
    got, _ = await opened(upstream, peer, answer(b"hello", b"Content-Encoding: identity"))

    assert await got.read() == b"hello"


async def test_bomb(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A16: 512 MiB of zeros in half a MiB are refused early, in bounded memory, and the connection is dropped."""
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % (8 * len(BOMB) + 1)
    got, conn = await opened(upstream, peer, head)
    sending = asyncio.create_task(conn.send(BOMB * 8))
    tracemalloc.start()

    plain = 0
    failure: Failure | None = None
    try:
        while data := await got.read():
            plain += len(data)
    except UpstreamFailed as exc:
        failure = exc.failure

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    got.close()
    sending.cancel()
    assert failure is not None
    assert failure.reason == "encoding"
    assert plain < 2 << 20
    assert peak < 4 << 20
    assert (await conn.left())[0] in ("fin", "rst")
