"""Histories with tool calls, as a provider of each dialect insists on having them."""

from __future__ import annotations

import json
from typing import Any

from tests.support.notation import Dialect

Call = tuple[str, dict[str, Any], str]
"""Name, arguments, and the text of the result."""


def calls_in(body: dict[str, Any], dialect: Dialect) -> list[Call]:
    """
    The calls of the history in *body*, in order.

    Raises:
        AssertionError: The provider would refuse it: a call without its result right behind it, or the other way round.
    """
    return _anthropic(body["messages"]) if dialect == "anthropic" else _openai(body["messages"])


def _anthropic(messages: list[dict[str, Any]]) -> list[Call]:
    roles = [message["role"] for message in messages]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2), "turns must alternate"
    out: list[Call] = []
    open_calls: dict[str, Any] = {}
    for message in messages:
        blocks = message["content"] if isinstance(message["content"], list) else []
        results = [block for block in blocks if block["type"] == "tool_result"]
        assert blocks[: len(results)] == results, "results come first in their turn"
        assert [result["tool_use_id"] for result in results] == [*open_calls], "every call has its result"
        out += [(*open_calls[result["tool_use_id"]], _text(result["content"])) for result in results]
        calls = [block for block in blocks if block["type"] == "tool_use"]
        open_calls = {call["id"]: (call["name"], call["input"]) for call in calls}
    assert not open_calls
    return out


def _openai(messages: list[dict[str, Any]]) -> list[Call]:
    out: list[Call] = []
    open_calls: dict[str, Any] = {}
    for message in messages:
        if message["role"] == "tool":
            out.append((*open_calls.pop(message["tool_call_id"]), _text(message["content"])))
            continue
        assert not open_calls, "every call has its result before anything else is said"
        for call in message.get("tool_calls", ()):
            function = call["function"]
            open_calls[call["id"]] = (function["name"], json.loads(function["arguments"]))
    assert not open_calls
    return out


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
