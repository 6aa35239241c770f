"""Texts in members of an answer that are not known to run on: each is read as a whole, whatever it is a part of.

Left alone is only what is known to be no text: names by which programs find each other, ciphertext, base64, links.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from gateway.dialects.hearing import WORDS
from gateway.guards.screen import Screen
from gateway.wire.values import decode_values

SEALED = frozenset(
    {"signature", "thought_signature", "encrypted_content", "encrypted_index", "encrypted_stdout", "obfuscation"}
)
"""Members whose values nobody reads, and which no other value could stand for."""
# Members whose values are names, or links; one with a blank or an @ in it is none, and is read like all else.
_NAMES = frozenset(
    {"type", "role", "id", "index", "object", "tool_call_id", "tool_use_id", "call_id", "file_id", "container_id",
     "media_type", "mime_type", "format", "status", "url", "uri", "model", "stop_reason", "finish_reason",
     "native_finish_reason"}
)  # fmt: skip
_CODED = frozenset(("base64", "redacted_thinking", "reasoning.encrypted", "compressed"))  # what has `data` in base64
_JSON = frozenset(("arguments", "partial_json"))
_TOLD = WORDS | {"citations", "cited_text", "document_title", "stdout", "stderr", "message", "delta", "stop_sequence"}
_LONG_NUMBER = 9  # characters; shorter ones are nobody's number
_MAY_SPEAK = b'"[{'  # what the JSON of a value with a text in it begins with


class Take(Protocol):
    """
    Given a text of an answer by its name, or a piece of it: what leaves of it.

    Args:
        json: Whether it is JSON, and has to stay that.
        whole: Whether it is known to be no piece.
    """

    def __call__(self, name: str, text: str, *, json: bool = False, whole: bool = False) -> str: ...


class WholeTake:
    """
    Takes the texts of an answer, each of which is here as a whole.

    Args:
        place: What they are a part of, in the words of the API.

    Attributes:
        changed: Whether one of them leaves as another.
    """

    def __init__(self, screen: Screen, place: str) -> None:
        self.changed = False
        self._screen = screen
        self._place = place

    def __call__(self, name: str, text: str, *, json: bool = False, whole: bool = True) -> str:
        """What leaves of *text*."""
        out = self._screen.pass_whole(text, f"{self._place}.{name}".removeprefix("."), json=json)
        self.changed |= out != text
        return out


def is_named(name: str, text: str) -> bool:
    """Whether *text*, the value of a member *name*, is known to be no text."""
    return name in SEALED or (name in _NAMES and "@" not in text and len(text.split(None, 1)) < 2)


def edit_member(owner: Mapping[str, Any], name: str, place: str, take: Take) -> Any:
    """What leaves of the member *name* of *owner*, which stands at *place*."""
    value = owner[name]
    if not isinstance(value, str):
        return edit_value(value, place, take)
    is_coded = name == "data" and owner.get("type") in _CODED
    if not value or is_coded or is_named(name, value):
        return value
    return take(place, value, json=name in _JSON, whole=True)


def edit_value(value: Any, place: str, take: Take) -> Any:
    """What leaves of *value*: its texts, its long numbers and names in it; bodies are bounded in depth, so this is."""
    if isinstance(value, str):
        return take(place, value, whole=True) if value else value
    if isinstance(value, list):
        return [edit_value(one, place, take) for one in value]
    if isinstance(value, dict):
        return {
            name if name in _TOLD else take(place, name, whole=True): edit_member(
                value, name, _beneath(place, name), take
            )
            for name in value
        }
    if isinstance(value, Raw) or type(value) is int:
        spelled = msgspec.json.encode(value).decode()
        if len(spelled) >= _LONG_NUMBER:
            out = take(place, spelled, json=True, whole=True)
            return value if out == spelled else _value_of(out, "")
    return value


def edit_json(value: Any, place: str, take: Take) -> Any:
    """What leaves of *value*, an object that a tool is called with. Raises OverflowError for what cannot be written."""
    spelled = msgspec.json.encode(value).decode()
    out = take(place, spelled, json=True, whole=True)
    return value if out == spelled else _value_of(out, {})


def edit_others(members: Mapping[str, Raw], known: frozenset[str], take: Take) -> dict[str, Any]:
    """What leaves of *members* whose names are not *known*; numbers apart."""
    out = {}
    for name, raw in members.items():
        if name not in known and bytes(raw)[:1] in _MAY_SPEAK:
            out[name] = edit_member({name: decode_values(raw)}, name, _beneath("", name), take)
    return out


def screen_others(members: Mapping[str, Raw], known: frozenset[str], screen: Screen) -> dict[str, Any]:
    """Those of *members*, of a whole answer, whose names are not *known* and which leave as others."""
    take = WholeTake(screen, "")
    others = edit_others(members, known, take)
    return others if take.changed and screen.edits else {}


def _named(name: str, place: str, take: Take) -> str:
    """What leaves of the *name* of a member: one that is no word of the API may be something to be found."""
    return name if name in _TOLD else take(place, name, whole=True)


def _beneath(place: str, name: str) -> str:
    """The place of *name*, which is told only where it is a word of the API."""
    return f"{place}.{name}".removeprefix(".") if name in _TOLD else place or "other"


def _value_of(spelled: str, otherwise: Any) -> Any:
    """What *spelled* is; of an answer that was stopped within it, *otherwise*."""
    try:
        return decode_values(spelled)
    except msgspec.DecodeError:
        return otherwise
