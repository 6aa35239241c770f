"""What `tests.bench.scanning` measures has what its names say; nothing here looks at a clock."""

from __future__ import annotations

from gateway.guards.credentials import CredentialsEngine
from gateway.guards.pii import PiiEngine
from tests.unit.guards.redaction import scan

from .scanning import CLEAN, HOSTILE, KB, measure


def test_texts() -> None:
    """Texts are of 1 KB, and only the last two have something to find."""
    found = [
        [finding.kind for engine in (PiiEngine(), CredentialsEngine()) for finding in scan(engine, text)]
        for text in CLEAN.values()
    ]

    assert {len(text) for text in CLEAN.values()} == {KB}
    assert found == [[], [], [], [], ["nik"], ["password"]]


def test_all_are_measured() -> None:
    """Each text has a figure for each engine."""
    took = measure(rounds=1, loops=1, hostile_chars=1000)

    assert list(took) == [*CLEAN, *map(repr, HOSTILE)]
    assert {len(figures) for figures in took.values()} == {2}
