"""The calls of tools in a whole answer, in either dialect of clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from gateway.core.errors import Failure
from gateway.core.guarding import ToolTerms
from gateway.dialects.denial import UNREAD, denial
from gateway.dialects.offered import mcp_tool
from gateway.dialects.seam import UNREADABLE
from gateway.guards.ruling import Tool, judge_call
from gateway.wire.values import decode_values

_blocks = msgspec.json.Decoder(list[dict[str, Raw]]).decode
CALL_TYPES = "tool_use"  # `tool_use` itself, `server_tool_use`, `mcp_tool_use`, and what may come after their manner
_KINDS = ("function", "custom")
_ARGUMENTS = ("arguments", "input")


class Called(Struct, frozen=True, gc=False):
    """A call by its place in the answer; `arguments` as JSON."""

    place: str
    tool: Tool
    arguments: str


def denied_call(calls: Iterable[Called], terms: ToolTerms) -> Failure | None:
    """What is to be told of a whole answer with *calls* of which *terms* deny one; what cannot be read is denied."""
    try:
        for call in calls:
            denied = judge_call(call.tool, call.arguments, terms)
            if denied is not None:
                return denial(call.tool, denied, call.place)
    except UNREADABLE:
        return denial(None, UNREAD)
    return None


def openai_calls(choices: list[Any]) -> Iterator[Called]:
    """Those of a completion's *choices*."""
    for at, choice in enumerate(choices):
        message = choice.get("message") or {}
        place = f"choices[{at}].message"
        for number, call in enumerate(message.get("tool_calls") or ()):
            for name, arguments in said_of(call):
                yield Called(f"{place}.tool_calls[{number}]", Tool((name,)), arguments)
        if isinstance(message.get("function_call"), dict):
            name, arguments = name_and_text(message["function_call"])
            yield Called(f"{place}.function_call", Tool((name,)), arguments)


def said_of(call: Any) -> Iterator[tuple[str, str]]:
    """Name and arguments of a call, or of a piece of one; of a strange one all that may be taken for them."""
    bodies = [call[kind] for kind in _KINDS if isinstance(call.get(kind), dict)]
    bodies += [body for kind, body in call.items() if kind not in _KINDS and isinstance(body, dict) and "name" in body]
    if "name" in call:
        bodies.append(call)
    yield from map(name_and_text, bodies or [{}])


def name_and_text(function: dict[str, Any]) -> tuple[str, str]:
    """What is said of a function by its name and by its arguments; free text is `input`, and both are too much."""
    name, said = function.get("name"), [function[member] for member in _ARGUMENTS if function.get(member) is not None]
    # an object instead of its text
    texts = [value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in said]
    return name if isinstance(name, str) else "", "".join(texts)


def anthropic_calls(content: Raw) -> Iterator[Called]:
    """Those of a message's *content*."""
    for at, block in enumerate(_blocks(content)):
        if is_call(block):
            yield Called(f"content[{at}]", tool_of(block), bytes(block.get("input", Raw(b"{}"))).decode())


def is_call(block: dict[str, Raw]) -> bool:
    """Whether *block* calls a tool."""
    kind = _text(block, "type")
    return CALL_TYPES in kind


def tool_of(block: dict[str, Raw]) -> Tool:
    """What *block* calls."""
    name = _text(block, "name")
    if "server_name" in block:
        return mcp_tool(_text(block, "server_name"), name)
    return Tool((name,))


def _text(block: dict[str, Raw], member: str) -> str:
    value = decode_values(block[member]) if member in block else None
    return value if isinstance(value, str) else ""
