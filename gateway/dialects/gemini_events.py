"""What a Gemini provider answers, a stream of chunks or one JSON body, read into neutral events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from gateway.core.errors import UpstreamFailed
from gateway.dialects.answer import read_answer
from gateway.dialects.failures import in_band_failure, malformed
from gateway.dialects.gemini_candidate import CandidateReader
from gateway.dialects.gemini_endings import blocked
from gateway.dialects.gemini_usage import UsageReader
from gateway.dialects.lane import read_json
from gateway.dialects.neutral import AnswerEvent, Begin, Counted, Finished, Other, Running
from gateway.dialects.reading import AnswerState
from gateway.wire.headers import MAX_ID_CHARS
from gateway.wire.sse import Event
from gateway.wire.values import decode_values

MAX_CANDIDATES = 8  # by Google's reference, `candidateCount`
_LONG = 1024 * 1024  # other dialects take no longer event; here a picture may be
_BREAKS = bytes(range(0x20)) + b'"\\\x7f'  # where `ascii_json` begins anew
_MAX_BREAKS = 100_000  # 0.1 s of the loop's time (measured); an event with a picture has some hundred


class GeminiReader(AnswerState):
    """
    A stream has no terminal marker of its own: what completes it is the finish reason of each candidate, or the refusal
    of the prompt; what ends it is the end of the body. Every chunk counts the tokens so far.

    Args:
        asked: How many candidates there should be. One may stop before another begins; that there are fewer is told by
            the end of the body alone.
    """

    def __init__(self, asked: int = 1) -> None:
        super().__init__()
        self._missing = asked
        self._id: str | None = None  # of the answer, "" where it has none; None before it begins
        self._candidates: dict[int, CandidateReader] = {}
        self._usage = UsageReader()
        self._told = Counted()
        self._block: str | None = None  # why the prompt was refused

    def take(self, event: Event) -> Sequence[AnswerEvent]:
        """What *event* says. Raises UpstreamFailed, unless the answer is `complete`: then errors are but noted."""
        if len(event.data) > _LONG and _is_broken_up(event.data):
            return self._fail(malformed("a long event that is no picture"))
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

    def close(self) -> None:
        """See `Reader`: no more candidates will come."""
        self._missing = 0
        self.complete = self._have_stopped()

    def end(self) -> Sequence[AnswerEvent]:
        """How the model stopped, and the usage if it has changed."""
        others = [Other(index, each.finished()) for index, each in sorted(self._candidates.items()) if index]
        told = self._counted()
        return [self._finished(), *others, *([told] if told != Counted() else [])]

    def whole(self, body: bytes) -> Sequence[AnswerEvent]:
        """A whole answer. Raises UpstreamFailed when it is an error, or no answer."""
        _, root = read_answer(body)
        if root.get("error"):
            raise UpstreamFailed(in_band_failure(body))
        said = [event for event in self._take(root, body) if type(event) is not Running]
        self.close()
        if not self.complete:
            raise UpstreamFailed(malformed("no candidate with a finish reason in the answer"))
        self.ended = True
        return [*said, *self.end()]

    def _take(self, root: dict[str, Any], payload: bytes) -> list[AnswerEvent]:
        out: list[AnswerEvent] = []
        if self._id is None:
            given = root.get("responseId")
            self._id = given[:MAX_ID_CHARS] if isinstance(given, str) else ""
            self.progress += 1
            out.append(Begin(self._id or None))
        if "usageMetadata" in root:
            self._usage.take(root["usageMetadata"])
            if out:  # clients hear of the prompt's count before the first word
                out.append(self._usage.prompt())
        self._take_feedback(root.get("promptFeedback"))
        candidates = root.get("candidates")
        for candidate in candidates if isinstance(candidates, list) else ():
            out += self._take_candidate(candidate, payload)
        self.complete = self._have_stopped()
        return out + self._count()

    def _have_stopped(self) -> bool:
        if not self._candidates:
            return self._block is not None
        # Some servers leave answers out where several were asked for; without the first there is none to speak of.
        is_whole = self._missing <= 0 and 0 in self._candidates
        return is_whole and all(each.has_stopped for each in self._candidates.values())

    def _take_feedback(self, feedback: object) -> None:
        """A prompt that was refused has no answer, and says why."""
        reason = feedback.get("blockReason") if isinstance(feedback, dict) else None
        if isinstance(reason, str) and reason:
            self._block = reason
            self.progress += 1

    def _take_candidate(self, candidate: object, payload: bytes) -> list[AnswerEvent]:
        index = candidate.get("index", 0) if isinstance(candidate, dict) else None  # 0 is left out
        if not isinstance(candidate, dict) or type(index) is not int or not 0 <= index < MAX_CANDIDATES:
            self._remark("other_candidates")
            return []
        begun = []
        reader = self._candidates.get(index)
        if reader is None:
            reader = self._candidates[index] = CandidateReader()
            self._missing -= 1
            begun = [Begin()] if index else []
        was_stopped = reader.has_stopped
        said = reader.take(candidate, payload)
        self.note = self.note or reader.parts.note
        if said or reader.has_stopped != was_stopped:
            self.progress += 1
        return [Other(index, event) for event in [*begun, *said]] if index else said

    def _finished(self) -> Finished:
        first = self._candidates.get(0)
        if self._block is not None and (first is None or not first.parts.has_spoken):
            return blocked(self._block)
        return first.finished() if first is not None else Finished("stop")

    def _count(self) -> list[AnswerEvent]:
        """The tokens so far, where that is news."""
        if self._usage.odd:
            self._remark("usage_odd")
        told, self._told = self._told, self._counted()
        return [Running(*structs.astuple(self._told))] if self._told != told else []

    def _counted(self) -> Counted:
        return self._usage.counted(silent=not any(each.parts.has_spoken for each in self._candidates.values()))


def _is_broken_up(data: bytes) -> bool:
    """Whether *data* has so many quotes, escapes and controls that to spell it in ASCII would hold the loop."""
    return len(data) - len(data.translate(None, _BREAKS)) > _MAX_BREAKS


def _read_object(payload: bytes) -> dict[str, Any]:
    """*payload* as a dict. Raises msgspec.DecodeError when it is anything else."""
    root = decode_values(payload)
    if not isinstance(root, dict):
        raise msgspec.DecodeError("not an object")
    return root
