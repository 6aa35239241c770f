"""The members of a call of Anthropic messages, one by one, but for its turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Raw

from gateway.dialects.anthropic_prompt_tools import (
    note_rest,
    read_format,
    read_reasoning,
    read_tool_choice,
    read_tools,
)
from gateway.dialects.neutral import Notes
from gateway.dialects.validate import refuse
from gateway.wire.values import decode_members, decode_values

_SAMPLING = ("temperature", "top_p", "top_k")
_NOTHING = (Raw(b"[]"), Raw(b"{}"), Raw(b'""'))
_DEFAULTS = {"service_tier": Raw(b'"auto"'), "inference_geo": Raw(b'"global"')}  # which nobody needs to say
_REFUSALS = {
    "container": "Containers cannot be used with this model.",
    "mcp_servers": "MCP servers cannot be used with this model.",
    "inference_geo": "inference_geo cannot be guaranteed with this model.",
}


class Draft:
    """A prompt in the making: its members, the client's names of them, and what is to be noted."""

    def __init__(self, fields: Mapping[str, Raw]) -> None:
        self.fields = fields
        self.members: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        self.sampling: dict[str, Raw] = {}
        self.others: dict[str, Raw] = {}
        self.effort: Any = None
        self.notes = Notes()

    def put(self, member: str, value: object, name: str) -> None:
        """Set the neutral *member*, which the client calls *name*."""
        self.members[member] = value
        self.names[member] = name


def read_members(draft: Draft) -> None:
    """
    Put every member of the call but its turns and instructions.

    Raises:
        GatewayError: 400 for what is malformed, or must not be ignored and cannot be carried.
    """
    for name, raw in draft.fields.items():
        if name in _ELSEWHERE or raw == _DEFAULTS.get(name):
            continue
        read = _MEMBERS.get(name)
        if read is not None:
            read(raw, draft)
        elif raw not in _NOTHING:
            _read_other(name, raw, draft)
    _read_reasoning(draft)


def _read_other(name: str, raw: Raw, draft: Draft) -> None:
    if name in _REFUSALS:
        raise refuse(name, _REFUSALS[name])
    draft.others[name] = raw
    draft.names.setdefault(name, name)


def _read_reasoning(draft: Draft) -> None:
    thinking = draft.fields.get("thinking")
    asked = read_reasoning(decode_values(thinking) if thinking is not None else None, draft.effort, draft.notes)
    if asked is not None:
        draft.put("reasoning", asked[0], asked[1])


def _read_tools(raw: Raw, draft: Draft) -> None:
    tools = read_tools(raw, draft.notes)
    if tools:
        draft.put("tools", tools, "tools")


def _read_tool_choice(raw: Raw, draft: Draft) -> None:
    choice, parallel = read_tool_choice(raw, draft.notes)
    draft.put("tool_choice", choice, "tool_choice")
    if parallel is not None:
        draft.put("parallel_tools", parallel, "tool_choice.disable_parallel_tool_use")


def _read_max_tokens(raw: Raw, draft: Draft) -> None:
    draft.put("max_tokens", decode_values(raw), "max_tokens")


def _read_stop(raw: Raw, draft: Draft) -> None:
    stop = tuple(decode_values(raw))
    if stop:
        draft.put("stop", stop, "stop_sequences")


def _read_sampling(name: str) -> Callable[[Raw, Draft], None]:
    def read(raw: Raw, draft: Draft) -> None:
        if bytes(raw)[0] not in b"-0123456789":
            raise refuse(name, f"{name} must be a number.")
        draft.sampling[name] = raw
        draft.names[name] = name

    return read


def _read_output_config(raw: Raw, draft: Draft) -> None:
    members = decode_members(raw) if bytes(raw).startswith(b"{") else None
    if members is None:
        raise refuse("output_config", "output_config must be an object.")
    given = {name: value for name, value in members.items() if bytes(value) != b"null"}
    draft.effort = decode_values(given.pop("effort")) if "effort" in given else None
    if "format" in given:
        draft.put("response_format", read_format(given.pop("format"), "output_config.format"), "output_config.format")
    note_rest(given, frozenset(), "output_config", draft.notes)


def _read_output_format(raw: Raw, draft: Draft) -> None:
    """The name of `output_config.format` while it was a beta."""
    draft.put("response_format", read_format(raw, "output_format"), "output_format")


def _read_metadata(raw: Raw, draft: Draft) -> None:
    given = decode_values(raw)
    user = given.get("user_id")
    if user is not None and not isinstance(user, str):
        raise refuse("metadata.user_id", "metadata.user_id must be a string.")
    if user:
        draft.put("user", user, "metadata.user_id")
    note_rest(given, frozenset({"user_id"}), "metadata", draft.notes)


def _read_service_tier(raw: Raw, draft: Draft) -> None:
    """Tiers are a matter between a provider and its customers."""
    draft.notes.drop("service_tier")


_ELSEWHERE = frozenset({"model", "stream", "messages", "system", "thinking"})
_MEMBERS: Mapping[str, Callable[[Raw, Draft], None]] = {
    "tools": _read_tools,
    "tool_choice": _read_tool_choice,
    "max_tokens": _read_max_tokens,
    "stop_sequences": _read_stop,
    "output_config": _read_output_config,
    "output_format": _read_output_format,
    "metadata": _read_metadata,
    "service_tier": _read_service_tier,
    **{name: _read_sampling(name) for name in _SAMPLING},
}
