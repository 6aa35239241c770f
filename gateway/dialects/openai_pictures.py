"""Pictures of chat completions: `image_url` parts, and files that are pictures, in messages of every role.

What an assistant drew stands in its message's `images`, as OpenRouter's guide to image generation has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.dialects.pictures import Picture, Pictures, is_public, split_data_url
from gateway.dialects.validate import name_of, refuse
from gateway.wire.splice import Path

_IMAGE_FILE = "data:image/"
_SHOWN = ("content",)
_SPOKEN = (*_SHOWN, "images")


def find(messages: Any) -> list[Picture]:
    """See `Pictures`."""
    return [
        picture
        for at, message in enumerate(messages)
        for member in _members(message)
        for position, part in enumerate(message[member])
        for picture in _pictures(part, (at, member, position), f"messages[{at}].{member}[{position}]")
    ]


def spell(media_type: str, data: str) -> str:
    """See `Pictures`: a data URL."""
    return f"data:{media_type};base64,{data}"


def claim(picture: Picture, media_type: str) -> tuple[Path, object]:
    """See `Pictures`."""
    return picture.path, spell(media_type, picture.data or "")


def _members(message: Any) -> list[str]:
    """The members of *message* that are lists of parts."""
    if not isinstance(message, dict):
        return []
    names = _SPOKEN if message.get("role") == "assistant" else _SHOWN
    return [name for name in names if isinstance(message.get(name), list)]


def _pictures(part: Any, path: Path, place: str) -> Iterator[Picture]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "image_url":
        given, inside = part.get("image_url"), f"{place}.image_url"
        if isinstance(given, str):  # undocumented, and common
            yield _picture(given, (*path, "image_url"), inside)
        elif isinstance(given, dict):
            yield _picture(given.get("url"), (*path, "image_url", "url"), f"{inside}.url")
        else:
            raise refuse(inside, f"{inside} must be an object with a url.")
    elif kind == "file" and isinstance(part.get("file"), dict):
        data = part["file"].get("file_data")
        if isinstance(data, str) and data[: len(_IMAGE_FILE)].lower() == _IMAGE_FILE:
            yield _picture(data, (*path, "file", "file_data"), f"{place}.file.file_data")


def _picture(url: Any, path: Path, place: str) -> Picture:
    url = name_of(url, place)
    if is_public(url):
        return Picture(place, path, url=url)
    media_type, data = split_data_url(url, place)
    return Picture(place, path, media_type=media_type, data=data)


PICTURES = Pictures(find, spell, claim)
