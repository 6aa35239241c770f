"""How an OpenAI answer ended and what it cost, in neutral events."""

from __future__ import annotations

from gateway.dialects.neutral import Counted, Finished, Reason
from gateway.dialects.openai_usage import UsageReader

_REASONS: dict[str, Reason] = {
    "stop": "stop",
    "length": "length",
    "model_length": "context_window",  # Mistral documents it: the context was full
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "refusal",
}
_CUT_OFF = frozenset(("length", "context_window", "refusal"))
_MAX_SAID_CHARS = 64  # of an unknown reason


def finished(said: str, calls: int) -> Finished:
    """What the `finish_reason` *said* means for an answer with so many *calls*."""
    reason = _REASONS.get(said, "stop")
    if reason == "stop" and calls:  # several vendors say so
        reason = "tool_calls"
    elif reason == "tool_calls" and not calls:  # clients would wait for a call
        return Finished("stop", said=said)
    return Finished(reason, said=None if said in _REASONS else said[:_MAX_SAID_CHARS])


def cuts_off(said: str) -> bool:
    """Whether the `finish_reason` *said* can leave the arguments of a call unfinished."""
    return _REASONS.get(said) in _CUT_OFF


def counted(reader: UsageReader) -> Counted:
    """The usage as far as *reader* has been told."""
    usage = reader.usage
    return Counted(
        prompt_tokens=usage.prompt_tokens if reader.has_prompt else None,
        completion_tokens=usage.completion_tokens if reader.has_completion else None,
        cached_tokens=usage.cached_tokens or None,
        cache_write_tokens=usage.cache_write_tokens or None,
        reasoning_tokens=usage.reasoning_tokens or None,
    )
