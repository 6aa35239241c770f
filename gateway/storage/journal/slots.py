"""
Progress of open exchanges in a file that is mapped into memory: a place of 64 bytes for each.

Writing there is a copy of some bytes (0.1 us), and outlives the process: the kernel has the page. Nobody waits until
the page is on the disk, so it does not outlive the machine.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from struct import Struct

from gateway.core.booking import Admission, Way
from gateway.core.catalog import Route
from gateway.core.exchange import Outcome
from gateway.core.journal import Grant, Opened, Progress
from gateway.core.receipt import Receipt
from gateway.core.usage import Basis, Usage

FILE = "slots"
SLOT_BYTES = 64
SLOTS = 16_384  # 1 MiB. One process has some thousands of exchanges under way at the very most
FILE_BYTES = SLOTS * SLOT_BYTES  # taken whole when a journal is begun
MAX_SENT = 16  # attempts that are told apart; there are hardly ever more than three

_GRANTED, _SETTLED = 1, 2
_OUTCOMES: Sequence[Outcome] = ("completed", "cancelled", "interrupted", "rejected", "failed")
_BASES: Sequence[Basis] = ("none", "provider_final", "received", "estimated", "cache")

# Serial; second and tokens; usage; state, outcome, basis, number of attempts; their ways.
_WHOLE = Struct(f"<QdI6I4B{MAX_SENT}s")
_SERIAL = Struct("<Q")
_MOVED = Struct("<dI")
_END = Struct("<6I3B")
_MOVED_AT, _END_AT, _STATE_AT, _COUNT_AT, _WAYS_AT = 8, 20, 44, 47, 48
assert _WHOLE.size == SLOT_BYTES
_EMPTY = bytes(SLOT_BYTES)
_MAX_COUNT = 2**32 - 1


class Slots:
    """
    The places of this process.

    Raises:
        OSError: There is no room for the file. All of it is taken at once: a page that the disk had no room for would
            end the process in the moment in which it is written.
    """

    def __init__(self, directory: Path) -> None:
        self._map = _mapped(directory)
        self._free = list(range(SLOTS - 1, -1, -1))
        self._serial = 0

    def take(self, admission: Admission, note: Callable[[Opened], None]) -> Slot:
        """
        A place for an exchange. When there is none left, one that keeps nothing.

        Args:
            note: Told of every attempt.
        """
        self._serial += 1
        place = self._free.pop() if self._free else -1
        if place >= 0:
            at = place * SLOT_BYTES
            self._map[at : at + SLOT_BYTES] = _EMPTY
            _SERIAL.pack_into(self._map, at, self._serial)
        return Slot(self._map, (place, self._serial), admission, note)

    def give_back(self, slot: Slot) -> None:
        """What stands at *slot* is not needed any more: there is a record of the end."""
        if slot.place >= 0:
            self._free.append(slot.place)

    def renew(self, directory: Path, held: Iterable[Slot]) -> None:
        """Begin the file again as it stands, for the one of before is gone; *held* are written to. Raises OSError."""
        renewed = _mapped(directory)
        renewed[:] = self._map[:]
        self._map = renewed
        for slot in held:
            slot.move_to(renewed)

    def close(self) -> None:
        """No slot may be written to any more."""
        self._map.close()


def _mapped(directory: Path) -> mmap.mmap:
    descriptor = os.open(directory / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, FILE_BYTES)
        return mmap.mmap(descriptor, FILE_BYTES)
    finally:
        os.close(descriptor)


class Slot:
    """The place of one exchange, as `core.exchange.Place`. *place* is its number, -1 where there is none."""

    __slots__ = ("_at", "_grant", "_map", "_moved", "_note", "_request_id", "_sent", "_ways", "place", "serial")

    def __init__(
        self, memory: mmap.mmap, place: tuple[int, int], admission: Admission, note: Callable[[Opened], None]
    ) -> None:
        self.place, self.serial = place
        self._map = memory
        self._at = self.place * SLOT_BYTES
        self._moved = self._at + _MOVED_AT
        self._request_id = admission.request_id
        self._ways = admission.ways
        self._note = note
        self._grant: Grant | None = None
        self._sent = 0

    def move_to(self, memory: mmap.mmap) -> None:
        """Stand at the same place of *memory* from now on."""
        self._map = memory

    def granted(self, admission: Admission) -> None:
        """See `early.Granted`."""
        self._grant = Grant(admission.reserved_nano_usd, admission.admitted_ms)
        if self.place >= 0:
            self._map[self._at + _STATE_AT] = _GRANTED

    def sent(self, route: Route) -> None:
        """Note that an attempt by *route* is on its way."""
        way = way_of(route, self._ways)
        if way is None:
            return
        if self.place >= 0 and self._sent < MAX_SENT:
            self._map[self._at + _WAYS_AT + self._sent] = way
            self._map[self._at + _COUNT_AT] = self._sent + 1
        self._note(Opened(self._request_id, self._sent, way, self._grant))
        self._sent, self._grant = self._sent + 1, None

    def moved(self, tokens: int, now_s: float) -> None:
        """Note what is here of the answer."""
        if self.place >= 0:
            _MOVED.pack_into(self._map, self._moved, now_s, tokens)

    def settled(self, receipt: Receipt) -> None:
        """Note the end, until there is a record of it."""
        if self.place < 0:
            return
        usage = receipt.usage
        counts = (
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.cached_tokens,
            usage.cache_write_tokens,
            usage.reasoning_tokens,
            usage.cache_write_1h_tokens,
        )
        outcome, basis = _OUTCOMES.index(receipt.outcome), _BASES.index(receipt.usage_basis)
        _END.pack_into(self._map, self._at + _END_AT, *[min(n, _MAX_COUNT) for n in counts], _SETTLED, outcome, basis)


def way_of(route: Route, ways: Sequence[Way]) -> int | None:
    """The position of *route* among *ways*; None for one that a byte cannot name, or that is not among them."""
    name, model = route.provider.name, route.model
    for position, way in enumerate(ways):
        if way.provider == name and way.model == model:
            return position if position < 256 else None
    return None


def read_slots(directory: Path) -> bytes:
    """What is in the file of a process that has died; b"" where there is none."""
    try:
        return (directory / FILE).read_bytes()
    except FileNotFoundError:
        return b""


def progress_at(slots: bytes, place: int, serial: int) -> Progress | None:
    """What stands at *place* of the exchange *serial*; None where that is another's, or nothing was kept."""
    at = place * SLOT_BYTES
    if place < 0 or at + SLOT_BYTES > len(slots):
        return None
    owner, _, tokens, *counts, state, outcome, basis, sent, ways = _WHOLE.unpack_from(slots, at)
    if owner != serial:
        return None
    asked = tuple(ways[: min(sent, MAX_SENT)])
    if state != _SETTLED or outcome >= len(_OUTCOMES) or basis >= len(_BASES):
        return Progress(asked, tokens, is_granted=state == _GRANTED)
    return Progress(asked, tokens, Usage(*counts), _BASES[basis], _OUTCOMES[outcome], is_granted=True)
