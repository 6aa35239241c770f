"""Requests and answers of keys that allow it, kept on their way: never for any other key, and never in full length."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.core.accounts import may_keep
from gateway.core.errors import GUARDS_UNAVAILABLE
from gateway.core.exchange import Answer, Exchange
from gateway.core.ports import Sink
from gateway.dialects.said import Said
from gateway.http.answer_headers import Headers
from gateway.http.recording import Relay
from gateway.wire.body import replace_members

_STORE = "store"  # OpenAI's API reference: `false` asks that nothing of the call be kept


class HearingSink:
    """A client's side that somebody listens to. Implements the pipeline's `Sink` by the one that it was made of."""

    def __init__(self, sink: Sink, said: Said) -> None:
        self._sink = sink
        self._said = said

    def on_leave(self, leave: Callable[[], None]) -> None:
        self._sink.on_leave(leave)

    @property
    def committed(self) -> bool:
        return self._sink.committed

    @property
    def blocked(self) -> bool:
        return self._sink.blocked

    def open(self, headers: Headers) -> None:
        self._sink.open(headers)

    def write(self, data: bytes) -> None:
        self._said.hear(data)
        self._sink.write(data)

    async def drain(self) -> None:
        await self._sink.drain()

    def close(self, data: bytes) -> None:
        self._said.hear(data)
        self._sink.close(data)

    def abort(self) -> None:
        self._sink.abort()


class BodyWatch:
    """
    Args:
        keep: Takes the request's id, its tenant, the request as JSON and the answer in words; neither is longer than a
            multiple of what is kept in the end, and neither is redacted yet. Never blocks, never raises.
        max_bytes: What is kept in the end.
    """

    def __init__(self, keep: Callable[[str, str, bytes, str], None], max_bytes: int) -> None:
        self._keep = keep
        self._max_bytes = max_bytes

    def through(self, relay: Relay, exchange: Exchange) -> Relay:
        """*relay*, listened to where the key of *exchange* and its policy allow that and its call does not ask for the
        opposite."""
        call = exchange.call
        if not may_keep(exchange.key) or call.task != "answer" or bytes(call.fields.get(_STORE, b"")) == b"false":
            return relay

        async def run(exchange: Exchange, sink: Sink) -> Answer | None:
            said = Said(self._max_bytes)
            try:
                answer = await relay(exchange, HearingSink(sink, said))
                if answer is not None:
                    said.read(answer.body)
                return answer
            finally:
                request = _sent(exchange)[: 2 * self._max_bytes]  # what is masked makes it shorter
                self._keep(exchange.request_id, exchange.key.tenant, request, _masked(said.text, exchange.originals))

        return run


def _sent(exchange: Exchange) -> bytes:
    """The request as a provider got it, placeholders and all; nothing of one that guards did not let pass."""
    refused = exchange.error_code == GUARDS_UNAVAILABLE.code
    refused = refused or any(verdict.status == "block" for verdict in exchange.verdicts.values())
    if refused and not exchange.attempts:  # else it was the answer that was stopped
        return b"{}"
    return replace_members(exchange.call.fields, {})


def _masked(text: str, originals: Mapping[str, str]) -> str:
    """*text* with the placeholders that its client got the *originals* of."""
    for placeholder, original in originals.items():
        text = text.replace(original, placeholder)
    return text
