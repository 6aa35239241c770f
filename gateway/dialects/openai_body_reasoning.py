"""How much a model is to think, in the words that it knows."""

from __future__ import annotations

from typing import Protocol

from gateway.dialects.neutral import Notes, Prompt, Reasoning
from gateway.dialects.traits import Traits

_SCALE = ("none", "minimal", "low", "medium", "high", "xhigh", "max")  # OpenAI's reference, `reasoning_effort`
# Budgets in tokens up to which an effort is meant. Claude Code's three steps are 4,000, 10,000 and 31,999.
_BUDGETS = ((4_096, "low"), (16_384, "medium"))
_MORE = "high"
_ADAPTIVE = "medium"  # as most vendors' own default


class Put(Protocol):
    """`Body.put`."""

    def __call__(self, member: str, value: object, client_name: str) -> None: ...


def write_reasoning(prompt: Prompt, traits: Traits, put: Put, notes: Notes) -> None:
    """*put* what tells the model how much to think, and note where it cannot be told."""
    asked, name = prompt.reasoning, prompt.names.get("reasoning", "reasoning_effort")
    if prompt.tools and traits.effort_with_tools is not None:
        if asked is None:
            put("reasoning_effort", traits.effort_with_tools, "reasoning_effort")
        elif asked.mode == "off":
            put("reasoning_effort", traits.effort_with_tools, name)
        else:
            put("reasoning_effort", traits.effort_with_tools, "reasoning_effort")
            notes.drop(name)
        return
    if asked is None:
        return
    effort = None if asked.mode == "off" and traits.switch else _nearest(_wanted(asked), traits.efforts)
    if traits.switch:
        put("thinking", {"type": "disabled" if asked.mode == "off" else "enabled"}, name)
    if effort is not None:
        put("reasoning_effort", effort, name)
    if effort is None and not traits.switch:
        notes.drop(name)
    elif effort != asked.effort or asked.mode == "budget":
        notes.translate(name)


def _wanted(asked: Reasoning) -> str | None:
    if asked.mode == "off":
        return "none"
    if asked.mode == "adaptive":
        return _ADAPTIVE
    if asked.effort is not None:
        return asked.effort
    return next((effort for bound, effort in _BUDGETS if (asked.budget_tokens or 0) <= bound), _MORE)


def _nearest(wanted: str | None, efforts: tuple[str, ...]) -> str | None:
    """The strongest of *efforts* that is not above *wanted*, else the weakest; None where there is none to choose."""
    if wanted not in _SCALE or not efforts:
        return None
    bound = _SCALE.index(wanted)
    return next((effort for effort in reversed(efforts) if _SCALE.index(effort) <= bound), efforts[0])
