"""How an Anthropic answer stopped, and what it used, as told bit by bit by `message_start` and `message_delta`."""

from __future__ import annotations

from gateway.core.usage import count
from gateway.dialects.anthropic_event import Delta
from gateway.dialects.anthropic_usage import HOUR, UsageReader
from gateway.dialects.neutral import AnswerEvent, Counted, Finished, Reason, Refused
from gateway.wire.values import decode_values

# TR-23. Anything else is a plain stop, with the provider's own word beside it.
REASONS: dict[str, Reason] = {
    "end_turn": "stop",
    "stop_sequence": "stop_sequence",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "refusal",
    "pause_turn": "pause",
    "model_context_window_exceeded": "context_window",
}
MAX_WORD_CHARS = 64  # of a stop reason that we do not know; theirs have up to 29


class Ending:
    """
    Merges what is told; the last explicit value counts.

    Attributes:
        note: Something odd, for the log.
    """

    def __init__(self) -> None:
        self.note: str | None = None
        self._usage = UsageReader()
        self._is_told = False  # the answer has been counted: the count of `message_start` is a placeholder
        self._stop: str | None = None
        self._stop_sequence: str | None = None
        self._explanation: str | None = None

    def count_prompt(self, usage: object) -> None:
        """Merge the usage of `message_start`, whose count of the answer is a placeholder."""
        self._usage.take(usage)
        if self._usage.odd:
            self._remark("usage_odd")

    def count(self, usage: object) -> None:
        """Merge a usage that counts the answer so far."""
        self.count_prompt(usage)
        self._is_told |= isinstance(usage, dict) and count(usage.get("output_tokens")) is not None

    def counted(self) -> list[AnswerEvent]:
        """The tokens so far, prompt with its cached and written ones; nothing while nothing is known."""
        has_prompt, is_told = self._usage.has_prompt, self._is_told
        if not has_prompt and not is_told:
            return []
        usage, counts = self._usage.usage(0), self._usage.counts
        return [
            Counted(
                prompt_tokens=usage.prompt_tokens if has_prompt else None,
                completion_tokens=usage.completion_tokens if is_told else None,
                # parts of a prompt of unknown length could be more than our estimate of the whole
                cached_tokens=counts.get("cache_read_input_tokens") if has_prompt else None,
                cache_write_tokens=counts.get("cache_creation_input_tokens") if has_prompt else None,
                reasoning_tokens=self._reasoning(usage.completion_tokens) if is_told else None,
                cache_write_1h_tokens=counts.get(HOUR) if has_prompt else None,
            )
        ]

    def stop(self, delta: Delta) -> None:
        """Merge how the model is said to have stopped."""
        self._stop = delta.stop_reason or self._stop
        self._stop_sequence = delta.stop_sequence or self._stop_sequence
        details = decode_values(delta.stop_details)
        explanation = details.get("explanation") if isinstance(details, dict) else None
        self._explanation = explanation if isinstance(explanation, str) else self._explanation

    def last_words(self, calls: int) -> list[AnswerEvent]:
        """Why the model refused, if it did and said so, how it stopped, and the last count; it called *calls* tools."""
        said: list[AnswerEvent] = [self._finished(calls), *self.counted()]
        return [Refused(self._explanation), *said] if self._explanation and self._stop == "refusal" else said

    def _finished(self, calls: int) -> Finished:
        word = self._stop
        if word is None:
            self._remark("no_stop_reason")
            return Finished("tool_calls" if calls else "stop")
        reason = REASONS.get(word)
        if reason is None:
            self._remark("unknown_stop_reason")
            return Finished("stop", said=word[:MAX_WORD_CHARS])
        if reason == "stop" and calls:  # of servers that speak this dialect not all tell of calls by their last word
            reason = "tool_calls"
        return Finished(reason, self._stop_sequence if reason == "stop_sequence" else None)

    def _reasoning(self, completion_tokens: int) -> int | None:
        """Thinking is part of the answer's count; a figure above that is none."""
        details = self._usage.raw.get("output_tokens_details")
        tokens = count(details.get("thinking_tokens")) if isinstance(details, dict) else None
        return tokens if tokens is not None and tokens <= completion_tokens else None

    def _remark(self, note: str) -> None:
        self.note = self.note or note
