"""A choice that must be honoured has to name what there is: said once for all providers, in the client's words."""

from __future__ import annotations

from gateway.dialects.neutral import Prompt
from gateway.dialects.validate import refuse


def check_choice(prompt: Prompt) -> None:
    """Raises GatewayError where *prompt* insists on a tool that is not among its tools, or has none to call."""
    choice = prompt.tool_choice
    if choice is None or choice.mode not in ("required", "tool"):
        return
    name = prompt.names.get("tool_choice", "tool_choice")
    if not prompt.tools:
        raise refuse(name, f"{name} asks for a tool, but there are no tools.")
    if choice.mode == "tool" and all(tool.name != choice.name for tool in prompt.tools):
        raise refuse(name, f"{name}: there is no tool of that name among the tools.")
