"""How much a model is to think, in the words that it knows."""

from __future__ import annotations

from typing import Protocol

from gateway.dialects.efforts import nearest_effort, wanted_effort
from gateway.dialects.neutral import Notes, Prompt
from gateway.dialects.traits import Traits


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
    switched = traits.switch or traits.toggle is not None
    effort = None if asked.mode == "off" and switched else nearest_effort(wanted_effort(asked), traits.efforts)
    if traits.switch:
        put("thinking", {"type": "disabled" if asked.mode == "off" else "enabled"}, name)
    if traits.toggle is not None:
        put(traits.toggle, asked.mode != "off", name)
    if effort is not None:
        put("reasoning_effort", effort, name)
    if effort is None and not switched:
        notes.drop(name)
    elif effort != asked.effort or asked.mode == "budget":
        notes.translate(name)
