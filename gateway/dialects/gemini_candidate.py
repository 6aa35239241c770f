"""One candidate of a Gemini answer: what it says, how likely that was, how it stops."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from gateway.core.errors import UpstreamFailed
from gateway.dialects.gemini_endings import UNSPECIFIED, failed, finished
from gateway.dialects.gemini_parts import PartReader
from gateway.dialects.neutral import AnswerEvent, Finished, Likely, Scored

_ZERO = Raw(b"0")  # of a probability of one, which is left out


class CandidateReader:
    """Reads one candidate.

    Attributes:
        has_stopped: Its model has stopped, unless more comes.
        parts: What it has said.
    """

    def __init__(self) -> None:
        self.has_stopped = False
        self.parts = PartReader()
        self._finish = ""  # the reason as last said

    def take(self, candidate: dict[str, Any], payload: bytes) -> list[AnswerEvent]:
        """
        What *candidate* says in one chunk, or as a whole.

        Raises:
            UpstreamFailed: It has no answer: by its reason, in which case *payload* is for the log, or by its parts.
        """
        content, reason = candidate.get("content"), candidate.get("finishReason")
        stops = isinstance(reason, str) and bool(reason) and reason not in UNSPECIFIED
        if stops and (failure := failed(str(reason), payload.decode("utf-8", "replace"))) is not None:
            raise UpstreamFailed(failure)
        parts = content.get("parts") if isinstance(content, dict) else None
        said = self.parts.take(parts)
        said += _scores(candidate.get("logprobsResult"))
        said += self.parts.cite(candidate.get("citationMetadata"))
        if stops:
            self._finish, self.has_stopped = str(reason), True
        elif said:  # it had not stopped after all
            self._finish, self.has_stopped = "", False
        return said

    def finished(self) -> Finished:
        """How it stopped."""
        return finished(self._finish, self.parts.calls)


def _scores(result: object) -> list[AnswerEvent]:
    """What `logprobsResult` tells: the tokens that were chosen, and the most likely ones at each place."""
    if not isinstance(result, dict):
        return []
    chosen, tops = result.get("chosenCandidates"), result.get("topCandidates")
    tops = tops if isinstance(tops, list) else []
    tokens = []
    for at, said in enumerate(chosen if isinstance(chosen, list) else ()):
        token = _likely(said)
        if token is None:
            continue
        top = tops[at].get("candidates") if at < len(tops) and isinstance(tops[at], dict) else None
        others = [_likely(other) for other in top] if isinstance(top, list) else []
        tokens.append((token, tuple(other for other in others if other is not None)))
    return [Scored(tuple(tokens))] if tokens else []


def _likely(said: object) -> Likely | None:
    token = said.get("token", "") if isinstance(said, dict) else None
    if not isinstance(said, dict) or not isinstance(token, str):
        return None
    logprob = said.get("logProbability", _ZERO)
    if isinstance(logprob, bool) or not isinstance(logprob, int | Raw):
        return None
    return Likely(token, logprob if isinstance(logprob, Raw) else Raw(b"%d" % logprob))
