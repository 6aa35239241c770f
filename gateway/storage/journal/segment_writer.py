"""
The files of a journal that is being written: records go to the end of the newest one, and are on the disk by then.

What is open is written again when a file is full, so that those before it can be removed; ends that the disk did not
take, and what somebody has taken away, go to the next one.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass

from gateway.core.journal import Admitted, Opened, Record, Settled, encode
from gateway.storage.journal.homes import Home, restore, sync_directory
from gateway.storage.journal.segments import HEADER, frame, name_of

SEGMENT_BYTES = 16 * 1024 * 1024
# Room is taken ahead in pieces of this, by writing zeros, which takes some 3 ms. Where the file system has to note that
# a file is longer, or that a block is in use, a write waits for its journal, and so for what others change there:
# with room that is only promised (`posix_fallocate`) one write of a hundred took 2.6 ms and more on a busy one, over
# zeros none of 2,000 took 1 ms (measured, ext4).
ROOM_BYTES = 1024 * 1024
_ZEROS = bytes(64 * 1024)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a journal: segments count from 1."""

    segment: int
    offset: int


class SegmentWriter:
    """
    To be used by one thread at a time; `carried` may be set by another one.

    Args:
        fsync: Whether writes wait for the disk.
        segment_bytes: Where the next file is begun.

    Attributes:
        written: Up to where the journal is on the disk.
        carried: Up to where the database has it.
        is_failing: The disk did not take what was written last.
        losses: How often the newest file was taken away.

    Raises:
        OSError: The first file cannot be begun.
    """

    def __init__(self, home: Home, *, fsync: bool, segment_bytes: int) -> None:
        self._home = home
        self._path = home.path
        # Written through in the same call: after each the thread has to wait for the interpreter again.
        self._mode = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | (os.O_DSYNC if fsync else 0)
        self._segment_bytes = segment_bytes
        self._piece = min(ROOM_BYTES, segment_bytes)
        self._number = 0
        self._newest = ""  # a path as text: it is looked at before each write
        self._file, self._is = -1, os.stat(home.path)  # what its path is to lead to
        self._room = 0  # bytes of the newest file that it has or will not have
        self._open: dict[str, bytes] = {}  # frames of exchanges without their end, for the next segment
        self._kept: list[bytes] = []  # ends that the disk has not taken
        self._is_gone = False
        self.is_failing = False
        self.losses = 0
        self.written = Position(0, 0)
        self.carried = Position(0, 0)
        self._begin_segment()

    def write(self, records: list[Record]) -> None:
        """
        Have *records* on the disk.

        Raises:
            OSError: They are not. Ends are kept for the next time, admissions forgotten.
        """
        fresh = b"".join([self._framed(record) for record in records])
        try:
            self._save_what_is_gone()
            if not fresh and not self.is_failing:
                return
            data = b"".join(self._kept) + fresh
            if self.is_failing or self.written.offset >= self._segment_bytes:
                self._begin_segment(data)
            else:
                self._append(data)
        except OSError:
            self.is_failing = True
            self._keep(records)
            raise
        self._kept.clear()
        self.is_failing = False

    def make_room(self) -> None:
        """Take room ahead, if it is time for that; for a moment in which nobody waits."""
        left = self._room - self.written.offset
        if not self.is_failing and left < self._piece // 2 and self._room < self._segment_bytes:
            self._take_room(self._file, self._room + 1)

    def close(self) -> None:
        os.close(self._file)

    def _framed(self, record: Record) -> bytes:
        data = frame(encode(record))
        if isinstance(record, Admitted):
            self._open[record.admission.request_id] = data
        elif isinstance(record, Opened):
            if record.request_id in self._open:
                self._open[record.request_id] += data
        else:
            self._open.pop(record.receipt.request_id, None)
        return data

    def _keep(self, records: list[Record]) -> None:
        for record in records:
            if isinstance(record, Settled) and not is_spare(record):
                self._kept.append(frame(encode(record)))
            elif isinstance(record, Admitted):
                self._open.pop(record.admission.request_id, None)

    def _save_what_is_gone(self) -> None:
        """If somebody has taken the newest file away, keep what the database does not have of it. Raises OSError."""
        if self._is_gone:
            return
        try:
            if os.path.samestat(os.stat(self._newest), self._is):
                return
        except (FileNotFoundError, NotADirectoryError):
            pass
        start = self.carried.offset if self.carried.segment == self._number else len(HEADER)
        self._kept.insert(0, os.pread(self._file, self.written.offset - start, start))
        self._is_gone = self.is_failing = True
        self.losses += 1

    def _append(self, data: bytes) -> None:
        offset = self.written.offset
        try:
            self._take_room(self._file, offset + len(data))
            _write_all(self._file, data, offset)
        except OSError:
            with suppress(OSError):  # else a part of a record stays, which looks like damage with a file behind it
                os.ftruncate(self._file, offset)
            raise
        self.written = Position(self._number, offset + len(data))

    def _begin_segment(self, more: bytes = b"") -> None:
        """
        Begin the next file, with everything that is open in it and *more*: those before it need not be kept for that.

        Nobody is told of it before it has *more*: with the ends in there the files before it lose what those are of.
        """
        if self._is_gone:
            restore(self._home)
        number = self._number + 1
        path = self._path / name_of(number)
        file = os.open(path, self._mode, 0o600)
        data = HEADER + b"".join(self._open.values()) + more
        self._room = 0
        try:
            self._take_room(file, len(data))
            _write_all(file, data, 0)
            sync_directory(self._path)
        except OSError:
            os.close(file)
            path.unlink(missing_ok=True)
            raise
        if self._file >= 0:
            os.close(self._file)
        self._file, self._is = file, os.fstat(file)
        self._number, self._newest, self._is_gone = number, str(path), False
        self.written = Position(number, len(data))

    def _take_room(self, file: int, end: int) -> None:
        if end <= self._room:
            return
        room = max(end, self._room + self._piece)
        try:
            while self._room < room:
                self._room += os.pwritev(file, [_ZEROS] * -(-(room - self._room) // len(_ZEROS)), self._room)
        except OSError:  # a disk that is nearly full: writing says what is wrong, if anything is
            self._room = sys.maxsize


def is_spare(record: Record) -> bool:
    """Whether it is the end of what cost nothing and left nothing behind."""
    return isinstance(record, Settled) and record.receipt.booking is None


def _write_all(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(file, view, offset)
        view, offset = view[count:], offset + count
