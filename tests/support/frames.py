"""Reading and making what travels: SSE frames and request bodies of both dialects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

_BLANK = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE = re.compile(rb"\r\n|\n|\r")


def blocks(body: bytes) -> list[bytes]:
    """The finished SSE blocks of *body*, whatever its line ends; an unfinished tail is left out."""
    return [block for block in _BLANK.split(body)[:-1] if block]


def named(frames: Iterable[bytes]) -> list[tuple[str | None, Any]]:
    """Each frame that has data as (event name, parsed JSON, or the text where it is no JSON)."""
    out: list[tuple[str | None, Any]] = []
    for frame in frames:
        name, data = None, []
        for line in _LINE.split(frame):
            key, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if key == b"event":
                name = value.decode()
            elif key == b"data":
                data.append(value)
        if data:
            out.append((name, _json_or_text(b"\n".join(data))))
    return out


def parsed(frames: Iterable[bytes]) -> list[Any]:
    """The data of each frame: parsed JSON, or the text where it is none ("[DONE]"). Comments are left out."""
    return [data for _, data in named(frames)]


def content(item: object) -> str | None:
    """The piece of the answer in one parsed frame of either dialect: text or tool arguments; None where there is none.

    A tool call that only says its name is the empty piece: it counts as content, but has no text.
    """
    if not isinstance(item, dict):
        return None
    if item.get("type") == "content_block_delta":
        delta = item.get("delta") or {}
        return next((delta[key] for key in ("text", "partial_json", "thinking") if delta.get(key)), None)
    out = None
    for choice in item.get("choices") or ():
        delta = choice.get("delta") or {}
        for call in delta.get("tool_calls") or ():
            out = (out or "") + ((call.get("function") or {}).get("arguments") or "")
        if delta.get("content"):
            out = (out or "") + delta["content"]
    return out


def content_events(body: bytes) -> int:
    """How many finished events in *body* carry a piece of the answer."""
    return sum(content(item) is not None for item in parsed(blocks(body)))


def text_of(frames: Iterable[bytes]) -> str:
    """The answer in *frames*, joined."""
    return "".join(content(item) or "" for item in parsed(frames))


def chat(model: str, text: str = "Hi", **more: Any) -> dict[str, Any]:
    """The body of a streaming request to the OpenAI endpoint; `stream=False` for a JSON answer."""
    return {"model": model, "messages": [{"role": "user", "content": text}], "stream": True, **more}


def messages(model: str, text: str = "Hi", **more: Any) -> dict[str, Any]:
    """The body of a streaming request to the Anthropic endpoint; `stream=False` for a JSON answer."""
    return {"max_tokens": 1024, **chat(model, text), **more}


def _json_or_text(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode("utf-8", "replace")
