"""Placeholders of a call, and the originals in their place where its answer has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

_PLACEHOLDER = re.compile(r"\[[^\[\]]*\]")


def as_is(original: str) -> str:
    """The spelling of a plain text."""
    return original


def in_json(original: str) -> str:
    """*original* as it stands inside of a JSON string."""
    return msgspec.json.encode(original)[1:-1].decode()


class Restoring:
    """
    One text of an answer, in whatever pieces it comes.

    Args:
        originals: By placeholder, each in brackets with none between them.
        spell: How an original is written into the text.
    """

    __slots__ = ("_held", "_longest", "_originals", "_spell")

    def __init__(self, originals: Mapping[str, str], spell: Callable[[str], str]) -> None:
        self._originals = originals
        self._spell = spell
        self._longest = max(map(len, originals), default=0)
        self._held = ""

    def feed(self, piece: str) -> str:
        """What may leave, now that *piece* has come."""
        text = self._held + piece
        last = text.rfind("[")
        if last < 0:
            return text
        begun = text[last:]
        if len(begun) < self._longest and any(one.startswith(begun) for one in self._originals):
            self._held, text = begun, text[:last]
        else:
            self._held = ""
        return self._restored(text)

    def flush(self) -> str:
        """The text is over: the rest of it."""
        held, self._held = self._held, ""
        return held

    def _restored(self, text: str) -> str:
        return _PLACEHOLDER.sub(self._original, text) if "[" in text else text

    def _original(self, found: re.Match[str]) -> str:
        original = self._originals.get(found[0])
        return found[0] if original is None else self._spell(original)
