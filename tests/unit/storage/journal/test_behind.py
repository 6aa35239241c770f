"""What of the journals the ledger is still to get, for who looks from outside."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gateway.core.journal import Settled, encode
from gateway.storage.journal import behind
from gateway.storage.journal.behind import ends_in_files
from gateway.storage.journal.reader import Piece, Reader
from gateway.storage.journal.segments import HEADER, frame, name_of
from tests.unit.admissions import ended


@pytest.mark.parametrize("goes", ["a file", "the journal"])
def test_what_goes_meanwhile(goes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a journal that its process empties meanwhile, the files that are left are read to their end."""
    journal = tmp_path / "journal-1"
    journal.mkdir()
    for number in (1, 2):
        (journal / name_of(number)).write_bytes(HEADER + frame(encode(Settled(ended(f"r{number}")))))

    class Interrupted(Reader):
        def next(self, most: int) -> Piece | None:
            piece = super().next(most)
            if (journal / name_of(1)).exists():
                shutil.rmtree(journal) if goes == "the journal" else (journal / name_of(1)).unlink()
            return piece

    monkeypatch.setattr(behind, "Reader", Interrupted)

    assert [*ends_in_files(tmp_path)] == (["r1"] if goes == "the journal" else ["r1", "r2"])
