"""Leaving a provider: at once, seen by the peer, in every phase."""

from __future__ import annotations

import asyncio
import gc
import ssl
import sys
import time
import weakref
from typing import cast

import pytest
import trustme

from gateway.core.errors import UpstreamFailed
from gateway.core.ports import UpstreamAnswer
from gateway.upstream.answer import AiohttpAnswer
from gateway.upstream.client import AiohttpUpstream
from gateway.upstream.connection import Wire
from tests.chaos.upstream.raw_peer import CHUNKED, Conn, RawPeer, answer, chunk, client, dial, request, serving

PROMISE_S = 0.05  # contract 6: a client that leaves closes the upstream within 50 ms
BIG = b"x" * (24 << 20)  # more than the kernel's buffers on both sides take


async def opened(upstream: AiohttpUpstream, peer: RawPeer, head: bytes) -> tuple[UpstreamAnswer, Conn]:
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    conn = await peer.accept()
    await conn.request()
    await conn.send(head)
    return await task, conn


async def cancelled(task: asyncio.Task[UpstreamAnswer]) -> float:
    """Cancel *task*; the monotonic second before it."""
    start_s = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return start_s


async def test_cancel_while_waiting_for_the_head(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """Cancelling the wait for an answer after the request was sent closes the socket within 50 ms."""
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    conn = await peer.accept()
    await conn.request()

    start_s = await cancelled(task)

    how, at_s = await conn.left()
    assert how in ("fin", "rst")
    assert at_s - start_s < PROMISE_S


async def test_close_is_told_in_the_same_turn(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """The provider knows of a close before the loop runs anything else, however much is ready to run."""
    asking = upstream.ask(request(peer.url), lambda: None)
    waiting = asyncio.create_task(asking.answer())
    conn = await peer.accept()
    await conn.request()

    asking.close()
    told = conn.is_left()

    with pytest.raises(UpstreamFailed):
        await waiting
    assert told


async def test_close_while_connecting_wakes_who_waits(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """Giving up a connection that is being made fails the wait for an answer; it is no cancellation of the waiter."""
    asking = upstream.ask(request(peer.url.replace("http", "https")), lambda: None)
    waiting = asyncio.create_task(asking.answer())
    await peer.accept()

    asking.close()

    with pytest.raises(UpstreamFailed):
        await waiting


@pytest.mark.parametrize("size", [1 << 20, len(BIG)], ids=["in the kernel's buffer", "in ours too"])
async def test_cancel_while_the_peer_does_not_read(upstream: AiohttpUpstream, peer: RawPeer, size: int) -> None:
    """A body that the peer does not take does not hold the close back: the peer gets a reset within 50 ms."""
    task = asyncio.create_task(dial(upstream, request(peer.url, BIG[:size])))
    conn = await peer.accept()
    await asyncio.sleep(0.1)  # until the buffers are full; there is no event for that

    start_s = await cancelled(task)

    how, at_s = await conn.left()
    assert how == "rst"
    assert at_s - start_s < PROMISE_S


async def test_cancel_during_the_tls_handshake(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A handshake that the peer does not answer is given up at once."""
    task = asyncio.create_task(dial(upstream, request(peer.url.replace("http", "https"))))
    conn = await peer.accept()
    await asyncio.get_running_loop().sock_recv(conn.sock, 1 << 16)  # the client hello

    start_s = await cancelled(task)

    how, at_s = await conn.left()
    assert how in ("fin", "rst")
    assert at_s - start_s < PROMISE_S


@pytest.mark.parametrize("body", [b"{}", BIG[: 8 << 20]], ids=["small", "unsent"])
async def test_cancel_over_tls(body: bytes) -> None:
    """Under TLS the close does not wait for unsent data or for the peer's goodbye."""
    ca = trustme.CA()
    server_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("localhost").configure_cert(server_tls)
    client_tls = ssl.create_default_context()
    ca.configure_trust(client_tls)
    seen: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    done = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        seen.put_nowait(writer)
        await done.wait()
        writer.transport.abort()  # it has unread data, which a TLS transport would first wait to read

    upstream = client(tls=client_tls)
    async with serving(handler, server_tls, "localhost") as port:
        task = asyncio.create_task(dial(upstream, request(f"https://localhost:{port}/", body)))
        writer = await seen.get()
        await asyncio.sleep(0.1)  # until the buffers are full; there is no event for that

        start_s = await cancelled(task)

        how, at_s = await Conn(writer.get_extra_info("socket")).left()
        done.set()
    await upstream.close()
    assert how in ("fin", "rst")
    assert at_s - start_s < PROMISE_S


async def test_cancel_while_connecting(upstream: AiohttpUpstream) -> None:
    """A connection that does not come about leaves no socket behind."""
    async with RawPeer(backlog=0) as full:
        fillers = [asyncio.create_task(_connect(full.port)) for _ in range(4)]
        await asyncio.sleep(0.1)  # the queue of one fills
        task = asyncio.create_task(dial(upstream, request(full.url)))
        await asyncio.sleep(0.05)

        start_s = await cancelled(task)

        assert time.monotonic() - start_s < PROMISE_S
        for filler in fillers:
            filler.cancel()
        writers = await asyncio.gather(*fillers, return_exceptions=True)
        for writer in writers:
            if isinstance(writer, asyncio.StreamWriter):
                writer.close()


async def test_close_while_tls_has_lost_its_connection() -> None:
    """A TLS transport forgets its socket some turns before it tells of its end; a close in between just closes."""
    ca = trustme.CA()
    server_tls, client_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    ca.issue_cert("localhost").configure_cert(server_tls)
    ca.configure_trust(client_tls)
    upstream = client(tls=client_tls)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED)
        await writer.drain()
        writer.transport.abort()

    async with serving(handler, server_tls, "localhost") as port:
        got = await dial(upstream, request(f"https://localhost:{port}/"))
        wire = cast(Wire, cast(AiohttpAnswer, got)._connection.protocol)  # type: ignore[union-attr]
        assert wire.transport is not None
        while wire.transport is not None and wire.transport.get_extra_info("socket") is not None:  # noqa: ASYNC110 - nothing tells of the turn in between
            await asyncio.sleep(0)

        got.close()

        with pytest.raises(UpstreamFailed):
            await got.read()
    await upstream.close()


@pytest.mark.parametrize("head", [CHUNKED, CHUNKED + chunk(b"data: a\n\n")], ids=["silent", "flowing"])
async def test_close_in_the_body(upstream: AiohttpUpstream, peer: RawPeer, head: bytes) -> None:
    """`close` on an open answer is seen by the peer within 50 ms, and doing it twice changes nothing."""
    got, conn = await opened(upstream, peer, head)

    start_s = time.monotonic()
    got.close()
    got.close()

    how, at_s = await conn.left()
    assert how in ("fin", "rst")
    assert at_s - start_s < PROMISE_S


async def test_a_large_request_is_forgotten(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """Neither an answer that flows nor a pooled connection keeps the body of the request it belongs to."""
    body = bytearray(1 << 20)
    asking = upstream.ask(request(peer.url, cast(bytes, body)), lambda: None)
    waiting = asyncio.create_task(asking.answer())
    conn = await peer.accept()
    await conn.request()
    await conn.send(answer(b"ok"))
    got = await waiting

    body.append(0)  # BufferError while there is any view of it
    references = sys.getrefcount(body) - 1

    assert references == 1
    assert await got.read() == b"ok"
    assert [len(shelf._resting) for shelf in upstream._shelves.values()] == [1]


@pytest.mark.parametrize("closed_after", ["the answer", "the failure", "the question"])
async def test_a_request_without_a_connection_is_forgotten(upstream: AiohttpUpstream, closed_after: str) -> None:
    """When none is to be had, or its client left before, neither the body nor the failure waits for a collector."""
    async with RawPeer() as peer:
        url = peer.url
    gc.disable()
    try:
        body = bytearray(1 << 20)
        asking = upstream.ask(request(url, cast(bytes, body)), lambda: None)
        if closed_after == "the answer":
            with pytest.raises(UpstreamFailed):
                await asking.answer()
        elif closed_after == "the failure":
            await asyncio.sleep(0.05)
        asking.close()
        for _ in range(3):
            await asyncio.sleep(0)
        gone = weakref.ref(asking)
        del asking

        references = sys.getrefcount(body) - 1

        assert references == 1
        assert gone() is None
    finally:
        gc.enable()


async def test_close_while_the_request_is_still_being_written(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """An answer that comes before the peer has read the request can be dropped at once too."""
    task = asyncio.create_task(dial(upstream, request(peer.url, BIG)))
    conn = await peer.accept()
    await conn.some()
    await conn.send(CHUNKED)
    got = await task

    start_s = time.monotonic()
    got.close()

    how, at_s = await conn.left()
    assert how == "rst"
    assert at_s - start_s < PROMISE_S


async def test_whole_answer_before_the_request_was_taken(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """An early refusal is handed over, and the connection with the half-sent request is dropped, not reused."""
    task = asyncio.create_task(dial(upstream, request(peer.url, BIG)))
    conn = await peer.accept()
    await conn.some()
    await conn.send(answer(b"too large", status=b"413 Content Too Large"))
    start_s = time.monotonic()

    got = await task
    body = await got.read()
    got.release()

    how, at_s = await conn.left()
    assert (got.status, body, how) == (413, b"too large", "rst")
    assert at_s - start_s < 2 * PROMISE_S


REFUSAL = answer(b"too large", b"Connection: close", status=b"413 Content Too Large")

# A peer in a process of its own: it answers and closes while our loop is busy writing. Prints its port.
HASTY_PEER = f"""
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    conn, _ = listener.accept()
    conn.recv(1024)
    conn.sendall({REFUSAL!r})
    conn.close()
"""


async def test_refused_and_closed_in_the_middle_of_the_request(upstream: AiohttpUpstream) -> None:
    """An early refusal is handed over also when its connection is reset behind it, while we are still sending."""
    hasty = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HASTY_PEER, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert hasty.stdout is not None
    url = f"http://127.0.0.1:{int(await hasty.stdout.readline())}/"

    seen = []
    for _ in range(20):  # each of them was a reset before
        got = await dial(upstream, request(url, BIG))
        seen.append((got.status, await got.read()))
        got.close()

    hasty.terminate()
    await hasty.wait()
    assert seen == [(413, b"too large")] * 20


@pytest.mark.parametrize("reply", [answer(b"stray"), CHUNKED], ids=["whole", "open"])
async def test_answer_before_the_request(upstream: AiohttpUpstream, peer: RawPeer, reply: bytes) -> None:
    """An answer to a request of which no byte was sent is nobody's: either it loses the race, or it is refused."""
    task = asyncio.create_task(dial(upstream, request(peer.url, BIG)))
    conn = await peer.accept()
    conn.sock.send(reply)

    reason = "protocol"
    try:
        (await task).release()
    except UpstreamFailed as exc:
        reason = exc.failure.reason

    assert reason == "protocol"
    assert (await conn.left())[0] in ("fin", "rst")


async def test_close_wakes_a_reader(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A `read` that waits when the answer is closed fails; it does not wait on, nor report an end."""
    got, _ = await opened(upstream, peer, CHUNKED)
    reading = asyncio.create_task(got.read())
    await asyncio.sleep(0)

    got.close()

    with pytest.raises(UpstreamFailed):
        await reading


async def test_answers_after_a_cancel_reach_nobody(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A18: the next request goes over a new connection and gets its own answer."""
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    first = await peer.accept()
    await first.request()
    await cancelled(task)

    got, second = await opened(upstream, peer, answer(b"mine"))

    assert first.sock is not second.sock
    assert await got.read() == b"mine"


async def test_release_of_an_ended_body(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A body that has ended gives its connection to the next request, without a timer or a task."""
    got, conn = await opened(upstream, peer, CHUNKED + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    await got.read()

    got.release()

    assert not upstream._lingering.answers
    task = asyncio.create_task(dial(upstream, request(peer.url)))
    await conn.request()
    await conn.send(answer(b"again"))
    assert await (await task).read() == b"again"


async def test_release_before_the_end_came(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A body that ends shortly after its terminator gives its connection back as well."""
    got, conn = await opened(upstream, peer, CHUNKED + chunk(b"data: [DONE]\n\n"))
    await got.read()

    got.release()
    await asyncio.sleep(0.01)
    await conn.send(b"0\r\n\r\n")
    await asyncio.sleep(0.1)  # longer than the linger time: the timer must be gone

    task = asyncio.create_task(dial(upstream, request(peer.url)))
    await conn.request()
    await conn.send(answer(b"again"))
    assert await (await task).read() == b"again"


async def test_release_of_a_body_that_does_not_end(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """DIS-09: a provider that keeps the socket open after its terminator is left within 100 ms."""
    got, conn = await opened(upstream, peer, CHUNKED + chunk(b"data: [DONE]\n\n"))
    await got.read()

    start_s = time.monotonic()
    got.release()

    how, at_s = await conn.left()
    assert how in ("fin", "rst")
    assert 0.04 < at_s - start_s < 0.1
    assert not upstream._lingering.answers


async def test_release_of_a_body_that_goes_on(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A provider that keeps talking after its terminator is left too, and what it says is not piled up."""
    got, conn = await opened(upstream, peer, CHUNKED + chunk(b"data: [DONE]\n\n"))
    await got.read()

    talk = chunk(b"x" * 60000) * 400
    got.release()
    talking = asyncio.create_task(conn.send(talk))  # ends in an error, or never: nobody reads it
    with pytest.raises(ConnectionError):
        async with asyncio.timeout(5):
            await talking


async def test_closing_the_client_drops_what_lingers(peer: RawPeer) -> None:
    """No socket outlives the client, and nothing warns of unclosed things."""
    upstream = client()
    lingering, conn = await opened(upstream, peer, CHUNKED)
    lingering.release()
    held, other = await opened(upstream, peer, CHUNKED)

    await upstream.close()

    assert (await conn.left())[0] != "open"
    assert (await other.left())[0] != "open"
    held.close()


@pytest.mark.parametrize("extra", [b"x", b"\r\n", answer(b"second")], ids=["a byte", "a line end", "a whole answer"])
async def test_bytes_after_the_body(upstream: AiohttpUpstream, peer: RawPeer, extra: bytes) -> None:
    """A13, A18: a connection on which bytes came after the answer is not used again."""
    got, conn = await opened(upstream, peer, answer(b"first"))
    assert await got.read() == b"first"
    got.release()
    await conn.send(extra)
    await asyncio.sleep(0.02)  # until the loop has read it; nothing else happens then

    second, _ = await opened(upstream, peer, answer(b"own"))

    assert await second.read() == b"own"


async def test_two_answers_in_one_piece(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A18: the second of two answers to one request reaches nobody."""
    got, _ = await opened(upstream, peer, answer(b"first") + answer(b"second"))
    assert await got.read() == b"first"
    got.release()

    other, _ = await opened(upstream, peer, answer(b"own"))

    assert await other.read() == b"own"


async def test_garbage_in_one_piece_with_an_answer(upstream: AiohttpUpstream, peer: RawPeer) -> None:
    """A13: an answer with garbage behind it in the same segment fails as a whole, and so does its connection."""
    with pytest.raises(UpstreamFailed) as caught:
        await opened(upstream, peer, answer(b"first") + b"x")
    assert caught.value.failure.reason == "protocol"

    other, _ = await opened(upstream, peer, answer(b"own"))

    assert await other.read() == b"own"


async def _connect(port: int) -> asyncio.StreamWriter:
    return (await asyncio.open_connection("127.0.0.1", port))[1]
