"""The tools that a call offers to the model, or wants it to call, in either dialect of clients.

Calls in the history are none: they are what has been, and a policy that came later does not end a conversation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gateway.core.call import Call
from gateway.core.catalog import ClientDialectName
from gateway.guards.ruling import Offer, Tool
from gateway.wire.values import decode_values

_DATED = re.compile(r"(?P<name>.+)_[0-9]{8}")
# Anthropic's own tools that the caller runs, by its reference; all others of its types it runs itself.
_RUN_BY_CALLERS = ("bash_", "text_editor_", "computer_", "memory_")
_MODES = ("auto", "none", "required")  # strings by the reference; some clients write an object


def offers(call: Call) -> Iterator[Offer]:
    """Every tool of *call* by its place; one of an unknown form by whatever it is called."""
    return _OF_DIALECT[call.dialect](call)


def mcp_tool(server: object, name: object) -> Tool:
    """A tool of an MCP server, which providers run: by its own name, and with the server's."""
    own = _text(name)
    return Tool((own, f"mcp__{_text(server)}__{own}"), runs_there=True)


def _openai(call: Call) -> Iterator[Offer]:
    for at, tool in enumerate(_items(call, "tools")):
        yield from _openai_tool(tool, f"tools[{at}]")
    for at, function in enumerate(_items(call, "functions")):
        yield Offer(f"functions[{at}]", Tool((_name(function),)))
    choice = _value(call, "tool_choice")
    if isinstance(choice, dict):
        wanted = _dict(choice.get("allowed_tools")).get("tools")
        if isinstance(wanted, list):
            for at, tool in enumerate(wanted):
                yield from _openai_tool(tool, f"tool_choice.allowed_tools.tools[{at}]")
        elif choice.get("type") not in _MODES:
            yield from _openai_tool(choice, "tool_choice")
    if isinstance(function := _value(call, "function_call"), dict):
        yield Offer("function_call", Tool((_name(function),)))
    if _value(call, "web_search_options") is not None:
        yield Offer("web_search_options", Tool(("web_search",), runs_there=True))


def _openai_tool(tool: object, place: str) -> Iterator[Offer]:
    """By the name that its type has, and by one that a careless provider may take instead."""
    members = _dict(tool)
    kind = members.get("type", "function")
    if kind == "mcp":
        named = members.get("allowed_tools")
        named = _dict(named).get("tool_names", named)
        yield from _mcp_tools(members.get("server_label"), named, f"{place}.allowed_tools")
    elif kind in ("function", "custom"):
        if kind in members or "name" not in members:
            yield Offer(place, Tool((_name(members.get(kind)),)))
    else:
        yield Offer(place, Tool((_text(kind),), runs_there=True))
    for other in ("function", "custom"):
        if other != kind and _dict(members.get(other)):
            yield Offer(place, Tool((_name(members[other]),)))
    if "name" in members:
        yield Offer(place, Tool((_name(members),)))
    yield from _beneath(members, place, _openai_tool)


def _beneath(tool: dict[str, Any], place: str, read: Callable[[Any, str], Iterator[Offer]]) -> Iterator[Offer]:
    """The tools of a *tool* that is a set of others."""
    for at, other in enumerate(_listed(tool.get("tools"))):
        yield from read(other, f"{place}.tools[{at}]")


def _anthropic(call: Call) -> Iterator[Offer]:
    tools = _items(call, "tools")
    for at, tool in enumerate(tools):
        yield from _anthropic_tool(tool, f"tools[{at}]")
    choice = _value(call, "tool_choice")
    if isinstance(choice, dict) and "name" in choice:
        yield Offer("tool_choice", Tool((_name(choice),)))
    listed = {_text(_dict(tool).get("mcp_server_name")) for tool in tools if _dict(tool).get("type") == "mcp_toolset"}
    for at, server in enumerate(_items(call, "mcp_servers")):
        if _name(server) not in listed:
            yield from _mcp_server(_dict(server), f"mcp_servers[{at}]")


def _anthropic_tool(members: object, place: str) -> Iterator[Offer]:
    tool = _dict(members)
    kind = tool.get("type")
    if kind == "mcp_toolset":
        yield from _mcp_toolset(tool, place)
    elif kind in (None, "custom"):
        yield Offer(place, Tool((_name(tool),)))
    else:
        name, kind = _name(tool), _text(kind)
        dated, runs_there = _DATED.fullmatch(kind), not kind.startswith(_RUN_BY_CALLERS)
        if dated is not None and dated["name"] == name:
            yield Offer(place, Tool((name, kind), runs_there))
        else:  # a caller may not lend a tool a type's good name
            yield Offer(place, Tool((kind,), runs_there))
            if "name" in tool:
                yield Offer(place, Tool((name,), runs_there))
    yield from _beneath(tool, place, _anthropic_tool)


def _mcp_server(server: dict[str, Any], place: str) -> Iterator[Offer]:
    """As the older form of the API has it: the server itself says which of its tools are on offer."""
    said, place = _dict(server.get("tool_configuration")), f"{place}.tool_configuration.allowed_tools"
    named = said.get("allowed_tools")
    if said.get("enabled") is False:
        return
    yield from _mcp_tools(server.get("name"), named, place)


def _mcp_tools(server: object, named: object, place: str) -> Iterator[Offer]:
    if isinstance(named, list):
        for at, name in enumerate(named):
            yield Offer(f"{place}[{at}]", mcp_tool(server, name))
    else:
        yield Offer(place, _any_tool(server), and_others=True)


def _mcp_toolset(toolset: dict[str, Any], place: str) -> Iterator[Offer]:
    """As the newer form has it: tools are on offer by default, or none but those that are enabled one by one."""
    server = toolset.get("mcp_server_name")
    if _dict(toolset.get("default_config")).get("enabled") is not False:
        yield Offer(place, _any_tool(server), and_others=True)
    for name, config in _dict(toolset.get("configs")).items():
        if _dict(config).get("enabled") not in (None, False):  # 1 and "true" may do for a lenient provider
            yield Offer(f"{place}.configs", mcp_tool(server, name))


def _any_tool(server: object) -> Tool:
    return Tool((f"mcp__{_text(server)}__*",), runs_there=True)


def _value(call: Call, member: str) -> Any:
    return decode_values(call.fields[member]) if member in call.fields else None


def _items(call: Call, member: str) -> list[Any]:
    return _listed(_value(call, member))


def _listed(value: Any) -> list[Any]:
    """What is no list is one thing of an unknown form: a provider may take it."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _name(value: object) -> str:
    return _text(_dict(value).get("name"))


def _text(value: object) -> str:
    """A name that is no text is no provider's name of a tool, and matches only what matches everything."""
    return value if isinstance(value, str) else ""


_OF_DIALECT: Mapping[ClientDialectName, Callable[[Call], Iterator[Offer]]] = {
    "openai_chat": _openai,
    "anthropic_messages": _anthropic,
}
