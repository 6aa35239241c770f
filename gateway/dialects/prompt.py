"""The texts of a request in either dialect, for our own token estimate."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.core.call import Call
from gateway.dialects.tokens import count_prompt
from gateway.wire.values import decode_values


def prompt_tokens(call: Call) -> int:
    """Our estimate of the prompt's tokens; images count nothing, since only the provider knows what they cost."""
    texts: list[str] = []
    for name in ("system", "messages"):
        raw = call.fields.get(name)
        if raw is not None:
            _collect(decode_values(raw), texts)
    tools = call.fields.get("tools")
    if tools is not None:
        texts.append(bytes(tools).decode("utf-8", "replace"))
    if call.held is not None:  # base64 may also stand where the model reads it
        texts = [call.held.fill(text.encode()).decode() for text in texts]
    return count_prompt(texts)


def _collect(node: Any, texts: list[str]) -> None:
    """Append the text of every message, part and tool result under *node*, in order."""
    if isinstance(node, str):
        texts.append(node)
    elif isinstance(node, list):
        for item in node:
            _collect(item, texts)
    elif isinstance(node, dict):
        for name in ("text", "thinking", "arguments", "content", "input", "tool_calls", "function"):
            value = node.get(name)
            if name == "input" and isinstance(value, dict):
                texts.append(msgspec.json.encode(value).decode())
            elif value is not None:
                _collect(value, texts)
