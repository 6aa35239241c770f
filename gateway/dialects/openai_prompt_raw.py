"""Members of a client's call as the types they are documented with, or refused by name."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from gateway.dialects.neutral import Notes
from gateway.dialects.validate import boolean_of, refuse, text_of
from gateway.wire.values import decode_members, decode_values

_objects = msgspec.json.Decoder(list[dict[str, Raw]])
_DIGITS = b"-0123456789"
_NULL = b"null"


def is_null(raw: Raw) -> bool:
    """Whether it is null, without a copy of what may be megabytes."""
    return len(memoryview(raw)) == len(_NULL) and bytes(raw) == _NULL


def as_text(raw: Raw, place: str) -> str:
    """A string. Raises GatewayError for anything else, as all here do."""
    return text_of(decode_values(raw), place)


def as_boolean(raw: Raw, place: str) -> bool:
    """True or false."""
    return boolean_of(decode_values(raw), place)


def as_integer(raw: Raw, place: str) -> int:
    """A number without fraction, of 1 or more."""
    value = decode_values(raw)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise refuse(place, f"{place} must be an integer of 1 or more.")
    return value


def as_number(raw: Raw, place: str) -> float:
    """Any number; only to compare with, since the literal is what is passed on."""
    if memoryview(raw)[0] not in _DIGITS:
        raise refuse(place, f"{place} must be a number.")
    return float(bytes(raw))


def as_object(raw: Raw, place: str) -> dict[str, Raw]:
    """The members of an object that are not null."""
    try:
        members = decode_members(raw)
    except msgspec.DecodeError:
        raise refuse(place, f"{place} must be an object.") from None
    return {name: value for name, value in members.items() if not is_null(value)}


def as_objects(raw: Raw, place: str) -> list[dict[str, Raw]]:
    """Objects in a list."""
    try:
        return _objects.decode(raw)
    except msgspec.DecodeError:
        raise refuse(place, f"{place} must be a list of objects.") from None


def as_schema(raw: Raw | None, place: str) -> Raw | None:
    """An object, untouched."""
    if raw is not None and memoryview(raw)[0] != ord("{"):
        raise refuse(place, f"{place} must be an object.")
    return raw


def says_nothing(value: Any) -> bool:
    """Whether a member may be left out without a word: null, false, or empty."""
    return value is None or value is False or value in ("", [], {})


def note_others(members: dict[str, Any], known: frozenset[str], place: str, notes: Notes) -> None:
    """Note as dropped what *members* has beside those *known*; *place* is "" at the top."""
    for name, value in members.items():
        if name not in known and not says_nothing(value):
            notes.drop(f"{place}.{name}" if place else name)


def note_other_members(members: dict[str, Raw], known: frozenset[str], place: str, notes: Notes) -> None:
    """The same for members that are still bytes."""
    note_others({n: decode_values(raw) for n, raw in members.items() if n not in known}, known, place, notes)
