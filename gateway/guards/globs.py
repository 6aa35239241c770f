"""
Globs: `*` stands for any characters or none, `?` for any one, and every other character for itself.

A text is matched as a whole, in one pass: what a `*` has skipped is never tried again. There are two ways to ask, as
what is allowed has to be meant, and what is denied must not slip through by another spelling.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gateway.guards.folding import fold

MAX_GLOB_CHARS = 256  # twice the longest name that a provider takes


def is_one_of(text: str, globs: tuple[str, ...]) -> bool:
    """Whether *text* matches one of *globs* to the letter."""
    return _pattern(globs).match(text) is not None


def is_like_one_of(text: str, globs: tuple[str, ...]) -> bool:
    """Whether *text* matches one of *globs*, be it only in another case, or dressed otherwise."""
    if _pattern(_all_folded(globs)).match(in_any_spelling(text)) is not None:
        return True
    return not text.isascii() and is_one_of(text, globs)  # a `?` may be for a character that folds into two


def in_any_spelling(text: str) -> str:
    """*text* in the spelling that it has in common with all that look or compare like it."""
    return fold(text).text.strip()


@lru_cache(maxsize=1024)
def _all_folded(globs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(in_any_spelling, globs))


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
