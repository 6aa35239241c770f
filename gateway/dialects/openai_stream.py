"""OpenAI chat chunks from a provider to a client of the same dialect."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from gateway.core.errors import TRUNCATED, Failure
from gateway.core.receipt import Receipt, extension
from gateway.core.usage import Basis, Usage, merge
from gateway.dialects.base import Journey
from gateway.dialects.failures import ABSENT, in_band_failure, malformed
from gateway.dialects.lane import PassthroughLane, read_json
from gateway.dialects.openai_chunk import (
    FAILED_REASONS,
    NO_INDEX,
    Choice,
    Chunk,
    Place,
    ToolCall,
    carriers,
    index_of,
    is_said,
    read_chunk,
    read_leniently,
    text_of,
    usage_of,
    whole_choices,
    with_arguments,
)
from gateway.dialects.openai_indices import ToolIndices
from gateway.dialects.openai_usage import UsageReader, usage_object
from gateway.dialects.prompt_tokens import prompt_tokens
from gateway.dialects.validate import read_id
from gateway.wire.ascii import ascii_json
from gateway.wire.body import replace_members
from gateway.wire.sse import Event, frame
from gateway.wire.values import decode_members, decode_values

CHUNK = "chat.completion.chunk"
METADATA = "anoman.metadata"
DONE = b"data: [DONE]\n\n"
HEARTBEAT = b": ping\n\n"  # a comment: safe as long as no event of ours carries an id
MAX_CHOICES = 128  # the largest `n` that a request may have
MAX_TOOL_CALLS = 128  # of one choice; OpenAI takes as many tools
_MAX_EPOCH_S = 2**53  # JavaScript's whole numbers end here; some vendors send milliseconds, which still fit
_OURS = frozenset(("_anoman", "error"))  # never passed on: a gateway behind us has its own, and a null error misleads
_OURS_AND_USAGE = _OURS | {"usage"}
_OPEN_BRACE = ord("{")

_encode = msgspec.json.encode


class OpenAIChatLane(PassthroughLane):
    """Chunks in, chunks out. The last finish chunk is held back until the usage is known.

    Each choice finishes once, at the end of the stream: one that goes on after its finish had not finished, and what a
    client was told cannot be taken back. So any earlier finish chunk passes without its reason, which follows later.
    """

    def __init__(self, journey: Journey) -> None:
        super().__init__(journey)
        self._id = ""
        self._created = 0
        self._model_in: str | None = None
        self._model_in_json = b""
        self._model_out_json = b""
        self._reader = UsageReader()
        self._deltas_counted = 0  # content deltas up to the last count of them
        self._asked = decode_values(journey.call.fields["n"]) or 1 if "n" in journey.call.fields else 1
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self._reasons: dict[int, str] = {}  # of choices whose finish chunk has passed without it
        self._finish: bytes | None = None  # payload of the held-back finish chunk, as the provider sent it
        self._indices = ToolIndices()
        self._silent: dict[Place, bool] = {}  # tool calls: whether no argument text has come so far
        self._unfilled: set[Place] = set()  # tool calls that the held-back chunk opens, without arguments

    @property
    def response_id(self) -> str | None:
        return read_id(self._id)

    def measure(self) -> tuple[Usage, Basis]:
        """The provider's count where it gave one, ours for the rest."""
        reader = self._reader
        said = reader.usage.completion_tokens
        # A count of no tokens is a placeholder when text has come; some vendors send the prompt's count up front.
        # A count that more text has followed is not the answer's: of its beginning, or of another choice.
        is_last = reader.has_completion and self._tally.deltas == self._deltas_counted
        final = self.complete and is_last and bool(said or not self._tally.deltas)
        usage = merge(
            reader.usage,
            prompt_tokens=None if reader.has_prompt else prompt_tokens(self.journey.call, self.journey.family),
            completion_tokens=None if final else self.received_tokens(),
        )
        if final and reader.has_prompt:
            return usage, "provider_final"
        if not self.complete and reader.whole and usage.completion_tokens == said:
            return usage, "received"
        return usage, "estimated"

    def received_tokens(self) -> int:
        """Tokens of the answer so far."""
        return max(self._reader.usage.completion_tokens, self._tally.tokens())

    def fail(self, failure: Failure, receipt: Receipt) -> bytes:
        """What is held back, then the error frame."""
        held = frame(self._rewrite(self._filled(self._finish))) if self._finish is not None else b""
        return self._missing_arguments(self._finished) + self._finishes() + held + super().fail(failure, receipt)

    def finish(self, receipt: Receipt) -> bytes:
        """Whole tool arguments, the finish chunks, the last with the usage, the metadata frame, the terminator."""
        held = self._filled(self._finish or b"{}")
        out = [self._missing_arguments(self._finished), self._finishes()]
        out.append(frame(self._rewrite(held, usage_object(receipt.usage, self._reader.raw))))
        if not self.journey.call.options.strip_extension:
            out.append(frame(self._metadata(receipt)))
        out.append(DONE)
        return b"".join(out)

    def last_words(self) -> bytes:
        """What the held-back finish chunk says besides the reason, which stays behind."""
        held = self._filled(self._finish) if self._finish is not None else b"{}"
        choices = read_leniently(held).choices or []
        if not any(text_of(choice.delta) for choice in choices) and not carriers(held):
            return b""
        reasons = {index_of(choice): choice.finish_reason for choice in choices if choice.finish_reason}
        bare = [{"index": index, "delta": {}, "finish_reason": reason} for index, reason in reasons.items()]
        self._finish, self._unfilled = ascii_json(_encode({**self._envelope(), "choices": bare})), set()
        return frame(self._rewrite(held, unfinished=reasons))

    def _take(self, event: Event) -> bytes:
        data = event.data
        # Not once a choice has finished: an event like the one before may be the one that reopens it.
        usual = self._finish is None and not self._reasons and not event.name
        if usual and (out := self._like_before(data)) is not None:
            return out
        if data[0] != _OPEN_BRACE and data.strip()[:6] == b"[DONE]":
            self._done()
            return b""
        read = read_json(data, read_chunk, read_leniently)
        if read is None:
            self._break(malformed(data.decode("utf-8", "replace")))
            return b""
        chunk, payload = read
        if event.name == b"error" or is_said(chunk.error):
            self._break(in_band_failure(payload))
            return b""
        usage = usage_of(chunk, self._asked)
        if usage is not None:
            self._reader.take(usage)
            if self._reader.odd:
                self.note = "usage_odd"
            self._deltas_counted = self._tally.deltas
        if not chunk.choices:  # the usage chunk, or filter results with no choice: simple clients index choices[0]
            self.ended |= self.complete and self._reader.whole and usage is not None
            return b""
        if any(_has_failed(choice) for choice in chunk.choices):
            self._break(in_band_failure(payload))
            return b""
        try:
            if _lacks_indices(chunk.choices):
                payload = self._indices.fill(payload)
                chunk = read_leniently(payload)
            if chunk.choices and _is_sane(chunk.choices):
                out = self._take_choices(chunk, chunk.choices, payload)
                if usage is not None:
                    self._deltas_counted = self._tally.deltas
                return out
        except (msgspec.DecodeError, OverflowError, RecursionError):  # a number that no 64 bits or double can hold
            pass
        self._break(malformed(data.decode("utf-8", "replace")))
        return b""

    def _done(self) -> None:
        if self._finish is not None:
            self.complete = self.ended = True
        else:
            self._break(TRUNCATED)

    def _take_choices(self, chunk: Chunk, choices: list[Choice], payload: bytes) -> bytes:
        if not self._id:
            self._learn(chunk)
        openings: list[bytes] = []
        going_on: set[int] = set()  # choices that say more than that they are there
        hollow = True
        finishing = opening = False
        for choice in choices:
            index = index_of(choice)
            if index not in self._seen:
                opening = True
                openings.append(self._first_of(index, choice))
            text = text_of(choice.delta)
            if text is not None or choice.finish_reason:
                going_on.add(index)
            if text is not None:
                hollow = False
                self.talking = True
                self._tally.add(text)
                if choice.delta is not None and choice.delta.tool_calls:
                    self._watch_arguments(index, choice.delta.tool_calls)
            if choice.finish_reason:
                finishing = True
        out = b"".join(openings)
        if (hollow and not finishing) or any(index_of(choice) in self._finished for choice in choices):
            unnamed = carriers(payload)
            going_on |= unnamed
            if unnamed and hollow and not finishing:
                hollow, self.talking = False, True
                self._tally.add("")
        if not hollow or finishing:
            self.progress += 1
        if self._finish is not None and (opening or finishing or not hollow):
            out = self._let_go(going_on) + out
        elif self._reasons:
            self._reopen(going_on)
        if finishing:
            return out + self._take_finish(choices, payload)
        sent = frame(self._forward(chunk, choices, payload))
        delta = choices[0].delta
        is_bare = usage_of(chunk, self._asked) is None  # a count is news, even the same again
        if is_bare and len(choices) == 1 and delta is not None and text and text == delta.content:
            self._remember(payload, sent, b'"content":', text)
        return out + sent

    def _take_finish(self, choices: list[Choice], payload: bytes) -> bytes:
        """Hold a finish chunk back once every choice seen so far has finished; of any other only the reason."""
        finishing = {index_of(choice) for choice in choices if choice.finish_reason}
        opened = {(index_of(c), call.index) for c in choices if c.delta for call in c.delta.tool_calls or ()}
        self._reopen(finishing)
        self._finished |= finishing
        if self._finished >= self._seen:
            self._rewrite(payload)  # a payload that cannot be written must fail here, not in `finish`
            self._finish = payload
            self._unfilled = {place for place in opened if place[0] in finishing and self._silent.get(place)}
            # A provider that sends its choices one after the other has further ones to come, whatever it counts
            # meanwhile; one that gives fewer than were asked for says so by its terminator.
            self.complete = len(self._seen) >= self._asked
            return b""
        return self._postpone(payload, choices)

    def _postpone(self, payload: bytes, choices: Sequence[Choice]) -> bytes:
        """A finish chunk without the reasons of its *choices*, which are kept for the end."""
        reasons = {index_of(choice): choice.finish_reason for choice in choices if choice.finish_reason}
        self._reasons.update(reasons)
        return frame(self._rewrite(payload, unfinished=reasons))

    def _reopen(self, going_on: set[int]) -> None:
        """Take back the finish of choices that were not at their end."""
        self._finished -= going_on
        for index in going_on:
            self._reasons.pop(index, None)

    def _finishes(self) -> bytes:
        """The finish chunks of all choices whose reason was kept, by our own hand."""
        return b"".join(frame(self._chunk_of({}, index, reason)) for index, reason in self._reasons.items())

    def _let_go(self, going_on: set[int]) -> bytes:
        """Release the held finish chunk since more follows it; a choice that goes on has not finished after all."""
        held, self._finish, self._unfilled = self._finish, None, set()
        assert held is not None
        self.complete = False
        parsed = read_leniently(held).choices or ()
        said = any(text_of(c.delta) is not None or (c.finish_reason and index_of(c) not in going_on) for c in parsed)
        out = self._postpone(held, parsed) if said or carriers(held) else b""
        self._reopen(going_on)
        return out

    def _first_of(self, index: int, choice: Choice) -> bytes:
        """The role chunk of a choice whose provider sends none."""
        self._seen.add(index)
        self.progress += 1
        if choice.delta is not None and choice.delta.role is not None:
            return b""
        return frame(self._chunk_of({"role": "assistant", "content": ""}, index))

    def _learn(self, chunk: Chunk) -> None:
        """Fix the envelope that every chunk of this stream will carry."""
        journey = self.journey
        self._id = chunk.id or f"chatcmpl-{journey.request_id}"
        created = chunk.created or 0
        self._created = created if 0 < created <= _MAX_EPOCH_S else journey.created_epoch_s
        self._model_in = chunk.model
        self._model_in_json = ascii_json(b'"model":' + _encode(chunk.model))
        self._model_out_json = ascii_json(b'"model":' + _encode(journey.call.slug))

    def _forward(self, chunk: Chunk, choices: list[Choice], payload: bytes) -> bytes:
        """*payload* for the client: the very bytes but for the model's name, if the envelope is whole."""
        if (
            type(chunk) is Chunk
            and chunk.model is not None
            and chunk.model == self._model_in
            and chunk.id == self._id
            and chunk.created == self._created
            and chunk.object == CHUNK
            and chunk.error is ABSENT
            and (chunk.usage is ABSENT or bytes(chunk.usage) == b"null")
            and all(choice.index is not UNSET and choice.delta is not None for choice in choices)
        ):
            before, model, after = payload.partition(self._model_in_json)
            # The outermost object's own member: no other object was opened before it, or there is but one of the name.
            if model and (not before.rfind(b"{") or (b'"model"' not in before and b'"model"' not in after)):
                return before + self._model_out_json + after
        return self._rewrite(payload)

    def _rewrite(self, payload: bytes, usage: dict[str, Any] | None = None, unfinished: Collection[int] = ()) -> bytes:
        """*payload* member by member: whole envelope, *usage* or none (but null stays), every choice whole."""
        members = decode_members(payload)
        changes = self._envelope()
        if usage is not None:
            changes["usage"] = usage
        if "choices" in members:
            changes["choices"] = whole_choices(members["choices"], unfinished)
        keeps_usage = usage is not None or bytes(members.get("usage", b"")) == b"null"
        return ascii_json(replace_members(members, changes, drop=_OURS if keeps_usage else _OURS_AND_USAGE))

    def _envelope(self) -> dict[str, Any]:
        return {"id": self._id, "object": CHUNK, "created": self._created, "model": self.journey.call.slug}

    def _chunk_of(self, delta: dict[str, Any], index: int, reason: str | None = None) -> bytes:
        """A chunk of our own making."""
        choices = [{"index": index, "delta": delta, "finish_reason": reason}]
        return ascii_json(_encode({**self._envelope(), "choices": choices}))

    def _metadata(self, receipt: Receipt) -> bytes:
        block = {"_anoman": extension(receipt)}
        if self.journey.rules.metadata_frame == "bare":
            return ascii_json(_encode(block))
        choices = [{"index": 0, "delta": {}, "finish_reason": None}]
        return ascii_json(_encode({**block, **self._envelope(), "object": METADATA, "choices": choices}))

    def _watch_arguments(self, index: int, calls: list[ToolCall]) -> None:
        for call in calls:
            place = (index, call.index)
            silent = not (call.function is not None and call.function.arguments)
            self._silent[place] = silent and self._silent.get(place, True)

    def _filled(self, payload: bytes) -> bytes:
        """The held-back *payload*, now that its choices are over: with `{}` for the arguments that never came."""
        for place in self._unfilled:
            self._silent[place] = False
        return with_arguments(payload, self._unfilled) if self._unfilled else payload

    def _missing_arguments(self, choices: Collection[int]) -> bytes:
        """Once for every tool call of *choices* that got no argument text, a delta with `{}`: "" is not JSON."""
        out: list[bytes] = []
        for place in [place for place, silent in self._silent.items() if silent and place[0] in choices]:
            self._silent[place] = False
            call = {"index": place[1], "function": {"arguments": "{}"}}
            out.append(frame(self._chunk_of({"tool_calls": [call]}, place[0])))
        return b"".join(out)


def _has_failed(choice: Choice) -> bool:
    """Whether the provider says that it gave up on *choice*."""
    return choice.finish_reason in FAILED_REASONS or is_said(choice.error)


def _lacks_indices(choices: list[Choice]) -> bool:
    """Whether the provider leaves it to the client which tool call a piece belongs to."""
    return any(call.index == NO_INDEX for choice in choices if choice.delta for call in choice.delta.tool_calls or ())


def _is_sane(choices: list[Choice]) -> bool:
    """Whether indices are such as can be asked for: every new one costs a frame."""
    return (
        all(
            0 <= index_of(choice) < MAX_CHOICES
            and all(
                0 <= call.index < MAX_TOOL_CALLS
                for call in (choice.delta.tool_calls or () if choice.delta is not None else ())
            )
            for choice in choices
        )
        and len(choices) <= MAX_CHOICES
    )
