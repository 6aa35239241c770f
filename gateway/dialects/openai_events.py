"""OpenAI chat answers of any vendor, read into neutral events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from gateway.core.errors import TRUNCATED, UpstreamFailed
from gateway.dialects.answer import read_answer
from gateway.dialects.failures import ABSENT, in_band_failure, malformed
from gateway.dialects.lane import read_json
from gateway.dialects.neutral import AnswerEvent, Argued, Begin, Counted, Said, Thought
from gateway.dialects.openai_calls import CallReader
from gateway.dialects.openai_chunk import (
    FAILED_REASONS,
    Choice,
    Chunk,
    index_of,
    is_said,
    read_chunk,
    read_leniently,
    usage_of,
)
from gateway.dialects.openai_endings import counted, cuts_off, finished
from gateway.dialects.openai_usage import UsageReader
from gateway.dialects.openai_words import APART, has_unknown, plain_words, words
from gateway.dialects.reading import AnswerState
from gateway.dialects.template import RELEARN_AFTER, Template, learn
from gateway.dialects.tool_arguments import is_object
from gateway.wire.sse import Event
from gateway.wire.values import decode_values

_OPEN_BRACE = ord("{")
# The members of which one alone can differ between two chunks with the same kind of words.
_LIKENESS = {Said: (b'"content":',), Thought: (b'"reasoning_content":', b'"reasoning":'), Argued: (b'"arguments":',)}


class OpenAIReader(AnswerState):
    """Choice 0 of a stream of chunks, or of one JSON answer; translated requests ask for no other."""

    def __init__(self) -> None:
        super().__init__()
        self._id: str | None = None  # of the answer, "" where it has none; None before it begins
        self._reason = ""  # as last said; content behind it takes it back
        self._usage = UsageReader()
        self._told = Counted()
        self._calls = CallReader()
        self._template: Template | None = None
        self._alike: Callable[[str], Sequence[AnswerEvent]] = _said  # what the template's text says
        self._misfits = RELEARN_AFTER

    def take(self, event: Event) -> Sequence[AnswerEvent]:
        """What *event* says. Raises UpstreamFailed, unless the answer is `complete`: then errors are but noted."""
        data = event.data
        if self._template is not None and not self.complete and not event.name:
            found = self._template.match(data)
            if found is not None:
                self._misfits = 0
                self.progress += 1
                return self._alike(found[0])
        self._misfits += 1
        if data[0] != _OPEN_BRACE and data.strip()[:6] == b"[DONE]":
            return self._done()
        read = read_json(data, read_chunk, read_leniently)
        if read is None:
            return self._fail(malformed(data.decode("utf-8", "replace")))
        chunk, payload = read
        if event.name == b"error" or is_said(chunk.error):
            return self._fail(in_band_failure(payload))
        try:
            return self._take_chunk(chunk, payload)
        except UpstreamFailed as exc:
            return self._fail(exc.failure)
        except (msgspec.DecodeError, OverflowError, RecursionError):  # a number that no 64 bits can hold
            return self._fail(malformed(data.decode("utf-8", "replace")))

    def end(self) -> Sequence[AnswerEvent]:
        """How the model stopped, and the usage if it has changed."""
        finish = finished(self._reason, self._calls.opened)
        if finish.said is not None:
            self._remark("odd_finish_reason")
        if self._calls.has_nameless():
            self._remark("nameless_tool_call")
        return [finish, *self._count()]

    def whole(self, body: bytes) -> Sequence[AnswerEvent]:
        """A `chat.completion` body. Raises UpstreamFailed when it is an error, or no answer."""
        members, root = read_answer(body)
        if is_said(members.get("error", ABSENT)):
            raise UpstreamFailed(in_band_failure(body))
        choice = self._choice_of(root.get("choices"))
        reason, message = choice.get("finish_reason"), choice.get("message")
        if choice.get("error") or (isinstance(reason, str) and reason in FAILED_REASONS):
            raise UpstreamFailed(in_band_failure(body))
        if not isinstance(message, dict) or not isinstance(reason, str):
            raise UpstreamFailed(malformed("a choice without message or finish_reason"))
        self._reason, self.complete, self.ended = reason, True, True
        if root.get("usage"):
            self._usage.take_value(root["usage"])
        self._id = root["id"] if isinstance(root.get("id"), str) else ""
        try:
            said = self._say(message)
        except (OverflowError, RecursionError):
            raise UpstreamFailed(malformed("tool arguments that cannot be written")) from None
        if not cuts_off(reason) and not all(is_object(event.text) for event in said if isinstance(event, Argued)):
            raise UpstreamFailed(malformed("tool arguments that are no JSON"))
        return [Begin(self._id or None), *said, *self.end()]

    def _take_chunk(self, chunk: Chunk, payload: bytes) -> Sequence[AnswerEvent]:
        news: list[AnswerEvent] = []
        usage = usage_of(chunk)
        if usage is not None:
            self._usage.take(usage)
            news = self._count()
        choices = chunk.choices
        if not choices:  # the usage, or filter results with no choice, behind which the usage may come
            self.ended |= self.complete and self._usage.whole and usage is not None
            return news
        if self._id is None:
            self.progress += 1
            self._id = chunk.id or ""
            news.insert(0, Begin(chunk.id or None))
        ours = [choice for choice in choices if index_of(choice) == 0]
        if len(ours) < len(choices):
            self._remark("other_choices")
        if any(_has_failed(choice) for choice in ours):
            raise UpstreamFailed(in_band_failure(payload))
        said, goes_on = self._words(chunk, ours, payload) if ours else ([], False)
        reasons = [choice.finish_reason for choice in ours if choice.finish_reason]
        if reasons or goes_on:
            self.progress += 1
        if reasons:
            self._reason, self.complete = reasons[-1], True
        elif goes_on:
            self._reason, self.complete = "", False
        return news + said if news else said

    def _words(self, chunk: Chunk, ours: list[Choice], payload: bytes) -> tuple[list[AnswerEvent], bool]:
        """What choice 0 says in *chunk*, and whether it says anything, be it nothing that we have an event for."""
        delta = ours[0].delta
        if (
            type(chunk) is Chunk
            and len(ours) == 1
            and delta is not None
            and not delta.tool_calls
            and delta.function_call is None
            and not any(member in payload for member in APART)
        ):
            plain = plain_words(delta)
            if plain:
                self._remember(chunk, payload, plain)
                return plain, True
        out: list[AnswerEvent] = []
        goes_on = False
        for choice in decode_values(payload)["choices"]:
            if isinstance(choice, dict) and _is_first(choice) and isinstance(choice.get("delta"), dict):
                more = self._say(choice["delta"])
                out += more
                goes_on |= bool(more) or has_unknown(choice["delta"])
        self._remember(chunk, payload, out)
        return out, goes_on

    def _say(self, said: dict[str, Any]) -> list[AnswerEvent]:
        """The words and tool calls of a delta or message."""
        out = words(said)
        if said.get("tool_calls") or said.get("function_call"):
            out += self._calls.take(said, self._id or "")
            self.note = self.note or self._calls.note
        if has_unknown(said):
            self._remark("unknown_content")
        return out

    def _count(self) -> list[AnswerEvent]:
        """The usage, where it says something new."""
        if self._usage.odd:
            self._remark("usage_odd")
        told, self._told = self._told, counted(self._usage)
        return [self._told] if self._told != told else []

    def _choice_of(self, choices: object) -> dict[str, Any]:
        """Choice 0 of a JSON answer."""
        if not isinstance(choices, list) or not choices:
            raise UpstreamFailed(malformed("no choices in the answer"))
        if len(choices) > 1:
            self._remark("other_choices")
        for choice in choices:
            if isinstance(choice, dict) and _is_first(choice):
                return choice
        raise UpstreamFailed(malformed("no first choice in the answer"))

    def _remember(self, chunk: Chunk, payload: bytes, said: list[AnswerEvent]) -> None:
        """Learn from a chunk with one word, unless the last ones were so different that it would not pay."""
        choices = chunk.choices or ()
        if self._misfits < RELEARN_AFTER or len(said) != 1 or len(choices) != 1 or choices[0].finish_reason:
            return
        if usage_of(chunk) is not None or APART[0] in payload:
            return
        word, index = said[0], self._calls.going_on
        if isinstance(word, Argued) and index is not None:
            self._alike = partial(self._calls.go_on, index)
        elif isinstance(word, Said):
            self._alike = _said
        elif isinstance(word, Thought):
            self._alike = _thought
        else:
            return
        found = (learn(payload, payload, member, word.text) for member in _LIKENESS[type(word)])
        self._template = next((template for template in found if template is not None), None)
        self._misfits = 0

    def _done(self) -> Sequence[AnswerEvent]:
        if not self.complete:
            return self._fail(TRUNCATED)
        self.ended = True
        return ()


def _said(text: str) -> Sequence[AnswerEvent]:
    return (Said(text),)


def _thought(text: str) -> Sequence[AnswerEvent]:
    return (Thought(text),)


def _has_failed(choice: Choice) -> bool:
    """Whether the provider says that it gave up on *choice*."""
    return choice.finish_reason in FAILED_REASONS or is_said(choice.error)


def _is_first(choice: dict[str, Any]) -> bool:
    index = choice.get("index")
    return type(index) is not int or index == 0
