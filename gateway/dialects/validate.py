"""A client's body read into typed facts, with refusals that name the field."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from gateway.core.errors import INVALID_REQUEST, GatewayError
from gateway.wire.body import BadBody, BodyLimits, parse_object
from gateway.wire.headers import MAX_ID_CHARS, clean_text

T = TypeVar("T")

LIMITS = BodyLimits()
# OpenAI's API reference, `metadata`: so many pairs of strings, with names and values of so many characters.
MAX_METADATA = 16
Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=MAX_METADATA)
]
_PLACE = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`$")
_JSON_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_MISSING = re.compile(r"required field `([^`]+)`")
_QUOTED = re.compile(r"`[^`]*`")
_TYPE = re.compile(rf"\b(?:{'|'.join(_JSON_TYPES)})\b")


def read_members(body: bytes) -> dict[str, msgspec.Raw]:
    """The top-level members of *body*. Raises GatewayError (400) when it is no acceptable JSON object."""
    try:
        return parse_object(body, LIMITS)
    except BadBody as exc:
        raise GatewayError(INVALID_REQUEST, exc.message, param=exc.param) from exc


def _in_json(found: re.Match[str]) -> str:
    return _JSON_TYPES[found[0]]


def read_facts(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """*body* as the facts that *decoder* knows. Raises GatewayError (400) with `param` naming the field."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as exc:
        raise GatewayError(INVALID_REQUEST, _sentence(str(exc)), param=_param(str(exc))) from exc


def refuse(param: str, message: str) -> GatewayError:
    """A 400 about *param*."""
    return GatewayError(INVALID_REQUEST, message, param=param)


def refuse_members(members: Container[str], reasons: Mapping[str, str]) -> None:
    """Raise GatewayError for the first of *reasons* that is about one of *members*."""
    for name, why in reasons.items():
        if name in members:
            raise refuse(name, f"{name}: {why}")


def text_of(value: object, place: str) -> str:
    """*value* if it is a string. Raises GatewayError for anything else, as those that follow do."""
    if not isinstance(value, str):
        raise refuse(place, f"{place} must be a string.")
    return value


def name_of(value: object, place: str) -> str:
    """*value* if it is a string with something in it."""
    if not isinstance(value, str) or not value:
        raise refuse(place, f"{place} must be a string that is not empty.")
    return value


def boolean_of(value: object, place: str) -> bool:
    """*value* if it is true or false."""
    if not isinstance(value, bool):
        raise refuse(place, f"{place} must be true or false.")
    return value


def check_metadata(metadata: Mapping[str, object] | None) -> None:
    """At most `MAX_METADATA` keys, as documented."""
    if metadata is not None and len(metadata) > MAX_METADATA:
        raise refuse("metadata", f"metadata may have at most {MAX_METADATA} keys.")


def read_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """*metadata* fit for logs and stores."""
    if not metadata:
        return {}
    return {clean_text(name, len(name)): clean_text(value, len(value)) for name, value in metadata.items()}


def read_id(value: object) -> str | None:
    """The name of an answer, fit for logs and stores; None when it is no text, or an empty one."""
    return clean_text(value, MAX_ID_CHARS) or None if isinstance(value, str) else None


def read_user(value: object) -> str | None:
    """Who the caller says it acts for, fit for logs and stores; None when it is no text."""
    return clean_text(value, MAX_ID_CHARS) if isinstance(value, str) else None


def _param(text: str) -> str | None:
    """The member at fault: the place that is named, and in it the member that is missing."""
    found = _PLACE.search(text), _MISSING.search(text)
    return ".".join(part[1] for part in found if part is not None and part[1]) or None


def _sentence(text: str) -> str:
    param = _param(text)
    if _MISSING.search(text) is not None:
        return f"{param}: This field is required."
    what = _QUOTED.sub(lambda quoted: _TYPE.sub(_in_json, quoted[0]), _PLACE.sub("", text).rstrip("."))
    return f"{param}: {what}." if param and f"`{param}`" not in what else f"{what}."
