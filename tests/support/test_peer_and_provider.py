"""The fake provider measured from the other side by plain sockets, so that the kit does not vouch for itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.acts import (
    Answer,
    Script,
    drip,
    end,
    fin,
    garbage,
    head,
    no_answer,
    pause_ms,
    repeat,
    reset,
    send,
    send_raw,
    stall,
    status,
    wait,
)
from tests.support.notation import DONE, EOF_OK, FIN, FIN_CUT, HANG, RST, R, T, U
from tests.support.provider import ANY_MODEL, FakeProvider, refusing_port, silent_port

NOTICED_S = 0.005  # the promise under test is 50 ms; the instrument has to be ten times finer
BODY = json.dumps({"model": "m"}).encode()
REQUEST = (
    b"POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: a\r\nX-Two: 1\r\nx-two: 2\r\nContent-Length: %d\r\n\r\n"
    % len(BODY)
)
REQUEST += BODY


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with FakeProvider() as provider:
        yield provider


@pytest.fixture
def sock(provider: FakeProvider) -> Iterator[socket.socket]:
    with connected(provider) as sock:
        yield sock


def connected(provider: FakeProvider) -> socket.socket:
    sock = socket.socket()
    try:
        sock.connect(("127.0.0.1", provider.port))
    except ConnectionRefusedError:
        sock.close()
        raise
    sock.setblocking(False)  # noqa: FBT003 - the socket module's own signature
    return sock


async def asked(sock: socket.socket, request: bytes = REQUEST) -> None:
    await asyncio.get_running_loop().sock_sendall(sock, request)


async def read_until(sock: socket.socket, marker: bytes) -> bytes:
    """Bytes up to and including *marker*."""
    out = b""
    async with asyncio.timeout(5):
        while marker not in out:
            piece = await asyncio.get_running_loop().sock_recv(sock, 65536)
            assert piece, f"ended after {out!r}"
            out += piece
    return out


async def read_all(sock: socket.socket) -> tuple[bytes, str]:
    """Everything to the end, and how it ended."""
    out = b""
    async with asyncio.timeout(5):
        try:
            while piece := await asyncio.get_running_loop().sock_recv(sock, 65536):
                out += piece
        except ConnectionResetError:
            return out, "rst"
    return out, "fin"


def close_with_reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


async def test_request_is_recorded(provider: FakeProvider, sock: socket.socket) -> None:
    """Method, target, every header pair, body and parsed JSON are what was sent."""
    provider.script("m", [status(200, {}, {"ok": True})])

    await asked(sock)
    seen = await provider.next_request()

    assert (seen.method, seen.target, seen.path) == ("POST", "/v1/chat/completions?x=1", "/v1/chat/completions")
    assert seen.headers == [("host", "a"), ("x-two", "1"), ("x-two", "2"), ("content-length", str(len(BODY)))]
    assert (seen.body, seen.json) == (BODY, {"model": "m"})
    assert seen.opened_s <= seen.received_s <= time.monotonic()


async def test_chunked_request_byte_by_byte(provider: FakeProvider, sock: socket.socket) -> None:
    """A request may come in any pieces."""
    provider.script("m", [status(200)])
    chunked = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" + BODY[:5]
    chunked += b"\r\n%x\r\n" % (len(BODY) - 5) + BODY[5:] + b"\r\n0\r\n\r\n"

    for position in range(len(chunked)):
        await asked(sock, chunked[position : position + 1])
        await asyncio.sleep(0)
    seen = await provider.next_request()

    assert seen.body == BODY


async def test_bytes_of_a_stream(provider: FakeProvider, sock: socket.socket) -> None:
    """Each piece is one chunk behind the head of an event stream, and the end is the last chunk."""
    provider.script("m", [b"ab", send(b"c" * 16), EOF_OK])

    await asked(sock)
    answer = await read_until(sock, b"0\r\n\r\n")

    assert answer == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nab\r\n10\r\ncccccccccccccccc\r\n0\r\n\r\n"
    )


async def test_bytes_of_a_whole_answer(provider: FakeProvider, sock: socket.socket) -> None:
    """A status answer has its own headers, a JSON body and a content length."""
    provider.script("m", [status(429, {"Retry-After": "2"}, {"error": 1})])

    await asked(sock)
    answer = await read_until(sock, b"}")

    assert answer == (
        b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\nContent-Type: application/json\r\n"
        b'Content-Length: 12\r\n\r\n{"error": 1}'
    )


async def test_keep_alive_and_successive_answers(provider: FakeProvider, sock: socket.socket) -> None:
    """Requests on one connection, even pipelined, get the scripts in turn; the last one repeats."""
    provider.script("m", [status(200, {}, b"one")], [b"two"], [status(200, {}, b"three")])

    await asked(sock, REQUEST * 4)
    answer = await read_until(sock, b"three")
    while answer.count(b"three") < 2:
        answer += await read_until(sock, b"three")

    assert [answer.count(word) for word in (b"one", b"two", b"three")] == [1, 1, 2]
    assert (len(provider.requests), provider.connections, provider.open_connections) == (4, 1, 1)


async def test_a_script_can_be_made_from_the_request(provider: FakeProvider, sock: socket.socket) -> None:
    """A function gets the request and gives the script."""
    provider.script("m", lambda seen: [status(200, {}, seen.path.encode())])

    await asked(sock)

    assert b"\r\n\r\n/v1/chat/completions" in await read_until(sock, b"completions")


@pytest.mark.parametrize(
    ("script", "ending"),
    [
        ([T("a"), FIN_CUT], "fin"),
        ([T("a"), RST], "rst"),
        ([reset()], "rst"),
        ([fin()], "fin"),
        ([garbage(b"HTTP/1.1 200"), FIN_CUT], "fin"),
        ([head(framing="eof"), T("a"), EOF_OK], "fin"),
        ([head(framing=1000), T("a"), FIN_CUT], "fin"),
    ],
)
async def test_how_the_provider_ends(provider: FakeProvider, sock: socket.socket, script: Script, ending: str) -> None:
    """FIN is FIN and RST is RST; nothing of what was sent before is lost, and no last chunk is made up."""
    provider.script("m", script)

    await asked(sock)
    received, how = await read_all(sock)

    seen = await provider.next_request()
    assert how == ending
    assert (await seen.gone()).how == "ours"
    assert received.endswith(bytes(seen.body_sent) + (b"\r\n" if b"chunked" in received else b""))
    assert b"\r\n0\r\n" not in received


@pytest.mark.parametrize("way", ["fin", "rst"])
@pytest.mark.parametrize(
    "script",
    [
        [R(), T("a"), HANG],
        [R(), pause_ms(60_000)],
        lambda _: [R(), wait(asyncio.Event())],
        [stall()],
        [no_answer()],
        [R(), repeat(T("a"), pause_ms(1))],
        [R(), repeat(T("a"))],
        [R(), repeat(b"x" * 65536)],
    ],
    ids=["stalled", "paused", "waiting", "silent", "no answer", "flowing", "flooding", "blocked in a write"],
)
async def test_the_peer_leaves(provider: FakeProvider, script: Answer, way: str) -> None:
    """Whatever the script is doing, the end of the connection is noticed within 5 ms, and FIN is told from RST."""
    provider.script("m", script)

    left = [await leave(provider, way) for _ in range(3)]

    assert {how for how, _ in left} == {way}
    assert 0 <= min(delay_s for _, delay_s in left) < NOTICED_S  # the best of three: the others measure the machine
    assert provider.open_connections == 0


async def leave(provider: FakeProvider, way: str) -> tuple[str, float]:
    """Ask, leave, and tell what the provider noticed and how late."""
    with connected(provider) as sock:
        await asked(sock)
        seen = await provider.next_request()
        await asyncio.sleep(0.02)  # let the script get to where it stays
        left_s = time.monotonic()
        if way == "rst":
            close_with_reset(sock)
        else:
            sock.shutdown(socket.SHUT_WR)  # a close over unread bytes would be a reset
        closed = await seen.gone(1)
    async with asyncio.timeout(1):
        await seen.played.wait()
    return closed.how, closed.when_s - left_s


async def test_leaving_while_idle(provider: FakeProvider, sock: socket.socket) -> None:
    """An idle keep-alive connection that goes is seen too."""
    provider.script("m", [status(200)])
    await asked(sock)
    seen = await provider.next_request()
    await seen.played.wait()

    sock.close()

    assert (await seen.gone(1)).how in ("fin", "rst")  # the unread answer may turn the close into a reset
    await provider.all_gone(1)


async def test_events_are_counted_as_sent(provider: FakeProvider, sock: socket.socket) -> None:
    """Only whole events with a piece of the answer count: no role, no half frame, no usage, no terminator."""
    halfway = asyncio.Event()
    frame = T("b")
    provider.script("m", [R(), T("a") + frame[:20], wait(halfway), frame[20:], FIN(), U(7, 2), DONE, EOF_OK])
    await asked(sock)
    seen = await provider.next_request()

    await read_until(sock, frame[:20])
    half = seen.content_events
    halfway.set()
    await seen.sent_events(2)
    await seen.played.wait()

    assert (half, seen.content_events) == (1, 2)
    assert bytes(seen.body_sent) == R() + T("a") + frame + FIN() + U(7, 2) + DONE


async def test_a_blocked_write_is_not_counted(provider: FakeProvider, sock: socket.socket) -> None:
    """Bytes that the kernel did not take are not sent, so a reader that stopped shows."""
    provider.script("m", [repeat(b"x" * 262_144, times=400)])
    await asked(sock)
    seen = await provider.next_request()

    await asyncio.sleep(0.1)
    first = len(seen.body_sent)
    await asyncio.sleep(0.1)

    assert first == len(seen.body_sent) < 100 * 2**20


async def test_drip_cuts_everywhere(provider: FakeProvider, sock: socket.socket) -> None:
    """A dripped text is one chunk per byte."""
    provider.script("m", [drip("é🦀".encode()), end()])

    await asked(sock)
    answer = await read_until(sock, b"0\r\n\r\n")

    assert answer.count(b"1\r\n") == len("é🦀".encode())


async def test_raw_bytes_are_not_framed(provider: FakeProvider, sock: socket.socket) -> None:
    """`send_raw` writes past the chunking."""
    provider.script("m", [head(), send_raw(b"zz\r\n"), HANG])

    await asked(sock)

    assert (await read_until(sock, b"zz\r\n")).endswith(b"\r\n\r\nzz\r\n")


async def test_stop_and_start_again(provider: FakeProvider, sock: socket.socket) -> None:
    """A stopped provider drops and refuses; a started one is back on its port."""
    provider.script("m", [HANG])
    await asked(sock)
    await provider.next_request()

    await provider.stop()
    _, how = await read_all(sock)
    with pytest.raises(ConnectionRefusedError):
        connected(provider)
    await provider.start()
    with connected(provider) as again:
        await asked(again)

        assert (await provider.next_request()).json == {"model": "m"}
    assert how == "fin"


async def test_a_request_without_a_script_fails_the_test() -> None:
    """A request nobody expected is an error when the provider is left."""

    async def unexpected() -> None:
        async with FakeProvider() as provider:
            provider.script("other", [HANG])
            with connected(provider) as sock:
                await asked(sock)
                await read_all(sock)

    with pytest.raises(AssertionError, match="no script for POST"):
        await unexpected()


async def test_any_model(provider: FakeProvider, sock: socket.socket) -> None:
    """The script for any model answers what has none of its own."""
    provider.script(ANY_MODEL, [status(204)])

    await asked(sock, b"GET /v1/models HTTP/1.1\r\n\r\n")

    assert b" 204 " in await read_until(sock, b"\r\n\r\n")


async def test_refusing_port() -> None:
    """Connecting to a refusing port is refused at once."""
    async with refusing_port() as port:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_silent_port() -> None:
    """Connecting to a silent port hangs."""
    async with silent_port() as port:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await asyncio.open_connection("127.0.0.1", port)


async def test_a_thousand_leave_at_once(provider: FakeProvider) -> None:
    """A storm of resets is seen whole."""
    provider.script("m", [R(), HANG])
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connected(provider)) for _ in range(1000)]
        for sock in socks:
            await asked(sock)
        for _ in socks:
            await provider.next_request()

        for sock in socks:
            close_with_reset(sock)
        await provider.all_gone(2)

    assert {seen.closed.result().how for seen in provider.requests} == {"rst"}
