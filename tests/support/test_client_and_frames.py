"""The raw client measured against a listener that writes bytes and nothing else."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator

import pytest

from tests.support.client import Client, Stream, Watch
from tests.support.frames import blocks, chat, content_events, messages, named, parsed, text_of
from tests.support.http1 import Body, FramingError, Head, Headers, cut_head, response_framing
from tests.support.notation import (
    AERR,
    CBD,
    CBJ,
    CBS,
    DONE,
    ERRF,
    FIN,
    MD,
    MS,
    MX,
    TC,
    R,
    T,
    U,
    crlf,
    data,
    json_answer,
)

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Listener:
    """Accepts one connection with plain sockets."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(0)
        self.port: int = self._listening.getsockname()[1]
        self.sock = self._listening

    async def accept(self) -> bytes:
        """Take a connection and return what it sent first."""
        loop = asyncio.get_running_loop()
        self.sock, _ = await loop.sock_accept(self._listening)
        return await loop.sock_recv(self.sock, 65536)

    async def write(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def read(self) -> bytes:
        """The next bytes, b"" for FIN, or `ConnectionResetError`."""
        async with asyncio.timeout(5):
            return await asyncio.get_running_loop().sock_recv(self.sock, 65536)

    def close(self) -> None:
        self.sock.close()
        self._listening.close()


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


@pytest.fixture
async def stream(listener: Listener) -> AsyncIterator[Stream]:
    stream = await Client(listener.port).open("POST", "/", {})
    await listener.accept()
    yield stream
    await stream.dispose()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def test_request_bytes(listener: Listener) -> None:
    """The request is exactly what was asked for; its own headers replace the client's."""
    client = Client(listener.port, {"authorization": "Bearer a", "x-b": "1"})

    stream = await client.open("POST", "/p?q", {"m": "é"}, {"X-B": "2"})
    received = await listener.accept()

    await stream.dispose()
    assert received == (
        b"POST /p?q HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nauthorization: Bearer a\r\n"
        b"content-type: application/json\r\ncontent-length: 15\r\nX-B: 2\r\n\r\n"
        rb'{"m": "\u00e9"}' % listener.port
    )


async def test_frames_are_exact_wherever_the_body_is_cut(listener: Listener, stream: Stream) -> None:
    """Frames are the bytes between blank lines, whatever the chunks and segments."""
    body = R() + T("é🦀") + DONE
    answer = SSE + b"".join(chunk(body[i : i + 7]) for i in range(0, len(body), 7)) + b"0\r\n\r\n"

    reading = asyncio.create_task(stream.all_frames())
    for i in range(0, len(answer), 3):
        await listener.write(answer[i : i + 3])
        for _ in range(5):  # rounds of the loop: the reader takes each piece before the next is written
            await asyncio.sleep(0)
    frames = await reading

    assert [frame + b"\n\n" for frame in frames] == [R(), T("é🦀"), DONE]
    assert (stream.status, stream.headers.get("Content-Type")) == (200, "text/event-stream")
    assert (stream.ended_properly, stream.rest, len(stream.frame_times)) == (True, b"", 3)
    assert stream.chunks[-2:] == [len(body) % 7, 0]


async def test_frames_come_when_they_are_whole(listener: Listener, stream: Stream) -> None:
    """A frame is given as soon as its blank line is here, not at the end."""
    frames = stream.frames()

    await listener.write(SSE + chunk(R()))
    first = await asyncio.wait_for(anext(frames), 1)

    await frames.aclose()
    assert first + b"\n\n" == R()


async def test_frames_can_be_entered_again(listener: Listener, stream: Stream) -> None:
    """Who leaves the loop and comes back misses nothing, not even what came with the last frame."""
    await listener.write(SSE + chunk(R() + T("a") + T("b")[:9]) + chunk(T("b")[9:] + DONE) + b"0\r\n\r\n")

    one_by_one = [await anext(stream.frames()) for _ in range(4)]

    assert [frame + b"\n\n" for frame in one_by_one] == [R(), T("a"), T("b"), DONE]


async def test_half_a_frame_stays_over(listener: Listener, stream: Stream) -> None:
    """What follows the last blank line is no frame."""
    await listener.write(SSE + chunk(R() + b"data: [DO") + b"0\r\n\r\n")

    frames = await stream.all_frames()

    assert (len(frames), stream.rest, stream.ended_properly) == (1, b"data: [DO", True)


async def test_crlf_is_not_taken_for_lf(listener: Listener, stream: Stream) -> None:
    """A server that ends lines with CR LF gives one long rest: the tests of our output must see that."""
    await listener.write(SSE + chunk(crlf(R() + DONE)) + b"0\r\n\r\n")

    frames = await stream.all_frames()

    assert (frames, stream.rest) == ([], crlf(R() + DONE))


@pytest.mark.parametrize("way", ["fin", "rst"])
async def test_a_cut_body_is_not_a_proper_end(listener: Listener, stream: Stream, way: str) -> None:
    """Without the last chunk the body was cut, however the connection ended."""
    await listener.write(SSE + chunk(R()))
    await stream.head()
    if way == "rst":
        listener.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    listener.sock.close()

    frames = await stream.all_frames()

    assert (len(frames), stream.ended_properly) == (1, False)
    assert (await stream.peer.gone(1)).how == way


async def test_no_answer_at_all(listener: Listener, stream: Stream) -> None:
    """A connection that ends before a head is an error of the connection."""
    listener.sock.close()

    with pytest.raises(ConnectionError, match="no answer: fin"):
        await stream.reply()


async def test_reply_with_a_length_and_early_hints(listener: Listener, stream: Stream) -> None:
    """Interim answers are passed over; the body ends with its length and the connection may stay."""
    await listener.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 No\r\nContent-Length: 2\r\nA: 1\r\nA: 2\r\n\r\n{}")

    reply = await stream.reply()

    assert (reply.status, reply.json, reply.ended_properly, reply.headers.all("a")) == (429, {}, True, ["1", "2"])
    assert not stream.closed.done()


async def test_ways_of_leaving(listener: Listener) -> None:
    """close is FIN, rst is RST, half_close is FIN with the way back open."""
    client = Client(listener.port)
    closing = await client.open("POST", "/", {})
    await listener.accept()
    closing.close()
    after_close = await listener.read()
    listener.sock.close()

    resetting = await client.open("POST", "/", {})
    await listener.accept()
    resetting.rst()
    with pytest.raises(ConnectionResetError):
        await listener.read()
    listener.sock.close()

    halving = await client.open("POST", "/", {})
    await listener.accept()
    halving.half_close()
    after_half = await listener.read()
    await listener.write(SSE + chunk(R()) + b"0\r\n\r\n")
    frames = await halving.all_frames()

    for left in (closing, resetting, halving):
        await left.dispose()
    assert (after_close, after_half) == (b"", b"")
    assert (len(frames), halving.ended_properly) == (1, True)


async def test_a_reader_that_stops(listener: Listener) -> None:
    """With a small receive buffer and a paused peer, a writer is stuck after little; reading frees it."""
    async with asyncio.timeout(10):
        stream = await Client(listener.port).open("POST", "/", {}, rcvbuf=4096)
        await listener.accept()
        listener.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        stream.peer.pause()

        writing = asyncio.create_task(listener.write(b"x" * 1_000_000))
        done, _ = await asyncio.wait([writing], timeout=0.2)
        stuck = not done
        stream.peer.resume()
        received = 0
        while received < 1_000_000:
            received += len(await stream.peer.receive())
        await writing

    await stream.dispose()
    assert stuck


async def test_raw_returns_everything(listener: Listener) -> None:
    """`raw` sends bytes as they are and reads to the end."""
    asking = asyncio.create_task(Client(listener.port).raw(b"\0bad\r\n"))

    received = await listener.accept()
    await listener.write(b"anything")
    listener.sock.close()

    assert (received, await asking) == (b"\0bad\r\n", b"anything")


async def test_secret_is_found_across_pieces(listener: Listener) -> None:
    """The watch sees a secret in a header, and in a body even when it is cut over chunks."""
    watch = Watch("s3cret")
    stream = await Client(listener.port, watch=watch).open("POST", "/", {})
    await listener.accept()

    await listener.write(SSE.replace(b"\r\n\r\n", b"\r\nX: my-s3cret\r\n\r\n") + chunk(b"a s3c"))
    pieces = stream.pieces()
    await anext(pieces)
    await listener.write(chunk(b"ret b\n\n") + b"0\r\n\r\n")
    await anext(pieces)

    await pieces.aclose()
    await stream.dispose()
    assert [("my-s3cret" in hit, "a s3cret b" in hit) for hit in watch.hits] == [(True, False), (False, True)]


def test_time_of_leaving_is_monotonic_now() -> None:
    """Stamps of both sides are of the same clock as the loop's."""
    loop = asyncio.new_event_loop()

    assert abs(loop.time() - time.monotonic()) < 0.1
    loop.close()


@pytest.mark.parametrize(
    "body", [b"zz\r\n", b"+5\r\nhello\r\n", b"0x5\r\n", b"5\nhello", b"2\r\nabc\r\n", b"-1\r\n", b"\r\n"]
)
def test_broken_chunks(body: bytes) -> None:
    """Chunk framing is held to the letter."""
    with pytest.raises(FramingError):
        Body("chunked").feed(body)


@pytest.mark.parametrize(
    ("framing", "body"),
    [("chunked", b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: 1\r\n\r\nnext"), (5, b"abcdenext")],
)
def test_body_is_the_same_for_every_cut(framing: int | str, body: bytes) -> None:
    """However the bytes come, the body, its end and the bytes behind it are the same."""
    for cut in range(len(body) + 1):
        decoder = Body(framing)  # type: ignore[arg-type]  # parametrize widens the literal

        out = decoder.feed(body[:cut]) + decoder.feed(body[cut:])

        assert (out, decoder.ended, bytes(decoder.rest)) == (b"abcde", True, b"next")


def test_body_that_ends_with_the_connection() -> None:
    """Such a body ends well with FIN and with nothing else."""
    ends = {}
    for how in ("fin", "rst", "ours"):
        body = Body("eof")
        body.feed(b"abc")
        body.close(how)
        ends[how] = body.ended

    assert ends == {"fin": True, "rst": False, "ours": False}


def test_heads() -> None:
    """A head is cut off whole, bad lines are refused, and a body cannot be framed twice."""
    data = bytearray(b"HTTP/1.1 200 OK\r\nA:  b \r\n\r\nrest")

    head = cut_head(data)

    assert (head, bytes(data)) == (Head("HTTP/1.1 200 OK", Headers([("a", "b")])), b"rest")
    for bad in (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", b"HTTP/1.1 200 OK\r\n folded: 1\r\n\r\n"):
        with pytest.raises(FramingError):
            cut_head(bytearray(bad))
    both = Headers([("content-length", "1"), ("transfer-encoding", "chunked")])
    with pytest.raises(FramingError):
        response_framing("GET", Head("HTTP/1.1 200 OK", both))
    with pytest.raises(FramingError):
        Headers([("a", "1"), ("a", "2")]).get("a")


def test_notation_is_that_of_the_catalogue() -> None:
    """The makers write the catalogue's events to the letter."""
    start = b'data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":['

    assert start + b'{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n' == R()
    assert start + '{"index":0,"delta":{"content":"北"},"finish_reason":null}]}\n\n'.encode() == T("北")
    assert start + b'{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n' == FIN("stop")
    usage = b'],"usage":{"prompt_tokens":7,"completion_tokens":1,"total_tokens":8}}\n\n'
    assert start + usage == U(7, 1)
    assert b'data: {"error":{"type":"provider_error"' in ERRF(2)
    assert b'event: message_stop\ndata: {"type":"message_stop"}\n\n' == MX  # noqa: SIM300 - expected == actual
    assert b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"' in AERR("overloaded_error")


def test_frames_are_read() -> None:
    """Comments are left out, names are kept, text and tool arguments of both dialects are content."""
    openai = R() + b": ping\n\n" + T("a") + TC(0, name="f") + TC(0, "{}") + FIN() + U(1, 1) + DONE
    anthropic = MS(25, 1) + CBS(0, "tool_use", name="f") + CBD(0, "b") + CBJ(0, "{}") + MD("tool_use", 9) + MX

    assert (content_events(openai), text_of(blocks(openai))) == (3, "a{}")
    assert (content_events(crlf(anthropic)), text_of(blocks(anthropic))) == (2, "b{}")
    assert [name for name, _ in named(blocks(anthropic))][::5] == ["message_start", "message_stop"]
    assert parsed(blocks(openai))[-1] == "[DONE]"
    assert parsed([b"data: not json"]) == ["not json"]
    assert content_events(data({"error": {"message": "x"}})) == 0


def test_bodies() -> None:
    """Request bodies have the fields of their dialect, and further ones replace them; whole answers likewise."""
    assert chat("m", stream=False, n=1) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": False,
        "n": 1,
    }
    assert messages("m", max_tokens=5)["max_tokens"] == 5
    assert b'"total_tokens": 8' in json_answer("x").body
    assert b'"input_tokens": 7' in json_answer("x", dialect="anthropic").body
