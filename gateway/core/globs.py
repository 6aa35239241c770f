"""
Globs: `*` stands for any characters or none, `?` for any one, and every other character for itself.

A text is matched as a whole, in one pass: what a `*` has skipped is never tried again. There are two ways to ask, as
what is allowed has to be meant, and what is denied must not slip through by another spelling.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

MAX_GLOB_CHARS = 256  # twice the longest name that a provider takes

_IGNORED = frozenset(("Cf", "Mn", "Me"))  # zero-width and tag characters, joiners, accents, variation selectors


def is_one_of(text: str, globs: Sequence[str]) -> bool:
    """Whether *text* matches one of *globs* to the letter."""
    return any(_pattern(glob).match(text) is not None for glob in globs)


def is_like_one_of(text: str, globs: Sequence[str]) -> bool:
    """Whether *text* matches one of *globs*, be it only in another case, width or with characters that nobody sees."""
    folded = fold(text)
    if any(_pattern(fold(glob)).match(folded) is not None for glob in globs):
        return True
    return not text.isascii() and is_one_of(text, globs)  # a `?` may be for a character that folds into two


def fold(text: str) -> str:
    """*text* in the spelling that it has in common with those that look or compare like it."""
    if text.isascii():
        return text.lower().strip()
    return "".join(map(_folded, text)).strip()


@lru_cache(maxsize=8192)
def _folded(character: str) -> str:
    """By itself: normalising a whole text sorts its accents, which took 8 s for 200 KB of them (measured)."""
    kept = [one for one in unicodedata.normalize("NFKD", character) if unicodedata.category(one) not in _IGNORED]
    return "".join(kept).casefold()


@lru_cache(maxsize=8192)
def _pattern(glob: str) -> re.Pattern[str]:
    """Each piece behind a `*` is taken where it is found first and given up never: later ones have the more room."""
    first, *pieces = [_piece(piece) for piece in glob.split("*")]
    if not pieces:
        return re.compile(first + r"\Z", re.DOTALL)
    *between, last = pieces
    found = "".join(f"(?>.*?{piece})" for piece in between if piece)
    return re.compile(f"{first}{found}.*{last}\\Z", re.DOTALL)


def _piece(text: str) -> str:
    return "".join("." if character == "?" else re.escape(character) for character in text)
