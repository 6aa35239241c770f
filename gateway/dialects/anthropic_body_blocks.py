"""Neutral parts as blocks of an Anthropic message."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from gateway.dialects.neutral import PDF, Document, Image, Notes, Text, Thinking, ToolCall, ToolResult
from gateway.dialects.part_signatures import read_signature
from gateway.dialects.validate import refuse

Block = dict[str, Any]


def text_block(text: Text) -> Block:
    """A text, not blank: the API refuses such."""
    return _marked({"type": "text", "text": text.text}, text.cache)


def content_block(part: Text | Image | Document, place: str, notes: Notes) -> Block | None:
    """What stands in turns and in results of tools; None for what cannot, which is noted. Raises GatewayError."""
    if isinstance(part, Text):
        if part.text.strip():
            return text_block(part)
        notes.drop(place)
        return None
    if isinstance(part, Image):
        return _image(part, place, notes)
    block: Block = {"type": "document", "source": _document_source(part, place)}
    if part.name is not None:
        block["title"] = part.name
    return _marked(block, part.cache)


def thinking_block(part: Thinking, place: str, notes: Notes) -> Block | None:
    """Earlier reasoning; without its signature, or with one of another kind, the API would refuse it."""
    if part.redacted is not None and read_signature(part.redacted) is None:
        return {"type": "redacted_thinking", "data": part.redacted}
    if part.signature is None:
        notes.drop(place)
        return None
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}


def call_block(part: ToolCall, call_id: str) -> Block:
    """A call under the id that this conversation uses for it."""
    block = {"type": "tool_use", "id": call_id, "name": part.name, "input": Raw(part.arguments.encode())}
    return _marked(block, part.cache)


def result_block(part: ToolResult, call_id: str, place: str, notes: Notes) -> Block:
    """What a tool gave back; it may be nothing at all."""
    block: Block = {"type": "tool_result", "tool_use_id": call_id}
    written = (content_block(inner, place, notes) for inner in part.parts)
    content = [inner for inner in written if inner is not None]
    if content:
        block["content"] = content
    if part.is_error:
        block["is_error"] = True
    return _marked(block, part.cache)


def _image(part: Image, place: str, notes: Notes) -> Block:
    if part.detail not in (None, "auto"):
        notes.drop(f"{place}.image_url.detail")  # the one dialect that has it spells it so
    if part.url is not None:
        source = {"type": "url", "url": part.url}
    elif part.data is not None and part.media_type is not None:
        source = {"type": "base64", "media_type": part.media_type, "data": part.data}
    else:
        raise refuse(place, f"{place}: the image has neither a URL nor data.")
    return _marked({"type": "image", "source": source}, part.cache)


def _document_source(part: Document, place: str) -> dict[str, str]:
    if part.url is not None:
        return {"type": "url", "url": part.url}
    if part.data is None:
        raise refuse(place, f"{place}: the document has neither a URL nor data.")
    if part.media_type == PDF:
        return {"type": "base64", "media_type": part.media_type, "data": part.data}
    return {"type": "text", "media_type": "text/plain", "data": part.data}


def _marked(block: Block, cache: Any) -> Block:
    if cache is not None:
        block["cache_control"] = cache
    return block
