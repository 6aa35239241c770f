"""Exchanges whose two ends speak different dialects.

A provider's events are understood and said again in the client's dialect, as a provider of that dialect would say them.
What the client gets is then made by the very lane that serves such providers: model name, usage, `_anoman`, errors.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from gateway.core.call import Call
from gateway.core.errors import Failure, UpstreamFailed
from gateway.core.receipt import Receipt
from gateway.core.usage import Basis, Usage, merge
from gateway.dialects.base import ClientDialect, Completion, Dialect, Journey, Lane, LaneRules
from gateway.dialects.lane import EventLane
from gateway.dialects.neutral import AnswerEvent, Counted, Finished, Running
from gateway.dialects.retold import Retold
from gateway.wire.headers import MAX_ID_CHARS, clean_text
from gateway.wire.sse import Event
from gateway.wire.values import decode_values


class TranslationLane(EventLane):
    """A stream of a *provider*'s dialect for a client of another one, whose own lane is `client.open_lane`."""

    def __init__(self, journey: Journey, provider: Dialect, client: ClientDialect) -> None:
        super().__init__(provider.open_splitter(journey.rules.max_event_bytes))
        self._reader = provider.open_reader(_asked(journey.call))
        self._writer = client.open_writer(journey)
        self._lane: Lane = client.open_lane(structs.replace(journey, rules=_unbounded(journey.rules)))
        self._retold = Retold(journey.request_id, journey.tools)
        self._counts = _Counts()
        self._failure: Failure | None = None
        self._note: str | None = None
        self._is_over = False  # nothing more is read
        self._last_words: bytes | None = None  # once the end of the answer has been said in the client's dialect

    @property
    def started(self) -> bool:
        return self._lane.started or self.complete

    @property
    def complete(self) -> bool:  # type: ignore[override]  # nobody sets it here: the reader decides
        return self._reader.complete

    @property
    def ended(self) -> bool:
        return self._is_over or self._reader.ended

    @ended.setter
    def ended(self, ended: bool) -> None:
        self._is_over = ended

    @property
    def failure(self) -> Failure | None:
        return self._failure or self._lane.failure

    @failure.setter
    def failure(self, failure: Failure | None) -> None:
        self._failure = failure

    @property
    def progress(self) -> int:
        return self._reader.progress

    @property
    def deltas(self) -> int:
        return self._lane.deltas

    @property
    def talking(self) -> bool:
        return self._lane.talking or self._retold.is_holding

    @property
    def note(self) -> str | None:
        return self._note or self._reader.note or self._retold.note or self._writer.note or self._lane.note

    @note.setter
    def note(self, note: str | None) -> None:
        self._note = note

    @property
    def response_id(self) -> str | None:
        return self._lane.response_id

    def fail(self, failure: Failure, receipt: Receipt) -> bytes:
        """The error frame of the client's dialect and its end."""
        return self._lane.fail(failure, receipt)

    def finish(self, receipt: Receipt) -> bytes:
        """The end of the answer, in the client's dialect."""
        self._conclude()
        return (self._last_words or b"") + self._lane.finish(receipt)

    def last_words(self) -> bytes:
        """What the end of the answer says besides being one."""
        self._conclude()
        words, self._last_words = self._last_words or b"", b""
        return words + self._lane.last_words()

    def measure(self) -> tuple[Usage, Basis]:
        """What was used, by the provider's own count where there is one and by ours where not."""
        if self.complete:
            self._conclude()
        usage, basis = self._lane.measure()
        if not self.complete and self._counts.exceeds(usage):
            usage, basis = self._counts.running(usage), "received"
        return self._counts.complete(usage), basis

    def received_tokens(self) -> int:
        """Tokens of the answer so far."""
        return self._lane.received_tokens()

    def _is_whole(self) -> bool:
        if self.failure is None:
            self._reader.close()
        return self.complete

    def _run(self, events: list[Event]) -> bytes:
        if self.failure is not None:
            return b""
        out: list[bytes] = []
        for event in events:
            if self.ended:
                break
            try:
                said = self._reader.take(event)
            except UpstreamFailed as exc:
                self._break(exc.failure)
                break
            self._say(said, out)
        return self._lane.feed(out[0] if len(out) == 1 else b"".join(out)) if out else b""

    def _say(self, said: Sequence[AnswerEvent], out: list[bytes]) -> None:
        """Add the client's frames for *said* to *out*."""
        for event in said:
            kind = type(event)
            if kind is Running:
                self._counts.take(event)
                continue
            if kind is Counted or kind is Finished:
                self._counts.take(event)
                self._note = self._note or _odd_ending(event)
            if kind in self._retold.touches:
                out += [frames for told in self._retold.tell(event) if (frames := self._writer.write(told))]
            elif frames := self._writer.write(event):
                out.append(frames)

    def _conclude(self) -> None:
        if self._last_words is None:
            out: list[bytes] = []
            self._say(self._reader.end(), out)
            self._last_words = self._lane.feed(b"".join([*out, self._writer.end()]))

    def _break(self, failure: Failure) -> None:
        if self.complete:
            self._note = self._note or f"after_finish:{failure.reason}"
            self._is_over = True
        elif self._failure is None:
            self._failure = failure


def translated_completion(body: bytes, journey: Journey, provider: Dialect, client: ClientDialect) -> Completion:
    """A whole JSON answer of *provider*, for *client*. Raises UpstreamFailed when it is none."""
    reader, writer = provider.open_reader(_asked(journey.call)), client.open_writer(journey)
    retold = Retold(journey.request_id, journey.tools)
    events = [
        told
        for event in reader.whole(body)
        for told in (retold.tell(event) if type(event) in retold.touches else (event,))
    ]
    completion = client.read_completion(writer.whole(events), journey)
    counts, note = _Counts(), None
    for event in events:
        counts.take(event)
        note = note or _odd_ending(event)
    completion.note = note or reader.note or retold.note or writer.note or completion.note
    completion.usage = counts.complete(completion.usage)
    return completion


def _asked(call: Call) -> int:
    """How many answers *call* wants; in Anthropic's dialect `n` is a member like any other, which nobody is sent."""
    given = call.fields.get("n") if call.dialect == "openai_chat" else None
    return (decode_values(given) if given is not None else None) or 1


def _odd_ending(event: AnswerEvent) -> str | None:
    """A provider's word for how the model stopped, if *event* has one and it is none that we know."""
    said = event.said if isinstance(event, Finished) else None
    return f"finish:{clean_text(said, MAX_ID_CHARS)}" if said is not None else None


def _unbounded(rules: LaneRules) -> LaneRules:
    """*rules* for a lane that reads what we write: in our spelling, an event within the bound can be longer than it."""
    return replace(rules, max_event_bytes=sys.maxsize)


class _Counts:
    """What a provider counted that the client's dialect has no word for, or none yet, but the books have."""

    def __init__(self) -> None:
        self._said: dict[str, int | None] = {}
        self._is_running = False

    def take(self, event: AnswerEvent) -> None:
        """Note what *event* counts, if it does."""
        if isinstance(event, Counted):
            self._is_running = type(event) is Running
            counts = structs.asdict(event)
            self._said.update({name: value for name, value in counts.items() if value is not None})

    def exceeds(self, usage: Usage) -> bool:
        """Whether a provider that counts as it goes has counted all that we have heard, or more: hidden thinking."""
        return self._is_running and (self._said.get("completion_tokens") or 0) >= usage.completion_tokens

    def running(self, usage: Usage) -> Usage:
        """*usage* of a cut stream, by that count."""
        return merge(usage, completion_tokens=self._said.get("completion_tokens"))

    def complete(self, usage: Usage) -> Usage:
        """*usage* with those counts, as far as they can be part of it."""
        written, reasoning = self._said.get("cache_write_tokens") or 0, self._said.get("reasoning_tokens") or 0
        written = min(written, usage.prompt_tokens - usage.cached_tokens)
        kept = min(self._said.get("cache_write_1h_tokens") or 0, written)
        return merge(
            usage,
            cache_write_tokens=written or None,
            cache_write_1h_tokens=kept or None,
            reasoning_tokens=min(reasoning, usage.completion_tokens) if reasoning else None,
        )
