"""Stop sequences, for providers that take a few of them and refuse empty ones."""

from __future__ import annotations

from gateway.dialects.neutral import Notes, Prompt
from gateway.dialects.validate import refuse


def kept_stops(prompt: Prompt, most: int, notes: Notes) -> list[str]:
    """Those of *prompt* that a provider can take, which are *most* at the most. Raises GatewayError where more are."""
    name = prompt.names.get("stop", "stop")
    kept = [text for text in prompt.stop if text]
    if len(kept) > most:
        raise refuse(name, f"{name} may have at most {most} sequences with this model.")
    if len(kept) < len(prompt.stop):  # an empty one would end no answer, but is refused
        notes.drop(name)
    return kept
