"""A client's body read into typed facts, with refusals that name the field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from gateway.core.errors import INVALID_REQUEST, GatewayError
from gateway.wire.body import BadBody, BodyLimits, parse_object

T = TypeVar("T")

LIMITS = BodyLimits()
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")


def read_members(body: bytes) -> dict[str, msgspec.Raw]:
    """The top-level members of *body*. Raises GatewayError (400) when it is no acceptable JSON object."""
    try:
        return parse_object(body, LIMITS)
    except BadBody as exc:
        raise GatewayError(INVALID_REQUEST, exc.message, param=exc.param) from exc


def read_facts(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """*body* as the facts that *decoder* knows. Raises GatewayError (400) with `param` naming the field."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as exc:
        raise GatewayError(INVALID_REQUEST, _sentence(str(exc)), param=_param(str(exc))) from exc


def refuse(param: str, message: str) -> GatewayError:
    """A 400 about *param*."""
    return GatewayError(INVALID_REQUEST, message, param=param)


def check_metadata(metadata: Mapping[str, object] | None) -> None:
    """At most 16 keys, as documented."""
    if metadata is not None and len(metadata) > 16:
        raise refuse("metadata", "metadata may have at most 16 keys.")


def _param(text: str) -> str | None:
    place = _PLACE.search(text)
    if place is not None:
        return place.group(1) or None
    missing = re.search(r"required field `([^`]+)`", text)
    return missing.group(1) if missing else None


def _sentence(text: str) -> str:
    param = _param(text)
    what = _PLACE.sub("", text).rstrip(".")
    return f"{param}: {what}." if param and param not in what else f"{what}."
