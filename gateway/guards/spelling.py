"""How a text is spelled: plainly, or as JSON that comes piece by piece and has to stay JSON under masks."""

from __future__ import annotations

import re
from typing import Protocol

# What stands in JSON for one character, inside of strings; outside of them there are none.
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LITERAL = re.compile(r"[-+.\w]+")
_QUOTE = '"'


class Spelling(Protocol):
    """What a text looks like to guards, and how a mask is written into it. It is shown the newest part alone."""

    def view(self, text: str) -> str:
        """*text* as guards see it: as long as it is."""

    def whole(self, text: str, start: int, end: int) -> tuple[int, int]:
        """The piece from *start* to *end*, and as much beside it as cannot be told from it."""

    def masked(self, text: str, start: int, end: int, mask: str) -> str:
        """What is written for that piece."""

    def forget(self, text: str, end: int) -> int:
        """The beginning of *text* up to *end*, or a little less, is shown no more; how much that is."""


class Plain:
    """A text that says what it means."""

    def view(self, text: str) -> str:
        """The very text."""
        return text

    def whole(self, text: str, start: int, end: int) -> tuple[int, int]:
        """The very piece."""
        return start, end

    def masked(self, text: str, start: int, end: int, mask: str) -> str:
        """The mask."""
        return mask

    def forget(self, text: str, end: int) -> int:
        """Up to a blank, where there is one near: half a word could be taken for what it is not."""
        return text.rfind(" ", end - 64, end) + 1 or end


class QuotedJson:
    """JSON text. A mask inside of a string stands as it is, one for a number becomes a string."""

    def __init__(self) -> None:
        self._inside = 0  # whether the text shown next begins inside of a string

    def view(self, text: str) -> str:
        """Escapes are blanks: no guard shall take the `n` of one for the beginning of a word."""
        return _ESCAPE.sub(_blank, text) if "\\" in text else text

    def whole(self, text: str, start: int, end: int) -> tuple[int, int]:
        """No half of an escape, and no half of a number."""
        view = self.view(text)
        for escape in _ESCAPE.finditer(text):
            if escape.start() >= end:
                break
            if escape.start() < start < escape.end():
                start = escape.start()
            if escape.start() < end < escape.end():
                end = escape.end()
        if not self._is_inside(view, start):
            while start > 0 and _LITERAL.match(text[start - 1]):
                start -= 1
        if not self._is_inside(view, end):
            while end < len(text) and _LITERAL.match(text[end]):
                end += 1
        return start, end

    def masked(self, text: str, start: int, end: int, mask: str) -> str:
        """Quotes and what is between values stay, so that it is JSON still."""
        view = self.view(text)
        inside = self._is_inside(view, start)
        out: list[str] = []
        for at, part in enumerate(view[start:end].split(_QUOTE)):
            if at:
                out.append(_QUOTE)
                inside = not inside
            if part:
                out.append(mask if inside else _LITERAL.sub(f'"{mask}"', part))
        return "".join(out)

    def forget(self, text: str, end: int) -> int:
        """Never half an escape."""
        end = text.rfind(" ", end - 64, end) + 1 or end
        for escape in _ESCAPE.finditer(text):
            if escape.start() < end < escape.end():
                end = escape.start()
            if escape.end() >= end:
                break
        self._inside = self._is_inside(self.view(text), end)
        return end

    def _is_inside(self, view: str, at: int) -> bool:
        return (view.count(_QUOTE, 0, at) + self._inside) % 2 == 1


def _blank(escape: re.Match[str]) -> str:
    return " " * len(escape[0])
