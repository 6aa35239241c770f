"""Which tools a call offers, and by what names."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.core.call import Call, CallOptions
from gateway.core.catalog import ClientDialectName
from gateway.dialects.offered import offers
from gateway.dialects.registry import CLIENT_DIALECTS


def call(dialect: ClientDialectName, members: dict[str, Any]) -> Call:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], **members}
    return CLIENT_DIALECTS[dialect].read_call(msgspec.json.encode(body), CallOptions(), ())


def found(dialect: ClientDialectName, members: dict[str, Any]) -> list[str]:
    """Each offer as `place: names`, with `!` where the provider runs it and `+` where others stand behind it."""
    return [
        f"{one.place}: {' '.join(one.tool.names)}{' !' if one.tool.runs_there else ''}{' +' if one.and_others else ''}"
        for one in offers(call(dialect, members))
    ]


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {}}}


OPENAI: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": ({"tools": None, "tool_choice": "auto"}, []),
    "functions": ({"tools": [function("a"), function("b")]}, ["tools[0]: a", "tools[1]: b"]),
    "custom": ({"tools": [{"type": "custom", "custom": {"name": "c"}}]}, ["tools[0]: c"]),
    "typeless": ({"tools": [{"function": {"name": "a"}}]}, ["tools[0]: a"]),
    "flat as well": ({"tools": [{**function("a"), "name": "b"}]}, ["tools[0]: a", "tools[0]: b"]),
    "of another type": ({"tools": [{"type": "web_search"}]}, ["tools[0]: web_search !"]),
    "a function of another type": (
        {"tools": [{"type": "x", "function": {"name": "a"}}]},
        ["tools[0]: x !", "tools[0]: a"],
    ),
    "no name": ({"tools": [{"type": "function"}]}, ["tools[0]: "]),
    "flat alone": ({"tools": [{"type": "function", "name": "b"}]}, ["tools[0]: b"]),
    "a server": (
        {"tools": [{"type": "mcp", "server_label": "hub", "server_url": "u", "allowed_tools": ["read"]}]},
        ["tools[0].allowed_tools[0]: read mcp__hub__read !"],
    ),
    "an open server": (
        {"tools": [{"type": "mcp", "server_label": "hub"}]},
        ["tools[0].allowed_tools: mcp__hub__* ! +"],
    ),
    "a set": (
        {"tools": [{"type": "namespace", "name": "x", "tools": [function("a"), {"name": "b"}]}]},
        ["tools[0]: namespace !", "tools[0]: x", "tools[0].tools[0]: a", "tools[0].tools[1]: b"],
    ),
    "no list": ({"functions": {"name": "f"}}, ["functions[0]: f"]),
    "old": ({"functions": [{"name": "f"}], "function_call": {"name": "g"}}, ["functions[0]: f", "function_call: g"]),
    "chosen": ({"tool_choice": function("a")}, ["tool_choice: a"]),
    "chosen mode": ({"tool_choice": {"type": "required"}}, []),
    "chosen among": (
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [function("a")]}}},
        ["tool_choice.allowed_tools.tools[0]: a"],
    ),
    "search": ({"web_search_options": {}}, ["web_search_options: web_search !"]),
    "history": (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "1", **function("a")}]}]},
        [],
    ),
}
HUB = {"type": "url", "url": "https://hub.test/mcp", "name": "hub"}
TOOLSET = {"type": "mcp_toolset", "mcp_server_name": "hub"}
ANTHROPIC: dict[str, tuple[dict[str, Any], list[str]]] = {
    "plain": (
        {"tools": [{"name": "a", "input_schema": {}}, {"type": "custom", "name": "b"}]},
        ["tools[0]: a", "tools[1]: b"],
    ),
    "server's": (
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        ["tools[0]: web_search web_search_20250305 !"],
    ),
    "client's": ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, ["tools[0]: bash bash_20250124"]),
    "two names": (
        {"tools": [{"type": "text_editor_20250728", "name": "edit"}]},
        ["tools[0]: text_editor_20250728", "tools[0]: edit"],
    ),
    "a borrowed type": (
        {"tools": [{"type": "web_search_20250305", "name": "drop"}]},
        ["tools[0]: web_search_20250305 !", "tools[0]: drop !"],
    ),
    "chosen": ({"tool_choice": {"type": "tool", "name": "a"}}, ["tool_choice: a"]),
    "a set": (
        {"tools": [{"name": "a", "type": "custom", "tools": [{"name": "b"}]}]},
        ["tools[0]: a", "tools[0].tools[0]: b"],
    ),
    "chosen mode": ({"tool_choice": {"type": "any"}}, []),
    "servers by name": (
        {"mcp_servers": {"hub": HUB}},
        ["mcp_servers[0].tool_configuration.allowed_tools: mcp____* ! +"],
    ),
    "open server": ({"mcp_servers": [HUB]}, ["mcp_servers[0].tool_configuration.allowed_tools: mcp__hub__* ! +"]),
    "closed server": ({"mcp_servers": [{**HUB, "tool_configuration": {"enabled": False}}]}, []),
    "named tools": (
        {"mcp_servers": [{**HUB, "tool_configuration": {"allowed_tools": ["read"]}}]},
        ["mcp_servers[0].tool_configuration.allowed_tools[0]: read mcp__hub__read !"],
    ),
    "open toolset": ({"mcp_servers": [HUB], "tools": [TOOLSET]}, ["tools[0]: mcp__hub__* ! +"]),
    "named in a toolset": (
        {
            "mcp_servers": [HUB],
            "tools": [
                {**TOOLSET, "default_config": {"enabled": False}, "configs": {"read": {"enabled": 1}, "drop": {}}}
            ],
        },
        ["tools[0].configs: read mcp__hub__read !"],
    ),
}


@pytest.mark.parametrize("case", OPENAI)
def test_openai(case: str) -> None:
    """Each definition and each choice, by every name that somebody may take it by; what has been called is none."""
    members, expected = OPENAI[case]

    assert found("openai_chat", members) == expected


@pytest.mark.parametrize("case", ANTHROPIC)
def test_anthropic(case: str) -> None:
    """A dated type is a second name of its tool, and of no other; servers say what they offer, or offer anything."""
    members, expected = ANTHROPIC[case]

    assert found("anthropic_messages", members) == expected
