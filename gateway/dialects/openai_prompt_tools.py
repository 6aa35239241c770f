"""Tools of an OpenAI call and the choice among them, with the deprecated forms of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Raw, ValidationError, convert

from gateway.dialects.neutral import Notes, Tool, ToolChoice
from gateway.dialects.openai_prompt_parts import read_cache
from gateway.dialects.openai_prompt_raw import (
    as_boolean,
    as_object,
    as_objects,
    as_schema,
    as_text,
    is_null,
    note_other_members,
)
from gateway.dialects.validate import name_of, refuse
from gateway.wire.values import decode_values

_MODES: dict[str, Literal["auto", "none", "required"]] = {"auto": "auto", "none": "none", "required": "required"}
_FUNCTION = frozenset({"name", "description", "parameters", "strict", "cache_control"})
_TOOL = frozenset({"type", "function", "cache_control"})
_CHOICES = ("tool_choice", "function_call")


def read_tools(fields: Mapping[str, Raw], names: dict[str, str], notes: Notes) -> tuple[Tool, ...]:
    """All tools. Raises GatewayError for one that is no function."""
    tools: list[Tool] = []
    if "functions" in fields:
        names["tools"] = "functions"
        for at, function in enumerate(as_objects(fields["functions"], "functions")):
            tools.append(_function(function, {}, f"functions[{at}]", notes))
    if "tools" in fields:
        names["tools"] = "tools"
        for at, tool in enumerate(as_objects(fields["tools"], "tools")):
            tools.append(_tool(tool, f"tools[{at}]", notes))
    return tuple(tools)


def _tool(tool: dict[str, Raw], place: str, notes: Notes) -> Tool:
    kind = decode_values(tool["type"]) if "type" in tool else "function"
    if kind != "function" or "function" not in tool:
        raise refuse(f"{place}.type", f"{place}: only tools of type function can be passed on.")
    note_other_members(tool, _TOOL, place, notes)
    return _function(as_object(tool["function"], f"{place}.function"), tool, f"{place}.function", notes)


def _function(function: dict[str, Raw], around: dict[str, Raw], place: str, notes: Notes) -> Tool:
    """One function; its marker may stand in the tool *around* it, or in itself."""
    note_other_members(function, _FUNCTION, place, notes)
    given = {name: raw for name, raw in function.items() if not is_null(raw)}
    marker = around.get("cache_control", given.get("cache_control"))
    return Tool(
        name=name_of(decode_values(given["name"]) if "name" in given else None, f"{place}.name"),
        description=as_text(given["description"], f"{place}.description") if "description" in given else None,
        parameters=as_schema(given.get("parameters"), f"{place}.parameters"),
        strict=as_boolean(given["strict"], f"{place}.strict") if "strict" in given else None,
        cache=read_cache({"cache_control": decode_values(marker)}, place, notes) if marker is not None else None,
    )


def read_tool_choice(
    fields: Mapping[str, Raw], tools: tuple[Tool, ...], names: dict[str, str], notes: Notes
) -> tuple[ToolChoice | None, tuple[Tool, ...]]:
    """The choice, and those of *tools* that it leaves. Raises GatewayError for one that cannot be honoured."""
    name = next((name for name in _CHOICES if name in fields), None)
    if name is None:
        return None, tools
    names["tool_choice"] = name
    given = decode_values(fields[name])
    if isinstance(given, dict) and given.get("type") == "allowed_tools":
        mode, tools = _allowed(given.get("allowed_tools"), tools, name)
        notes.translate(name)
        return ToolChoice(mode), tools
    return _choice(given, name), tools


def _choice(given: Any, place: str) -> ToolChoice:
    word = given.get("type", "function") if isinstance(given, dict) else given
    if isinstance(word, str) and word in _MODES:
        return ToolChoice(_MODES[word])
    if isinstance(given, dict) and word == "function":
        function = given.get("function", given)  # the deprecated form has the name itself
        if isinstance(function, dict):
            return ToolChoice("tool", name_of(function.get("name"), f"{place}.function.name"))
    raise refuse(place, f"{place} must be auto, none, required, or name one function.")


def _allowed(given: Any, tools: tuple[Tool, ...], place: str) -> tuple[Literal["auto", "required"], tuple[Tool, ...]]:
    """A choice of `allowed_tools`: the same as having only those."""
    inside = f"{place}.allowed_tools"
    mode = given.get("mode") if isinstance(given, dict) else None
    if mode not in ("auto", "required"):
        raise refuse(inside, f"{inside}.mode must be auto or required.")
    try:
        entries = convert(given.get("tools"), list[dict[str, Any]])
    except ValidationError:
        raise refuse(inside, f"{inside}.tools must be a list of objects.") from None
    allowed = {_choice(entry, f"{inside}.tools[{at}]").name for at, entry in enumerate(entries)}
    known = {tool.name for tool in tools}
    if not allowed or not allowed <= known:
        raise refuse(inside, f"{inside}.tools must name functions that are among the tools.")
    return mode, tuple(tool for tool in tools if tool.name in allowed)
