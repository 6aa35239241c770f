"""What a Gemini provider answers, a stream of chunks or one JSON body, read into neutral events."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.core.errors import UpstreamFailed
from gateway.dialects.answer import read_answer
from gateway.dialects.failures import in_band_failure, malformed
from gateway.dialects.gemini_endings import UNSPECIFIED, blocked, failed, finished
from gateway.dialects.gemini_parts import PartReader
from gateway.dialects.gemini_usage import UsageReader
from gateway.dialects.lane import read_json
from gateway.dialects.neutral import AnswerEvent, Begin, Counted, Finished
from gateway.dialects.reading import AnswerState
from gateway.wire.sse import Event
from gateway.wire.values import decode_values

_NO_ID_CHAR = re.compile(r"[^a-zA-Z0-9_-]+")  # what clients take in the ids of calls
_MAX_ID_CHARS = 40  # of the answer's id in one that we make: with prefix and slot within the 64 that are usual


class GeminiReader(AnswerState):
    """
    The first candidate of an answer; translated requests ask for no other.

    A stream has no terminal marker of its own: what completes it is the finish reason, or the refusal of the prompt;
    what ends it is the end of the body. Every chunk counts the tokens so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self._id: str | None = None  # of the answer, "" where it has none; None before it begins
        self._parts = PartReader()
        self._usage = UsageReader()
        self._told = Counted()
        self._finish = ""  # the reason as last said
        self._block: str | None = None  # why the prompt was refused

    def take(self, event: Event) -> Sequence[AnswerEvent]:
        """What *event* says. Raises UpstreamFailed, unless the answer is `complete`: then errors are but noted."""
        read = read_json(event.data, _read_object, _read_object)
        if read is None:
            return self._fail(malformed(event.data.decode("utf-8", "replace")))
        root, payload = read
        if root.get("error"):
            return self._fail(in_band_failure(payload))
        try:
            return self._take(root, payload)
        except UpstreamFailed as exc:
            return self._fail(exc.failure)

    def end(self) -> Sequence[AnswerEvent]:
        """How the model stopped, and the usage if it has changed."""
        return [self._finished(), *self._count()]

    def whole(self, body: bytes) -> Sequence[AnswerEvent]:
        """A whole answer. Raises UpstreamFailed when it is an error, or no answer."""
        _, root = read_answer(body)
        if root.get("error"):
            raise UpstreamFailed(in_band_failure(body))
        said = self._take(root, body)
        if not self.complete:
            raise UpstreamFailed(malformed("no candidate with a finish reason in the answer"))
        self.ended = True
        return [*said, *self.end()]

    def _take(self, root: dict[str, Any], payload: bytes) -> list[AnswerEvent]:
        out: list[AnswerEvent] = []
        if self._id is None:
            given = root.get("responseId")
            self._id = given if isinstance(given, str) else ""
            self.progress += 1
            out.append(Begin(self._id or None))
        if "usageMetadata" in root:
            self._usage.take(root["usageMetadata"])
            if out:  # clients hear of the prompt's count before the first word
                out.append(self._usage.prompt())
        self._take_feedback(root.get("promptFeedback"))
        candidate = self._first(root.get("candidates"))
        if candidate is not None:
            out += self._take_candidate(candidate, payload)
        return out + self._count()

    def _take_feedback(self, feedback: object) -> None:
        """A prompt that was refused has no answer, and says why."""
        reason = feedback.get("blockReason") if isinstance(feedback, dict) else None
        if isinstance(reason, str) and reason:
            self._block = reason
            self.complete = True
            self.progress += 1

    def _take_candidate(self, candidate: dict[str, Any], payload: bytes) -> list[AnswerEvent]:
        content, reason = candidate.get("content"), candidate.get("finishReason")
        has_stopped = isinstance(reason, str) and bool(reason) and reason not in UNSPECIFIED
        if has_stopped and (failure := failed(str(reason), payload.decode("utf-8", "replace"))) is not None:
            raise UpstreamFailed(failure)
        said = self._parts.take(content.get("parts") if isinstance(content, dict) else None, self._answer_id())
        said += self._parts.cite(candidate.get("citationMetadata"))
        self.note = self.note or self._parts.note
        if said or has_stopped:
            self.progress += 1
        if has_stopped:
            self._finish, self.complete = str(reason), True
        elif said:  # it had not stopped after all
            self._finish, self.complete = "", self._block is not None
        return said

    def _first(self, candidates: object) -> dict[str, Any] | None:
        """The candidate that is read: the one of index 0, which is left out where it is 0."""
        found: dict[str, Any] | None = None
        for candidate in candidates if isinstance(candidates, list) else ():
            if isinstance(candidate, dict) and candidate.get("index", 0) == 0 and found is None:
                found = candidate
            else:
                self._remark("other_candidates")
        return found

    def _finished(self) -> Finished:
        if self._block is not None and not self._parts.has_spoken:
            return blocked(self._block)
        return finished(self._finish, self._parts.calls)

    def _count(self) -> list[AnswerEvent]:
        """The tokens so far, where that is news."""
        if self._usage.odd:
            self._remark("usage_odd")
        told, self._told = self._told, self._usage.counted(silent=not self._parts.has_spoken)
        return [self._told] if self._told != told else []

    def _answer_id(self) -> str:
        return _NO_ID_CHAR.sub("", self._id or "")[-_MAX_ID_CHARS:]


def _read_object(payload: bytes) -> dict[str, Any]:
    """*payload* as a dict. Raises msgspec.DecodeError when it is anything else."""
    root = decode_values(payload)
    if not isinstance(root, dict):
        raise msgspec.DecodeError("not an object")
    return root
