"""What every lane does alike: splitting, holding back the start, counting, ending."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import msgspec

from gateway.core.errors import TRUNCATED, Failure
from gateway.core.receipt import Receipt
from gateway.dialects.base import Journey
from gateway.dialects.errors import interruption_frames
from gateway.dialects.failures import MALFORMED, malformed
from gateway.dialects.template import RELEARN_AFTER, Template, learn
from gateway.dialects.tokens import Tally
from gateway.wire.ascii import ascii_json, mend_json
from gateway.wire.body import MAX_DEPTH, nested_deeper, structural
from gateway.wire.sse import Event, FrameSplitter, Splitter, Unreadable

T = TypeVar("T")

_LF = ord("\n")
# Braces, brackets, commas and colons outside strings. A token with 20 alternatives and their bytes has some 400, and no
# provider sends a hundred of those in one event. Reading and rewriting the worst of a megabyte of `[]` took 1.2 s.
MAX_EVENT_STRUCTURAL = 50_000


class EventLane(ABC):
    """
    A lane that takes an upstream body apart into its events: what feeding and ending have in common.

    Attributes:
        complete: As in `Lane`, like the others.
    """

    complete: bool
    ended: bool
    failure: Failure | None

    def __init__(self, splitter: Splitter) -> None:
        self._splitter = splitter

    def feed(self, data: bytes) -> bytes:
        """Whole client frames for *data*; b"" while the start is still held back."""
        try:
            events = self._splitter.feed(data)
        except Unreadable as exc:
            self._break(malformed(str(exc)))
            return b""
        return self._run(events)

    def end(self) -> bytes:
        """The upstream's body is over: take an unfinished last event, and fail unless the answer is complete."""
        out = b""
        if not self.ended and self.failure is None:
            try:
                out = self._run(self._splitter.close())
            except Unreadable as exc:
                self._break(malformed(str(exc)))
            else:
                if self.failure is not None and self.failure.reason == MALFORMED:  # half a payload is a cut
                    self.failure = TRUNCATED
        if not self._is_whole():
            self._break(TRUNCATED)
        self.ended = True
        return out

    def _is_whole(self) -> bool:
        """Whether the answer is complete, now that the body is over."""
        return self.complete

    @abstractmethod
    def _run(self, events: list[Event]) -> bytes:
        """The client frames of *events*, as far as they are still wanted."""

    @abstractmethod
    def _break(self, failure: Failure) -> None:
        """Note *failure*; once the answer is complete it is only a remark."""


class PassthroughLane(EventLane):
    """
    Both ends speak the same dialect: frames go through as the bytes they were, but for what the contract rewrites.

    A subclass understands events: `_take` returns the client frames of one, sets `talking`, `complete`, `ended`,
    `failure`, and counts `progress`. Nothing leaves before `started`; the bound `sniff_bytes` ends the holding back.
    """

    def __init__(self, journey: Journey) -> None:
        super().__init__(FrameSplitter(journey.rules.max_event_bytes))  # what clients speak is server-sent events
        self.journey = journey
        self.started = False
        self.complete = False
        self.ended = False
        self.failure: Failure | None = None
        self.progress = 0
        self.talking = False
        self.note: str | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._tally = Tally(journey.family.factor)
        self._template: Template | None = None
        self._misfits = RELEARN_AFTER

    @property
    def deltas(self) -> int:
        """As in `Lane`."""
        return self._tally.deltas

    def fail(self, failure: Failure, receipt: Receipt) -> bytes:
        """The error frame of the dialect and its end, with the tokens that had come by then."""
        journey = self.journey
        tokens = receipt.usage.completion_tokens
        return interruption_frames(journey.call.dialect, failure, tokens, journey.request_id)

    def last_words(self) -> bytes:
        """None: what this lane holds back has no words in it."""
        return b""

    def _run(self, events: list[Event]) -> bytes:
        if len(events) == 1 and self.started:  # nearly every read once the stream flows
            return b"" if self.ended or self.failure is not None else self._take(events[0])
        out: list[bytes] = []
        for event in events:
            if self.ended or self.failure is not None:
                break
            piece = self._take(event)
            if piece:
                out.append(piece)
        return self._release(out)

    def _release(self, out: list[bytes]) -> bytes:
        """*out* as one piece once the stream has started; until then it is kept."""
        if not self.started:
            self._held.extend(out)
            self._held_bytes += sum(map(len, out))
            self.started = self.talking or self.complete or self._held_bytes > self.journey.rules.sniff_bytes
            if not self.started:
                return b""
            out, self._held = self._held, []
        return b"".join(out)

    def _like_before(self, data: bytes) -> bytes | None:
        """The frame of an event that differs from an earlier one in its text only; None for any other."""
        template = self._template
        found = template.match(data) if template is not None else None
        if found is None:
            self._misfits += 1
            return None
        self._misfits = 0
        self.progress += 1
        self._tally.add(found[0])
        return found[1]

    def _remember(self, payload: bytes, frame: bytes, member: bytes, text: str) -> None:
        """Learn from a content event, unless the last ones were so different that it would not pay."""
        if self._misfits >= RELEARN_AFTER:
            self._template = learn(payload, frame, member, text)
            self._misfits = 0

    @abstractmethod
    def _take(self, event: Event) -> bytes:
        """The client frames of *event*, b"" for none."""

    def _break(self, failure: Failure) -> None:
        """Note *failure*; after the terminal marker it is only a remark."""
        if self.complete:
            self.note = self.note or f"after_finish:{failure.reason}"
            self.ended = True
        elif self.failure is None:
            self.failure = failure


def read_json(
    data: bytes, decode: Callable[[bytes], T], decode_leniently: Callable[[bytes], T]
) -> tuple[T, bytes] | None:
    """
    An event's *data* decoded, and the JSON it was read from: the same text as ASCII on one line.

    Args:
        decode: Refuses members of unexpected types; both raise msgspec.DecodeError for what is no JSON object.
        decode_leniently: Asked when *decode* fails, with what could be mended.

    Returns:
        None when it is no JSON object, or one with more elements or levels than an event can need.
    """
    if structural(data, MAX_EVENT_STRUCTURAL) > MAX_EVENT_STRUCTURAL or nested_deeper(data, MAX_DEPTH):
        return None
    try:
        payload = _one_line(ascii_json(data))
        return decode(payload), payload
    except (msgspec.DecodeError, RecursionError):
        mended = mend_json(data)
    if mended is None:
        return None
    try:
        mended = _one_line(mended)
        return decode_leniently(mended), mended
    except (msgspec.DecodeError, RecursionError):
        return None


def _one_line(payload: bytes) -> bytes:
    """Events of several data lines hold LF between tokens, which would cut a frame of ours in two."""
    return msgspec.json.format(payload, indent=-1) if _LF in payload else payload
