"""A text in pieces of about a sentence, which are looked at by themselves: what surrounds an attack dilutes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST = 320
"""Characters. Of the attacks written by hand all but a few fit into one piece, the rest into two, read together."""

_SHORTEST = 40
_NEAR = 24
# Whatever repeats here is bounded, or ends where something else begins.
_ENDS = re.compile(r"""[.!?。！？]["'”’)\]]{0,3}\s{1,9}|\n[ \t]{0,40}\n|\n[ \t]{0,40}[-*#>|<{\[/"]|</?[^<>]{1,40}>""")
_BLOCK = 65_536


def cut(text: str) -> Iterator[tuple[int, int]]:
    """Where the pieces of *text* begin and end. They leave nothing out, and none is longer than `LONGEST`."""
    start = 0
    for block in range(0, len(text), _BLOCK):
        for found in _ENDS.finditer(text[block : block + _BLOCK]):
            end = block + (found.start() + 1 if found.group()[0] == "\n" else found.end())
            if end - start >= _SHORTEST:
                yield from _shortened(text, start, end)
                start = end
        while len(text) > block + _BLOCK and block + _BLOCK - start > 2 * LONGEST:
            end = _last_space(text, start)
            yield start, end
            start = end
    if start < len(text):
        yield from _shortened(text, start, len(text))


def _shortened(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while end - start > LONGEST:
        middle = _last_space(text, start)
        yield start, middle
        start = middle
    yield start, end


def _last_space(text: str, start: int) -> int:
    at = text.rfind(" ", start + LONGEST - _NEAR, start + LONGEST)
    return at + 1 if at > 0 else start + LONGEST
