"""OpenAI's `usage` object: prompt includes cached tokens, completion includes reasoning tokens."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.core.usage import Usage, count, merge
from gateway.wire.body import fits
from gateway.wire.values import decode_values

_CACHED = ("prompt_cache_hit_tokens", "cached_tokens")  # DeepSeek's and Moonshot's names for it


class UsageReader:
    """Merges every usage object of one answer: per field, the last explicit sane value counts."""

    __slots__ = ("has_completion", "has_prompt", "odd", "raw", "usage")

    def __init__(self) -> None:
        self.usage = Usage()
        self.raw: dict[str, Any] = {}
        self.has_prompt = False
        self.has_completion = False
        self.odd = False

    @property
    def whole(self) -> bool:
        """Whether the provider counted both sides."""
        return self.has_prompt and self.has_completion

    def take(self, raw: bytes | msgspec.Raw) -> None:
        """Merge one usage object; anything but an object is ignored."""
        try:
            said = decode_values(raw)
        except (msgspec.DecodeError, RecursionError):
            said = None
        self.take_value(said)

    def take_value(self, said: object) -> None:
        """Merge one usage object that has been read by `decode_values`; anything but an object is ignored."""
        if not isinstance(said, dict):
            self.odd = True
            return
        self.raw = said if fits(said) else {name: value for name, value in said.items() if fits(value)}
        prompt, completion = self._count(said, "prompt_tokens"), self._count(said, "completion_tokens")
        details = said.get("prompt_tokens_details")
        cached = self._count(details, "cached_tokens")
        for name in _CACHED:
            cached = self._count(said, name) if cached is None else cached
        written = self._count(details, "cache_write_tokens")  # OpenRouter's name for it, as for what is cached
        reasoning = self._count(said.get("completion_tokens_details"), "reasoning_tokens")
        completion = _with_reasoning(prompt, completion, reasoning, count(said.get("total_tokens")))
        self.has_prompt |= prompt is not None
        self.has_completion |= completion is not None
        self.usage = merge(
            self.usage,
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=cached,
            cache_write_tokens=written,
            reasoning_tokens=reasoning,
        )

    def filled(self, prompt_tokens: int, completion_tokens: int) -> Usage:
        """The usage with our own figures where the provider gave none."""
        return merge(
            self.usage,
            prompt_tokens=None if self.has_prompt else prompt_tokens,
            completion_tokens=None if self.has_completion else completion_tokens,
        )

    def _count(self, source: object, name: str) -> int | None:
        if not isinstance(source, dict) or source.get(name) is None:
            return None
        value = count(source[name])
        self.odd |= value is None
        return value


def _with_reasoning(prompt: int | None, completion: int | None, reasoning: int | None, total: int | None) -> int | None:
    """The tokens of the answer with its reasoning, which xAI counts beside it: its total is the sum of all three."""
    if not reasoning or prompt is None or completion is None or total != prompt + completion + reasoning:
        return completion
    return completion + reasoning


def usage_object(usage: Usage, raw: dict[str, Any]) -> dict[str, Any]:
    """The `usage` a client gets: the provider's own object with our settled numbers, `cached_tokens` always there."""
    prompt_details = raw.get("prompt_tokens_details")
    out: dict[str, Any] = {
        **raw,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            **(prompt_details if isinstance(prompt_details, dict) else {}),
            "cached_tokens": usage.cached_tokens,
        },
    }
    if usage.reasoning_tokens:
        details = raw.get("completion_tokens_details")
        out["completion_tokens_details"] = {
            **(details if isinstance(details, dict) else {}),
            "reasoning_tokens": usage.reasoning_tokens,
        }
    return out
