"""A raw HTTP/1.1 client: exact bytes, exact ends, and every way of leaving.

reply = await client.request("POST", "/v1/chat/completions", chat("m", stream=False))
async with client.stream("/v1/chat/completions", chat("m")) as stream:
    async for frame in stream.frames(): ...
    left_s = stream.rst()
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.http1 import Body, Head, Headers, cut_head, response_framing
from tests.support.peer import Closed, Peer

Pairs = Mapping[str, str] | Sequence[tuple[str, str]]
Payload = bytes | dict[str, Any] | list[Any] | None
"""A request body: bytes as they are, anything else as JSON."""


class Watch:
    """Looks for a secret in everything a client gets; bodies are searched across the pieces they came in."""

    def __init__(self, secret: str = "") -> None:
        self.hits: list[str] = []
        self._secret = secret.encode()
        self._tails: dict[int, bytes] = {}

    def look(self, owner: int, data: bytes) -> None:
        """Search *data*, the next piece of the stream *owner*."""
        if not self._secret:
            return
        window = self._tails.get(owner, b"") + data
        position = window.find(self._secret)
        if position >= 0:
            self.hits.append(window[max(0, position - 80) : position + 80].decode("utf-8", "replace"))
            window = window[position + len(self._secret) :]
        self._tails[owner] = window[-len(self._secret) + 1 :]

    def done(self, owner: int) -> None:
        """The stream *owner* is over."""
        self._tails.pop(owner, None)


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer; `ended_properly` is False when its body was cut."""

    status: int
    headers: Headers
    body: bytes
    ended_properly: bool

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Stream:
    """An answer under way on its own connection.

    Attributes:
        sent_s: Monotonic seconds when the request was written.
        frame_times: Monotonic seconds of the arrival of each frame that `frames` gave.
        rest: After `frames`: bytes behind the last blank line. Empty in a stream of whole frames.
    """

    def __init__(self, peer: Peer, method: str, watch: Watch) -> None:
        self.peer = peer
        self.sent_s = time.monotonic()
        self.frame_times: list[float] = []
        self.rest = b""
        self._method = method
        self._watch = watch
        self._inbox = bytearray()
        self._head: Head | None = None
        self._body: Body | None = None

    @property
    def status(self) -> int:
        return self._known_head.status

    @property
    def headers(self) -> Headers:
        return self._known_head.headers

    @property
    def chunks(self) -> list[int]:
        """Sizes of the chunks that came, 0 for the last one."""
        return self._body.chunks if self._body else []

    @property
    def ended_properly(self) -> bool:
        """Whether the end of the body itself was seen, as opposed to a connection that just ended."""
        return self._body is not None and self._body.ended

    @property
    def closed(self) -> asyncio.Future[Closed]:
        """The end of the connection."""
        return self.peer.closed

    @property
    def _known_head(self) -> Head:
        if self._head is None:
            raise RuntimeError("no head yet")
        return self._head

    async def head(self, within_s: float = 10.0) -> Head | None:
        """Wait for the head; None when the connection ended without one.

        Raises:
            TimeoutError: Neither happened within *within_s*.
        """
        async with asyncio.timeout(within_s):
            while self._head is None:
                head = cut_head(self._inbox)
                if head is not None and head.status >= 200:  # 1xx come before the answer
                    self._take_head(head)
                elif head is None:
                    data = await self.peer.receive()
                    if not data:
                        return None
                    self._inbox += data
        return self._head

    def _take_head(self, head: Head) -> None:
        self._head = head
        self._body = Body(response_framing(self._method, head))
        self._watch.look(id(self), head.line.encode("latin-1"))
        for name, value in head.headers:
            self._watch.look(id(self), f"\n{name}: {value}".encode("latin-1"))

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The decoded body as it comes, until its end or the connection's.

        Raises:
            TimeoutError, FramingError
        """
        if await self.head() is None or self._body is None:
            return
        data = bytes(self._inbox)
        self._inbox.clear()
        while True:
            piece = self._body.feed(data)
            if piece:
                self._watch.look(id(self), piece)
                yield piece
            if self._body.ended:
                return
            data = await self.peer.receive()
            if not data:
                self._body.close((await self.peer.gone()).how)
                return

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """Raw frames: the exact bytes between blank lines (LF LF, nothing else). Can be left and entered again."""
        held, scan_from = bytearray(self.rest), 0
        pieces = self.pieces()
        while True:
            while (end := held.find(b"\n\n", scan_from)) >= 0:
                frame = bytes(held[:end])
                del held[: end + 2]
                self.rest, scan_from = bytes(held), 0
                self.frame_times.append(time.monotonic())
                yield frame
            self.rest, scan_from = bytes(held), max(0, len(held) - 1)
            piece = await anext(pieces, None)
            if piece is None:
                return
            held += piece

    async def all_frames(self, within_s: float = 30.0) -> list[bytes]:
        """Every frame to the end.

        Raises:
            TimeoutError: The end did not come within *within_s*.
        """
        async with asyncio.timeout(within_s):
            return [frame async for frame in self.frames()]

    async def reply(self, within_s: float = 30.0) -> Reply:
        """The whole answer.

        Raises:
            ConnectionError: The connection ended without a head.
            TimeoutError: The end did not come within *within_s*.
        """
        async with asyncio.timeout(within_s):
            if await self.head(within_s) is None:
                raise ConnectionError(f"no answer: {self.peer.closed.result().how}")
            body = b"".join([piece async for piece in self.pieces()])
        return Reply(self.status, self.headers, body, self.ended_properly)

    # -- ways of leaving --

    def close(self) -> float:
        """FIN; the kernel makes it RST if unread bytes are left. Returns the monotonic second."""
        return self.peer.fin()

    def rst(self) -> float:
        """RST. Returns the monotonic second."""
        return self.peer.rst()

    def half_close(self) -> float:
        """FIN, and go on reading. Returns the monotonic second."""
        self.peer.half_close()
        return time.monotonic()

    async def dispose(self) -> None:
        """Free the socket, whatever is under way."""
        self._watch.done(id(self))
        await self.peer.dispose()


class Client:
    """Makes connections to one port; `headers` go with every request unless the request has its own of that name."""

    def __init__(self, port: int, headers: Pairs = (), watch: Watch | None = None) -> None:
        self.port = port
        self.headers = _pairs(headers)
        self.watch = watch or Watch()

    async def connect(self, rcvbuf: int | None = None) -> Peer:
        """
        A bare connection.

        Args:
            rcvbuf: SO_RCVBUF in bytes, for readers that stop: with a small one, few bytes hide in the kernel.
        """
        sock = socket.socket()
        if rcvbuf is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        sock.settimeout(0)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(sock, ("127.0.0.1", self.port))
            _, peer = await loop.create_connection(Peer, sock=sock)
        except BaseException:
            sock.close()
            raise
        return peer

    async def open(
        self, method: str, target: str, payload: Payload = None, headers: Pairs = (), *, rcvbuf: int | None = None
    ) -> Stream:
        """Send a request on a new connection without waiting for anything; the caller disposes of the stream."""
        peer = await self.connect(rcvbuf)
        return await self.ask(peer, method, target, payload, headers)

    async def ask(self, peer: Peer, method: str, target: str, payload: Payload = None, headers: Pairs = ()) -> Stream:
        """Send a request on *peer*, which must be idle (keep-alive)."""
        stream = Stream(peer, method, self.watch)
        await peer.send(self.request_bytes(method, target, payload, headers))
        return stream

    def request_bytes(self, method: str, target: str, payload: Payload = None, headers: Pairs = ()) -> bytes:
        """The exact request, for tests that cut or bend it."""
        own = _pairs(headers)
        names = {name.lower() for name, _ in own}
        body = payload if isinstance(payload, bytes) else b"" if payload is None else json.dumps(payload).encode()
        defaults = [("host", f"127.0.0.1:{self.port}"), *self.headers]
        if payload is not None:
            defaults += [("content-type", "application/json")]
            if "transfer-encoding" not in names:
                defaults += [("content-length", str(len(body)))]
        pairs = [pair for pair in defaults if pair[0].lower() not in names] + own
        lines = "".join(f"{name}: {value}\r\n" for name, value in pairs)
        return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body

    async def request(
        self, method: str, target: str, payload: Payload = None, headers: Pairs = (), *, within_s: float = 30.0
    ) -> Reply:
        """One request on a connection of its own, and its whole answer."""
        stream = await self.open(method, target, payload, headers)
        try:
            return await stream.reply(within_s)
        finally:
            await stream.dispose()

    @contextlib.asynccontextmanager
    async def stream(
        self, target: str, payload: Payload, headers: Pairs = (), *, rcvbuf: int | None = None
    ) -> AsyncIterator[Stream]:
        """POST and wait for the head; the connection is gone when the block ends.

        Raises:
            ConnectionError: The connection ended without a head.
        """
        stream = await self.open("POST", target, payload, headers, rcvbuf=rcvbuf)
        try:
            if await stream.head() is None:
                raise ConnectionError(f"no answer: {stream.peer.closed.result().how}")
            yield stream
        finally:
            await stream.dispose()

    async def raw(self, data: bytes, *, within_s: float = 10.0) -> bytes:
        """Send *data* as it is and return everything that comes until the other side closes (fuzzing).

        Raises:
            TimeoutError: It did not close within *within_s*.
        """
        peer = await self.connect()
        out = bytearray()
        try:
            async with asyncio.timeout(within_s):
                with contextlib.suppress(ConnectionError):
                    await peer.send(data)
                while piece := await peer.receive():
                    out += piece
        finally:
            await peer.dispose()
            self.watch.look(id(peer), bytes(out))
            self.watch.done(id(peer))
        return bytes(out)


def _pairs(headers: Pairs) -> list[tuple[str, str]]:
    return list(headers.items() if isinstance(headers, Mapping) else headers)
