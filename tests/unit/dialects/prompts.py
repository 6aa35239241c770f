"""Calls of Anthropic clients and their turns, and what becomes of them on the way to chat completions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.call import CallOptions
from gateway.core.errors import GatewayError
from gateway.dialects.anthropic_messages import read_call
from gateway.dialects.anthropic_prompt import read_prompt
from gateway.dialects.neutral import Notes, Prompt, Target
from gateway.dialects.openai_body import write_body
from gateway.providers.traits import traits_of

MARK = {"type": "ephemeral"}
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0="}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0="}}
THOUGHT = {"type": "thinking", "thinking": "Hm", "signature": "s"}
HI = [{"role": "user", "content": "Hi"}]
NOW = [{"name": "now", "input_schema": {"type": "object"}}]
FUNCTION = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}


def written(prompt: Prompt, model: str = "m", **target: Any) -> tuple[dict[str, Any], Notes]:
    """*prompt* as a body, and what was noted."""
    notes = Notes()
    body = write_body(prompt, Target(**{"model": model, "stream": False, "traits": traits_of(model), **target}), notes)
    return json.loads(body), notes


def translated(model: str = "m", **fields: Any) -> tuple[dict[str, Any], Notes]:
    """The call of an Anthropic client with *fields*, as a body."""
    body = {"model": "slug", "max_tokens": 100, "messages": HI, **fields}
    return written(read_prompt(read_call(json.dumps(body).encode(), CallOptions(), ())), model)


def messages_of(*turns: dict[str, Any], model: str = "m", **fields: Any) -> tuple[list[dict[str, Any]], Notes]:
    """The messages of a call with *turns*."""
    body, notes = translated(model, messages=list(turns), **fields)
    return body["messages"], notes


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def use(call_id: str, name: str = "now", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, content: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def called(call_id: str, name: str = "now", arguments: str = "{}") -> dict[str, Any]:
    """A call as the provider is told of it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def refusal(**fields: Any) -> GatewayError:
    """The 400 that a call with *fields* gets."""
    with pytest.raises(GatewayError) as caught:
        translated(**fields)
    assert caught.value.kind.status == 400
    return caught.value
