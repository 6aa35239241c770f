"""Which model is of which `Family`, by what its name has in it.

Factors are means over English prose, Python, JSON and Indonesian, each measured with the family's own published
tokenizer against `o200k_base` (2026-11-30); where none is published, its source stands beside it. Rules for pictures
are those of the vendors' own guides to vision.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gateway.dialects.families import ANY_FAMILY, Family, ImageTokens, by_detail, by_grid, by_tiles

_MAX_NAMES = 1024  # names come from the catalogue, which has some hundred

_FLAT_PX = 2**32  # a square that any picture fits into

# OpenAI's guide to images and vision: squares of 32 pixels, no more than so many, each so many tokens. Its factors for
# the GPT-5 minis (1.62, 2.46) are those of GPT-4.1; what its API charges was measured in its forum (March 2026).
_PATCHES = 1536


def _patches(each: float, most: int = _PATCHES) -> ImageTokens:
    return by_grid(32, each, most, longest_px=2048)


# From 5.4 on the detail that holds where a call says none is the model's choice: "high" with 5.4, "original" after it.
_LOW = by_grid(32, 1.2, 256, longest_px=512)
_GPT_5_4 = by_detail(by_grid(32, 1.2, 2500, longest_px=2048), low=_LOW)
_GPT_5_5 = by_detail(by_grid(32, 1.2, 10_000, longest_px=6000), high=_GPT_5_4, low=_LOW)
_GPT_6 = by_detail(by_grid(32, 1.2, 30_000), high=by_grid(32, 1.2, 2500), low=_LOW)

# Anthropic publishes no tokenizer. Comparisons of GPT-4o with Claude 3.5 found 16 % more tokens in English articles and
# 30 % more in Python; its guide to migration says 1.0 to 1.35 times as many again from Opus 4.7 on.
# Its guide to vision: squares of 28 pixels, after shrinking; the guide to tools has the size of its own instructions.
_CLAUDE = Family(1.2, by_grid(28, 1.0, 1568, longest_px=1568), tools=346)
_CLAUDE_4_7 = Family(1.4, by_grid(28, 1.0, 4784, longest_px=2576), tools=346)
# "About four characters": ours has 3.9 in prose and 4.2 in Python, so no more than a hundredth off.
_GEMINI = Family(1.0, by_grid(768, 258, most=16))  # its guide to tokens, up to 2.5: tiles of 768 pixels
_GEMINI_3 = Family(1.0, by_grid(_FLAT_PX, 1120, most=1))  # its guide to media resolution: the default from 3 on
# The models' published preprocessors: squares of 28 pixels (two by two of 14), and how many. Not measured: its texts.
_KIMI = Family(1.0, by_grid(28, 1.0, 4096))
_KIMI_3 = Family(1.0, by_grid(28, 1.0, 16_384))
# Mistral's published preprocessor: squares of 28 pixels, after shrinking.
_MISTRAL = Family(1.08, by_grid(28, 1.0, 3025, longest_px=1540))
_MOONSHOT = Family(1.0, by_grid(_FLAT_PX, 1024, most=1))  # Moonshot's help: each picture of its vision models

_ROWS: tuple[tuple[re.Pattern[str], Family], ...] = tuple(
    (re.compile(pattern), family)
    for pattern, family in (
        (r"gpt-4o-mini", Family(1.0, by_tiles(2833, 5667))),
        (r"gpt-4\.1-mini", Family(1.0, _patches(1.62))),
        (r"gpt-4\.1-nano", Family(1.0, _patches(2.46))),
        (r"gpt-5-nano", Family(1.0, _patches(1.5))),
        (r"gpt-5-mini|gpt-5\.[23]|gpt-5(?:\.\d+)?-codex", Family(1.0, _patches(1.2))),
        (r"\bo4-mini", Family(1.0, _patches(1.72))),
        (r"gpt-oss|gpt-4o|gpt-4\.[15]", Family(1.0, by_tiles(85, 170))),
        (r"gpt-5\.4", Family(1.0, _GPT_5_4)),
        (r"gpt-5\.5", Family(1.0, _GPT_5_5)),
        (r"gpt-5\.[6-9]|gpt-(?:[6-9]|\d\d)", Family(1.0, _GPT_6)),
        (r"gpt-5", Family(1.0, by_tiles(70, 140))),  # and 5.1
        (r"\bo[134]\b", Family(1.0, by_tiles(75, 150))),
        (r"gpt-4|gpt-3\.5", Family(1.07, by_tiles(85, 170))),
        (r"claude-(?:opus-4[-.][7-9]|(?:opus|sonnet|haiku|fable)-[5-9]|mythos)", _CLAUDE_4_7),
        (r"claude", _CLAUDE),
        (r"gemini-(?:[3-9]|\d\d)", _GEMINI_3),
        (r"gemini|gemma", _GEMINI),
        (r"deepseek", Family(1.08)),
        (r"kimi-k(?:[3-9]|\d\d)", _KIMI_3),
        (r"kimi", _KIMI),
        (r"moonshot-v", _MOONSHOT),
        # Model Studio's guide to visual understanding: squares of 28 pixels, of 32 from Qwen3-VL and Qwen3.5 on, 1,280
        # and 2,560 of them by the defaults of `max_pixels`, and two marks around them.
        (r"qwen-?3(?:\.\d+|-vl)|qwen-?(?:[4-9]|\d\d)", Family(1.04, by_grid(32, 1.0, most=2560, extra=2))),
        (r"qwen|qwq|qvq", Family(1.04, by_grid(28, 1.0, most=1280, extra=2))),
        (r"llama-?4", Family(0.97, by_grid(336, 144, most=16, extra=1))),  # the model card: tiles, and one of the whole
        (r"llama", Family(1.07)),
        (r"(?:mi(?:ni)?|magi)stral|(?:code|dev)stral|(?:mix|pix|vox)tral", _MISTRAL),
        (r"grok", Family(1.0, by_grid(448, 256, most=6, extra=1))),  # xAI's guide to image understanding
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
