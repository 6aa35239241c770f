"""What Gemini does not hold an answer to in a JSON schema."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from gateway.wire.values import decode_values

# Keywords that narrow what is valid, and are none of those in Google's reference of `responseJsonSchema`: others are
# accepted there and not looked at.
_UNENFORCED = frozenset(
    {
        "additionalItems", "allOf", "const", "contains", "contentEncoding", "contentMediaType", "dependencies",
        "dependentRequired", "dependentSchemas", "else", "exclusiveMaximum", "exclusiveMinimum", "if", "maxLength",
        "maxProperties", "minLength", "minProperties", "multipleOf", "not", "pattern", "patternProperties",
        "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties", "uniqueItems",
    }
)  # fmt: skip
_MAPS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")  # schemas by name
_DATA = frozenset({"const", "default", "enum", "example", "examples", "required"})  # what looks like one is none


def unenforced(schema: Raw) -> list[str]:
    """The keywords anywhere in *schema* that will not be enforced, sorted. Bounded by the depth of a request's body."""
    found: set[str] = set()
    _collect(decode_values(schema), found)
    return sorted(found)


def _collect(schema: Any, found: set[str]) -> None:
    if isinstance(schema, list):
        for item in schema:
            _collect(item, found)
    if not isinstance(schema, dict):
        return
    found |= _UNENFORCED & schema.keys()
    for name, value in schema.items():
        if name in _MAPS and isinstance(value, dict):
            _collect([*value.values()], found)
        elif name not in _DATA:
            _collect(value, found)
