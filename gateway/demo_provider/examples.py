"""Arguments for a tool call, made up from the tool's JSON schema."""

from __future__ import annotations

from typing import Any

_FORMATS = {
    "date": "2026-08-17",
    "date-time": "2026-08-17T10:00:00+07:00",
    "time": "10:00:00+07:00",
    "email": "sari@example.com",
    "uri": "https://example.com/",
    "uuid": "8c6f4f4e-3d0b-4c55-9a60-0f1f0c4f2d11",
}
_PLACES = ("city", "location", "place", "kota")
_MAX_LENGTH = 1000  # of a string: a demo need not write a novel because a schema asks for one
_MAX_DEPTH = 8  # schemas may refer to themselves


def example(schema: Any, root: Any, name: str = "", depth: int = 0) -> Any:
    """A value that fits the JSON *schema* of the member *name*; *root* is where its references point."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return {} if depth == 0 else "example"
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    if "$ref" in schema:
        return example(_resolved(str(schema["$ref"]), root), root, name, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return example(schema[key][0], root, name, depth + 1)
    kinds = schema.get("type", "object" if depth == 0 or "properties" in schema else "string")
    kind = next((kind for kind in kinds if kind != "null"), "null") if isinstance(kinds, list) else kinds
    return _example_of(kind, schema, root, name, depth=depth)


def _example_of(kind: str, schema: dict[str, Any], root: Any, name: str, *, depth: int) -> Any:
    if kind == "object":
        members = schema.get("properties")
        members = members if isinstance(members, dict) else {}
        required = schema.get("required")
        wanted = required if isinstance(required, list) and required else list(members)
        return {str(member): example(members.get(member), root, str(member), depth + 1) for member in wanted}
    if kind == "array":
        count = min(max(1, int(_number(schema, "minItems", 1))), 16)  # enough for any sensible tuple
        return [example(schema.get("items"), root, name, depth + 1) for _ in range(count)]
    if kind in ("integer", "number"):
        least = _number(schema, "minimum", _number(schema, "exclusiveMinimum", 0) + 1)
        value = min(least, _number(schema, "maximum", least))
        return int(value) if kind == "integer" else value
    if kind == "string":
        text = _FORMATS.get(str(schema.get("format")), "Jakarta" if name.lower() in _PLACES else "example")
        return text.ljust(_length(schema, "minLength", 0), "x")[: _length(schema, "maxLength", _MAX_LENGTH)]
    return True if kind == "boolean" else None


def _number(schema: dict[str, Any], key: str, fallback: float) -> float:
    value = schema.get(key)
    return value if isinstance(value, int | float) else fallback


def _length(schema: dict[str, Any], key: str, fallback: int) -> int:
    return min(max(0, int(_number(schema, key, fallback))), _MAX_LENGTH)


def _resolved(reference: str, root: Any) -> Any:
    for step in reference.removeprefix("#/").split("/"):
        root = root.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(root, dict) else None
    return root
