"""How the content guard does on prompts that were written for it; `make eval-guards` prints it.

Recall is the share of harmful prompts in which a finding counts, of whatever kind; false positives are the benign ones
in which one does. Intervals are Wilson's, of 95 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gateway.core.guarding import Text
from gateway.guards.content.engine import ContentEngine
from gateway.guards.content.lexicon import KINDS
from tests.guards.evaluate import wilson

FOLDER = Path(__file__).parent


class Prompt(NamedTuple):
    """A prompt of a set; a benign one has the kind whose words it uses, or `general`."""

    kind: str
    language: str
    text: str


def prompts(name: str) -> list[Prompt]:
    """The prompts of the set *name*: `evaluation_harmful` and the like."""
    lines = (FOLDER / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
    return [Prompt(*line.split("\t")) for line in lines]


def counts(engine: ContentEngine, text: str) -> bool:
    """Whether something in *text* counts by the engine's own threshold."""
    return any(finding.score >= engine.threshold for finding in engine.scan(Text(text), lambda: None))


def told(hits: int, of: int) -> str:
    """A share as the documents have it."""
    low, high = wilson(hits, of)
    return f"{hits} of {of} ({100 * low:.0f}-{100 * high:.0f} %)"


def table() -> Iterator[str]:
    """The figures of the evaluation sets as a table of Markdown."""
    engine = ContentEngine()
    seen = {
        (name, prompt): counts(engine, prompt.text)
        for name in ("evaluation_harmful", "evaluation_benign")
        for prompt in prompts(name)
    }
    yield "| kind | found, English | found, Indonesian | benign flagged, English | benign flagged, Indonesian |"
    yield "|---|---|---|---|---|"
    for kind in (*sorted(KINDS), "general", "all"):
        cells = [f"`{kind}`" if kind in KINDS else kind]
        for name in ("evaluation_harmful", "evaluation_benign"):
            for language in ("en", "id"):
                hits = [
                    hit
                    for (of, prompt), hit in seen.items()
                    if of == name and prompt.language == language and kind in (prompt.kind, "all")
                ]
                cells.append(told(sum(hits), len(hits)) if hits else "")
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print("\n".join(table()))
