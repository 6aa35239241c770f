"""How a Converse answer ended, and what it cost."""

from __future__ import annotations

from msgspec import Raw

from gateway.core.errors import Failure, UpstreamFailed
from gateway.core.usage import count
from gateway.dialects.bedrock_chunk import StopFields
from gateway.dialects.neutral import AnswerEvent, Counted, Finished, Reason
from gateway.wire.values import decode_values

# `stopReason` in the API reference. Guardrails and filters put their own words in the answer's place.
REASONS: dict[str, Reason] = {
    "end_turn": "stop",
    "stop_sequence": "stop_sequence",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "guardrail_intervened": "refusal",
    "content_filtered": "refusal",
    "model_context_window_exceeded": "context_window",
}
# The model wrote what is no answer: a call's arguments may be half a JSON. The route is well, as in `gemini_endings`.
_FAILED = frozenset(("malformed_model_output", "malformed_tool_use"))
MAX_WORD_CHARS = 64  # of a stop reason that we do not know; theirs have up to 29
# `usage` in the API reference. `inputTokens` excludes what was read from the cache and written to it, by the user
# guide's chapter on prompt caching.
_PROMPT = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
_HOUR = "1h"  # `CacheTTL`; `cacheDetails` says how many of the written tokens are kept how long


def check(said: str | None) -> None:
    """Raises UpstreamFailed where the `stopReason` *said* tells of no answer."""
    if said in _FAILED:
        raise UpstreamFailed(Failure("upstream_error", f"stop_{said}", counts=False, detail=f"stopReason {said}"))


class Ending:
    """Merges what is told; the last explicit value counts.

    Attributes:
        note: Something odd, for the log.
    """

    def __init__(self) -> None:
        self.note: str | None = None
        self._counts: dict[str, int] = {}
        self._stop: str | None = None
        self._stop_sequence: str | None = None

    def stop(self, reason: str | None, fields: StopFields | None) -> None:
        """Note how the model is said to have stopped."""
        self._stop = reason
        self._stop_sequence = fields.stop_sequence if fields is not None else None

    def count(self, usage: Raw) -> None:
        """Note the usage."""
        said = decode_values(usage)
        if not isinstance(said, dict):
            return
        for name in (*_PROMPT, "outputTokens"):
            if said.get(name) is None:
                continue
            tokens = count(said[name])
            if tokens is None:
                self.note = self.note or "usage_odd"
            else:
                self._counts[name] = tokens
        details = said.get("cacheDetails")
        for detail in details if isinstance(details, list) else ():
            if isinstance(detail, dict) and detail.get("ttl") == _HOUR:
                self._counts[_HOUR] = count(detail.get("inputTokens")) or 0

    def counted(self) -> list[AnswerEvent]:
        """The tokens, prompt with its cached and written ones; nothing while nothing is known."""
        counts = self._counts
        if not counts:
            return []
        has_prompt = "inputTokens" in counts
        return [
            Counted(
                prompt_tokens=sum(counts.get(name, 0) for name in _PROMPT) if has_prompt else None,
                completion_tokens=counts.get("outputTokens"),
                # parts of a prompt of unknown length could be more than our estimate of the whole
                cached_tokens=counts.get("cacheReadInputTokens") if has_prompt else None,
                cache_write_tokens=counts.get("cacheWriteInputTokens") if has_prompt else None,
                cache_write_1h_tokens=counts.get(_HOUR) if has_prompt else None,
            )
        ]

    def last_words(self, calls: int) -> list[AnswerEvent]:
        """How the model stopped, and the last count; it called *calls* tools."""
        return [self._finished(calls), *self.counted()]

    def _finished(self, calls: int) -> Finished:
        word = self._stop or ""
        reason = REASONS.get(word)
        if reason is None:
            self.note = self.note or "unknown_stop_reason"
            return Finished("tool_calls" if calls else "stop", said=word[:MAX_WORD_CHARS])
        if reason == "stop" and calls:  # not every model's calls are told by its last word
            reason = "tool_calls"
        return Finished(reason, self._stop_sequence if reason == "stop_sequence" else None)
