"""What a request asks for, in either dialect."""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from typing import Any

from gateway.demo_provider.pieces import pieces_of

IMAGE_TOKENS = 85  # what OpenAI charges for an image in low detail


@dataclass(frozen=True, slots=True)
class Image:
    """An image of a prompt; `data` is None where it was only linked."""

    media_type: str
    data: bytes | None

    def __str__(self) -> str:
        if self.data is None:
            return "a linked image that was not fetched"
        size = f"{len(self.data)} bytes"
        if self.data.startswith(b"\x89PNG\r\n\x1a\n") and len(self.data) >= 24:
            width, height = struct.unpack(">II", self.data[16:24])  # IHDR comes first (PNG specification, 5.6)
            size += f", {width} x {height} pixels"
        return f"{self.media_type} of {size}"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request of either dialect. `text` is what the user said last; `tool` is the first one that may be called.

    Attributes:
        has_to_call: The model may not answer without a tool.
    """

    model: str
    stream: bool
    include_usage: bool
    max_tokens: int | None
    text: str
    images: tuple[Image, ...]
    tool: dict[str, Any] | None
    has_to_call: bool
    results: tuple[str, ...]
    tokens: int


def read_prompt(body: dict[str, Any]) -> Prompt:
    """
    Read a request. The members of the two dialects do not clash, so one reader does for both.

    Raises:
        ValueError: It is no request; the text is fit for the caller.
    """
    messages = body.get("messages")
    if not isinstance(body.get("model"), str) or not isinstance(messages, list) or not messages:
        raise ValueError("model and a non-empty list of messages are needed")
    said: list[str] = [text for part in _parts(body.get("system")) if (text := _text(part))]
    images: list[Image] = []
    results: list[str] = []
    last = ""
    for message in messages:
        parts = _parts(message.get("content")) if isinstance(message, dict) else []
        texts = [text for part in parts if (text := _text(part))]
        images += [image for part in parts if (image := _image(part)) is not None]
        answers = [_joined(part.get("content")) for part in parts if part.get("type") == "tool_result"]
        role = message.get("role") if isinstance(message, dict) else None
        results += ["\n".join(texts)] if role == "tool" else answers
        last = "\n".join(texts) if role == "user" and texts else last
        said += texts + answers
    options = body.get("stream_options")
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    return Prompt(
        model=body["model"],
        stream=body.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        max_tokens=limit if isinstance(limit, int) and limit > 0 else None,
        text=last,
        images=tuple(images),
        tool=_tool(body),
        has_to_call=_choice(body).get("type") in ("tool", "any", "function", "required"),
        results=tuple(results),
        tokens=sum(len(pieces_of(text)) for text in said) + IMAGE_TOKENS * len(images),
    )


def _parts(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _text(part: dict[str, Any]) -> str:
    text = part.get("text") if part.get("type") == "text" else None
    return text if isinstance(text, str) else ""


def _joined(content: Any) -> str:
    return "\n".join(_text(part) for part in _parts(content))


def _image(part: dict[str, Any]) -> Image | None:
    link, source = part.get("image_url"), part.get("source")
    if part.get("type") == "image_url" and isinstance(link, dict):
        header, comma, data = str(link.get("url", "")).partition(";base64,")
        return _decoded(header.removeprefix("data:"), data) if comma else Image("image", None)
    if part.get("type") == "image" and isinstance(source, dict):
        known = source.get("type") == "base64"
        return _decoded(str(source.get("media_type")), str(source.get("data"))) if known else Image("image", None)
    return None


def _decoded(media_type: str, data: str) -> Image:
    try:
        return Image(media_type, base64.b64decode(data, validate=True))
    except ValueError:
        raise ValueError("an image is no valid base64") from None


def _choice(body: dict[str, Any]) -> dict[str, Any]:
    choice = body.get("tool_choice")
    return choice if isinstance(choice, dict) else {"type": choice}


def _tool(body: dict[str, Any]) -> dict[str, Any] | None:
    """The tool to be called as {name, schema}: the one that is asked for by name, else the first."""
    choice = _choice(body)
    function = choice.get("function")
    wanted = function.get("name") if isinstance(function, dict) else choice.get("name")
    for tool in _parts(body.get("tools")):
        row = tool.get("function", tool)
        if isinstance(row, dict) and choice.get("type") != "none" and wanted in (None, row.get("name")):
            return {"name": row.get("name"), "schema": row.get("parameters") or row.get("input_schema")}
    return None
