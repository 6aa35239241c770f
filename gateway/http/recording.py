"""What leaves for the client of a named call, kept so that it can be said again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from gateway.core.exchange import Answer, Exchange, Outcome
from gateway.core.ports import Claim, Sink
from gateway.http.answer_headers import Headers
from gateway.http.answers import JsonAnswer
from gateway.http.sinks import StreamSink

Relay = Callable[[Exchange, Sink], Awaitable[Answer | None]]


@dataclass(slots=True)
class Room:
    """
    The bytes that recordings of this process may hold.

    Attributes:
        answer_bytes: Of one answer.
        total_bytes: Of all that are under way; those for which there is none are not kept.
    """

    answer_bytes: int
    total_bytes: int
    held_bytes: int = 0


class RecordingSink(StreamSink):
    """A sink that keeps what goes through it, also what its client does not take any more.

    Attributes:
        is_over: Whether the last frames have been handed over.
    """

    def __init__(self, request: web.BaseRequest, room: Room) -> None:
        super().__init__(request)
        self.is_over = False
        self.room = room
        self._headers: Headers = ()
        self._frames: list[bytes] | None = []
        self._size = 0

    def open(self, headers: Headers) -> None:
        """Commit the 200. The head leaves together with the first bytes of the body."""
        self._headers = headers
        super().open(headers)

    def write(self, data: bytes) -> None:
        """Hand over whole frames in one piece, without waiting for a slow client. Raises ConnectionResetError."""
        self._keep(data)
        super().write(data)

    def close(self, data: bytes) -> None:
        """Hand over the last frames and end the body properly, in one piece. Raises ConnectionResetError."""
        self._keep(data)
        self.is_over = True
        super().close(data)

    def _keep(self, data: bytes) -> None:
        if self._frames is None:
            return
        room, size = self.room, len(data)
        if self._size + size > room.answer_bytes or room.held_bytes + size > room.total_bytes:
            self.drop()
            return
        room.held_bytes += size
        self._size += size
        self._frames.append(data)

    def answer(self) -> Answer | None:
        """All that went through, None where that was too much."""
        return None if self._frames is None else Answer(200, b"".join(self._frames), self._headers)

    def drop(self) -> None:
        """Keep nothing."""
        self.room.held_bytes -= self._size
        self._frames, self._size = None, 0


class Recording:
    """
    A named call that this request has claimed, until it is over: for the client, and in the books.

    The two need not end together: an answer that is read on is settled after its client has left, and the last frames
    are written after the exchange is settled.

    Args:
        running: The recordings that wait for receipts, by request id.
        conclude: Told once what is to be repeated: True and the answer (None where it was too long), or False where the
            call was not answered.
    """

    def __init__(
        self,
        claim: Claim,
        sink: RecordingSink,
        running: dict[str, Recording],
        conclude: Callable[[Claim, bool, Answer | None], None],
    ) -> None:
        self.claim = claim
        self.sink = sink
        self._running = running
        self._conclude = conclude
        self._answer_bytes = sink.room.answer_bytes
        self._unsettled: set[str] = set()
        self._outcomes: set[Outcome] = set()
        self._is_open = True
        self._answer: Answer | None = None
        self._is_answered = False

    def through(self, relay: Relay) -> Relay:
        """*relay*, with its exchanges waited for. Once it has begun with one, that one will be settled."""

        async def run(exchange: Exchange, sink: Sink) -> Answer | None:
            self._unsettled.add(exchange.request_id)
            self._running[exchange.request_id] = self
            return await relay(exchange, sink)

        return run

    def settled(self, request_id: str, outcome: Outcome) -> None:
        """One of the exchanges is in the books."""
        self._unsettled.discard(request_id)
        self._outcomes.add(outcome)
        self._look()

    def answered(self, response: web.StreamResponse) -> None:
        """What the client gets, unless it is the stream that went through the sink."""
        if isinstance(response, JsonAnswer):
            self._is_answered = True
            self._answer = response.answer if len(response.answer.body) <= self._answer_bytes else None

    def close(self) -> None:
        """The client has its answer, or has gone."""
        self._is_open = False
        self._look()

    def _look(self) -> None:
        if self._is_open or self._unsettled:
            return
        sink = self.sink
        if sink.is_over and not self._is_answered:
            self._is_answered, self._answer = True, sink.answer()
        sink.drop()
        self._conclude(self.claim, self._is_answered and self._outcomes == {"completed"}, self._answer)

