"""How much a Gemini model is to think: by a level, by a budget of tokens, or not to be told."""

from __future__ import annotations

from typing import Any

from gateway.dialects.efforts import SCALE, nearest_effort, wanted_effort
from gateway.dialects.neutral import Notes, Prompt, Reasoning
from gateway.dialects.traits import Traits
from gateway.dialects.validate import refuse

# What an effort is in tokens: Google's guide to its OpenAI compatibility, table of `reasoning_effort`.
_BUDGETS = {"minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}
_DYNAMIC = -1  # as much as the model finds right: Google's guide to thinking, `thinkingBudget`


def write_thinking(prompt: Prompt, traits: Traits, notes: Notes) -> dict[str, Any]:
    """
    `thinkingConfig`, where the client has a wish that the model can be told.

    Whoever asks for thinking is shown it, as a summary; the tokens of all of it are billed either way.

    Raises:
        GatewayError: An effort that nobody knows.
    """
    asked, name = prompt.reasoning, prompt.names.get("reasoning", "reasoning_effort")
    if asked is None:
        return {}
    if wanted_effort(asked) not in SCALE:
        raise refuse(name, f"{name}: the effort must be one of {', '.join(SCALE)}.")
    if traits.efforts:
        config: dict[str, Any] = {"thinkingLevel": nearest_effort(wanted_effort(asked), traits.efforts)}
    elif traits.budgets is not None:
        config = {"thinkingBudget": _budget(asked, traits.budgets, rests=traits.rests)}
    else:
        notes.drop(name)
        return {}
    notes.translate(name)
    return {"thinkingConfig": config | ({} if asked.mode == "off" else {"includeThoughts": True})}


def _budget(asked: Reasoning, bounds: tuple[int, int], *, rests: bool) -> int:
    """Tokens within *bounds*; 0 is off for a model that *rests*, and the least is nearest to it for others."""
    least, most = bounds
    if asked.mode == "adaptive":
        return _DYNAMIC
    if asked.mode == "off":
        return 0 if rests else least
    wanted = asked.budget_tokens or _BUDGETS.get(asked.effort or "medium", most)
    return min(max(wanted, least), most)
