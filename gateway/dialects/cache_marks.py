"""Markers of prompt caching, for dialects that have none."""

from __future__ import annotations

from typing import Any

from gateway.dialects.neutral import Prompt


def has_cache_marks(prompt: Prompt) -> bool:
    """Whether anything in *prompt* is marked."""
    marked: list[Any] = [*prompt.system, *prompt.tools]
    for message in prompt.messages:
        marked += message.parts
        marked += [inner for part in message.parts for inner in getattr(part, "parts", ())]
    return any(getattr(item, "cache", None) is not None for item in marked)
