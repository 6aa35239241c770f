"""One `chat.completion.chunk` of a provider: read as far as the lane needs it, and made whole for the client."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.dialects.failures import ABSENT, NOTHING
from gateway.wire.values import decode_members, decode_values

# A choice ends in one of these where the provider gave up on it; OpenRouter and DeepSeek document them.
FAILED_REASONS = frozenset(("error", "insufficient_system_resource"))

NO_INDEX = -1

Place = tuple[int, int]
"""(choice, tool call): where the arguments of one call belong."""


class Function(Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class ToolCall(Struct, gc=False):
    """`index` is `NO_INDEX` when the call has none."""

    index: int = NO_INDEX
    function: Function | None = None


class Delta(Struct, gc=False):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Function | None = None


class Choice(Struct, gc=False):
    """`usage` and `error` are the very object `ABSENT` when the choice has none."""

    index: int | UnsetType = UNSET
    delta: Delta | None = None
    finish_reason: str | None = None
    usage: Raw = ABSENT
    error: Raw = ABSENT


class Chunk(Struct, gc=False):
    """`usage` and `error` are the very object `ABSENT` when the chunk has none."""

    id: str | None = None
    object: str | None = None
    created: int | None = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: Raw = ABSENT
    error: Raw = ABSENT


class OddChunk(Chunk, gc=False):
    """A chunk with members of unexpected types: it has to be put right before a client may see it."""


_KNOWN = frozenset(Delta.__struct_fields__)
read_chunk = msgspec.json.Decoder(Chunk).decode


def index_of(choice: Choice) -> int:
    """The choice's index, 0 where the provider sends none."""
    return choice.index if choice.index is not UNSET else 0


def usage_of(chunk: Chunk, asked: int = 1) -> Raw | None:
    """
    The usage that *chunk* tells; None where it tells none.

    Moonshot puts it into the choice that finishes. Where more than one were *asked* for it would not be that of all.
    """
    if is_said(chunk.usage):
        return chunk.usage
    choices = (chunk.choices or ()) if asked == 1 else ()
    return next((choice.usage for choice in choices if is_said(choice.usage)), None)


def is_said(member: Raw) -> bool:
    """Whether *member* is there and says anything."""
    return member is not ABSENT and bytes(member) not in NOTHING


def text_of(delta: Delta | None) -> str | None:
    """What *delta* adds to the answer; None when it adds nothing."""
    if delta is None:
        return None
    if delta.content and not delta.tool_calls:
        return delta.content
    parts = [delta.content, delta.reasoning_content or delta.reasoning, delta.refusal]
    for function in (delta.function_call, *(call.function for call in delta.tool_calls or ())):
        if function is not None:
            parts += (function.name, function.arguments)
    text = "".join(part for part in parts if part)
    if text:
        return text
    return None


def may_be_content(value: object) -> bool:
    """Whether *value*, whose name we do not know, can be part of an answer. A number is none: Together's `token_id`."""
    return isinstance(value, str | list | dict) and bool(value)


def carriers(payload: bytes) -> set[int]:
    """The choices whose delta in *payload* has something we have no name for: audio, images, encrypted reasoning."""
    found: set[int] = set()
    for choice in _dicts(decode_values(payload).get("choices")):
        delta = choice.get("delta")
        unknown = [value for name, value in delta.items() if name not in _KNOWN] if isinstance(delta, dict) else []
        if any(map(may_be_content, unknown)):
            found.add(_index(choice))
    return found


def whole_choices(raw: Raw, unfinished: Collection[int] = ()) -> list[Any]:
    """Every choice with an index, a delta and a finish reason, which is null for those in *unfinished*."""
    choices = _dicts(decode_values(raw))
    for choice in choices:
        if type(choice.get("index")) is not int:
            choice["index"] = 0
        if not isinstance(choice.get("delta"), dict):
            choice["delta"] = {}
        if not isinstance(choice.get("finish_reason"), str) or choice["index"] in unfinished:
            choice["finish_reason"] = None
    return choices


def with_arguments(payload: bytes, places: Collection[Place]) -> bytes:
    """*payload* with `{}` as the arguments of the tool calls at *places*, which it opens and which have none."""
    chunk = decode_values(payload)
    for choice, call in tool_calls(chunk):
        if (choice, call.get("index")) in places:
            function = call.get("function")
            call["function"] = {**(function if isinstance(function, dict) else {}), "arguments": "{}"}
    return msgspec.json.encode(chunk)


def tool_calls(chunk: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The tool calls in the deltas of *chunk*, each with the index of its choice."""
    for choice in _dicts(chunk["choices"]):
        delta = choice.get("delta")
        for call in _dicts(delta.get("tool_calls") if isinstance(delta, dict) else None):
            yield _index(choice), call


def _dicts(said: object) -> list[dict[str, Any]]:
    return [item for item in said if isinstance(item, dict)] if isinstance(said, list) else []


def _index(said: dict[str, Any]) -> int:
    index = said.get("index")
    return index if type(index) is int else 0


def read_leniently(payload: bytes) -> OddChunk:
    """
    *payload* as a chunk, whatever types its members have: what is not of the expected type counts as absent.

    Raises:
        msgspec.DecodeError: Not a JSON object.
    """
    members = decode_members(payload)
    chunk = OddChunk(usage=members.get("usage", ABSENT), error=members.get("error", ABSENT))
    known = decode_values(payload)
    for name, kind in (("id", str), ("object", str), ("created", int), ("model", str)):
        if type(known.get(name)) is kind:
            setattr(chunk, name, known[name])
    if isinstance(known.get("choices"), list):
        chunk.choices = [_choice(choice) for choice in _dicts(known["choices"])]
    return chunk


def _choice(said: dict[str, Any]) -> Choice:
    index, reason = said.get("index"), said.get("finish_reason")
    return Choice(
        index=index if type(index) is int else UNSET,
        delta=_delta(said["delta"]) if isinstance(said.get("delta"), dict) else None,
        finish_reason=reason if isinstance(reason, str) else None,
        usage=Raw(msgspec.json.encode(said.get("usage"))),
        error=Raw(msgspec.json.encode(said.get("error"))),
    )


def _delta(said: dict[str, Any]) -> Delta:
    content = said.get("content")
    if isinstance(content, list):  # some vendors stream parts
        content = "".join(p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str))
    out = Delta(content=content if isinstance(content, str) else None)
    for name in ("role", "reasoning_content", "reasoning", "refusal"):
        if isinstance(said.get(name), str):
            setattr(out, name, said[name])
    if isinstance(said.get("tool_calls"), list):
        out.tool_calls = [_tool_call(call) for call in _dicts(said["tool_calls"])]
    return out


def _tool_call(said: dict[str, Any]) -> ToolCall:
    function, index = said.get("function"), said.get("index")
    out = ToolCall(index=index if type(index) is int else NO_INDEX)
    if isinstance(function, dict):
        name, arguments = function.get("name"), function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):  # an object instead of its text
            arguments = msgspec.json.encode(arguments).decode()
        out.function = Function(name=name if isinstance(name, str) else None, arguments=arguments)
    return out
