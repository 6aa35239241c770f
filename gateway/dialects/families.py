"""What a family of models makes of text and pictures, as far as our own counts need to know it.

Providers count for themselves; ours stand in for a count that did not come, and answer for providers that have none.
There is one vocabulary for all, and a factor for each family: a second one takes 50 to 100 MB and up to 0.7 s to load
(measured), and the families that matter most publish none.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec import Struct

UNKNOWN_PX = 1024  # each side of a picture that is only linked, or whose header we cannot read: a choice

ImageTokens = Callable[[int, int, str], int]
"""Tokens of a picture by its width and height in pixels, and by the detail that was asked for; "" where none was."""


_ANY_PX = 2**32  # no header can say more


def by_grid(edge_px: int, each: float, most: int, extra: int = 0, *, longest_px: int = _ANY_PX) -> ImageTokens:
    """
    *each* for every square of *edge_px* that the picture covers, *most* at the most, and for *extra* ones.

    Args:
        longest_px: What the picture is shrunk to on its longer side before.
    """

    def tokens(width: int, height: int, detail: str) -> int:
        scale = min(1.0, longest_px / max(width, height))
        squares = math.ceil(width * scale / edge_px) * math.ceil(height * scale / edge_px)
        return math.ceil((min(most, squares) + extra) * each)

    return tokens


def by_tiles(base: int, each: int) -> ImageTokens:
    """
    *base*, and *each* for every tile of 512 pixels, unless little detail was asked for.

    The picture is fitted into a square of 2048 before, and then its shorter side to 768.
    """

    def tokens(width: int, height: int, detail: str) -> int:
        if detail == "low":
            return base
        scale = min(1.0, 2048 / max(width, height))
        scale *= min(1.0, 768 / (min(width, height) * scale))
        return base + each * math.ceil(width * scale / 512) * math.ceil(height * scale / 512)

    return tokens


def by_detail(usual: ImageTokens, **asked: ImageTokens) -> ImageTokens:
    """As *asked* has it for the detail that was asked for, as *usual* for any other and for none."""

    def tokens(width: int, height: int, detail: str) -> int:
        return asked.get(detail, usual)(width, height, detail)

    return tokens


class Family(Struct, frozen=True, gc=False):
    """
    A family of models.

    Attributes:
        factor: Its tokens of a text, for one of the vocabulary that we count with.
        image: Tokens of a picture.
        tools: What a call with tools has besides their definitions: the family's own instructions for calling them.
    """

    factor: float = 1.0
    image: ImageTokens = by_tiles(85, 170)
    tools: int = 0


ANY_FAMILY = Family()
"""Models that nobody here knows: the vocabulary as it is, and the most common rule for pictures."""
