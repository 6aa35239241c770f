"""The place of an exchange whose journal is in Redis."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.core.booking import Admission
from gateway.core.catalog import Route
from gateway.core.journal import Grant, Opened, Progress
from gateway.storage.journal.slots import MAX_SENT, way_of
from gateway.storage.journal.stream_store import Id

_PLACE = struct.Struct(f"<IB{MAX_SENT}s")  # tokens, attempts, their ways


@dataclass(slots=True)
class StreamPlace:
    """The place of one exchange, in memory; written when it has moved, once a second."""

    admission: Admission
    note: Callable[[Opened], None]
    tokens: int = 0
    ways: bytearray = field(default_factory=bytearray)
    has_moved: bool = False
    is_granted: bool = True  # else nothing is written of it: progress of an early admission says that it was let in
    grant: Grant | None = None
    is_kept: bool = False  # whether progress of it may be in Redis
    payloads: list[bytes] = field(default_factory=list)  # its records, while it is open
    first: Id | None = None  # of these, the oldest in the stream
    since_s: float = 0.0

    def sent(self, route: Route) -> None:
        """Note that an attempt by *route* is on its way."""
        way = way_of(route, self.admission.ways)
        if way is None or len(self.ways) >= MAX_SENT:
            return
        self.note(Opened(self.admission.request_id, len(self.ways), way, self.grant))
        self.ways.append(way)
        self.has_moved, self.grant = True, None

    def granted(self, admission: Admission) -> None:
        """See `early.Granted`."""
        self.grant = Grant(admission.reserved_nano_usd, admission.admitted_ms)
        self.is_granted = self.has_moved = True

    def moved(self, tokens: int, now_s: float) -> None:
        """Note what is here of the answer."""
        self.tokens = tokens
        self.has_moved = True

    def packed(self) -> bytes:
        """As it is kept."""
        return _PLACE.pack(min(self.tokens, 2**32 - 1), len(self.ways), bytes(self.ways))


def progress_of(data: bytes | None) -> Progress | None:
    """What `StreamPlace.packed` gave; None for nothing, or what no version wrote."""
    if data is None or len(data) != _PLACE.size:
        return None
    tokens, count, ways = _PLACE.unpack(data)
    return Progress(tuple(ways[: min(count, MAX_SENT)]), tokens, is_granted=True)
