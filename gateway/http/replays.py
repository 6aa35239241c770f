"""
Calls that are done once, however often they are sent (`Idempotency-Key`).

The first request with a name claims it and does the call. Others with that name are told that it is under way, or get
the answer again, as it was first sent. Nothing of this is met by a call without a name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from aiohttp import web

from gateway.core.accounts import Key, Tier
from gateway.core.errors import (
    IDEMPOTENCY_IN_PROGRESS,
    IDEMPOTENCY_MISMATCH,
    IDEMPOTENCY_NOT_REPLAYABLE,
    IDEMPOTENCY_UNAVAILABLE,
    ErrorKind,
    GatewayError,
)
from gateway.core.exchange import Answer, Exchange
from gateway.core.ports import Claim, Counters, Kept, Order, Refused, Replays, Spent, StoreUnavailable
from gateway.core.receipt import Receipt
from gateway.http.answer_headers import limit_headers
from gateway.http.answers import JsonAnswer
from gateway.http.recording import Recording, RecordingSink, Relay, Room
from gateway.http.sinks import StreamSink

REPLAYED = ("x-anoman-idempotent-replay", "true")
# Of a stored head: where the key stood then. A replay says where it stands now.
_OF_THE_MOMENT = ("x-anoman-rate-", "x-anoman-burst-", "x-anoman-limits")
PIECE_BYTES = 65_536  # of a stream that is said again, as far as whole frames allow: what a slow client makes us hold

_WHY: dict[str, ErrorKind] = {"running": IDEMPOTENCY_IN_PROGRESS, "mismatch": IDEMPOTENCY_MISMATCH}


@dataclass(slots=True)
class Passage:
    """How an answer gets to its client: where its bytes leave, and what an exchange passes through."""

    sink: StreamSink
    relay: Relay


class Repeater:
    """
    Knows the named calls that are under way in this process. It is a `Ledger` too: that is how it learns of their ends.

    Args:
        on_replay: Told of an answer that is given again: the id of the request that was first answered with it, and the
            key that asks now.
    """

    def __init__(
        self, store: Replays, counters: Counters, room: Room, on_replay: Callable[[str, Key], None]
    ) -> None:  # fmt: skip
        self._store = store
        self._counters = counters
        self._room = room
        self._on_replay = on_replay
        self._running: dict[str, Recording] = {}

    def record(self, receipt: Receipt) -> None:
        """An exchange is in the books."""
        recording = self._running.pop(receipt.request_id, None)
        if recording is not None:
            recording.settled(receipt.request_id, receipt.outcome)

    async def answer(
        self,
        request: web.BaseRequest,
        exchange: Exchange,
        claim: Claim,
        do: Callable[[Passage], Awaitable[web.StreamResponse]],
        relay: Relay,
    ) -> web.StreamResponse:
        """
        The answer to *exchange*, or to the lead of a run: the one that the call got before, or the one that *do* gives.

        Raises:
            GatewayError: The call is under way, is another one, was not kept, or that cannot be told; or it is a repeat
                of more than the key may send.
        """
        found = await self._claim(claim)
        if found == "claimed":
            return await self._do(request, claim, do, relay)
        await self._count(exchange)
        if not isinstance(found, Kept):
            raise GatewayError(_WHY[found])
        if found.answer is None:
            raise GatewayError(IDEMPOTENCY_NOT_REPLAYABLE)
        self._on_replay(found.request_id, exchange.key)
        answer = _again(found.answer, exchange)
        if not exchange.call.stream:
            return JsonAnswer(answer)
        return await _say(StreamSink(request), answer)

    async def _claim(self, claim: Claim) -> str | Kept:
        try:
            return await self._store.claim(claim)
        except StoreUnavailable:
            raise GatewayError(IDEMPOTENCY_UNAVAILABLE) from None

    async def _do(
        self,
        request: web.BaseRequest,
        claim: Claim,
        do: Callable[[Passage], Awaitable[web.StreamResponse]],
        relay: Relay,
    ) -> web.StreamResponse:
        recording = Recording(claim, RecordingSink(request, self._room), self._running, self._conclude)
        try:
            response = await do(Passage(recording.sink, recording.through(relay)))
            recording.answered(response)
        finally:
            recording.close()
        if isinstance(response, web.Response):  # an error; who has one in hand may send the call again at once
            await self._store.written(claim)
        return response

    def _conclude(self, claim: Claim, is_answered: bool, answer: Answer | None) -> None:
        if is_answered:
            self._store.keep(claim, answer)
        else:
            self._store.release(claim)

    async def _count(self, exchange: Exchange) -> None:
        """A repeat counts against the requests per minute and nothing else: it costs nothing, but is not free."""
        tier = exchange.key.tier
        key = replace(exchange.key, tier=Tier(tier.name, rpm=tier.rpm, burst=tier.burst), budgets=())
        verdict = await self._counters.admit(Order(key, exchange.request_id))
        exchange.limits = verdict.limits
        if isinstance(verdict, Refused):
            raise verdict.as_error()
        self._counters.settle(exchange.request_id, Spent())


def _again(answer: Answer, exchange: Exchange) -> Answer:
    """*answer* with what its head says of now."""
    kept = tuple(pair for pair in answer.headers if not pair[0].startswith(_OF_THE_MOMENT))
    return Answer(answer.status, answer.body, (*kept, *limit_headers(exchange.limits), REPLAYED))


async def _say(sink: StreamSink, answer: Answer) -> web.StreamResponse:
    """Send *answer*, a stream, in pieces of whole frames."""
    sink.open(answer.headers)
    body, at = answer.body, 0
    while len(body) - at > PIECE_BYTES:
        end = body.rfind(b"\n\n", at, at + PIECE_BYTES)
        if end < 0:
            end = body.find(b"\n\n", at)
        if end < 0 or end + 2 == len(body):
            break
        sink.write(body[at : end + 2])
        await sink.drain()
        at = end + 2
    sink.close(body[at:])
    assert sink.response is not None
    return sink.response
