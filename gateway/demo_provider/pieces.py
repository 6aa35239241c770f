"""The demo provider's own tokens: at most six letters, or one sign. They set the pace, and usage counts them."""

from __future__ import annotations

import re

_PIECE = re.compile(r"\s*\w{1,6}|\s*[^\w\s]|\s+")


def pieces_of(text: str) -> list[str]:
    """*text* cut into tokens; joined they are *text* again."""
    return _PIECE.findall(text)
