"""Which model is of which `Family`, by what its name has in it.

Factors are means over English prose, Python, JSON and Indonesian, each measured with the family's own published
tokenizer against `o200k_base` (2026-11-30); where none is published, its source stands beside it. Rules for pictures
are those of the vendors' own guides to vision.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gateway.dialects.families import ANY_FAMILY, Family, by_area, by_grid, by_tiles

_MAX_NAMES = 1024  # names come from the catalogue, which has some hundred

_PATCHES = 1536  # OpenAI's guide: squares of 32 pixels, no more than these
# Anthropic publishes no tokenizer. Comparisons of GPT-4o with Claude 3.5 found 16 % more tokens in English articles and
# 30 % more in Python; its guide to migration says 1.0 to 1.35 times as many again from Opus 4.7 on.
_CLAUDE = Family(1.2, by_area(750, 1568, 1600), tools=346)  # the guide to tools has the size of its own instructions
_CLAUDE_4_7 = Family(1.4, by_area(750, 2576, 4784), tools=346)
# "About four characters": ours has 3.9 in prose and 4.2 in Python, so no more than a hundredth off.
_GEMINI = Family(1.0, by_grid(768, 258, most=16))
_GEMINI_3 = Family(1.0, by_grid(2**31, 1120, most=1))  # its guide to media resolution: the default of pictures

_ROWS: tuple[tuple[re.Pattern[str], Family], ...] = tuple(
    (re.compile(pattern), family)
    for pattern, family in (
        (r"gpt-4o-mini", Family(1.0, by_tiles(2833, 5667))),
        (r"gpt-(?:4\.1|5)-mini", Family(1.0, by_grid(32, 1.62, _PATCHES))),
        (r"gpt-(?:4\.1|5)-nano", Family(1.0, by_grid(32, 2.46, _PATCHES))),
        (r"\bo4-mini", Family(1.0, by_grid(32, 1.72, _PATCHES))),
        (r"gpt-oss|gpt-4o|gpt-4\.[15]", Family(1.0, by_tiles(85, 170))),
        (r"gpt-5", Family(1.0, by_tiles(70, 140))),
        (r"\bo[134]\b", Family(1.0, by_tiles(75, 150))),
        (r"gpt-4|gpt-3\.5", Family(1.07, by_tiles(85, 170))),
        (r"claude-(?:opus-4-[7-9]|(?:opus|sonnet|haiku|fable)-[5-9]|mythos)", _CLAUDE_4_7),
        (r"claude", _CLAUDE),
        (r"gemini-3", _GEMINI_3),
        (r"gemini|gemma", _GEMINI),
        (r"deepseek", Family(1.08)),
        # Squares of 28 pixels, 1,280 of them by the reference's default of `max_pixels`, and two marks around them.
        (r"qwen|qwq|qvq", Family(1.04, by_grid(28, 1.0, most=1280, extra=2))),
        (r"llama-?4", Family(0.97, by_grid(336, 144, most=16, extra=1))),  # the model card: tiles, and one of the whole
        (r"llama", Family(1.07)),
        (r"(?:mi(?:ni)?|magi)stral|(?:code|dev)stral|(?:mix|pix|vox)tral", Family(1.08, by_area(784, 1540, 3025))),
        (r"grok", Family(1.0, by_grid(448, 256, most=6, extra=1))),
    )
)


@lru_cache(maxsize=_MAX_NAMES)
def family_of(model: str, slug: str) -> Family:
    """
    The family of *model*, by its provider's name for it.

    Where that says nothing, as the name of a deployment, the *slug* that the catalogue has for it may.
    """
    for name in (model.lower(), slug.lower()):
        for pattern, family in _ROWS:
            if pattern.search(name):
                return family
    return ANY_FAMILY
