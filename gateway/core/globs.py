"""
Globs: `*` stands for any characters or none, `?` for any one, and every other character for itself.

A text is matched as a whole, in one pass: what a `*` has skipped is never tried again. There are two ways to ask, as
what is allowed has to be meant, and what is denied must not slip through by another spelling.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

MAX_GLOB_CHARS = 256  # twice the longest name that a provider takes

_IGNORED = frozenset(("Cf", "Mn", "Me"))  # zero-width and tag characters, joiners, accents, variation selectors


def is_one_of(text: str, globs: tuple[str, ...]) -> bool:
    """Whether *text* matches one of *globs* to the letter."""
    return _pattern(globs).match(text) is not None


def is_like_one_of(text: str, globs: tuple[str, ...]) -> bool:
    """Whether *text* matches one of *globs*, be it only in another case, width or with characters that nobody sees."""
    if _pattern(_all_folded(globs)).match(fold(text)) is not None:
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


@lru_cache(maxsize=1024)
def _all_folded(globs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(fold, globs))


@lru_cache(maxsize=1024)
def _pattern(globs: tuple[str, ...]) -> re.Pattern[str]:
    """Of none of them, one that matches nothing."""
    return re.compile("|".join(map(_one, globs)) or r"(?!)", re.DOTALL)


def _one(glob: str) -> str:
    """Each piece behind a `*` is taken where it is found first and never given up: later ones have the more room."""
    first, *pieces = [_piece(piece) for piece in glob.split("*")]
    if not pieces:
        return rf"{first}\Z"
    *between, last = pieces
    found = "".join(f"(?>.*?{piece})" for piece in between if piece)
    return rf"{first}{found}.*{last}\Z"


def _piece(text: str) -> str:
    return "".join("." if character == "?" else re.escape(character) for character in text)
