"""Bodies of the admin API: JSON objects, read strictly, and problems told by the name of the field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from gateway.core.errors import INVALID_REQUEST, GatewayError
from gateway.wire.body import BadBody, BodyLimits, parse_object
from gateway.wire.values import decode_values

T = TypeVar("T")

_LIMITS = BodyLimits(max_depth=16, max_structural=10_000)  # a policy nests six deep
_FIELD = re.compile(r"`([^`]*)`")
_PLACE = re.compile(r" - at `\$\.?([^`]*)`\Z")
_MISSING = "Object missing required field"
_WRONG_KIND = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_KINDS = {
    "str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false", "null": "null",
    "array": "a list", "object": "an object",
}  # fmt: skip
_UNKNOWN = "Object contains unknown field"


def read_fields(body: bytes) -> Mapping[str, object]:
    """
    The members of the JSON object *body*; none of no body.

    Raises:
        GatewayError: It is none, or can be read in two ways (`wire.body.parse_object`).
    """
    if not body:
        return {}
    try:
        parse_object(body, _LIMITS)
    except BadBody as exc:
        raise GatewayError(INVALID_REQUEST, exc.message, param=exc.param) from None
    fields: Mapping[str, object] = decode_values(body)
    return fields


def read_as(form: type[T], fields: Mapping[str, object]) -> T:
    """
    *fields* as *form*, a `msgspec.Struct` that forbids unknown fields.

    Raises:
        GatewayError: They do not fit; `param` names the field at fault, as in `budgets[0].period`.
    """
    try:
        return msgspec.convert(fields, form)
    except msgspec.ValidationError as exc:
        raise _told(str(exc)) from None


def _expected(kinds: str) -> str:
    """Such as `a text or null`, of the library's `str | null`."""
    return " or ".join(_KINDS.get(kind, kind) for kind in kinds.split(" | "))


def _told(problem: str) -> GatewayError:
    """The library's *problem*, such as "Expected `int`, got `str` - at `$.budgets[0].usd`"."""
    found = _PLACE.search(problem)
    place = found[1] if found else ""
    text = problem[: found.start()] if found else problem
    name = _FIELD.search(text)
    if name is not None and text.startswith((_MISSING, _UNKNOWN)):
        place = f"{place}.{name[1]}".lstrip(".")
        text = "is missing" if text.startswith(_MISSING) else "is not a field of this request"
    if wrong := _WRONG_KIND.fullmatch(text):
        text = f"this is {_KINDS.get(wrong[2], wrong[2])} where {_expected(wrong[1])} is expected"
    elif place.endswith(".usd") and name is not None:
        text = f"{text}; its name is limit_usd"
    param = place if place.isascii() and place.isprintable() and 0 < len(place) <= 128 else None
    return GatewayError(INVALID_REQUEST, f"{param or 'The body'}: {text}.", param=param)
