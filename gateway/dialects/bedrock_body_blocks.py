"""Blocks of an Anthropic conversation as Converse spells them."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from gateway.dialects.anthropic_body_blocks import Block
from gateway.dialects.neutral import Document, Image, Message, Part, Prompt, Text, ToolResult
from gateway.dialects.validate import refuse

_FORMATS = {f"image/{name}": name for name in ("png", "jpeg", "gif", "webp")}  # `ImageFormat` in the API reference
_TTLS = frozenset({"5m", "1h"})  # `CacheTTL`
# A document's name, by the reference of `DocumentBlock`: letters, digits, single blanks, hyphens, brackets.
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9()\[\]-]+")
_MAX_NAME_CHARS = 190  # of 200; the rest is for what tells equal names apart
_DOCUMENT = "document"
_NOTHING = "No content."
_ABOUT = "The document."  # a turn with a document has to have a text as well


def check_sources(prompt: Prompt) -> None:
    """
    Refuse what Bedrock would have to fetch: it takes data only.

    Raises:
        GatewayError: 400 naming the place.
    """
    for message in prompt.messages:
        for at, part in enumerate(message.parts):
            for inner in part.parts if isinstance(part, ToolResult) else (part,):
                _check(inner, message, at)


def _check(part: Part, message: Message, at: int) -> None:
    place = message.place_of(at)
    if isinstance(part, Image | Document) and part.url is not None:
        raise refuse(place, f"{place}: this model's provider fetches nothing; send the data itself.")
    if isinstance(part, Image) and part.media_type not in _FORMATS:
        raise refuse(place, f"{place}: this model takes PNG, JPEG, GIF and WebP images.")


class Blocks:
    """
    Respells the blocks of one call.

    Args:
        takes_marks: The model caches prompts where they are marked; others would refuse the call.

    Attributes:
        dropped_marks: There were markers that could not be kept.
    """

    def __init__(self, *, takes_marks: bool) -> None:
        self.dropped_marks = False
        self._takes_marks = takes_marks
        self._names: set[str] = set()  # of documents: two of one name are refused
        self._numbers: dict[str, int] = {}  # by what a name begins with: that of its next document

    def system(self, texts: Iterable[Text]) -> list[Block]:
        """Instructions."""
        out: list[Block] = []
        for text in texts:
            out += self.marked({"text": text.text}, text.cache)
        return out

    def messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Turns."""
        return [{"role": turn["role"], "content": self._content(turn["content"])} for turn in messages]

    def marked(self, block: Block, cache: Any) -> list[Block]:
        """*block*, and the point up to which the prompt is to be cached, if *cache* marks it so."""
        if cache is None:
            return [block]
        if not self._takes_marks:
            self.dropped_marks = True
            return [block]
        point = {"type": "default"}
        ttl = cache.get("ttl") if isinstance(cache, dict) else None
        if isinstance(ttl, str) and ttl in _TTLS:
            point["ttl"] = ttl
        return [block, {"cachePoint": point}]

    def _content(self, blocks: list[Block]) -> list[Block]:
        out: list[Block] = []
        for block in blocks:
            out += self.marked(self._block(block), _mark_of(block))
        if any("document" in block for block in out) and not any("text" in block for block in out):
            out.append({"text": _ABOUT})
        return out

    def _block(self, block: Block) -> Block:
        match block["type"]:
            case "text":
                return {"text": block["text"]}
            case "image":
                source = block["source"]
                return {"image": {"format": _FORMATS[source["media_type"]], "source": {"bytes": source["data"]}}}
            case "document":
                return {"document": self._document(block)}
            case "tool_use":
                return {"toolUse": {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}}
            case "tool_result":
                return {"toolResult": self._result(block)}
            case "redacted_thinking":
                return {"reasoningContent": {"redactedContent": block["data"]}}
            case _:
                text = {"text": block["thinking"], "signature": block["signature"]}
                return {"reasoningContent": {"reasoningText": text}}

    def _result(self, block: Block) -> Block:
        """A result has to have content, if only the text that there is none."""
        content = [self._block(inner) for inner in block.get("content", ())]
        result: Block = {"toolUseId": block["tool_use_id"], "content": content or [{"text": _NOTHING}]}
        if block.get("is_error"):
            result["status"] = "error"
        return result

    def _document(self, block: Block) -> Block:
        source = block["source"]
        is_pdf = source["type"] == "base64"
        data = source["data"] if is_pdf else b64encode(source["data"].encode()).decode()
        name = self._name(block.get("title") or _DOCUMENT)
        return {"format": "pdf" if is_pdf else "txt", "name": name, "source": {"bytes": data}}

    def _name(self, title: str) -> str:
        """A name that no other document of the call has: the same one each time that the call is sent."""
        base = _NOT_IN_NAMES.sub(" ", title).strip()[:_MAX_NAME_CHARS].strip() or _DOCUMENT
        number = self._numbers.get(base, 1)
        while (name := base if number == 1 else f"{base} ({number})") in self._names:  # another's title is this
            number += 1
        self._numbers[base] = number + 1
        self._names.add(name)
        return name


def _mark_of(block: Block) -> Any:
    """The marker of a block; one inside a result is as good as one behind it."""
    return next((inner["cache_control"] for inner in (block, *_inside(block)) if "cache_control" in inner), None)


def _inside(block: Block) -> list[Block]:
    return block.get("content", []) if block["type"] == "tool_result" else []
