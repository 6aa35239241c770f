"""Anthropic's `usage` object: `input_tokens` excludes cached and written tokens, `output_tokens` is cumulative."""

from __future__ import annotations

from typing import Any

from gateway.core.usage import Usage, count
from gateway.wire.body import fits

_FIELDS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
HOUR = "ephemeral_1h_input_tokens"  # of `cache_creation`: those of the written tokens that are kept for an hour


class UsageReader:
    """Merges the usage objects of `message_start` and of every `message_delta`: the last explicit sane value counts."""

    __slots__ = ("counts", "odd", "raw")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.raw: dict[str, Any] = {}
        self.odd = False

    @property
    def has_prompt(self) -> bool:
        return "input_tokens" in self.counts

    @property
    def whole(self) -> bool:
        """Whether the provider counted both sides, if only for the time being."""
        return self.has_prompt and "output_tokens" in self.counts

    def take(self, said: object) -> None:
        """Merge one usage object; anything but an object is ignored."""
        if not isinstance(said, dict):
            self.odd |= said is not None
            return
        self.raw = {**self.raw, **{name: value for name, value in said.items() if value is not None and fits(value)}}
        created = said.get("cache_creation")
        hour = created.get(HOUR) if isinstance(created, dict) else None
        for name, told in (*((name, said.get(name)) for name in _FIELDS), (HOUR, hour)):
            if told is None:
                continue
            value = count(told)
            if value is None:
                self.odd = True
            else:
                self.counts[name] = value

    def usage(self, prompt_tokens: int, output_tokens: int | None = None) -> Usage:
        """The merged usage; *prompt_tokens* where the provider gave none, *output_tokens* instead of its count."""
        counts = self.counts
        cached, written = counts.get("cache_read_input_tokens", 0), counts.get("cache_creation_input_tokens", 0)
        prompt = counts["input_tokens"] + cached + written if self.has_prompt else max(prompt_tokens, cached + written)
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=counts.get("output_tokens", 0) if output_tokens is None else output_tokens,
            cached_tokens=cached,
            cache_write_tokens=written,
            cache_write_1h_tokens=min(counts.get(HOUR, 0), written),
        )


def usage_object(usage: Usage, raw: dict[str, Any]) -> dict[str, Any]:
    """The `usage` a client gets: the provider's own object with our settled numbers in Anthropic's convention."""
    out = {
        **raw,
        "input_tokens": usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens,
        "output_tokens": usage.completion_tokens,
    }
    if usage.cached_tokens or "cache_read_input_tokens" in raw:
        out["cache_read_input_tokens"] = usage.cached_tokens
    if usage.cache_write_tokens or "cache_creation_input_tokens" in raw:
        out["cache_creation_input_tokens"] = usage.cache_write_tokens
    return out
