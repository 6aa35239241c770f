"""A session of Claude Code by the shape of its requests: sizes, headers, members and turns; the words are ours."""

from __future__ import annotations

import json
from typing import Any

HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27",
    "anthropic-dangerous-direct-browser-access": "true",
    "x-app": "cli",
    "user-agent": "claude-cli/2.1.0 (external, cli)",
    "x-stainless-lang": "js",
    "x-stainless-retry-count": "0",
    "x-stainless-timeout": "600",
}
MARK = {"type": "ephemeral", "ttl": "1h"}
NAMES = ("Bash", "Read", "Edit", "Write", "Glob", "Grep", "Task", "TodoWrite", "WebFetch", "WebSearch", "Kill", "Skill")
REMINDER = "<system-reminder>\nThe list of things to do is empty.\n</system-reminder>"
MODE = "Plan mode is on: change nothing."
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
USER = json.dumps({"device_id": "d" * 64, "account_uuid": "a" * 36, "session_id": "s" * 36})


def tools() -> list[dict[str, Any]]:
    """Twelve tools with 2.4 kB of description each."""
    out = []
    for name in NAMES:
        properties = {
            "path": {"type": "string", "description": f"Where {name} works"},
            "limit": {"type": "integer", "exclusiveMinimum": 0},
            "how": {"type": "string", "enum": ["all", "first"], "default": "all"},
        }
        schema: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}
        schema |= {"properties": properties, "required": ["path"], "additionalProperties": False}
        described = f"{name} works on the files of the project. " * 60
        out.append({"name": name, "description": described[:2400], "input_schema": schema})
    return out


def system() -> list[dict[str, Any]]:
    """14 kB of instructions in three blocks, two of them marked for caching."""
    rules = "Answer in few words and keep to the conventions of the project. " * 220
    return [
        {"type": "text", "text": "You are Claude Code."},
        {"type": "text", "text": rules.strip(), "cache_control": MARK},
        {"type": "text", "text": "The directory is a git repository.", "cache_control": MARK},
    ]


def first_turn() -> list[dict[str, Any]]:
    asked = [
        {"type": "text", "text": REMINDER},
        {"type": "text", "text": "What do the two files say?", "cache_control": MARK},
    ]
    return [{"role": "user", "content": asked}, {"role": "system", "content": MODE}]


def results(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """The turn that answers *calls*: a text, a failure, then pictures; with a reminder and a mark behind them."""
    said: list[dict[str, Any]] = [
        {"content": "1\timport this"},
        {"content": "No such file", "is_error": True},
        {"content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}]},
    ]
    blocks = [
        {"type": "tool_result", "tool_use_id": call["id"], **result} for call, result in zip(calls, said, strict=False)
    ]
    blocks[-1]["cache_control"] = MARK
    return {"role": "user", "content": [*blocks, {"type": "text", "text": REMINDER}]}


def body(model: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """About 48 kB in all."""
    return {
        "model": model,
        "max_tokens": 32_000,
        "messages": messages,
        "system": system(),
        "tools": tools(),
        "metadata": {"user_id": USER},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "medium"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "stream": True,
    }
