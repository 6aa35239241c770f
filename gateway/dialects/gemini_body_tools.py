"""Tools and the choice among them as members of a Gemini body."""

from __future__ import annotations

from typing import Any

from gateway.dialects.gemini_body_schema import unenforced
from gateway.dialects.neutral import Notes, Prompt, Tool

_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY", "tool": "ANY"}
_KEEPS_TO_SCHEMAS = "VALIDATED"  # AUTO that keeps to the schemas: Google's guide to function calling


def write_tools(prompt: Prompt, notes: Notes) -> dict[str, Any]:
    """`tools` and `toolConfig`; nothing where there are no tools."""
    choice = prompt.tool_choice
    if not prompt.tools:
        return {}
    mode = choice.mode if choice is not None else "auto"
    if prompt.parallel_tools is False and mode != "none":  # nothing here can forbid them
        notes.drop(prompt.names.get("parallel_tools", "parallel_tools"))
    _note_unenforced(prompt, notes)
    body: dict[str, Any] = {"tools": [{"functionDeclarations": [_declaration(tool) for tool in prompt.tools]}]}
    calling: dict[str, Any] = {"mode": _MODES[mode]}
    if mode == "auto" and any(tool.strict for tool in prompt.tools):
        calling = {"mode": _KEEPS_TO_SCHEMAS}
    elif choice is None:
        return body
    if choice is not None and choice.mode == "tool":
        calling["allowedFunctionNames"] = [choice.name]
        notes.translate(prompt.names.get("tool_choice", "tool_choice"))
    return {**body, "toolConfig": {"functionCallingConfig": calling}}


def _note_unenforced(prompt: Prompt, notes: Notes) -> None:
    """The keywords of strict tools that no call is held to, as with the form of the answer."""
    tools = prompt.names.get("tools", "tools")
    for at, tool in enumerate(prompt.tools):
        if tool.strict and tool.parameters is not None:
            for keyword in unenforced(tool.parameters):
                notes.drop(f"{tools}[{at}].{keyword}")


def _declaration(tool: Tool) -> dict[str, Any]:
    """`parametersJsonSchema` takes a JSON schema as it is; `parameters` would want another kind of schema."""
    written: dict[str, Any] = {"name": tool.name}
    if tool.description:
        written["description"] = tool.description
    if tool.parameters is not None:
        written["parametersJsonSchema"] = tool.parameters
    return written
