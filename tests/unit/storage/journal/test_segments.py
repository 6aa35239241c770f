"""Files of a journal, whole and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.core.journal import Admitted, Opened, Record, Settled, encode
from gateway.storage.journal.reader import Reader
from gateway.storage.journal.segment_writer import Position
from gateway.storage.journal.segments import HEADER, Damage, Found, frame, name_of, numbers_in, scan
from tests.unit.admissions import admission, ended

RECORDS: tuple[Record, ...] = (
    Admitted(admission("r1"), 0, 1), Opened("r1", 0, 1), Admitted(admission("r2"), 1, 2), Settled(ended("r1")),
    Opened("r2", 0, 0), Settled(ended("r2")),
)  # fmt: skip
FRAMES = [frame(encode(record)) for record in RECORDS]
WHOLE = HEADER + b"".join(FRAMES)


def records(data: bytes) -> list[Record]:
    return [found.record for found in scan(data) if isinstance(found, Found)]


def test_as_written() -> None:
    """A whole file gives its records in order, and where each ends."""
    found = list(scan(WHOLE))

    assert records(WHOLE) == [*RECORDS]
    assert [one.end for one in found if isinstance(one, Found)][-1] == len(WHOLE)
    assert not any(isinstance(one, Damage) for one in found)


@pytest.mark.parametrize("room", [b"", bytes(4096)], ids=["none", "some"])
def test_every_prefix(room: bytes) -> None:
    """
    A file that was cut anywhere gives the records that are whole, and says that its tail is torn; so it does where it
    has room that was not used.
    """
    ends = [len(HEADER) + sum(map(len, FRAMES[:count])) for count in range(len(FRAMES) + 1)]

    for length in range(len(WHOLE)):
        data = WHOLE[:length] + room
        kept = max((end for end in ends if data[:end] == WHOLE[:end]), default=0)
        found = list(scan(data))
        assert records(data) == [*RECORDS[: max(sum(end <= kept for end in ends) - 1, 0)]]
        tears = [one for one in found if isinstance(one, Damage)]
        assert all(tear.is_tail and tear.is_torn for tear in tears)
        assert bool(tears) == bool(data[kept:].rstrip(b"\0"))


def test_every_flipped_byte() -> None:
    """A byte that is not what was written costs the record that it is in, and none besides; it is told of."""
    for position in range(len(HEADER), len(WHOLE)):
        data = bytearray(WHOLE)
        data[position] ^= 0xFF
        found = list(scan(bytes(data)))
        hit = next(n for n in range(len(FRAMES)) if position < len(HEADER) + sum(map(len, FRAMES[: n + 1])))
        assert records(bytes(data)) == [record for n, record in enumerate(RECORDS) if n != hit]
        (damage,) = [one for one in found if isinstance(one, Damage)]
        is_length = position - (len(WHOLE) - len(FRAMES[-1])) in range(4)  # the last one's, which may be beyond the end
        assert is_length or not damage.is_torn


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_of_a_length(bit: int) -> None:
    """A length that is wrong by a bit does not lead the reader astray."""
    data = bytearray(WHOLE)
    for byte in range(4):
        data[len(HEADER) + byte] ^= 1 << bit
        assert records(bytes(data)) == [*RECORDS[1:]]
        data[len(HEADER) + byte] ^= 1 << bit


@pytest.mark.parametrize("header", [b"ANMJ\x00", b"ANMJ\x02", b"SQLit", b"\0\0\0\0\0"])
def test_another_format(header: bytes) -> None:
    """A file of another format, or of a version that is not known, is not read at all."""
    data = header + WHOLE[len(HEADER) :]

    assert list(scan(data)) == [Damage(0, len(data), is_tail=False)]


def test_room_that_was_not_used(tmp_path: Path) -> None:
    """Zeros behind the last record, or in place of the first, are read past, and are no damage."""
    (tmp_path / name_of(1)).write_bytes(WHOLE + bytes(1024 * 1024))
    (tmp_path / name_of(2)).write_bytes(bytes(1024 * 1024))
    (tmp_path / name_of(3)).write_bytes(HEADER + bytes(1024 * 1024))
    (tmp_path / name_of(4)).write_bytes(WHOLE + bytes(1024 * 1024))

    found, segments = read(tmp_path)

    assert found == [*RECORDS, *RECORDS]
    assert {*segments} == {1, 4}


def read(directory: Path, most: int = 2) -> tuple[list[Record], list[int]]:
    """Records, and the segments that pieces were of."""
    reader, found, segments = Reader(directory), list[Record](), list[int]()
    while (piece := reader.next(most)) is not None:
        found += [one.record for one in piece.found if isinstance(one, Found)]
        segments.append(piece.segment)
    return found, segments


def test_files_in_order(tmp_path: Path) -> None:
    """Segments are read in the order of their numbers, gaps and empty ones included, and pieces are of one segment."""
    for number, some in ((2, RECORDS[:3]), (10, ()), (11, RECORDS[3:])):
        (tmp_path / name_of(number)).write_bytes(HEADER + b"".join(frame(encode(record)) for record in some))
    (tmp_path / "lock").touch()

    found, segments = read(tmp_path)

    assert numbers_in(tmp_path) == [2, 10, 11]
    assert found == [*RECORDS]
    assert segments == [2, 2, 11, 11]


def test_while_it_is_written(tmp_path: Path) -> None:
    """The journal of a process at work is read as far as it has come, and from there when it has come further."""
    path, written = tmp_path / name_of(1), Position(1, len(HEADER) + len(FRAMES[0]))
    path.write_bytes(WHOLE)  # what is behind the position may be anything, such as half a record
    reader = Reader(tmp_path, lambda: written)

    first = reader.next(10)
    nothing = reader.next(10)
    written = Position(1, len(WHOLE))
    rest = reader.next(10)
    (tmp_path / name_of(2)).write_bytes(HEADER + FRAMES[0])
    still_nothing = reader.next(10)
    written = Position(2, len(HEADER) + len(FRAMES[0]))
    following = reader.next(10)

    assert first is not None
    assert rest is not None
    assert following is not None
    assert (nothing, still_nothing) == (None, None)
    assert [len(first.found), len(rest.found), len(following.found)] == [1, len(RECORDS) - 1, 1]
    assert (first.segment, following.segment, following.end) == (1, 2, written)
