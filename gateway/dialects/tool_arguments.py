"""The JSON text of a tool call's arguments: whether it is whole yet, and what can be read of one that is not."""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

from gateway.dialects.lane import MAX_EVENT_STRUCTURAL
from gateway.wire.body import MAX_DEPTH, nested_deeper, structural
from gateway.wire.values import decode_values

# A string up to its closing quote or to the end, or what says where an object can be cut: possessive, and never failing
# once it has a quote, so linear.
_MARK = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}\[\],]', re.DOTALL)
_CLOSING = {"{": "}", "[": "]"}


class ArgumentText:
    """
    How far an object has come whose text arrives in pieces.

    Only brackets outside strings are counted, in time linear in the text and without a step per character: text that is
    no JSON is called whole when its brackets match, which costs nobody anything.
    """

    __slots__ = ("_depth", "_escape", "_in_string", "whole")

    def __init__(self) -> None:
        self._depth = 0
        self._escape = ""  # a backslash whose character is still to come
        self._in_string = False
        self.whole = False

    def add(self, text: str) -> None:
        """Take the next piece, from the object's opening brace on."""
        text = (self._escape + text).replace("\\\\", "")  # pairs first: what is left escapes what follows it
        self._escape = "\\" if text.endswith("\\") else ""
        segments = text.replace('\\"', "").split('"')
        outside = "".join(segments[self._in_string :: 2])
        self._in_string ^= len(segments) % 2 == 0
        self._depth += outside.count("{") + outside.count("[") - outside.count("}") - outside.count("]")
        self.whole = self._depth <= 0 and not self._in_string


def is_object(text: str) -> bool:
    """Whether *text* is the JSON of an object, within the bounds that an event's own JSON has."""
    data = text.encode()
    if structural(data, MAX_EVENT_STRUCTURAL) > MAX_EVENT_STRUCTURAL or nested_deeper(data, MAX_DEPTH):
        return False
    try:
        return isinstance(decode_values(data), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def read_object(text: str) -> Raw:
    """*text* as an object, untouched where it is one; of one that was cut off, the members that are whole."""
    if is_object(text):
        return Raw(text.encode())
    cut = _cut(text) if text.lstrip()[:1] == "{" else ""
    return Raw(cut.encode()) if cut and is_object(cut) else Raw(b"{}")


def _cut(text: str) -> str:
    """*text* up to the last place behind a whole member or element, with what is open there closed; "" for too much."""
    if structural(text.encode(), MAX_EVENT_STRUCTURAL) > MAX_EVENT_STRUCTURAL:
        return ""
    open_: list[str] = []
    at, closing = 0, ""
    for found in _MARK.finditer(text):
        mark = found[0]
        if mark in _CLOSING:
            open_.append(_CLOSING[mark])
        elif mark in ("}", "]") and open_:
            open_.pop()
        elif mark != ",":
            continue
        if len(open_) > MAX_DEPTH:
            return ""
        at, closing = (found.start() if mark == "," else found.end()), "".join(reversed(open_))
    return text[:at] + closing
