"""Tools, and how the model may use them and think, as Anthropic's clients say it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Raw

from gateway.dialects.neutral import Notes, Reasoning, ResponseFormat, Tool, ToolChoice
from gateway.dialects.validate import boolean_of, name_of, refuse, text_of
from gateway.wire.values import decode_members, decode_values

_decode_list = msgspec.json.Decoder(list[Raw]).decode
_TOOL_MEMBERS = frozenset({"type", "name", "description", "input_schema", "strict", "cache_control"})
_MODES: dict[str, Literal["auto", "none", "required", "tool"]] = {
    "auto": "auto", "any": "required", "tool": "tool", "none": "none",
}  # fmt: skip
_EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})  # `output_config.effort` in Anthropic's reference
# `between_tools` has no counterpart; it is thinking that the model itself decides on, like `adaptive`.
_THINKING: dict[str, Literal["budget", "adaptive", "off"]] = {
    "enabled": "budget", "adaptive": "adaptive", "between_tools": "adaptive", "disabled": "off",
}  # fmt: skip


def read_tools(raw: Raw, notes: Notes) -> tuple[Tool, ...]:
    """
    The client's own tools, their schemas untouched.

    Raises:
        GatewayError: 400 for a malformed one, and for one that only Anthropic's own models or servers know.
    """
    return tuple(_read_tool(item, f"tools[{index}]", notes) for index, item in enumerate(_decode_list(raw)))


def _read_tool(raw: Raw, place: str, notes: Notes) -> Tool:
    members = decode_members(raw)
    schema = members.get("input_schema")
    values = {name: decode_values(value) for name, value in members.items() if name != "input_schema"}
    kind, description, strict = values.get("type"), values.get("description"), values.get("strict")
    if kind is not None and kind != "custom":
        what = kind[:64] if isinstance(kind, str) else "this type"
        raise refuse(f"{place}.type", f"{place}.type: Tools of {what} cannot be used with this model.")
    name = name_of(values.get("name"), f"{place}.name")
    if schema is not None and not bytes(schema).startswith(b"{"):
        raise refuse(f"{place}.input_schema", f"{place}.input_schema must be an object.")
    note_rest(values, _TOOL_MEMBERS, place, notes)
    return Tool(
        name,
        (text_of(description, f"{place}.description") or None) if description is not None else None,
        schema,
        boolean_of(strict, f"{place}.strict") if strict is not None else None,
        values.get("cache_control"),
    )


def read_tool_choice(raw: Raw, notes: Notes) -> tuple[ToolChoice, bool | None]:
    """How tools are to be used, and whether several in one turn. Raises GatewayError (400) for an unknown way."""
    given = decode_values(raw)
    kind, name, alone = given.get("type"), given.get("name"), given.get("disable_parallel_tool_use")
    mode = _MODES.get(kind) if isinstance(kind, str) else None
    if mode is None:
        raise refuse("tool_choice.type", "tool_choice.type must be auto, any, tool or none.")
    if mode == "tool" and (not isinstance(name, str) or not name):
        raise refuse("tool_choice.name", "tool_choice.name must be the name of a tool.")
    note_rest(given, frozenset({"type", "name", "disable_parallel_tool_use"}), "tool_choice", notes)
    choice = ToolChoice(mode, name if mode == "tool" else None)
    return choice, not boolean_of(alone, "tool_choice.disable_parallel_tool_use") if alone is not None else None


def read_reasoning(thinking: Any, effort: Any, notes: Notes) -> tuple[Reasoning, str] | None:
    """How much to think, and the member that says so. Raises GatewayError (400) for what is not documented."""
    if effort is not None and (not isinstance(effort, str) or effort not in _EFFORTS):
        raise refuse("output_config.effort", "output_config.effort must be low, medium, high, xhigh or max.")
    asked = _read_thinking(thinking, notes) if thinking is not None else None
    if asked is not None and asked.mode == "off":
        if effort is not None:
            notes.drop("output_config.effort")
        return asked, "thinking"
    if effort is not None:
        return Reasoning("effort", effort, asked.budget_tokens if asked is not None else None), "output_config.effort"
    return (asked, "thinking") if asked is not None else None


def _read_thinking(given: Any, notes: Notes) -> Reasoning:
    kind = given.get("type") if isinstance(given, dict) else None
    mode = _THINKING.get(kind) if isinstance(kind, str) else None
    if mode is None:
        raise refuse("thinking.type", "thinking.type must be enabled, adaptive, between_tools or disabled.")
    note_rest(given, frozenset({"type", "budget_tokens"}), "thinking", notes)
    if mode != "budget":
        return Reasoning(mode)
    budget = given.get("budget_tokens")
    if type(budget) is not int or budget < 1:
        raise refuse("thinking.budget_tokens", "thinking.budget_tokens must be a positive integer.")
    return Reasoning("budget", budget_tokens=budget)


def read_format(raw: Raw, place: str) -> ResponseFormat:
    """What the answer must look like; always kept to, as Anthropic has it. Raises GatewayError (400)."""
    members = decode_members(raw) if bytes(raw).startswith(b"{") else {}
    kind, schema = members.get("type"), members.get("schema")
    if kind is None or decode_values(kind) != "json_schema":
        raise refuse(f"{place}.type", f"{place}.type must be json_schema.")
    if schema is None or not bytes(schema).startswith(b"{"):
        raise refuse(f"{place}.schema", f"{place}.schema must be an object.")
    return ResponseFormat("json_schema", schema=schema, strict=True)


def note_rest(given: dict[str, Any], known: frozenset[str], place: str, notes: Notes) -> None:
    """Note the members of *given* that say something and are not *known*."""
    for name, value in given.items():
        if value and name not in known:
            notes.drop(f"{place}.{name}")
