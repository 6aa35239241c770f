"""What docs/guardrails-pii.md says is what the engine does."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.core.guarding import Text
from gateway.guards.pii import PiiEngine
from gateway.guards.pii.context import REACH
from gateway.guards.pii.engine import WINDOW_CHARS
from gateway.guards.pii.kinds import KINDS

DOCUMENT = (Path(__file__).parents[4] / "docs" / "guardrails-pii.md").read_text(encoding="utf-8")
ENGINE = PiiEngine()


def kinds(text: str, least: float = ENGINE.threshold) -> list[str]:
    return [finding.kind for finding in ENGINE.scan(Text(text), lambda: None) if finding.score >= least]


def test_table_of_kinds() -> None:
    """The document's table has the kinds of the engine, each with what is looked at."""
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \| (yes|no) \|$", DOCUMENT, re.MULTILINE)

    assert rows == [(name, kind.what, kind.proof, "yes" if kind.needs_word else "no") for name, kind in KINDS.items()]


def test_figures() -> None:
    """The reach of words and the window of streams are those of the code."""
    assert f"at most {REACH} characters in front" in DOCUMENT
    assert f"at most {WINDOW_CHARS} characters are held back" in DOCUMENT
    assert f"threshold is {ENGINE.threshold}" in DOCUMENT


def test_words() -> None:
    """A word counts up to its reach, not beyond it, and not across another finding."""
    near, far = "rekening" + " " * REACH, "rekening" + " " * (REACH + 1)

    assert kinds(f"{near}1234567890") == ["bank_account"]
    assert kinds(f"{far}1234567890") == []
    assert kinds("rekening a@b.co, mungkin juga 1234567890") == ["email"]
    assert kinds("rekening 1234567890 dan 0987654321") == ["bank_account", "bank_account"]


def test_other_words() -> None:
    """A word for something else halves the score of what has no check digit, and only of that."""
    assert kinds("order 3171012301900001") == []
    assert kinds("order 3171012301900001", least=0.4) == ["nik"]
    assert kinds("order 4111111111111111") == ["card"]


def test_what_it_cannot_see() -> None:
    """What the document says is not found is not."""
    for text in (
        "nol delapan satu dua tiga empat lima enam tujuh delapan",
        "jane at example dot com",
        "NIK 31710123\n01900001",
        "ORD3171012301900001",
        "data:text/plain;base64,MzE3MTAxMjMwMTkwMDAwMQ==",
        "nama,rekening\n" + "Budi Santoso dari Bandung\n" * 3 + "1234567890",
    ):
        assert kinds(text) == [], text
    assert kinds("NIK3171012301900001") == ["nik"]


def test_stream_window() -> None:
    """Every number is told within the window, however it is written, and so is an address as long as is said."""
    spaced = "   ".join("3171012301900001")

    assert len(spaced) <= WINDOW_CHARS
    assert kinds(spaced) == ["nik"]
    assert kinds(f"{'a' * 50}@example.com"[:WINDOW_CHARS]) == ["email"]
