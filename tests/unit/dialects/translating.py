"""A client's chat call as an Anthropic provider gets it, with nothing around."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.core.call import CallOptions
from gateway.core.errors import GatewayError
from gateway.dialects import anthropic_body, openai_chat, openai_prompt
from gateway.dialects.neutral import Notes, Prompt, Target

TARGET = Target("claude-x", stream=False, max_output_tokens=64_000)
HI: dict[str, Any] = {"role": "user", "content": "Hi"}
CALLED: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1.50}'}}],
}
GAVE: dict[str, Any] = {"role": "tool", "tool_call_id": "c1", "content": "done"}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "f", "description": "Does f.", "parameters": {"type": "object", "properties": {"a": {}}}},
}


@dataclass
class Written:
    """What the provider gets, and what the client is told of it."""

    body: dict[str, Any]
    text: str
    translated: list[str]
    dropped: list[str]

    def __getitem__(self, name: str) -> Any:
        return self.body[name]


def prompt_of(**fields: Any) -> Prompt:
    """The prompt of a chat call with *fields*; one message where they name none."""
    body = json.dumps({"model": "ours", "messages": [HI], **fields}).encode()
    return openai_prompt.read_prompt(openai_chat.read_call(body, CallOptions(), ()))


def written(*messages: dict[str, Any], target: Target = TARGET, **fields: Any) -> Written:
    """A chat call with *messages* and *fields*, as the body for *target*."""
    notes = Notes()
    text = anthropic_body.write_body(prompt_of(messages=list(messages) or [HI], **fields), target, notes)
    return Written(json.loads(text), text.decode(), notes.translated, notes.dropped)


def turns(*messages: dict[str, Any], **fields: Any) -> list[tuple[str, list[Any]]]:
    """The turns of what is written, each as its role and its blocks."""
    return [(turn["role"], turn["content"]) for turn in written(*messages, **fields)["messages"]]


def refusal(*messages: dict[str, Any], **fields: Any) -> GatewayError:
    """The 400 that such a call gets."""
    with pytest.raises(GatewayError) as caught:
        written(*messages, **fields)
    assert caught.value.kind.status == 400
    return caught.value


def attempt(*messages: dict[str, Any], **fields: Any) -> Written | GatewayError:
    """What becomes of a call that may be anything."""
    try:
        return written(*messages, **fields)
    except GatewayError as exc:
        return exc


def text(words: str, **more: Any) -> dict[str, Any]:
    """A text, which is the same in both dialects."""
    return {"type": "text", "text": words, **more}
