"""The form of the answer and the reasoning that an OpenAI call asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Raw

from gateway.dialects.neutral import Notes, Reasoning, ResponseFormat
from gateway.dialects.openai_prompt_raw import (
    as_boolean,
    as_integer,
    as_object,
    as_schema,
    as_text,
    note_other_members,
)
from gateway.dialects.validate import refuse
from gateway.wire.values import decode_values


def read_response_format(fields: Mapping[str, Raw], names: dict[str, str]) -> ResponseFormat | None:
    """What the answer has to be; None for any text. Raises GatewayError for a form that is not documented."""
    if "response_format" not in fields:
        return None
    names["response_format"] = "response_format"
    given = as_object(fields["response_format"], "response_format")
    kind = decode_values(given["type"]) if "type" in given else None
    if kind == "text":
        return None
    if kind == "json_object":
        return ResponseFormat("json_object")
    if kind == "json_schema" and "json_schema" in given:
        return _schema(as_object(given["json_schema"], "response_format.json_schema"))
    raise refuse("response_format.type", "response_format must be text, json_object, or a json_schema with its schema.")


def _schema(given: dict[str, Raw]) -> ResponseFormat:
    place = "response_format.json_schema"
    return ResponseFormat(
        "json_schema",
        name=as_text(given["name"], f"{place}.name") if "name" in given else None,
        description=as_text(given["description"], f"{place}.description") if "description" in given else None,
        schema=as_schema(given.get("schema"), f"{place}.schema"),
        strict=as_boolean(given["strict"], f"{place}.strict") if "strict" in given else None,
    )


def read_reasoning(fields: Mapping[str, Raw], names: dict[str, str], notes: Notes) -> Reasoning | None:
    """
    How much to think, by the most exact of the members that say so; the others stay unread, to be noted.

    Raises:
        GatewayError: A member that is not as documented.
    """
    for name, read in _MEMBERS.items():
        if name in fields:
            found = read(fields[name], notes)
            if found is not None:
                names["reasoning"] = name
                return found
    return None


def _thinking(raw: Raw, notes: Notes) -> Reasoning:
    """The form of Anthropic, which clients of several routers send along in this dialect."""
    given = as_object(raw, "thinking")
    note_other_members(given, frozenset({"type", "budget_tokens"}), "thinking", notes)
    kind = decode_values(given["type"]) if "type" in given else None
    if kind == "enabled" and "budget_tokens" in given:
        return Reasoning("budget", budget_tokens=as_integer(given["budget_tokens"], "thinking.budget_tokens"))
    if kind == "adaptive":
        return Reasoning("adaptive")
    if kind == "disabled":
        return Reasoning("off")
    raise refuse("thinking", "thinking must be enabled with budget_tokens, adaptive, or disabled.")


def _reasoning(raw: Raw, notes: Notes) -> Reasoning | None:
    """The form of OpenAI's newer endpoint, and of routers: an effort, a limit in tokens, or on and off."""
    given = as_object(raw, "reasoning")
    note_other_members(given, frozenset({"effort", "max_tokens", "enabled"}), "reasoning", notes)
    if "max_tokens" in given:
        return Reasoning("budget", budget_tokens=as_integer(given["max_tokens"], "reasoning.max_tokens"))
    if "effort" in given:
        return _named(as_text(given["effort"], "reasoning.effort"))
    if "enabled" in given:
        return Reasoning("adaptive" if as_boolean(given["enabled"], "reasoning.enabled") else "off")
    return None


def _effort(raw: Raw, notes: Notes) -> Reasoning:
    return _named(as_text(raw, "reasoning_effort"))


def _named(effort: str) -> Reasoning:
    return Reasoning("off") if effort == "none" else Reasoning("effort", effort=effort)


_MEMBERS: dict[str, Callable[[Raw, Notes], Reasoning | None]] = {
    "thinking": _thinking,
    "reasoning": _reasoning,
    "reasoning_effort": _effort,
}
