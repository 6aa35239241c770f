"""Content of Anthropic messages as neutral parts: what may stand where, and what becomes of each type of block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from gateway.dialects.neutral import PDF, Document, Image, Message, Notes, Part, Text, Thinking, ToolCall, ToolResult
from gateway.dialects.validate import boolean_of, name_of, refuse, text_of

Block = dict[str, Any]
Holder = Literal["system", "user", "assistant", "tool_result", "document"]
_Read = Callable[[Block, str, Notes], tuple[Part, ...]]

_PLAIN = "text/plain"
# Of every block. `caller` says who called a tool; the only caller that is left is the model itself.
_COMMON = frozenset({"type", "cache_control", "caller"})


def read_content(content: Any, holder: Holder, place: str, notes: Notes) -> tuple[Part, ...]:
    """
    *content* of whatever *holder* is, at *place*: a string, or blocks. Empty texts are no parts.

    Raises:
        GatewayError: 400 for what is neither, and for blocks that must not be left out and cannot be carried.
    """
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if not isinstance(content, list):
        raise refuse(place, f"{place} must be a string or an array of content blocks.")
    parts: list[Part] = []
    for index, block in enumerate(content):
        parts += _read_block(block, holder, f"{place}[{index}]", notes)
    return tuple(parts)


def read_turn(content: Any, role: Literal["user", "assistant"], place: str, notes: Notes) -> Message:
    """The turn of *role* at *place*, with the place of each part. Raises GatewayError (400) like `read_content`."""
    inside = f"{place}.content"
    if not isinstance(content, list):
        return Message(role, read_content(content, role, inside, notes), place, places=(inside,))
    parts: list[Part] = []
    places: list[str] = []
    for index, block in enumerate(content):
        found = _read_block(block, role, f"{inside}[{index}]", notes)
        parts += found
        places += [f"{inside}[{index}]"] * len(found)
    return Message(role, tuple(parts), place, places=tuple(places))


def read_texts(content: Any, place: str, notes: Notes) -> tuple[Text, ...]:
    """*content* of a system prompt. Raises GatewayError (400) like `read_content`."""
    return tuple(part for part in read_content(content, "system", place, notes) if isinstance(part, Text))


def _read_block(block: Any, holder: Holder, place: str, notes: Notes) -> tuple[Part, ...]:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        raise refuse(f"{place}.type", f"{place} must be a content block with a type.")
    if kind not in _MAY_HOLD[holder]:
        if kind in _NEVER_DROPPED:
            raise refuse(place, f"{place}: {kind} must not stand in the content of {holder}.")
        notes.drop(place)  # what a provider's own tools said, and types that we have never heard of
        return ()
    read, members = _READERS[kind]
    for name, value in block.items():
        if value and name not in members and name not in _COMMON:
            notes.drop(f"{place}.{name}")
    return read(block, place, notes)


def _text(block: Block, place: str, notes: Notes) -> tuple[Part, ...]:
    text = text_of(block.get("text"), f"{place}.text")
    return (Text(text, block.get("cache_control")),) if text else ()


def _image(block: Block, place: str, notes: Notes) -> tuple[Part, ...]:
    source, kind = _source(block, place)
    cache = block.get("cache_control")
    if kind == "url":
        return (Image(url=_string(source, "url", f"{place}.source"), cache=cache),)
    if kind != "base64":
        raise _no_source(kind, place)
    media_type, data = (_string(source, name, f"{place}.source") for name in ("media_type", "data"))
    return (Image(media_type=media_type, data=data, cache=cache),)


def _document(block: Block, place: str, notes: Notes) -> tuple[Part, ...]:
    source, kind = _source(block, place)
    name, context = _said(block, "title", place), _said(block, "context", place)
    cache = block.get("cache_control")
    before = (Text(context),) if context is not None else ()
    if kind == "content":
        head = (Text(name),) if name else ()
        return (*head, *before, *read_content(source.get("content"), "document", f"{place}.source.content", notes))
    if kind == "url":
        return (*before, Document(url=_string(source, "url", f"{place}.source"), name=name, cache=cache))
    if kind not in _DOCUMENT_TYPES:
        raise _no_source(kind, place)
    data = _string(source, "data", f"{place}.source")
    return (*before, Document(media_type=_DOCUMENT_TYPES[kind], data=data, name=name, cache=cache))


def _search_result(block: Block, place: str, notes: Notes) -> tuple[Part, ...]:
    head = [said for said in (_said(block, name, place) for name in ("title", "source")) if said is not None]
    body = read_texts(block.get("content"), f"{place}.content", notes)
    lines = [*head, *(part.text for part in body)]
    notes.translate(place)
    return (Text("\n".join(lines), block.get("cache_control")),) if lines else ()


def _compaction(block: Block, place: str, notes: Notes) -> tuple[Part, ...]:
    """A summary of what was said before, which the client may have left out on its account."""
    summary = block.get("content")
    if not isinstance(summary, str) or not summary:
        notes.drop(place)
        return ()
    notes.translate(place)
    return (Text(summary, block.get("cache_control")),)


def _thinking(block: Block, place: str, notes: Notes) -> tuple[Part, ...]:
    text, signature = text_of(block.get("thinking"), f"{place}.thinking"), block.get("signature")
    return (Thinking(text, signature if isinstance(signature, str) and signature else None),)


def _redacted(block: Block, place: str, notes: Notes) -> tuple[Part, ...]:
    return (Thinking(redacted=_string(block, "data", place)),)


def _tool_use(block: Block, place: str, notes: Notes) -> tuple[Part, ...]:
    given = block.get("input")
    if given is None or given == "":  # as a stream that was put together carelessly leaves it
        given = {}
    if not isinstance(given, dict):
        raise refuse(f"{place}.input", f"{place}.input must be an object.")
    arguments = msgspec.json.encode(given).decode()
    call_id, name = _string(block, "id", place), _string(block, "name", place)
    return (ToolCall(call_id, name, arguments, block.get("cache_control")),)


def _tool_result(block: Block, place: str, notes: Notes) -> tuple[Part, ...]:
    content = block.get("content")
    parts = () if content is None else read_content(content, "tool_result", f"{place}.content", notes)
    inner = tuple(part for part in parts if isinstance(part, Text | Image | Document))
    call_id, given = _string(block, "tool_use_id", place), block.get("is_error")
    is_error = given is not None and boolean_of(given, f"{place}.is_error")
    return (ToolResult(call_id, inner, is_error, block.get("cache_control")),)


def _source(block: Block, place: str) -> tuple[Block, str]:
    source = block.get("source")
    kind = source.get("type") if isinstance(source, dict) else None
    if not isinstance(source, dict) or not isinstance(kind, str):
        raise refuse(f"{place}.source", f"{place}.source must be an object with a type.")
    return source, kind


def _no_source(kind: str, place: str) -> Exception:
    if kind == "file":
        return refuse(f"{place}.source", f"{place}.source: Uploaded files cannot be used with this model.")
    return refuse(f"{place}.source.type", f"{place}.source.type is not supported with this model.")


def _string(holder: Block, name: str, place: str) -> str:
    return name_of(holder.get(name), f"{place}.{name}")


def _said(block: Block, name: str, place: str) -> str | None:
    """A text that may be left out, be null, or say nothing."""
    value = block.get(name)
    return (text_of(value, f"{place}.{name}") or None) if value is not None else None


_DOCUMENT_TYPES = {"base64": PDF, "text": _PLAIN}
# How each type is read, and the members that are read; others are noted.
_READERS: Mapping[str, tuple[_Read, frozenset[str]]] = {
    "text": (_text, frozenset({"text"})),
    "image": (_image, frozenset({"source"})),
    "document": (_document, frozenset({"source", "title", "context"})),
    "search_result": (_search_result, frozenset({"source", "title", "content"})),
    "thinking": (_thinking, frozenset({"thinking", "signature"})),
    "redacted_thinking": (_redacted, frozenset({"data"})),
    "compaction": (_compaction, frozenset({"content"})),
    "tool_use": (_tool_use, frozenset({"id", "name", "input"})),
    "tool_result": (_tool_result, frozenset({"tool_use_id", "content", "is_error"})),
}
_MEDIA = frozenset({"text", "image", "document", "search_result"})
_MAY_HOLD: Mapping[Holder, frozenset[str]] = {
    "system": frozenset({"text"}),
    "user": _MEDIA | {"tool_result"},
    "assistant": frozenset({"text", "thinking", "redacted_thinking", "compaction", "tool_use"}),
    "tool_result": _MEDIA,
    "document": frozenset({"text", "image"}),
}
_NEVER_DROPPED = frozenset({"tool_use", "tool_result"})  # without one of them its other half would hang in the air
