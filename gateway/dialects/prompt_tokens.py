"""A request in either dialect, for our own estimate of its tokens.

It is read as it was sent and believes nothing: what is not as documented counts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from gateway.core.call import Call, tool_members
from gateway.core.held import Held, Part
from gateway.dialects.families import UNKNOWN_PX, Family
from gateway.dialects.tokens import as_text, count_prompt, prompt_steps
from gateway.wire.pictures import BadPicture, Encoded, look
from gateway.wire.values import decode_values

PAGE_TOKENS = 2250  # Anthropic's guide to PDFs: 1,500 to 3,000 for the text of a page; it is seen as a picture besides
PAGE_CHARS = 64 * 1024  # of base64, taken for a page: the count itself would have to be unpacked. A choice
_TEXTS = ("text", "thinking", "arguments", "name", "context", "title", "content", "tool_calls", "function")


def prompt_tokens(call: Call, family: Family) -> int:
    """Our estimate of the prompt's tokens, for a model of *family*: texts, tools, pictures and documents."""
    texts, others = _read(call, family)
    return round(count_prompt(texts) * family.factor) + others


def prompt_tokens_steps(call: Call, family: Family) -> Generator[None, None, int]:
    """As `prompt_tokens`, with stops where others can be served."""
    texts, others = _read(call, family)
    tokens = yield from prompt_steps(texts)
    return round(tokens * family.factor) + others


def _read(call: Call, family: Family) -> tuple[list[str], int]:
    """The texts of *call*'s prompt, and the tokens of what is no text."""
    found = _Found(family, call.held)
    for name in ("system", "messages"):
        raw = call.fields.get(name)
        if raw is not None:
            found.visit(decode_values(raw))
    tools = tool_members(call)
    found.texts += [bytes(call.fields[name]).decode("utf-8", "replace") for name in tools]
    found.others += family.tools if tools else 0
    texts = found.texts
    if call.held is not None:  # base64 may also stand where the model reads it
        texts = [call.held.fill(text.encode()).decode() for text in texts]
    return texts, found.others


class _Found:
    """Texts in order, and the tokens of what is no text."""

    def __init__(self, family: Family, held: Held | None) -> None:
        self.texts: list[str] = []
        self.others = 0
        self._family = family
        self._held = held

    def visit(self, node: Any) -> None:
        """Add every message, part and tool result under *node*."""
        if isinstance(node, str):
            self.texts.append(node)
        elif isinstance(node, list):
            for item in node:
                self.visit(item)
        elif isinstance(node, dict):
            kind = node.get("type")
            special = _SPECIAL.get(kind) if isinstance(kind, str) else None
            if special is not None:
                special(self, node)
            else:
                self._visit_members(node)

    def _visit_members(self, node: dict[str, Any]) -> None:
        is_message = "role" in node
        for name in _TEXTS:
            value = node.get(name)
            if value is not None and not (is_message and name == "name"):
                self.visit(value)
        if isinstance(node.get("input"), dict):
            self.texts.append(as_text(node["input"]))

    def image(self, node: dict[str, Any]) -> None:
        """Anthropic's: `source` has the data, a URL, or the name of a file that the provider keeps."""
        source = node.get("source")
        data = source.get("data") if isinstance(source, dict) else None
        self._add_image(data if isinstance(data, str) else "")

    def image_url(self, node: dict[str, Any]) -> None:
        """OpenAI's: a public or a data URL, and how closely to look."""
        link = node.get("image_url")
        url, detail = (link.get("url"), link.get("detail")) if isinstance(link, dict) else (link, None)
        self._add_image(_data_of(url), detail if isinstance(detail, str) else "")

    def document(self, node: dict[str, Any]) -> None:
        """Anthropic's: a PDF, plain text, or content like a message's."""
        source = node.get("source")
        source = source if isinstance(source, dict) else {}
        self.visit([node.get(name) for name in ("title", "context")])
        if source.get("type") == "base64":
            self._add_pages(source.get("data"))
        elif source.get("type") in ("text", "content"):
            self.visit(source.get("data") or source.get("content"))
        else:
            self._add_pages("")

    def file(self, node: dict[str, Any]) -> None:
        """OpenAI's: a data URL of a PDF, or the name of a file that the provider keeps."""
        given = node.get("file")
        self._add_pages(_data_of(given.get("file_data")) if isinstance(given, dict) else "")

    def _add_image(self, data: str, detail: str = "") -> None:
        try:
            seen = look(Encoded(self._part(data)))
            width, height = seen.width, seen.height
        except (BadPicture, ValueError):  # ValueError: no base64
            width = height = UNKNOWN_PX
        self.others += self._family.image(width, height, detail)

    def _add_pages(self, data: object) -> None:
        pages = -(-len(self._part(data)) // PAGE_CHARS) if isinstance(data, str) else 0
        self.others += PAGE_TOKENS * max(1, pages)

    def _part(self, data: str) -> Part:
        """The base64 *data*, or what was set aside for it."""
        part = self._held.find(data) if self._held is not None else None
        return part if part is not None else data.encode()


_SPECIAL: Mapping[str, Callable[[_Found, dict[str, Any]], None]] = {
    "image": _Found.image,
    "image_url": _Found.image_url,
    "document": _Found.document,
    "file": _Found.file,
}


def _data_of(url: object) -> str:
    """The base64 of a data URL; "" for anything else."""
    return url.partition(";base64,")[2] if isinstance(url, str) else ""
