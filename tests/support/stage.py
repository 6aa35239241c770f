"""One answer of the fake provider while it is being given, and what was seen of its request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.support.frames import content_events
from tests.support.http1 import Framing, Headers
from tests.support.peer import Closed, Peer


@dataclass(eq=False, slots=True)
class Seen:
    """A request as it arrived.

    Attributes:
        target: Path and query.
        json: The parsed body, None where it is no JSON.
        opened_s: Monotonic seconds when its connection was made.
        received_s: Monotonic seconds when its last byte was here.
        body_sent: What the kernel took of the answer's body, without chunk framing.
        played: Done when the script has nothing more to do for this request.
    """

    method: str
    target: str
    headers: Headers
    body: bytes
    json: Any
    opened_s: float
    received_s: float
    peer: Peer
    body_sent: bytearray = field(default_factory=bytearray)
    played: asyncio.Event = field(default_factory=asyncio.Event)
    _progress: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def closed(self) -> asyncio.Future[Closed]:
        """The end of the connection the request came by; await `gone` instead where a timeout could cancel it."""
        return self.peer.closed

    async def gone(self, within_s: float = 5.0) -> Closed:
        """When and how the connection ended; `TimeoutError` if it is still open after *within_s*."""
        return await self.peer.gone(within_s)

    @property
    def content_events(self) -> int:
        """How many events with a piece of the answer were sent whole."""
        return content_events(bytes(self.body_sent))

    async def sent_events(self, count: int, within_s: float = 5.0) -> None:
        """Wait until *count* events with content were sent.

        Raises:
            TimeoutError: Fewer were sent within *within_s*.
        """
        async with asyncio.timeout(within_s):
            while self.content_events < count:
                self._progress.clear()
                await self._progress.wait()

    def note_sent(self, data: bytes) -> None:
        """The kernel took *data* of the body."""
        self.body_sent += data
        self._progress.set()


@dataclass(slots=True)
class Stage:
    """Where acts play. The head is sent by the first act that needs one; `over` stops the script."""

    seen: Seen
    framing: Framing | None = None
    over: bool = False

    async def raw(self, data: bytes) -> None:
        """Send *data* as it is."""
        await self.seen.peer.send(data)

    async def head(self, status_line: str, headers: Iterable[tuple[str, str]], framing: Framing) -> None:
        """Send a head; the header of *framing* is added."""
        pairs = [*headers]
        if framing == "chunked":
            pairs.append(("Transfer-Encoding", "chunked"))
        elif framing == "eof":
            pairs.append(("Connection", "close"))
        else:
            pairs.append(("Content-Length", str(framing)))
        self.framing = framing
        lines = "".join(f"{name}: {value}\r\n" for name, value in pairs)
        await self.raw(f"HTTP/1.1 {status_line}\r\n{lines}\r\n".encode("latin-1"))

    async def body(self, data: bytes) -> None:
        """Send *data* as (one chunk of) the body, after the head of an event stream where none was sent."""
        if self.framing is None:
            await self.head("200 OK", [("Content-Type", "text/event-stream")], "chunked")
        if not data:
            return
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data) if self.framing == "chunked" else data)
        self.seen.note_sent(data)

    async def end(self) -> None:
        """End the body properly; the connection lives on where the framing allows it."""
        if self.framing == "chunked":
            await self.raw(b"0\r\n\r\n")
        elif self.framing == "eof":
            self.fin()
        self.framing, self.over = None, True

    def fin(self) -> None:
        self.over = True
        self.seen.peer.fin()

    def rst(self) -> None:
        self.over = True
        self.seen.peer.rst()


class Act(Protocol):
    """A step of a script."""

    async def play(self, stage: Stage) -> None: ...
