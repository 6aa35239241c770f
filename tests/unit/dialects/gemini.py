"""Calls of either kind of client as a Gemini provider gets them, and lanes from such a provider."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.core.call import CallOptions
from gateway.core.errors import GatewayError
from gateway.dialects import anthropic_messages, anthropic_prompt, openai_chat, openai_prompt
from gateway.dialects.base import Lane
from gateway.dialects.gemini_body import write_body
from gateway.dialects.neutral import Notes, Prompt, Target
from gateway.dialects.pairs import open_lane
from gateway.providers.traits import traits_of
from tests.unit.dialects.conversations import anthropic_call, journey, openai_call

OpenDoor = Callable[[], Lane]
HI: dict[str, Any] = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}}
NEWEST, LEVELS, BUDGETS = "gemini-3.8-flash", "gemini-3-flash-preview", "gemini-2.5-flash"


def written(prompt: Prompt, model: str = NEWEST, limit: int | None = None) -> tuple[dict[str, Any], Notes]:
    """*prompt* as the body for *model*, and what was noted."""
    notes = Notes()
    target = Target(model, stream=False, max_output_tokens=limit, traits=traits_of(model))
    return json.loads(write_body(prompt, target, notes)), notes


def of_chat(
    *messages: dict[str, Any], model: str = NEWEST, limit: int | None = None, **fields: Any
) -> tuple[dict[str, Any], Notes]:
    """A chat call with *messages* and *fields*, as a body."""
    body = json.dumps({"model": "ours", "messages": list(messages) or [HI], **fields}).encode()
    return written(openai_prompt.read_prompt(openai_chat.read_call(body, CallOptions(), ())), model, limit)


def of_messages(*messages: dict[str, Any], model: str = NEWEST, **fields: Any) -> tuple[dict[str, Any], Notes]:
    """A messages call likewise."""
    body = json.dumps({"model": "ours", "max_tokens": 100, "messages": list(messages) or [HI], **fields}).encode()
    return written(anthropic_prompt.read_prompt(anthropic_messages.read_call(body, CallOptions(), ())), model)


def contents(*messages: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """The turns of a chat call."""
    found: list[dict[str, Any]] = of_chat(*messages, **fields)[0]["contents"]
    return found


def refusal(*messages: dict[str, Any], **fields: Any) -> GatewayError:
    """The 400 that such a call gets."""
    with pytest.raises(GatewayError) as caught:
        of_chat(*messages, **fields)
    assert caught.value.kind.status == 400
    return caught.value


def called(*ids: str, **more: Any) -> dict[str, Any]:
    """The assistant's message that calls `f` by each of *ids*."""
    calls = [{"id": each, "type": "function", "function": {"name": "f", "arguments": '{"a":1.50}'}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def gave(call_id: str, content: Any = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def to_chat(**rules: Any) -> Lane:
    """A lane from a Gemini provider to a client of OpenAI's dialect."""
    return open_lane(journey(openai_call(), speaks="gemini_content", **rules))


def to_messages(**rules: Any) -> Lane:
    """A lane from a Gemini provider to a client of Anthropic's dialect."""
    return open_lane(journey(anthropic_call(), speaks="gemini_content", **rules))


def to_choices(**rules: Any) -> Lane:
    """A lane to a chat client that asked for two answers."""
    return open_lane(journey(openai_call(n=2), speaks="gemini_content", **rules))


both_doors = pytest.mark.parametrize("open_door", [to_chat, to_messages], ids=["chat", "messages"])
