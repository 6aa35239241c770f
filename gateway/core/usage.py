"""Token usage as a per-field merge of what an upstream said last."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

Basis = Literal["provider_final", "received", "estimated", "cache", "none"]

MAX_TOKENS = 100_000_000  # no context window comes near it: more is a lie of the upstream, not a count


class Usage(Struct, frozen=True, gc=False):
    """
    Tokens of one exchange. Cached and cache-write tokens are part of the prompt, reasoning of the completion.

    Attributes:
        cache_write_1h_tokens: Those of the cache-write tokens that are kept for an hour.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_1h_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


NO_USAGE = Usage()


def count(value: object) -> int | None:
    """*value* as a token count, or None when it is no whole number from 0 to `MAX_TOKENS`.

    Upstreams lie: negative counts, 10^12, strings, booleans. A count that cannot be one is treated as not sent.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MAX_TOKENS else None


def merge(usage: Usage, **fields: int | None) -> Usage:
    """*usage* with every field that was explicitly sent replaced; None leaves a field as it was."""
    said = {name: value for name, value in fields.items() if value is not None}
    return replace(usage, **said) if said else usage
