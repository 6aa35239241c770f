"""Everything a provider or the network can do wrong, and the word we have for it."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
import threading
import time
from dataclasses import replace

import pytest
import trustme

from gateway.core.errors import PROVIDER_UNAVAILABLE, Failure, UpstreamFailed
from gateway.upstream.client import AiohttpUpstream
from gateway.upstream.connection import MAX_INTERIM
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

INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
UNTIL_EOF = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


async def failing(upstream: AiohttpUpstream, url: str) -> Failure:
    with pytest.raises(UpstreamFailed) as caught:
        await dial(upstream, request(url))
    return caught.value.failure


async def answered(upstream: AiohttpUpstream, peer: RawPeer, reply: bytes, end: object = None) -> Conn:
    """Start an exchange that is answered with *reply* and then ended."""
    conn = await peer.accept()
    await conn.request()
    await conn.send(reply)
    if end is not None:
        end(conn)  # type: ignore[operator]
    return conn


@pytest.mark.parametrize(
    ("reply", "end", "reason"),
    [
        (b"", Conn.fin, "reset"),
        (b"", Conn.rst, "reset"),
        (b"HTTP/1.1 200", Conn.fin, "reset"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", None, "protocol"),
        (b"HTTP/1.1 abc OK\r\n\r\n", None, "protocol"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 20_000 + b"\r\n\r\n", None, "protocol"),
        (b"HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n", None, "protocol"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", None, "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", None, "protocol"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", None, "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 9\r\n\r\nx", None, "encoding"),
    ],
)
async def test_no_good_head(upstream: AiohttpUpstream, peer: RawPeer, reply: bytes, end: object, reason: str) -> None:
    """A13, MID-02: whatever comes instead of a head is a failure in our words, and the connection is dropped."""
    task = asyncio.create_task(failing(upstream, peer.url))
    conn = await answered(upstream, peer, reply, end)

    failure = await task

    assert (failure.reason, failure.failure_class, failure.retryable) == (reason, "upstream_error", True)
    assert failure.error is PROVIDER_UNAVAILABLE
    if end is None:
        assert (await conn.left())[0] in ("fin", "rst")


async def test_interim_answers_are_skipped(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A13: 1xx answers before the real one are passed over."""
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    await answered(upstream, peer, b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 3 + answer(b"real"))

    got = await task

    assert (got.status, await got.read()) == (200, b"real")


@pytest.mark.parametrize("pieces", [1, MAX_INTERIM + 1], ids=["together", "apart"])
async def test_a_flood_of_interim_answers(upstream: AiohttpUpstream, peer: RawPeer, pieces: int) -> None:
    """A13: more 1xx answers than any server sends are a failure, and the connection is dropped at once."""
    task = asyncio.create_task(failing(upstream, peer.url))
    conn = await answered(upstream, peer, b"")
    for _ in range(pieces):
        await conn.send(INTERIM * ((MAX_INTERIM + 1) // pieces))
        await asyncio.sleep(0)  # the loop may read them one by one
    if pieces == 1:
        await conn.send(answer(b"real"))

    failure = await task

    assert (failure.reason, failure.failure_class, failure.retryable) == ("protocol", "upstream_error", True)
    assert (await conn.left())[0] in ("fin", "rst")


async def test_interim_answers_are_counted_for_each_request(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A13: as many as are allowed may come before every answer of one connection."""
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    conn = await answered(upstream, peer, INTERIM * MAX_INTERIM + answer(b"one"))
    first = await (await task).read()
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    await conn.request()
    await conn.send(INTERIM * MAX_INTERIM + answer(b"two"))

    assert (first, await (await task).read()) == (b"one", b"two")


@pytest.mark.parametrize("pause", [True, False], ids=["apart", "together"])
@pytest.mark.parametrize(
    ("reply", "end", "reason"),
    [
        (CHUNKED + chunk(b"abc"), Conn.fin, "truncated"),
        (CHUNKED + chunk(b"abc"), Conn.rst, "reset"),
        (LENGTH + b"abc", Conn.fin, "truncated"),
        (LENGTH + b"abc", Conn.rst, "reset"),
        (UNTIL_EOF + b"abc", Conn.rst, "reset"),
    ],
    ids=["chunked fin", "chunked rst", "length fin", "length rst", "eof rst"],
)
async def test_body_breaks_off(
    upstream: AiohttpUpstream, peer: RawPeer, reply: bytes, end: object, reason: str, pause: bool
) -> None:
    """MID-01, MID-02, H12: what had come is handed out, then the failure, also when both came at once."""
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    conn = await answered(upstream, peer, reply)
    got = await task
    first = await got.read() if pause else b""
    end(conn)  # type: ignore[operator]
    if not pause:
        await asyncio.sleep(0.02)  # until the loop has seen both; nothing else happens then
        first = await got.read()

    for _ in range(2):
        assert not got.ended
        with pytest.raises(UpstreamFailed) as caught:
            await got.read()

        assert (caught.value.failure.reason, caught.value.failure.failure_class) == (reason, "upstream_error")
    assert first == b"abc"
    got.close()


async def test_reader_waits_when_a_body_without_length_is_reset(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """H12: a reset is not taken for the end of a body that ends with its connection."""
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    conn = await answered(upstream, peer, UNTIL_EOF + b"abc")
    got = await task
    await got.read()
    reading = asyncio.create_task(got.read())
    await asyncio.sleep(0.01)

    conn.rst()

    with pytest.raises(UpstreamFailed) as caught:
        await reading
    assert caught.value.failure.reason == "reset"
    got.close()


async def test_body_without_length_ends(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """H12: a FIN ends such a body normally; whether it was whole is for the lane to know."""
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    conn = await answered(upstream, peer, UNTIL_EOF + b"abc")
    got = await task

    assert await got.read() == b"abc"
    conn.fin()
    assert await got.read() == b""


@pytest.mark.parametrize("bad", [b"zz\r\n", b"-1\r\nx\r\n", b"fffffffffffffffffff\r\n", b"3\r\nabcd\r\n"])
@pytest.mark.parametrize("pause", [True, False], ids=["apart", "together"])
async def test_bad_chunk_size(upstream: AiohttpUpstream, peer: RawPeer, bad: bytes, pause: bool) -> None:
    """A13: a broken chunk ends in a failure after the good bytes, at once, and the connection is dropped."""
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    conn = await answered(upstream, peer, CHUNKED + chunk(b"good"))
    got = await task
    seen = await got.read() if pause else b""
    await conn.send(bad)
    if not pause:
        await asyncio.sleep(0.02)  # until the loop has seen both; nothing else happens then

    failure: Failure | None = None
    try:
        async with asyncio.timeout(1):
            while data := await got.read():
                seen += data
    except UpstreamFailed as exc:
        failure = exc.failure

    assert failure is not None
    assert failure.reason == "protocol"
    assert seen in (b"good", b"goodabc")
    assert (await conn.left())[0] in ("fin", "rst")
    got.close()


async def test_refused(upstream: AiohttpUpstream) -> None:
    """A1: a closed port is `connect`."""
    async with RawPeer() as peer:
        url = peer.url

    failure = await failing(upstream, url)

    assert (failure.reason, failure.failure_class, failure.retryable) == ("connect", "upstream_error", True)


async def test_black_hole(upstream: AiohttpUpstream) -> None:
    """A1: an address that swallows our packets is given up at the connect deadline."""
    async with RawPeer(backlog=0) as full:
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.settimeout(0)
            filler.connect_ex(("127.0.0.1", full.port))
        start_s = time.monotonic()

        failure = await failing(upstream, full.url)

        for filler in fillers:
            filler.close()
    assert (failure.reason, failure.failure_class) == ("connect_timeout", "upstream_timeout")
    assert failure.error is PROVIDER_UNAVAILABLE
    assert 0.4 < time.monotonic() - start_s < 0.8


async def test_unknown_name() -> None:
    """A2: a name without an address is `dns`; it is not looked up again at once."""
    asked = []

    def lookup(host: str) -> list[str]:
        asked.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    upstream = client(lookup=lookup)

    reasons = [(await failing(upstream, "http://provider.test/v1")).reason for _ in range(3)]

    await upstream.close()
    assert reasons == ["dns"] * 3
    assert asked == ["provider.test"]


async def test_slow_names_starve_nobody(peer: RawPeer) -> None:
    """A2: a dozen names that hang are given up at the DNS deadline, while others are looked up as ever."""
    hang = threading.Event()

    def lookup(host: str) -> list[str]:
        if host.startswith("slow"):
            hang.wait()
        return ["127.0.0.1"]

    upstream = client(replace(LIMITS, connect_s=2), lookup=lookup)
    slow = [asyncio.create_task(failing(upstream, f"http://slow{i}.test:{peer.port}/")) for i in range(12)]
    await asyncio.sleep(0.05)

    start_s = time.monotonic()
    task = asyncio.create_task(dial(upstream, request(f"http://fast.test:{peer.port}/")))
    await answered(upstream, peer, answer(b"ok"))
    got = await task
    fast_s = time.monotonic() - start_s

    assert await got.read() == b"ok"
    assert fast_s < 0.2
    assert {failure.reason for failure in await asyncio.gather(*slow)} == {"dns"}
    assert time.monotonic() - start_s < 0.6
    hang.set()
    await upstream.close()


def _server_tls(cert: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    cert.configure_cert(context)
    return context


def _trusting(ca: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    return context


PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
CA = trustme.CA()
CERTS = {
    "good": CA.issue_cert("localhost"),
    "expired": CA.issue_cert("localhost", not_before=PAST - datetime.timedelta(30), not_after=PAST),
    "wrong host": CA.issue_cert("other.test"),
    "self-signed": trustme.CA().issue_cert("localhost"),
}


@pytest.mark.parametrize("kind", [kind for kind in CERTS if kind != "good"])
async def test_bad_certificate(kind: str) -> None:
    """A3: a certificate we do not accept is `tls`; not a byte of the request is sent."""
    seen = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(100))

    upstream = client(tls=_trusting(CA))
    async with serving(handler, _server_tls(CERTS[kind])) as port:
        failure = await failing(upstream, f"https://localhost:{port}/")
    await upstream.close()

    assert failure.reason == "tls"
    assert b"".join(seen) == b""


async def test_good_certificate() -> None:
    """A3: the same server with a certificate of the trusted authority is talked to."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer(b"ok", b"Connection: close"))

    upstream = client(tls=_trusting(CA))
    async with serving(handler, _server_tls(CERTS["good"])) as port:
        got = await dial(upstream, request(f"https://localhost:{port}/"))
        body = await got.read()
        got.release()
    await upstream.close()

    assert body == b"ok"


async def test_system_trust_is_the_default(upstream: AiohttpUpstream) -> None:
    """A3: without a context of its own the client checks against the system's authorities, not against none."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)

    async with serving(handler, _server_tls(CERTS["good"])) as port:
        failure = await failing(upstream, f"https://localhost:{port}/")

    assert failure.reason == "tls"


async def test_handshake_stall(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A3: a peer that accepts and then says nothing to the TLS greeting falls under the connect deadline."""
    start_s = time.monotonic()
    task = asyncio.create_task(failing(upstream, peer.url.replace("http", "https")))
    conn = await peer.accept()

    failure = await task

    assert failure.reason == "connect_timeout"
    assert time.monotonic() - start_s < 0.8
    assert (await conn.left())[0] in ("fin", "rst")


async def test_plain_http_on_the_tls_port(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A3: an answer in plain HTTP to a TLS greeting is `tls`, and there is no second, insecure try."""
    task = asyncio.create_task(failing(upstream, peer.url.replace("http", "https")))
    conn = await peer.accept()
    await conn.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    failure = await task

    assert failure.reason == "tls"
    assert not peer.has_caller()


async def test_bugs_surface(upstream: AiohttpUpstream) -> None:
    """An exception that no peer can cause is not dressed up as a provider's failure."""
    with pytest.raises(ValueError, match="nowhere"):
        await dial(upstream, request("http:///nowhere"))


async def test_detail_holds_no_secret(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """The log's detail has neither request headers nor the query string, where some providers take their key."""
    task = asyncio.create_task(failing(upstream, peer.url + "?key=canary-1"))
    await answered(upstream, peer, b"garbage\r\n\r\n")
    garbage = await task
    async with RawPeer() as closed:
        url = closed.url + "?key=canary-2"
    refused = await failing(upstream, url)
    slow = client(replace(LIMITS, connect_s=0.05))
    stalled = await failing(slow, peer.url.replace("http", "https") + "?key=canary-3")
    await slow.close()

    details = [garbage.detail, refused.detail, stalled.detail]
    assert not [detail for detail in details if "canary" in detail or "application/json" in detail]
    assert [detail.partition(":")[0] for detail in details] == [
        "HttpProcessingError",
        "ClientConnectorError",
        "ConnectionTimeoutError",
    ]
