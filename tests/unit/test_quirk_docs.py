"""What docs/translation.md says of vendors that lack a part of OpenAI's dialect is what the rows have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.core.catalog import Quirk
from gateway.providers.presets import PRESETS
from gateway.providers.quirks import fold_max_completion_tokens, system_for_developer, text_as_string

TEXT = (Path(__file__).parents[2] / "docs" / "translation.md").read_text(encoding="utf-8")
LINES = {
    "| `content` that is a list of texts": text_as_string,
    "| `max_completion_tokens` | `max_tokens`": fold_max_completion_tokens,
    "| messages of the `developer` |": system_for_developer,
}


@pytest.mark.parametrize(("beginning", "quirk"), LINES.items())
def test_vendors(beginning: str, quirk: Quirk) -> None:
    """Each line of the table names the presets that have the quirk, and no other."""
    (line,) = (line for line in TEXT.splitlines() if line.startswith(beginning))

    said = re.findall(r"`(\w+)`", line.rstrip(" |").rpartition("|")[2])

    assert said == sorted(preset.name for preset in PRESETS.values() if quirk in preset.quirks)


def test_no_other_quirk() -> None:
    """The table has every quirk of every row, and they are of the dialect that it is about."""
    assert {quirk for preset in PRESETS.values() for quirk in preset.quirks} == set(LINES.values())
    assert {preset.dialect for preset in PRESETS.values() if preset.quirks} == {"openai_chat"}
