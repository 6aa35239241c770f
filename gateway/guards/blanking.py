"""What engines take out of a text before they look at it: what was found there already, or masked before."""

from __future__ import annotations

import re
from collections.abc import Sequence

FOUND = "\0"
"""Stands for each character of what was found, or masked before: none of it is looked at again."""

# As the gateway writes in place of what it masks.
_PLACEHOLDER = re.compile(r"\[[A-Z][A-Z_]{1,40}_[0-9]{1,9}\]")


def blank_placeholders(text: str) -> str:
    """*text* without what the gateway masked in it: to mask it again changes nothing."""
    return blank(_PLACEHOLDER, text, FOUND) if "[" in text and "_" in text else text


def placeholders_in(text: str) -> set[str]:
    """Whatever in *text* looks like something that the gateway masked."""
    return set(_PLACEHOLDER.findall(text)) if "[" in text and "_" in text else set()


def blank(shape: re.Pattern[str], text: str, char: str) -> str:
    """*text* with *char* for every character that is in a *shape*."""
    return shape.sub(lambda found: char * len(found[0]), text)


def blank_spans(text: str, spans: Sequence[tuple[int, int]], char: str) -> str:
    """*text* with *char* all over *spans*, which are in order and do not overlap."""
    pieces, last = [], 0
    for start, end in spans:
        pieces += [text[last:start], char * (end - start)]
        last = end
    return "".join([*pieces, text[last:]])
