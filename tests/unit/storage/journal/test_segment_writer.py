"""What the journal's thread writes into its files, and where."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.core.journal import Admitted
from gateway.storage.journal import segment_writer
from gateway.storage.journal.homes import make_home
from gateway.storage.journal.segment_writer import SegmentWriter
from gateway.storage.journal.segments import HEADER, name_of
from tests.unit.admissions import admission

ROOM = 64 * 1024


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SegmentWriter]:
    monkeypatch.setattr(segment_writer, "ROOM_BYTES", ROOM)
    home = make_home(tmp_path, "1", "here:1:2")
    writer = SegmentWriter(home, fsync=True, segment_bytes=3 * ROOM)
    yield writer
    writer.close()
    home.release()


@pytest.fixture
def newest(writer: SegmentWriter, tmp_path: Path) -> Path:
    return tmp_path / "journal-1" / name_of(writer.written.segment)


def fill(writer: SegmentWriter, up_to: int) -> None:
    number = 0
    while writer.written.offset < up_to:
        writer.write([Admitted(admission(f"r{number}"))])
        number += 1


def written_bytes(path: Path) -> int:
    """How long the file is up to its first hole: a block that is only promised is one."""
    with path.open("rb") as file:
        return os.lseek(file.fileno(), 0, os.SEEK_HOLE)


def test_room_is_of_zeros(newest: Path) -> None:
    """A file begins with room in which every block has been written, so that nothing but its bytes is to be noted when
    a record comes there."""
    content = newest.read_bytes()

    assert (len(content), written_bytes(newest)) == (ROOM, ROOM)
    assert content.rstrip(b"\0") == HEADER.rstrip(b"\0")


def test_room_is_made_ahead(writer: SegmentWriter, newest: Path) -> None:
    """More is made as soon as half of it is used, for a moment in which nobody waits, and not before."""
    writer.make_room()
    early = newest.stat().st_size
    fill(writer, ROOM // 2 + 1)

    writer.make_room()

    assert (early, newest.stat().st_size, written_bytes(newest)) == (ROOM, 2 * ROOM, 2 * ROOM)


def test_room_is_made_by_who_needs_it(writer: SegmentWriter, newest: Path) -> None:
    """Where there was no such moment, whoever comes to its end makes more."""
    fill(writer, ROOM + 1)

    assert (newest.stat().st_size, written_bytes(newest)) == (2 * ROOM, 2 * ROOM)


def test_no_room_beyond_the_end(writer: SegmentWriter, newest: Path) -> None:
    """None is made that the next file will have."""
    fill(writer, 3 * ROOM - 1000)

    writer.make_room()

    assert newest.stat().st_size == 3 * ROOM
