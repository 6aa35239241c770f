"""Indices for the tool calls of a stream whose provider gives none: by them a client puts a call's pieces together."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.dialects.openai_chunk import tool_calls
from gateway.wire.values import decode_values


class ToolIndices:
    """
    Counts the tool calls of each choice from 0.

    A piece without an index belongs to the call with its id. Where it has no id it begins another one if it has a name,
    and else it is the last one's.
    """

    def __init__(self) -> None:
        self._calls: dict[int, dict[object, int]] = {}  # by choice and id, or a thing of its own where there is none

    def fill(self, payload: bytes) -> bytes:
        """
        *payload*, which has choices, with an index in every tool call.

        Raises:
            msgspec.DecodeError, OverflowError, RecursionError: It cannot be written again.
        """
        chunk = decode_values(payload)
        for choice, call in tool_calls(chunk):
            if type(call.get("index")) is not int:
                call["index"] = self._index_of(self._calls.setdefault(choice, {}), call)
        return msgspec.json.encode(chunk)

    def _index_of(self, calls: dict[object, int], call: dict[str, Any]) -> int:
        function, given = call.get("function"), call.get("id")
        call_id = given if isinstance(given, str) and given else None
        if call_id is None and calls and not (isinstance(function, dict) and function.get("name")):
            return len(calls) - 1
        return calls.setdefault(call_id or object(), len(calls))
