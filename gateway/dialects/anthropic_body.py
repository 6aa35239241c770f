"""A neutral prompt as the body of an Anthropic messages call, version 2023-06-01."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import structs

from gateway.dialects.anthropic_body_blocks import text_block
from gateway.dialects.anthropic_body_thinking import write_thinking
from gateway.dialects.anthropic_body_tools import write_tools
from gateway.dialects.anthropic_body_turns import Conversation, asides, write_turns
from gateway.dialects.neutral import Notes, Prompt, Target
from gateway.dialects.validate import refuse, refuse_members
from gateway.wire.values import decode_values

DEFAULT_MAX_TOKENS = 32_000
"""Where neither the client nor the catalogue says how long an answer may be, and the API wants to know: the least
output limit of the models of 2025 and later, so that none of them refuses it."""

MAX_USER_CHARS = 256  # of `metadata.user_id`, by the API reference
_ADDRESS = re.compile(r"[^\s@]@[^\s@]")
_PHONE = re.compile(r"\+?[\d\s().-]{7,32}")  # E.164 has up to 15 digits; the rest is how people write them
# What an answer without it would be wrong about. Anything else that nobody here knows is dropped, and noted.
_REFUSED = {
    "logprobs": "This model does not give log probabilities.",
    "top_logprobs": "This model does not give log probabilities.",
    "modalities": "This model answers in text only.",
    "audio": "This model answers in text only.",
}
_SAME = frozenset({"cache_control"})  # members of this API that clients of the other send along
_TIERS = {"default": "standard_only"}


def write_body(prompt: Prompt, target: Target, notes: Notes) -> bytes:
    """
    *prompt* as *target* wants it; what became of it goes to *notes*.

    Raises:
        GatewayError: 400 for what the API cannot do and no answer may ignore.
    """
    told = asides(prompt) if target.traits.places_system else ()
    notes.begin(structs.replace(prompt, moved=()) if told else prompt)
    check(prompt)
    talk = write_turns(prompt, notes, told)
    max_tokens = _max_tokens(prompt, target, notes)
    body: dict[str, Any] = {"model": target.model, "max_tokens": max_tokens}
    if talk.system:
        body["system"] = [text_block(text) for text in talk.system]
    body["messages"] = talk.messages
    if target.stream:
        body["stream"] = True
    body |= write_tools(prompt, talk.called, notes)
    body |= _thinking(prompt, target, talk, max_tokens, notes)
    body |= write_stop(prompt, notes)
    body |= _metadata(prompt, notes)
    body |= _others(prompt, notes)
    return msgspec.json.encode(body)


def check(prompt: Prompt) -> None:
    """Refuse what cannot be had here, by the client's name for it."""
    if prompt.n > 1:
        name = prompt.names.get("n", "n")
        raise refuse(name, f"{name}: this model gives one answer per request.")
    refuse_members(prompt.others, _REFUSED)
    form, name = prompt.response_format, prompt.names.get("response_format", "response_format")
    if form is not None and form.kind == "json_schema" and form.schema is None:
        raise refuse(name, f"{name}: a json_schema needs its schema with this model.")


def _max_tokens(prompt: Prompt, target: Target, notes: Notes) -> int:
    """Required by the API, and refused above the model's limit."""
    limit, name = target.max_output_tokens, prompt.names.get("max_tokens", "max_tokens")
    if prompt.max_tokens is None:
        notes.translate(name)
        return limit or DEFAULT_MAX_TOKENS
    if limit is not None and prompt.max_tokens > limit:
        notes.translate(name)
        return limit
    return prompt.max_tokens


def _thinking(
    prompt: Prompt, target: Target, talk: Conversation, max_tokens: int, notes: Notes
) -> dict[str, Any]:  # fmt: skip
    """Thinking, what of the sampling it allows, and the form of the answer."""
    members, effort = write_thinking(prompt, target, talk, max_tokens, notes)
    config: dict[str, Any] = {}
    if effort is not None:
        config["effort"] = effort
    if prompt.response_format is not None and prompt.response_format.schema is not None:
        config["format"] = {"type": "json_schema", "schema": prompt.response_format.schema}
        notes.translate(prompt.names.get("response_format", "response_format"))
    if config:
        members["output_config"] = config
    return members


def write_stop(prompt: Prompt, notes: Notes) -> dict[str, Any]:
    """`stop_sequences`, without blank ones, which the API refuses."""
    name = prompt.names.get("stop", "stop")
    kept = [text for text in prompt.stop if text.strip()]
    if not kept:
        if prompt.stop:
            notes.drop(name)
        return {}
    for at, text in enumerate(prompt.stop):
        if not text.strip():
            notes.drop(f"{name}[{at}]")
    notes.translate(name)
    return {"stop_sequences": kept}


def _metadata(prompt: Prompt, notes: Notes) -> dict[str, Any]:
    """
    Whom the call is for. The API wants an opaque name: one that tells a person is hashed.

    The hash is the same for the same user, so that abuse can still be told apart.
    """
    user = prompt.user
    if not user:
        return {}
    if len(user) > MAX_USER_CHARS or _ADDRESS.search(user) or _PHONE.fullmatch(user):
        user = sha256(user.encode()).hexdigest()
    notes.translate(prompt.names.get("user", "user"))
    return {"metadata": {"user_id": user}}


def _others(prompt: Prompt, notes: Notes) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, raw in prompt.others.items():
        value = decode_values(raw) if name == "service_tier" else None
        if name in _SAME:
            members[name] = raw
        elif isinstance(value, str) and value in _TIERS:
            members[name] = _TIERS[value]
            notes.translate(name)
        else:
            notes.drop(name)
    return members
