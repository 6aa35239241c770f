"""Content of an OpenAI message: a text or typed parts, read into neutral ones."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Any

from msgspec import structs

from gateway.dialects.neutral import PDF, Document, Image, Notes, Part, Text, ToolCall, ToolResult
from gateway.dialects.openai_prompt_raw import note_others
from gateway.dialects.parts import Placed
from gateway.dialects.pictures import is_public, split_data_url
from gateway.dialects.validate import name_of, refuse, text_of
from gateway.wire.payloads import is_plain

TEXTS = frozenset({"text"})
SPOKEN = frozenset({"text", "refusal"})
DRAWN = frozenset({"image_url"})
SHOWN = frozenset({"text", "image_url", "file"})

_SPELLINGS = {"image/jpg": "image/jpeg"}  # not registered, yet widely written
_TEXTUAL = ("text/", "application/json")


def read_content(content: Any, place: str, allowed: frozenset[str], notes: Notes) -> list[Placed]:
    """
    The parts of *content*, which stands at *place*; empty texts are left out.

    Raises:
        GatewayError: A part of a type that is not *allowed*, or not as documented.
    """
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [Placed(place, Text(content))]
    if not isinstance(content, list):
        raise refuse(place, f"{place} must be a string or a list of parts.")
    read = (_read_part(part, f"{place}[{at}]", allowed, notes) for at, part in enumerate(content))
    return [placed for placed in read if placed is not None]


def read_cache(members: dict[str, Any], place: str, notes: Notes) -> Any:
    """The prompt-caching marker of *members*."""
    marker = members.get("cache_control")
    if marker is not None and not isinstance(marker, dict):
        notes.drop(f"{place}.cache_control")
        return None
    return marker


def mark_last(parts: list[Placed], cache: Any, place: str, notes: Notes) -> None:
    """Put the marker of a whole message on the last of its *parts* that can have one."""
    if cache is None:
        return
    for at in reversed(range(len(parts))):
        part = parts[at].part
        if isinstance(part, Text | Image | Document | ToolCall | ToolResult):
            if part.cache is None:
                parts[at] = Placed(parts[at].place, structs.replace(part, cache=cache))
            return
    notes.drop(f"{place}.cache_control")


def _read_part(part: Any, place: str, allowed: frozenset[str], notes: Notes) -> Placed | None:
    if not isinstance(part, dict):
        raise refuse(place, f"{place} must be an object.")
    kind = part.get("type")
    read = _PARTS.get(kind) if isinstance(kind, str) and kind in allowed else None
    if read is None:
        raise refuse(f"{place}.type", f"{place}: parts here may be {', '.join(sorted(allowed))}.")
    note_others(part, frozenset({"type", str(kind), "cache_control"}), place, notes)
    found = read(part, place, notes)
    return Placed(place, found) if found is not None else None


def _text(part: dict[str, Any], place: str, notes: Notes) -> Part | None:
    text, cache = text_of(part.get("text"), f"{place}.text"), read_cache(part, place, notes)
    if not text and cache is not None:
        notes.drop(f"{place}.cache_control")
    return Text(text, cache) if text else None


def _refusal(part: dict[str, Any], place: str, notes: Notes) -> Part | None:
    text = text_of(part.get("refusal"), f"{place}.refusal")
    return Text(text, read_cache(part, place, notes)) if text else None


def _image(part: dict[str, Any], place: str, notes: Notes) -> Part:
    given, inside = part.get("image_url"), f"{place}.image_url"
    if isinstance(given, str):  # undocumented, and common
        given = {"url": given}
    if not isinstance(given, dict):
        raise refuse(inside, f"{inside} must be an object with a url.")
    note_others(given, frozenset({"url", "detail"}), inside, notes)
    detail, cache = given.get("detail"), read_cache(part, place, notes)
    if detail is not None:
        text_of(detail, f"{inside}.detail")
    url = name_of(given.get("url"), f"{inside}.url")
    if is_public(url):
        return Image(url=url, detail=detail, cache=cache)
    media_type, data = _data_url(url, f"{inside}.url")
    if not media_type.startswith("image/"):
        raise refuse(f"{inside}.url", f"{inside}.url: the data is not declared as an image.")
    return Image(media_type=media_type, data=data, detail=detail, cache=cache)


def _file(part: dict[str, Any], place: str, notes: Notes) -> Part:
    given, inside = part.get("file"), f"{place}.file"
    if not isinstance(given, dict):
        raise refuse(inside, f"{inside} must be an object.")
    if given.get("file_data") is None and given.get("file_id") is not None:
        raise refuse(f"{inside}.file_id", f"{inside}.file_id is known to one provider only; send file_data instead.")
    note_others(given, frozenset({"file_data", "file_id", "filename"}), inside, notes)
    url, cache = name_of(given.get("file_data"), f"{inside}.file_data"), read_cache(part, place, notes)
    name = text_of(given.get("filename") or "", f"{inside}.filename") or None
    if is_public(url):
        return Document(url=url, name=name, cache=cache)
    media_type, data = _data_url(url, f"{inside}.file_data")
    if media_type.startswith("image/"):
        return Image(media_type=media_type, data=data, cache=cache)
    if media_type == PDF:
        return Document(media_type=PDF, data=data, name=name, cache=cache)
    if not media_type.startswith(_TEXTUAL):
        raise refuse(f"{inside}.file_data", f"{inside}.file_data may be a PDF, a text or an image.")
    return Document(media_type="text/plain", data=_decoded(data, f"{inside}.file_data"), name=name, cache=cache)


def _data_url(url: str, place: str) -> tuple[str, str]:
    """Media type and base64 of a data URL. Raises GatewayError for anything else."""
    media_type, data = split_data_url(url, place)
    bare = data.encode().rstrip(b"=")
    if not bare or not is_plain(bare):
        raise refuse(place, f"{place}: the data is not valid base64.")
    return _SPELLINGS.get(media_type, media_type), data


def _decoded(data: str, place: str) -> str:
    try:
        text = b64decode(data).decode()
    except ValueError:
        raise refuse(place, f"{place}: the data is no text in UTF-8.") from None
    if not text.strip():
        raise refuse(place, f"{place} is empty.")
    return text


_PARTS: dict[str, Callable[[dict[str, Any], str, Notes], Part | None]] = {
    "text": _text,
    "refusal": _refusal,
    "image_url": _image,
    "file": _file,
}
