"""
The files of a journal on disk: a header, then records, each behind its length and a checksum.

Whatever a crash or a bad disk leaves is readable: what is damaged is passed over, up to the next record whose checksum
holds. Nothing but a record of ours looks like one: it has 32 bits of checksum and the shape that its kind has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from zlib import crc32

import msgspec

from gateway.core.journal import Record, decode

MAGIC = b"ANMJ"
VERSION = 1
HEADER = MAGIC + bytes([VERSION])
# Of one record: a receipt takes 1 to 2 KB, and with everything that callers may choose at its longest some 30.
MAX_RECORD_BYTES = 1024 * 1024
_FRAME = Struct("<II")  # length, and the CRC-32 of length and payload
FRAME_BYTES = _FRAME.size
_NAME = re.compile(r"([0-9]{8})\.log")


def frame(payload: bytes) -> bytes:
    """*payload* as it stands in a file."""
    return _FRAME.pack(len(payload), _checksum(len(payload), payload)) + payload


def _checksum(length: int, payload: bytes | memoryview) -> int:
    return crc32(payload, crc32(length.to_bytes(4, "little")))


def name_of(number: int) -> str:
    """The file of segment *number*."""
    return f"{number:08d}.log"


def numbers_in(directory: Path) -> list[int]:
    """The segments that there are in *directory*, ascending."""
    return sorted(int(match[1]) for path in directory.iterdir() if (match := _NAME.fullmatch(path.name)))


@dataclass(frozen=True, slots=True)
class Damage:
    """
    Bytes that are no record: *length* of them from *offset*.

    Attributes:
        is_tail: They reach to the end of the file.
        is_torn: As far as they go they may be a record: the file ends in the middle of one.
    """

    offset: int
    length: int
    is_tail: bool
    is_torn: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A record, its payload, and the offset behind it."""

    record: Record
    payload: bytes
    end: int


def scan(data: bytes, start: int = 0) -> Iterator[Found | Damage]:
    """
    What is in *data*, a file's bytes from *start* on, in order. A file that is not of this format is one damage; zeros
    at the end are room that was not used.

    Args:
        start: 0 for a whole file, header included; else the offset of a record.
    """
    at, end = 0, len(data.rstrip(b"\0"))  # behind which the last record may go on, in zeros of its own
    if start == 0:
        if data[: len(HEADER)] != HEADER:
            if end:
                is_torn = HEADER.startswith(data[:end])
                yield Damage(0, end, is_tail=is_torn, is_torn=is_torn)
            return
        at = len(HEADER)
    view = memoryview(data)
    while at < end:
        found = _read(view, at)
        if found is None:
            following = _next(view, at + 1, end)
            is_tail = following == end
            is_torn = is_tail and _is_cut_short(view[:end], at)
            yield Damage(start + at, following - at, is_tail=is_tail, is_torn=is_torn)
            at = following
            continue
        record, behind = found
        yield Found(record, bytes(view[at + FRAME_BYTES : behind]), start + behind)
        at = behind


def _read(view: memoryview, at: int) -> tuple[Record, int] | None:
    """The record at *at* and where it ends; None where there is none, or not all of it."""
    begin = at + FRAME_BYTES
    if begin > len(view):
        return None
    length, checksum = _FRAME.unpack_from(view, at)
    end = begin + length
    if not 0 < length <= MAX_RECORD_BYTES or end > len(view):
        return None
    payload = view[begin:end]
    if _checksum(length, payload) != checksum:
        return None
    try:
        return decode(bytes(payload)), end
    except msgspec.DecodeError:
        return None


def _is_cut_short(view: memoryview, at: int) -> bool:
    """Whether what is at *at* ends before the length that it begins with."""
    begin = at + FRAME_BYTES
    if begin > len(view):
        return True
    length, _ = _FRAME.unpack_from(view, at)
    return bool(0 < length <= MAX_RECORD_BYTES and begin + length > len(view))


def _next(view: memoryview, at: int, end: int) -> int:
    """Where the next whole record begins at or behind *at*; *end* where there is none before that."""
    while at < end:
        if _read(view, at) is not None:
            return at
        at += 1
    return end
