"""Pictures of messages: `image` blocks in turns, in results of tools and in documents that are made of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.dialects.pictures import Picture, Pictures, is_public
from gateway.dialects.validate import name_of, refuse
from gateway.wire.splice import Path


def find(messages: Any) -> list[Picture]:
    """See `Pictures`."""
    return [
        picture
        for at, message in enumerate(messages)
        if isinstance(message, dict)
        for picture in _inside(message.get("content"), (at, "content"), f"messages[{at}].content")
    ]


def spell(media_type: str, data: str) -> dict[str, str]:
    """See `Pictures`: a `source`."""
    return {"type": "base64", "media_type": media_type, "data": data}


def claim(picture: Picture, media_type: str) -> tuple[Path, object]:
    """See `Pictures`."""
    return (*picture.path, "media_type"), media_type


def _inside(content: Any, path: Path, place: str) -> Iterator[Picture]:
    """Those of *content*, if it is made of blocks. The depth is the body's, which is bounded."""
    for position, block in enumerate(content if isinstance(content, list) else ()):
        if isinstance(block, dict):
            yield from _pictures(block, (*path, position), f"{place}[{position}]")


def _pictures(block: dict[str, Any], path: Path, place: str) -> Iterator[Picture]:
    kind, source = block.get("type"), block.get("source")
    if kind == "image":
        yield _picture(source, (*path, "source"), f"{place}.source")
    elif kind == "tool_result":
        yield from _inside(block.get("content"), (*path, "content"), f"{place}.content")
    elif kind == "document" and isinstance(source, dict) and source.get("type") == "content":
        yield from _inside(source.get("content"), (*path, "source", "content"), f"{place}.source.content")


def _picture(source: Any, path: Path, place: str) -> Picture:
    kind = source.get("type") if isinstance(source, dict) else None
    if not isinstance(kind, str):
        raise refuse(place, f"{place} must be an object with a type.")
    if kind == "url":
        url = name_of(source.get("url"), f"{place}.url")
        if not is_public(url):
            raise refuse(f"{place}.url", f"{place}.url must be an https URL.")
        return Picture(f"{place}.url", path, url=url)
    if kind == "base64":
        media_type, data = (name_of(source.get(name), f"{place}.{name}") for name in ("media_type", "data"))
        return Picture(f"{place}.data", path, media_type=media_type.lower(), data=data)
    return Picture(place, path)  # uploaded before, or of a type to come


PICTURES = Pictures(find, spell, claim)
