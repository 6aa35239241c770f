"""What docs/guardrails-injection.md says is what the engine does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.guards.injection import InjectionEngine
from gateway.guards.injection.engine import FAMILIES
from gateway.guards.injection.peeking import LONGEST, PASSAGES
from gateway.guards.injection.pieces import LONGEST as LONGEST_PIECE
from tests.guards.evaluate import SETS, score, table

DOCUMENT = (Path(__file__).parents[4] / "docs" / "guardrails-injection.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("which", ["evaluation", "confirmation"])
def test_figures_are_what_is_measured(which: str) -> None:
    """The tables of recall and false positives are those that the evaluation prints."""
    engine = InjectionEngine()

    printed = table([(sample, score(engine, sample)) for sample in SETS[which]()], engine.threshold)

    assert printed in DOCUMENT


def test_kinds_are_listed() -> None:
    """Every kind of finding has its row."""
    listed = re.findall(r"^\| `([a-z]+)` \|", DOCUMENT, re.MULTILINE)

    assert sorted(listed) == sorted(FAMILIES)


def test_bounds_are_told() -> None:
    """The numbers in the text are the code's."""
    assert f"at most {LONGEST_PIECE} characters" in DOCUMENT
    assert f"(eight passages of a kind, {LONGEST:,}\n   characters each)" in DOCUMENT
    assert PASSAGES == 8
    assert f"counts from {InjectionEngine.threshold} on" in DOCUMENT
