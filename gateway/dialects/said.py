"""What an answer says in words, out of the frames or the body that a client gets."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from gateway.wire.values import decode_values

# Members of either dialect whose strings a reader would see, or a tool be called by, wherever they stand.
_WORDS = frozenset(
    ("content", "text", "thinking", "reasoning_content", "reasoning", "refusal", "partial_json", "arguments")
)
_NAME = "name"  # of a tool that is called: it begins a line
_INPUT = "input"  # of one that is called in a whole message
_NOT_SAID = frozenset(("_anoman", "usage", "error", "id", "model"))


class Said:
    """
    The words of one answer, as they come.

    Args:
        most_chars: What is kept of them; what follows is left out.
    """

    def __init__(self, most_chars: int) -> None:
        self._parts: list[str] = []
        self._left = most_chars

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def hear(self, frames: bytes) -> None:
        """Note what whole *frames* say: ours, each with its data on one line."""
        for line in frames.split(b"\n"):
            if self._left > 0 and line.startswith(b"data: {"):
                self.read(line[len(b"data: ") :])

    def read(self, body: bytes) -> None:
        """Note what a JSON object says."""
        try:
            self._look(decode_values(body))
        except (msgspec.DecodeError, RecursionError):
            pass  # a provider's own words that nobody has looked at: nothing of it can be told

    def _look(self, value: Any) -> None:
        if isinstance(value, list):
            for item in value:
                self._look(item)
        elif isinstance(value, dict):
            for name, member in value.items():
                self._take(name, member)

    def _take(self, name: str, member: Any) -> None:
        if name in _NOT_SAID:
            return
        if isinstance(member, str):
            if name in _WORDS:
                self._add(member)
            elif name == _NAME and member:
                self._add(f"\n{member} ")
        elif name == _INPUT and isinstance(member, dict):
            if member:
                self._add(msgspec.json.encode(member).decode())
        elif not isinstance(member, Raw):
            self._look(member)

    def _add(self, text: str) -> None:
        kept = text[: max(0, self._left)]
        if kept:
            self._parts.append(kept)
            self._left -= len(kept)
