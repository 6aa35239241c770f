"""A prompt as the body of OpenAI chat completions, in the form that also its strictest imitators accept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, structs

from gateway.dialects.cache_marks import has_cache_marks
from gateway.dialects.neutral import Notes, Prompt, ResponseFormat, Target, Tool
from gateway.dialects.openai_body_messages import in_place, write_messages
from gateway.dialects.openai_body_reasoning import write_reasoning
from gateway.dialects.stops import kept_stops
from gateway.dialects.traits import Traits, user_name
from gateway.dialects.validate import refuse
from gateway.wire.values import decode_members, decode_values

MAX_STOP = 4  # OpenAI's reference, `stop`
_SAMPLING = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed")
# Members of the dialect that no other one has, and which therefore have no neutral form.
_OWN = frozenset(
    {
        "logit_bias", "metadata", "prediction", "prompt_cache_key", "prompt_cache_retention", "safety_identifier",
        "service_tier", "store", "verbosity", "web_search_options",
    }
)  # fmt: skip
_DEFAULTS = {"temperature": 1.0, "top_p": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0}
# What an answer in another dialect has no place for.
_NOT_TEXT = {"audio": "Answers in sound cannot be passed on.", "modalities": "Answers can be passed on as text only."}
_TEXT_ALONE = ["text"]
_CHOICES = {"auto": "auto", "none": "none", "required": "required"}
_NO_PARAMETERS = {"type": "object", "properties": {}}
_ANSWER = "answer"  # a schema has to have a name


class Body:
    """The members of a body in the making.

    Attributes:
        members: By the provider's names for them.
        notes: What is said of the client's members, by the client's names for them.
    """

    def __init__(self, prompt: Prompt, traits: Traits, notes: Notes) -> None:
        self.prompt = prompt
        self.traits = traits
        self.notes = notes
        self.members: dict[str, Any] = {}

    def put(self, member: str, value: object, client_name: str) -> None:
        """Set *member* of OpenAI's reference, unless the model refuses it; the client knows it as *client_name*."""
        if member in self.traits.lacks:
            self.notes.drop(client_name)
            return
        name = self.traits.names.get(member, member)
        self.members[name] = value
        if client_name not in (member, name):
            self.notes.translate(client_name)

    def named(self, member: str) -> str:
        """What the client calls the neutral *member*."""
        return self.prompt.names.get(member, member)


def write_body(prompt: Prompt, target: Target, notes: Notes) -> bytes:
    """
    *prompt* as a request to *target*.

    Raises:
        GatewayError: 400 naming the client's place of what must not be ignored and cannot be said.
    """
    placed = in_place(prompt, target.traits)
    notes.begin(prompt if placed is None else structs.replace(prompt, moved=()))
    body = Body(prompt, target.traits, notes)
    _write_limits(body, target)
    _write_sampling(body)
    _write_tools(body)
    write_reasoning(prompt, body.traits, body.put, notes)
    _write_rest(body)
    if has_cache_marks(prompt):
        notes.drop("cache_control")
    messages = write_messages(prompt, body.traits, notes, placed or {})
    stream = {"stream": True, "stream_options": {"include_usage": True}} if target.stream else {}
    members = {"model": target.model, "messages": messages, **body.members, **stream}
    return msgspec.json.encode({name: value for name, value in members.items() if name not in target.omits})


def _write_limits(body: Body, target: Target) -> None:
    prompt = body.prompt
    if prompt.max_tokens is not None:
        name, limit = body.named("max_tokens"), target.max_output_tokens
        if limit is not None and prompt.max_tokens > limit:
            body.notes.translate(name)
        body.put("max_tokens", min(prompt.max_tokens, limit or prompt.max_tokens), name)
    if stop := kept_stops(prompt, MAX_STOP, body.notes):
        body.put("stop", stop, body.named("stop"))
    if prompt.n != 1:
        body.put("n", prompt.n, body.named("n"))


def _write_sampling(body: Body) -> None:
    for member, value in body.prompt.sampling.items():
        if member in _SAMPLING:
            if member not in body.traits.lacks or float(bytes(value)) != _DEFAULTS.get(member):
                body.put(member, value, body.named(member))
        else:
            body.notes.drop(body.named(member))


def _write_tools(body: Body) -> None:
    """Tools and their use; without tools nothing of it, as an empty list, or a choice of nothing, is refused."""
    prompt, choice = body.prompt, body.prompt.tool_choice
    if not prompt.tools:
        return
    body.members["tools"] = [_tool(tool) for tool in prompt.tools]
    if choice is not None:
        chosen = _CHOICES.get(choice.mode) or {"type": "function", "function": {"name": choice.name}}
        body.put("tool_choice", chosen, "tool_choice")
    if prompt.parallel_tools is False and (choice is None or choice.mode != "none"):
        body.put("parallel_tool_calls", value=False, client_name=body.named("parallel_tools"))


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = _parameters(tool.parameters)
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _parameters(schema: Raw | None) -> object:
    """*schema* as it is, but for the type and properties of an object without any, which OpenAI insists on."""
    members = decode_members(schema) if schema is not None and bytes(schema).startswith(b"{") else {}
    if not members:
        return _NO_PARAMETERS
    if "properties" in members or bytes(members.get("type", Raw())) != b'"object"':
        return schema
    return {**members, "properties": {}}


def _write_rest(body: Body) -> None:
    prompt = body.prompt
    if prompt.response_format is not None:
        body.put("response_format", _response_format(prompt.response_format), body.named("response_format"))
    if prompt.user is not None:
        name, user = body.named("user"), user_name(prompt.user)
        if user != prompt.user and "user" not in body.traits.lacks:
            body.notes.translate(name)
        body.put("user", user, name)
    for name, value in prompt.others.items():
        if name in _OWN:
            body.put(name, value, name)
        elif name in _NOT_TEXT:
            if decode_values(value) != _TEXT_ALONE:
                raise refuse(name, f"{name}: {_NOT_TEXT[name]}")
        else:
            body.notes.drop(name)


def _response_format(wanted: ResponseFormat) -> Mapping[str, object]:
    if wanted.kind == "json_object":
        return {"type": "json_object"}
    said = {"description": wanted.description, "schema": wanted.schema, "strict": wanted.strict}
    schema = {name: value for name, value in said.items() if value is not None}
    return {"type": "json_schema", "json_schema": {"name": wanted.name or _ANSWER, **schema}}
