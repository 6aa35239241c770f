"""Reading a journal from its files, in order: a working process's up to where it has come, a dead one's to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gateway.storage.journal.segment_writer import Position
from gateway.storage.journal.segments import HEADER, Damage, Found, name_of, numbers_in, scan

BEGINNING = Position(0, 0)


@dataclass(frozen=True, slots=True)
class Piece:
    """Records and damages in order, the segment that they are of, and where the next piece begins."""

    found: tuple[Found | Damage, ...]
    segment: int
    end: Position


class Reader:
    """
    Everything in *directory*, a piece at a time. To be used by one thread at a time.

    Args:
        written: Up to where there is something to be read; None for a journal that nobody writes to any more.
        start: From where on.
    """

    def __init__(
        self, directory: Path, written: Callable[[], Position] | None = None, start: Position = BEGINNING
    ) -> None:
        self._directory = directory
        self._written = written
        self._segment, self._offset = start.segment, start.offset
        self._rest: Iterator[Found | Damage] = iter(())

    def next(self, most: int) -> Piece | None:
        """The next records, *most* at the most and all of one segment; None when there are no more for now.

        Raises:
            OSError: A file cannot be read.
        """
        while True:
            found = tuple(islice(self._rest, most))
            if found:
                last = found[-1]
                self._offset = last.end if isinstance(last, Found) else last.offset + last.length
                return Piece(found, self._segment, Position(self._segment, self._offset))
            if not self._more():
                return None

    def _more(self) -> bool:
        """Get at what follows; whether there is anything."""
        written = self._written() if self._written is not None else None
        if self._segment == 0 and not self._advance(written):
            return False
        while not (data := self._read(written)):
            if not self._advance(written):
                return False
        self._rest = scan(data, self._offset)
        return True

    def _read(self, written: Position | None) -> bytes:
        """What is new of the segment, up to where it is written."""
        path = self._directory / name_of(self._segment)
        if written is not None and written.segment > self._segment and not path.exists():
            return b""  # taken away: what was not in the database yet has been written again, into a later one
        with path.open("rb") as file:
            file.seek(self._offset)
            if written is None or written.segment > self._segment:
                data = file.read()
            else:
                data = file.read(max(0, written.offset - self._offset))
        content = data.rstrip(b"\0")
        return b"" if not content or (self._offset == 0 and content == HEADER) else data

    def _advance(self, written: Position | None) -> bool:
        """Go on to the next segment, if there is one and it is begun."""
        following = [number for number in numbers_in(self._directory) if number > self._segment]
        if not following or (written is not None and following[0] > written.segment):
            return False
        self._segment, self._offset = following[0], 0
        return True
