"""What goes over the wire to a provider, and which connection it goes over."""

from __future__ import annotations

import asyncio
import random
import select
import socket
import ssl
import time
import warnings
from dataclasses import replace

import pytest
import trustme

from gateway import __version__
from gateway.core.call import UpstreamRequest
from gateway.core.errors import UpstreamFailed
from gateway.upstream.client import AiohttpUpstream
from gateway.upstream.connection import SLICE_BYTES
from tests.chaos.upstream.raw_peer import (
    CHUNKED,
    LIMITS,
    Conn,
    RawPeer,
    answer,
    chunk,
    client,
    dial,
    read_request,
    request,
    serving,
)


async def exchanged(upstream: AiohttpUpstream, peer: RawPeer, conn: Conn | None, reply: bytes) -> tuple[Conn, bytes]:
    """One whole exchange, over *conn* or over the next new connection."""
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    conn = conn or await peer.accept()
    head, _ = await conn.request()
    await conn.send(reply)
    got = await task
    while await got.read():
        pass
    got.release()
    return conn, head


@pytest.mark.parametrize("size", [2, SLICE_BYTES + 2])
async def test_told_before_it_leaves(upstream: AiohttpUpstream, peer: RawPeer, size: int) -> None:
    """Who asks is told before the provider can have all of the request: its process may be killed at that moment."""
    conn, _ = await exchanged(upstream, peer, None, answer(b"one"))
    body, had = b"[" + b" " * (size - 2) + b"]", list[bool]()

    def is_there() -> None:
        ready = select.select([conn.sock], [], [], 0)[0]
        had.append(bool(ready) and conn.sock.recv(1 << 20, socket.MSG_PEEK).endswith(b"]"))

    task = asyncio.create_task(dial(upstream, request(peer.url, body), is_there))
    await conn.request()
    await conn.send(answer(b"two"))
    (await task).release()

    assert had == [False]


async def test_request_as_sent(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A POST with the given headers, our name, no offer to decompress, and the path exactly as written."""
    task = asyncio.create_task(dial(upstream, request(peer.url + "?alt=sse&x=%2F", b'{"a":1}')))
    conn = await peer.accept()
    head, body = await conn.request()
    await conn.send(answer(b"hello", b"X-Kind: test"))
    got = await task

    lines = head.decode().lower().split("\r\n")
    assert lines[0] == "post /v1/chat/completions?alt=sse&x=%2f http/1.1"
    assert sorted(lines[1:]) == [
        "accept-encoding: identity",
        "content-length: 7",
        "content-type: application/json",
        f"host: 127.0.0.1:{peer.port}",
        f"user-agent: anoman-gateway/{__version__}",
    ]
    assert body == b'{"a":1}'
    assert (got.status, got.headers["x-kind"], await got.read(), await got.read()) == (200, "test", b"hello", b"")


async def test_large_body(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A body of several MiB arrives whole, without a warning that it is large."""
    body = bytes(range(256)) * (3 << 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        task = asyncio.create_task(dial(upstream, request(peer.url, body)))
        conn = await peer.accept()
        _, seen = await conn.request()

    await conn.send(answer(b""))
    assert seen == body
    assert await (await task).read() == b""


async def test_large_answer_over_tls() -> None:
    """An answer of many receives arrives as it was sent, and its connection serves the next request."""
    ca = trustme.CA()
    server_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("localhost").configure_cert(server_tls)
    client_tls = ssl.create_default_context()
    ca.configure_trust(client_tls)
    body = random.Random(1).randbytes(3_000_000)
    connections = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(2):
            await read_request(reader)
            writer.write(answer(body))

    upstream = client(tls=client_tls)
    async with serving(handler, server_tls, "localhost") as port:
        for _ in range(2):
            got, parts = await dial(upstream, request(f"https://localhost:{port}/")), []
            while part := await got.read():
                parts.append(part)

            assert b"".join(parts) == body
        await upstream.close()

    assert connections == 1


async def test_large_body_to_a_slow_peer(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """What a peer does not take waits in the request, not as a second copy in the transport's buffer."""
    task = asyncio.create_task(dial(upstream, request(peer.url, bytes(24 << 20))))
    await peer.accept()
    await asyncio.sleep(0.2)  # until the kernel's buffers are full; there is no event for that

    (wire,) = upstream._connector._acquired
    buffered = wire.transport.get_write_buffer_size()  # type: ignore[union-attr]

    assert 0 < buffered <= 4 * SLICE_BYTES
    task.cancel()


@pytest.mark.parametrize("status", [b"301 Moved", b"303 See", b"307 Temporary", b"308 Permanent"])
async def test_redirect_is_not_followed(upstream: AiohttpUpstream, peer: RawPeer, status: bytes) -> None:
    """H13, A12: a redirect is an answer like any other; the credential goes nowhere else."""
    async with RawPeer() as elsewhere:
        task = asyncio.create_task(dial(upstream, request(peer.url)))
        conn = await peer.accept()
        await conn.request()
        await conn.send(answer(b"", b"Location: " + elsewhere.url.encode(), status=status))

        got = await task

        assert got.status == int(status[:3])
        assert not elsewhere.has_caller()


async def test_connecting_has_one_deadline() -> None:
    """However many addresses a name has, connecting takes no longer than `connect_s` in all."""
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.settimeout(0)
        filler.connect_ex(full.getsockname())
    upstream = client(replace(LIMITS, connect_s=0.3), lookup=lambda _: ["127.0.0.1"] * 4)
    start_s = time.monotonic()

    with pytest.raises(UpstreamFailed) as caught:
        await dial(upstream, request(f"http://silent.test:{full.getsockname()[1]}/"))

    took_s = time.monotonic() - start_s
    await upstream.close()
    for sock in (full, *fillers):
        sock.close()
    assert caught.value.failure.reason == "connect_timeout"
    assert 0.25 < took_s < 0.6


async def test_cookies_are_forgotten(peer: RawPeer) -> None:
    """H14: a cookie set on one request is not sent with the next."""
    peer.url = f"http://provider.test:{peer.port}/"  # a jar takes no cookies from bare addresses
    upstream = client(lookup=lambda _: ["127.0.0.1"])
    conn, _ = await exchanged(upstream, peer, None, answer(b"a", b"Set-Cookie: tenant=1; Path=/"))

    _, head = await exchanged(upstream, peer, conn, answer(b"b"))

    await upstream.close()
    assert b"cookie" not in head.lower()


async def test_environment_is_not_trusted(peer: RawPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    """H14: a proxy named in the environment is not used."""
    async with RawPeer() as trap:
        monkeypatch.setenv("http_proxy", trap.url)
        monkeypatch.setenv("no_proxy", "")
        upstream = client()

        await exchanged(upstream, peer, None, answer(b"a"))

        await upstream.close()
        assert not trap.has_caller()


async def test_idle_connection_is_dropped(peer: RawPeer) -> None:
    """H16: a pooled connection is given up before the provider would close it."""
    upstream = client(replace(LIMITS, pool_idle_s=0.2))
    conn, _ = await exchanged(upstream, peer, None, answer(b"a"))
    start_s = time.monotonic()

    how, at_s = await conn.left()

    await upstream.close()
    assert how == "fin"
    assert 0.1 < at_s - start_s < 1.0


async def test_connection_closed_while_idle(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A connection that the provider closed while it was idle is not tried again."""
    conn, _ = await exchanged(upstream, peer, None, answer(b"a"))
    conn.fin()
    assert (await conn.left())[0] == "fin"

    other, _ = await exchanged(upstream, peer, None, answer(b"b"))

    assert other is not conn


@pytest.mark.parametrize("end", [Conn.fin, Conn.rst], ids=["fin", "rst"])
async def test_connection_closed_on_reuse(upstream: AiohttpUpstream, peer: RawPeer, end: object) -> None:
    """MID-16: a provider that closes just when its connection is reused may be asked again; nothing says it is ill."""
    conn, _ = await exchanged(upstream, peer, None, answer(b"a"))
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    await conn.request()

    end(conn)  # type: ignore[operator]

    with pytest.raises(UpstreamFailed) as caught:
        await task
    failure = caught.value.failure
    assert (failure.reason, failure.retryable, failure.counts) == ("stale", True, False)


@pytest.mark.parametrize("said", [b"HTTP/1.1 200", b"HTTP/1.1 102 Processing\r\n\r\n"])
async def test_a_connection_that_has_spoken_was_not_dead(upstream: AiohttpUpstream, peer: RawPeer, said: bytes) -> None:
    """A provider that begins to answer and closes has had the request: that is a failure of its own."""
    conn, _ = await exchanged(upstream, peer, None, answer(b"a"))
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    await conn.request()

    await conn.send(said)
    conn.fin()

    with pytest.raises(UpstreamFailed) as caught:
        await task
    assert (caught.value.failure.reason, caught.value.failure.counts) == ("reset", True)


async def test_one_dead_connection_empties_the_pool(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """What killed one resting connection has killed those of its age: the next request makes a new one."""
    asking = [upstream.ask(request(peer.url), lambda: None) for _ in range(3)]
    conns = [await peer.accept() for _ in asking]
    for conn in conns:
        await conn.request()
        await conn.send(answer(b"ok"))
    for one in asking:
        await (await one.answer()).read()
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    await asyncio.sleep(0)
    for conn in conns:
        conn.rst()
    with pytest.raises(UpstreamFailed):
        await task

    task = asyncio.create_task(dial(upstream, request(peer.url)))
    fresh = await peer.accept()
    await fresh.request()
    await fresh.send(answer(b"ok"))

    assert await (await task).read() == b"ok"


async def test_a_fresh_connection(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A request that is to have a connection of its own gets none from the pool, however fit."""
    conn, _ = await exchanged(upstream, peer, None, answer(b"a"))
    fresh = UpstreamRequest(peer.url, (), b"{}", fresh=True)

    task = asyncio.create_task(dial(upstream, fresh))
    other = await peer.accept()
    await other.request()
    await other.send(answer(b"b"))

    assert await (await task).read() == b"b"
    assert other is not conn


@pytest.mark.parametrize("begun", [False, True], ids=["resting", "reused"])
async def test_closing_what_is_over(upstream: AiohttpUpstream, peer: RawPeer, begun: bool) -> None:
    """Whoever closes a request whose answer has ended does nothing to its connection, nor to whose it is now."""
    over = upstream.ask(request(peer.url), lambda: None)
    conn = await peer.accept()
    await conn.request()
    await conn.send(answer(b"a"))
    got = await over.answer()
    assert await got.read() == b"a"
    if not begun:
        over.close()
        got.close()

    task = asyncio.create_task(dial(upstream, request(peer.url)))
    await conn.request()
    over.close()
    got.close()
    await conn.send(answer(b"b"))

    assert await (await task).read() == b"b"


async def test_a_fresh_connection_where_there_may_be_one(peer: RawPeer) -> None:
    """Those that rest make room for it: nobody else would."""
    upstream = client(replace(LIMITS, max_connections=1))
    conn, _ = await exchanged(upstream, peer, None, answer(b"a"))

    task = asyncio.create_task(dial(upstream, UpstreamRequest(peer.url, (), b"{}", fresh=True)))
    other = await peer.accept()
    await other.request()
    await other.send(answer(b"b"))

    assert await (await task).read() == b"b"
    assert (await conn.left())[0] == "fin"
    await upstream.close()


async def test_a_provider_that_dies_at_work_is_ill(
    upstream: AiohttpUpstream, peer: RawPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has had the request for a while before it closes did get it, whatever connection it came by."""
    monkeypatch.setattr("gateway.upstream.asking.STALE_WITHIN_S", 0.05)
    conn, _ = await exchanged(upstream, peer, None, answer(b"a"))
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    await conn.request()
    await asyncio.sleep(0.1)

    conn.fin()

    with pytest.raises(UpstreamFailed) as caught:
        await task
    assert (caught.value.failure.reason, caught.value.failure.counts) == ("reset", True)


async def test_many_at_once() -> None:
    """LIM-14, H15: 250 parallel streams all get their first bytes, none waits for another."""
    upstream = client(replace(LIMITS, connect_s=5))
    done = asyncio.Event()
    came_s: asyncio.Queue[float] = asyncio.Queue()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED + chunk(b"first"))
        await done.wait()

    async def stream(port: int) -> None:
        got = await dial(upstream, request(f"http://127.0.0.1:{port}/"))
        await got.read()
        came_s.put_nowait(time.monotonic())
        await done.wait()
        got.close()

    async with serving(handler) as port:
        start_s = time.monotonic()
        tasks = [asyncio.create_task(stream(port)) for _ in range(250)]
        async with asyncio.timeout(10):
            last_s = [await came_s.get() for _ in tasks][-1]
        done.set()
        await asyncio.gather(*tasks)
    await upstream.close()

    assert last_s - start_s < 2  # 0.1-0.2 s alone on a machine; none ends before all have begun, so none can queue


async def test_connection_limit(peer: RawPeer) -> None:
    """H15: the number of connections is a setting, and waiting for one is under the connect deadline."""
    upstream = client(replace(LIMITS, max_connections=1, connect_s=0.2))
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    await (await peer.accept()).request()

    with pytest.raises(UpstreamFailed) as caught:
        await dial(upstream, request(peer.url))

    task.cancel()
    await upstream.close()
    failure = caught.value.failure
    assert (failure.reason, failure.counts, failure.retryable) == ("no_slot", False, False)


async def test_connection_limit_is_each_providers_own(peer: RawPeer) -> None:
    """A provider whose connections are all in use takes none from another."""
    upstream = client(replace(LIMITS, max_connections=1, connect_s=0.2))
    async with RawPeer() as other:
        tasks = [asyncio.create_task(dial(upstream, request(at.url))) for at in (peer, other)]

        heads = [(await (await at.accept()).request())[0] for at in (peer, other)]

        for task in tasks:
            task.cancel()
        await upstream.close()
    assert all(head.startswith(b"POST ") for head in heads)


async def test_silence_is_nobodys_deadline_here(peer: RawPeer) -> None:
    """MID-12: a head and a body that take far longer than the connect deadline are waited for."""
    upstream = client(replace(LIMITS, connect_s=0.05))
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    conn = await peer.accept()
    await conn.request()

    await asyncio.sleep(0.3)
    await conn.send(CHUNKED)
    got = await task
    await asyncio.sleep(0.3)
    await conn.send(chunk(b"late") + b"0\r\n\r\n")

    assert [await got.read(), await got.read()] == [b"late", b""]
    await upstream.close()


async def test_unread_body_holds_the_provider_back(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A body that is read no further stops the provider instead of filling our memory."""
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    conn = await peer.accept()
    await conn.request()
    await conn.send(CHUNKED)
    got = await task

    sending = asyncio.create_task(conn.send(chunk(b"x" * (32 << 20))))
    await got.read()
    await asyncio.sleep(0.3)

    assert not sending.done()
    assert max(map(len, got._content._buffer)) <= 16_384  # one receive, whatever the event loop would have taken
    assert got._content._size <= 2 * 16_384 + 16_384  # twice our read buffer, and the receive that passed it
    sending.cancel()
    got.close()


@pytest.mark.parametrize("stray", [b"", answer(b"stray")], ids=["closed", "stray"])
async def test_news_on_a_connection_of_the_pool(upstream: AiohttpUpstream, peer: RawPeer, stray: bytes) -> None:
    """What the kernel has got since the last answer is looked at before a connection is used again."""
    conn, _ = await exchanged(upstream, peer, None, answer(b"one"))
    if stray:
        conn.sock.send(stray)
    else:
        conn.sock.close()

    # No turn of the loop lies between: without a look the request would be written to that connection.
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    second = await peer.accept()
    await second.request()
    await second.send(answer(b"two"))

    assert await (await task).read() == b"two"
