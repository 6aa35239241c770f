"""A provider that does what its script says and writes down what was done to it.

    async with FakeProvider() as provider:
        provider.script("m", [R(), T("a"), HANG])
        ...
        seen = await provider.next_request()
        closed = await seen.gone(within_s=0.05)

It runs in the test's own event loop, on raw sockets: nothing is framed, retried or hidden by a library.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Self

from tests.support.acts import Answer, Script, play
from tests.support.http1 import Body, cut_head, request_framing
from tests.support.peer import Peer
from tests.support.stage import Seen, Stage

ANY_MODEL = "*"
BACKLOG = 4096  # storms of a thousand connections; the kernel's default of 100 would delay them by a SYN retry (1 s)


class FakeProvider:
    """A scripted HTTP/1.1 server on loopback.

    Attributes:
        port: Where it listens; kept over `stop` and `start`.
        requests: Every request in order of arrival.
        connections: How many connections were accepted so far.
    """

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.requests: list[Seen] = []
        self.connections = 0
        self._answers: dict[str, tuple[Answer, ...]] = {}
        self._asked: dict[str, int] = {}
        self._taken = 0
        self._arrived = asyncio.Condition()
        self._peers: dict[Peer, asyncio.Task[None]] = {}
        self._problems: list[BaseException] = []
        self._server: asyncio.Server | None = None

    @property
    def base_url(self) -> str:
        """The address without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        """Connections that neither side has ended."""
        return sum(not peer.closed.done() for peer in self._peers)

    def script(self, model: str, *answers: Answer) -> None:
        """Answer requests for *model* with *answers* in turn; the last one repeats. `ANY_MODEL` is for all others."""
        if not answers:
            raise ValueError("a script needs at least one answer")
        self._answers[model] = answers
        self._asked[model] = 0

    async def next_request(self, within_s: float = 5.0) -> Seen:
        """The first request that was not handed out yet.

        Raises:
            TimeoutError: None came within *within_s*.
        """
        async with asyncio.timeout(within_s), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) > self._taken)
            self._taken += 1
            return self.requests[self._taken - 1]

    async def requests_seen(self, count: int, within_s: float = 5.0) -> None:
        """Wait until *count* requests have come in all.

        Raises:
            TimeoutError: Fewer have within *within_s*.
        """
        async with asyncio.timeout(within_s), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)

    async def all_gone(self, within_s: float = 5.0) -> None:
        """Wait until no connection is open.

        Raises:
            TimeoutError: Some are still open after *within_s*.
        """
        async with asyncio.timeout(within_s):
            for peer in [*self._peers]:
                await asyncio.shield(peer.closed)

    # -- life --

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Peer(self._accept), "127.0.0.1", self.port, backlog=BACKLOG, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and drop every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        peers, self._peers = self._peers, {}
        for task in peers.values():
            task.cancel()
        await asyncio.gather(*peers.values(), return_exceptions=True)
        for peer in peers:
            await peer.dispose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if exc is None and self._problems:
            raise self._problems[0]

    # -- serving --

    def _accept(self, peer: Peer) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(peer))
        self._peers[peer] = task
        peer.closed.add_done_callback(lambda closed: task.cancel() if closed.result().how != "ours" else None)
        task.add_done_callback(lambda _: peer.closed.done() or peer.fin())

    async def _serve(self, peer: Peer) -> None:
        inbox = bytearray()
        try:
            while (seen := await _read_request(peer, inbox)) is not None:
                async with self._arrived:
                    self.requests.append(seen)
                    self._arrived.notify_all()
                await self._answer(seen)
        except ConnectionError:
            pass  # the other side went while something was being sent: `closed` says so
        except Exception as exc:
            self._problems.append(exc)  # a bug of a script or a request that is no HTTP; raised when the test is done

    async def _answer(self, seen: Seen) -> None:
        stage = Stage(seen)
        try:
            await play(self._script_for(seen), stage)
            if not stage.over:
                await stage.end()
        finally:
            seen.played.set()

    def _script_for(self, seen: Seen) -> Script:
        named = _model_in(seen)
        model = named if named in self._answers else ANY_MODEL
        if model not in self._answers:
            raise AssertionError(f"no script for {seen.method} {seen.target} (model {named!r})")
        answers = self._answers[model]
        answer = answers[min(self._asked[model], len(answers) - 1)]
        self._asked[model] += 1
        return answer(seen) if callable(answer) else answer


async def _read_request(peer: Peer, inbox: bytearray) -> Seen | None:
    """The next request of *peer*; *inbox* keeps bytes of the one after it. None when the connection is over."""
    while (head := cut_head(inbox)) is None:
        data = await peer.receive()
        if not data:
            return None
        inbox += data
    body = Body(request_framing(head.headers))
    content = bytearray(body.feed(bytes(inbox)))
    while not body.ended:
        data = await peer.receive()
        if not data:
            return None
        content += body.feed(data)
    inbox[:] = body.rest
    method, target, _ = head.line.split(" ")
    return Seen(
        method=method,
        target=target,
        headers=head.headers,
        body=bytes(content),
        json=_json(bytes(content)),
        opened_s=peer.opened_s,
        received_s=time.monotonic(),
        peer=peer,
    )


def _model_in(seen: Seen) -> str | None:
    """The model asked for: a member of the body, or in the path as Gemini has it."""
    in_path = re.search(r"/models/([^/:?]+):", seen.target)
    if in_path is not None:
        return in_path[1]
    return seen.json.get("model") if isinstance(seen.json, dict) else None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


@contextlib.contextmanager
def _bound() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock


@contextlib.asynccontextmanager
async def refusing_port() -> AsyncIterator[int]:
    """A port that refuses connections: it is bound, so nobody else can take it, and does not listen."""
    with _bound() as sock:
        yield sock.getsockname()[1]


@contextlib.asynccontextmanager
async def silent_port() -> AsyncIterator[int]:
    """A port where connecting hangs: its queue of connections is full, so the kernel drops every further SYN."""
    with _bound() as sock, contextlib.ExitStack() as fillers:
        sock.listen(0)
        for _ in range(8):  # Linux queues one more than asked for; the rest hang in their handshake
            filler = fillers.enter_context(socket.socket())
            filler.settimeout(0)
            filler.connect_ex(sock.getsockname())
        yield sock.getsockname()[1]
