"""Arguments of tool calls in an OpenAI call: JSON inside strings, which the bound of the body does not see."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.core.errors import GatewayError
from gateway.dialects.validate import LIMITS, refuse, text_of
from gateway.wire.body import nested_deeper, structural
from gateway.wire.values import decode_values

NONE = "{}"


class ArgumentReader:
    """Reads the arguments of one conversation, which all together may have as many elements as a body."""

    def __init__(self) -> None:
        self._elements_left = LIMITS.max_structural

    def read(self, arguments: Any, place: str) -> str:
        """The JSON text of an object, as it was sent. Raises GatewayError for any other, or for too much of it."""
        text = text_of(arguments if arguments is not None else "", place)
        if not text.strip():
            return NONE  # a call without arguments often has none at all
        encoded = text.encode()
        if structural(encoded, LIMITS.max_structural) > LIMITS.max_structural:
            raise _too_much(place)
        if nested_deeper(encoded, LIMITS.max_depth):
            raise _too_much(place)
        try:
            root = decode_values(encoded)
        except (msgspec.DecodeError, RecursionError):
            root = None
        if not isinstance(root, dict):
            raise refuse(place, f"{place} must be the JSON text of an object.")
        self._elements_left -= _elements(root)
        if self._elements_left < 0:
            raise _too_much(place)
        return text


def _too_much(place: str) -> GatewayError:
    return refuse(place, f"{place}: the arguments have too many JSON elements, or are nested too deeply.")


def _elements(root: dict[str, Any]) -> int:
    """Members and items under *root*, and what holds them."""
    count = 0
    level: list[Any] = [root]
    while level:
        below: list[Any] = []
        for node in level:
            count += len(node) + 1
            children = node.values() if isinstance(node, dict) else node
            below += [child for child in children if isinstance(child, dict | list)]
        level = below
    return count
