"""OpenAI chat calls read into the neutral model, for providers of another dialect.

Reasoning keeps its signature in this dialect by an extra member of the assistant's message, in a public form that
several routers write and agents send back:

    "reasoning_content": "all the text",
    "reasoning_details": [
        {"type": "reasoning.text", "text": "...", "signature": "...", "text_length": 3, "index": 0},
        {"type": "reasoning.encrypted", "data": "...", "index": 1}
    ]

An entry with a signature has the text that was signed; or "", and then that is all of `reasoning_content`, or as many
characters of it as the `text_length` that we write says, one entry after the other. A stream may
send the text of an entry in pieces of one `index`, the signature with the last; a client that collects them without
joining them is read as well. An entry may say its `format`: one that names another family's is as good as unsigned.
Text without details comes in unsigned, from `reasoning_content` or `reasoning`.

Nothing that says nothing is noted: null, an empty text, and what OpenAI does anyway (`_NO_OPS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from gateway.core.call import Call
from gateway.dialects.neutral import Notes, Prompt
from gateway.dialects.openai_prompt_format import read_reasoning, read_response_format
from gateway.dialects.openai_prompt_raw import as_boolean, as_integer, as_number, as_text, is_null
from gateway.dialects.openai_prompt_tools import read_tool_choice, read_tools
from gateway.dialects.openai_prompt_turns import read_turns
from gateway.wire.values import decode_values

_OURS = frozenset({"model", "messages", "stream", "stream_options", "tools", "functions", "response_format"})
_LIMITS = ("max_tokens", "max_completion_tokens")
_USERS = ("user", "safety_identifier")  # the second is the first's successor
_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "seed",
)  # fmt: skip
_NEUTRAL_NUMBERS = {"top_p": 1, "min_p": 0, "frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1}
_NO_OPS: dict[str, Any] = {
    "logprobs": False, "top_logprobs": 0, "store": False, "service_tier": "auto", "modalities": ["text"],
    "verbosity": "medium", "logit_bias": {}, "metadata": {},
}  # fmt: skip


def read_prompt(call: Call) -> Prompt:
    """
    *call* of the chat dialect, accepted by `openai_chat.read_call`.

    Raises:
        GatewayError: 400 for what no other dialect could honour, or what is not of its documented type.
    """
    fields = {name: raw for name, raw in call.fields.items() if not is_null(raw)}
    notes, names = Notes(), dict[str, str]()
    turns = read_turns(decode_values(fields["messages"]), notes)
    tools = read_tools(fields, names, notes)
    tool_choice, tools = read_tool_choice(fields, tools, names, notes)
    members: dict[str, Any] = {
        "parallel_tools": _read(fields, names, "parallel_tools", "parallel_tool_calls", as_boolean),
        "max_tokens": _max_tokens(fields, names),
        "stop": _stop(fields, names),
        "sampling": _sampling(fields, names),
        "n": _read(fields, names, "n", "n", as_integer) or 1,
        "response_format": read_response_format(fields, names),
        "reasoning": read_reasoning(fields, names, notes),
        "user": _user(fields, names),
    }
    others = _others(fields, names)
    return Prompt(
        tools=tools,
        tool_choice=tool_choice,
        others=others,
        names={**names, **{name: name for name in others}},
        translated=tuple(notes.translated),
        dropped=tuple(notes.dropped),
        **turns,
        **members,
    )


def _read(fields: Mapping[str, Raw], names: dict[str, str], neutral: str, name: str, read: Any) -> Any:
    """The member *name*, noted as the client's name for *neutral*; None where it is absent."""
    if name not in fields:
        return None
    names[neutral] = name
    return read(fields[name], name)


def _max_tokens(fields: Mapping[str, Raw], names: dict[str, str]) -> int | None:
    """The smaller of the two limits: whoever sends both gets neither exceeded."""
    given = {name: as_integer(fields[name], name) for name in _LIMITS if name in fields}
    if not given:
        return None
    names["max_tokens"] = min(given, key=given.__getitem__)
    return given[names["max_tokens"]]


def _stop(fields: Mapping[str, Raw], names: dict[str, str]) -> tuple[str, ...]:
    if "stop" not in fields:
        return ()
    names["stop"] = "stop"
    given = decode_values(fields["stop"])
    return (given,) if isinstance(given, str) else tuple(given)


def _sampling(fields: Mapping[str, Raw], names: dict[str, str]) -> dict[str, Raw]:
    sampling = {}
    for name in _SAMPLING:
        if name in fields and as_number(fields[name], name) != _NEUTRAL_NUMBERS.get(name):
            names[name] = name
            sampling[name] = fields[name]
    return sampling


def _user(fields: Mapping[str, Raw], names: dict[str, str]) -> str | None:
    for name in _USERS:
        if name in fields and (user := as_text(fields[name], name)):
            names["user"] = name
            return user
    return None


def _others(fields: Mapping[str, Raw], names: Mapping[str, str]) -> dict[str, Raw]:
    read = {*_OURS, *_LIMITS, *names.values(), *_NEUTRAL_NUMBERS}
    return {name: raw for name, raw in fields.items() if name not in read and not _is_no_op(name, raw)}


def _is_no_op(name: str, raw: Raw) -> bool:
    if name == "user":
        return True  # an empty one: any other has a name
    return name in _NO_OPS and bool(decode_values(raw) == _NO_OPS[name])
