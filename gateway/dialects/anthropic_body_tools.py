"""Neutral tools and the choice among them as members of an Anthropic body."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from gateway.dialects.neutral import Notes, Prompt, Tool

_ANY_OBJECT = Raw(b'{"type":"object","properties":{}}')
_MODES = {"auto": "auto", "none": "none", "required": "any", "tool": "tool"}


def write_tools(prompt: Prompt, called: tuple[str, ...], notes: Notes) -> dict[str, Any]:
    """
    `tools` and `tool_choice`; nothing where there are no tools.

    The API wants tools to be defined where the conversation has calls. A client that leaves them out later on wants no
    more calls: so those *called* are defined in name, and may not be called.
    """
    if prompt.tools:
        return {"tools": [_tool(tool) for tool in prompt.tools], **_choice(prompt, notes)}
    if called:
        tools = [{"name": name, "input_schema": _ANY_OBJECT} for name in called]
        return {"tools": tools, "tool_choice": {"type": "none"}}
    return {}


def _tool(tool: Tool) -> dict[str, Any]:
    written: dict[str, Any] = {"name": tool.name}
    if tool.description:
        written["description"] = tool.description
    written["input_schema"] = tool.parameters if tool.parameters is not None else _ANY_OBJECT
    if tool.strict:
        written["strict"] = True
    if tool.cache is not None:
        written["cache_control"] = tool.cache
    return written


def _choice(prompt: Prompt, notes: Notes) -> dict[str, Any]:
    """A choice of none may not say anything about parallel calls."""
    mode = prompt.tool_choice.mode if prompt.tool_choice is not None else "auto"
    one_by_one = prompt.parallel_tools is False and mode != "none"
    if prompt.tool_choice is None and not one_by_one:
        return {}
    choice: dict[str, Any] = {"type": _MODES[mode]}
    if prompt.tool_choice is not None and mode == "tool":
        choice["name"] = prompt.tool_choice.name
    if one_by_one:
        choice["disable_parallel_tool_use"] = True
        notes.translate(prompt.names.get("parallel_tools", "parallel_tools"))
    return {"tool_choice": choice}
