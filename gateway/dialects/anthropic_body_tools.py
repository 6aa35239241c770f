"""Neutral tools and the choice among them as members of an Anthropic body."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from gateway.dialects.neutral import Notes, Prompt, Tool
from gateway.dialects.validate import refuse

_ANY_OBJECT = Raw(b'{"type":"object","properties":{}}')
# There is no mode for any JSON. A tool has to be called, and what it is called with is an object: the answer.
ANSWER = "give_answer"
_ANSWER_TOOL = {
    "name": ANSWER,
    "description": "Give the whole answer as one JSON object: it is what this tool is called with.",
    "input_schema": Raw(b'{"type":"object"}'),
}
_MODES = {"auto": "auto", "none": "none", "required": "any", "tool": "tool"}


def write_tools(prompt: Prompt, called: tuple[str, ...], notes: Notes) -> dict[str, Any]:
    """
    `tools` and `tool_choice`; nothing where there are no tools.

    The API wants tools to be defined where the conversation has calls. A client that leaves them out later on wants no
    more calls: so those *called* are defined in name, and may not be called.
    """
    if answers_by_tool(prompt):
        return _with_answer(prompt, called, notes)
    if prompt.tools:
        return {"tools": [_tool(tool) for tool in prompt.tools], **_choice(prompt, notes)}
    if called:
        tools = [{"name": name, "input_schema": _ANY_OBJECT} for name in called]
        return {"tools": tools, "tool_choice": {"type": "none"}}
    return {}


def answers_by_tool(prompt: Prompt) -> bool:
    """Whether the answer has to be some JSON object, unless it is a call that has to be made."""
    form, choice = prompt.response_format, prompt.tool_choice
    return form is not None and form.kind == "json_object" and (choice is None or choice.mode in ("auto", "none"))


def _with_answer(prompt: Prompt, called: tuple[str, ...], notes: Notes) -> dict[str, Any]:
    """
    The tool that takes the answer; beside it those that may be called instead of answering.

    Raises:
        GatewayError: The client has a tool of that name.
    """
    if ANSWER in called or any(tool.name == ANSWER for tool in prompt.tools):
        name = prompt.names.get("response_format", "response_format")
        raise refuse(name, f"{name}: a tool may not have the name {ANSWER} beside JSON mode with this model.")
    notes.tools[ANSWER] = None
    notes.translate(prompt.names.get("response_format", "response_format"))
    may_call = prompt.tool_choice is None or prompt.tool_choice.mode == "auto"
    tools = [_tool(tool) for tool in prompt.tools] or [{"name": name, "input_schema": _ANY_OBJECT} for name in called]
    choice = {"type": "any"} if may_call and prompt.tools else {"type": "tool", "name": ANSWER}
    return {"tools": [*tools, _ANSWER_TOOL], "tool_choice": {**choice, "disable_parallel_tool_use": True}}


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
