"""
The spool of this process, and everything that is done with journals: its own is emptied into the database while it
serves, those of processes that have died are taken over.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from gateway.aio import Tasks
from gateway.core.booking import Admission
from gateway.core.exchange import Begun, Place
from gateway.core.journal import Book, Settled, left_behind
from gateway.core.ports import Counters, Spent, StoreUnavailable
from gateway.core.receipt import Receipt
from gateway.storage.journal.carrying import GATHER_S, MOST, STUMBLED_S, Backlog, Carrier
from gateway.storage.journal.homes import Home, journals_in, make_home, put_aside, take
from gateway.storage.journal.reader import BEGINNING, Piece, Reader
from gateway.storage.journal.segment_writer import SEGMENT_BYTES, Position
from gateway.storage.journal.segments import Damage, Found, name_of, numbers_in
from gateway.storage.journal.slots import progress_at, read_slots
from gateway.storage.journal.spool import RETRY_S, Ends, Reports, Spool
from gateway.storage.writing import Entry

P = ParamSpec("P")
T = TypeVar("T")

ADOPT_S = 2.0  # between two looks for journals of dead processes
# What ended longer ago has been settled by its own process; what is younger may not have been when that died. Within
# the two minutes for which counters know a request again.
RESETTLE_S = 60.0
# For counters that are away, to say what a dead process holds; its rows wait for as long.
HELD_S, HELD_AGAIN_S = 5.0, 0.5
_DRAIN, _ADOPT = "journal.drain", "journal.adopt"  # tasks
_FLUSH_S = 1.0  # for the last records: a disk takes milliseconds


@dataclass(frozen=True, slots=True)
class KeeperReports:
    """
    Who is told what, besides `Reports` and `CarrierReports`.

    Attributes:
        damaged: A file is not what was written: its path, or where it was put, and what is wrong.
        torn: The writer of a journal whose last record is not whole: its process was killed in the middle of it, and
            nobody had been told that it is kept.
        adopted: The writer of a journal that was taken over, how many ends it had, and how many were reconciled.
        unreadable: A journal, and why it cannot be read now; once each.
    """

    damaged: Callable[[str, Damage], None]
    adopted: Callable[[str, int, int], None]
    torn: Callable[[str, Damage], None]
    unreadable: Callable[[str, OSError], None]


@dataclass(frozen=True, slots=True)
class SpoolRules:
    """Where and how journals are kept.

    Attributes:
        name: This process's among all that ever write to *root*; `writer` is what the ledger calls it.
        bill_interrupted: As in `Tariff`, as it is now: settings are read again while this process runs.
    """

    root: Path
    name: str
    writer: str
    fsync: bool = True
    bill_interrupted: Callable[[], bool] = lambda: True
    segment_bytes: int = SEGMENT_BYTES


class SpoolKeeper(Backlog):
    """
    The port `Journal`, on disk. To be made inside the running loop.

    Args:
        epoch_s: The wall clock.

    Raises:
        OSError: The directory cannot be written to.
    """

    def __init__(
        self,
        rules: SpoolRules,
        carrier: Carrier,
        counters: Counters,
        *,
        reports: Reports,
        keeper_reports: KeeperReports,
        epoch_s: Callable[[], float],
        tasks: Tasks,
    ) -> None:
        self._rules = rules
        self._carrier = carrier
        self._counters = counters
        self._reports = keeper_reports
        super().__init__(epoch_s, tasks)
        self._news = asyncio.Event()
        self._taken_over = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []
        self._unread: set[Path] = set()  # journals that could not be read, as far as it was told
        self._counted: set[Path] = set()  # those that are being taken over, once counters know of them
        home = make_home(rules.root, rules.name, rules.writer)
        self.spool = Spool(
            home, reports, self._news.set, dropped=self._drop, fsync=rules.fsync, segment_bytes=rules.segment_bytes
        )
        self._in_hand: Ends | None = None  # on their way into the database
        self._carried_to = BEGINNING

    async def admit(self, admission: Admission) -> Place:
        """See the port."""
        return await self.spool.admit(admission)

    def begin(self, admission: Admission) -> Begun:
        """See the port."""
        return self.spool.begin(admission)

    def record(self, receipt: Receipt) -> None:
        """See the port."""
        self._ended += 1
        self.spool.record(receipt)

    def _drop(self, count: int) -> None:
        self._ended -= count

    def start(self) -> None:
        """Begin to empty journals."""
        self._running = [
            self._tasks.spawn(self._empty_own(), name=_DRAIN),
            self._tasks.spawn(self._adopt_all(), name=_ADOPT),
        ]

    async def taken_over(self) -> None:
        """Return when everything that dead processes had left behind at the start is in the database."""
        await self._taken_over.wait()

    async def close(self, timeout_s: float) -> None:
        """Stop, and bring into the database what can be in *timeout_s*; another process will bring the rest."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        await self.spool.close(min(_FLUSH_S, timeout_s))
        is_carried = False
        try:
            async with asyncio.timeout_at(end_s):
                is_carried = await self._steadily(_DRAIN, self._empty_all())
        except TimeoutError:
            pass
        except OSError as exc:
            self._tell_unreadable(self.spool.home.path, exc)
        self._leave(is_carried=is_carried)

    async def _empty_all(self) -> None:
        while True:
            if await self._empty() == self.spool.written:
                return
            await asyncio.sleep(0)  # an end was recorded meanwhile; that it is on the disk is told in another turn

    def _leave(self, *, is_carried: bool) -> None:
        """
        Remove the journal, if the database has all of it, or leave it to another process. Nothing comes between the
        last look and this.

        Of one with open exchanges the lock is kept: until the process ends they may, and nobody else has to guess how.
        """
        spool = self.spool
        if spool.open:
            return
        try:
            if is_carried and spool.is_whole:
                spool.home.remove()
            else:
                spool.home.release()
        except OSError as exc:
            self._tell_unreadable(spool.home.path, exc)
        spool.end()

    async def _empty_own(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(GATHER_S)  # for company
            self._news.clear()
            try:
                is_done = await self._steadily(_DRAIN, self._empty())
                self._unread.discard(self.spool.home.path)
            except OSError as exc:  # no file may be opened just now, or somebody has taken them away
                self._tell_unreadable(self.spool.home.path, exc)
                self.spool.look_after()
                await asyncio.sleep(RETRY_S)
                self._news.set()
                continue
            if not is_done:
                await asyncio.sleep(STUMBLED_S)
                self._news.set()

    async def _empty(self) -> Position:
        """
        Bring everything that is written by now into the database; up to where that is.

        Each time from where it had come before: whoever is cancelled may have taken what the database does not have.
        """
        if self._in_hand is None:
            self._in_hand = self.spool.take_ends()
        ends = self._in_hand
        if ends is None:
            return await self._empty_files()
        while ends.receipts:
            some = ends.receipts[:MOST]
            await self._carry(some)
            del ends.receipts[: len(some)]
        self._in_hand = None
        await self._carried_up_to(ends.up_to)
        return ends.up_to

    async def _empty_files(self) -> Position:
        """As `_empty`, of what is not at hand."""
        home = self.spool.home
        reader = Reader(home.path, lambda: self.spool.written, self._carried_to)
        written = self.spool.written
        while (piece := await _in_thread(reader.next, MOST)) is not None:
            self._tell_of_damage(home, piece)
            await self._carry(list(_ends(piece)))
            await self._carried_up_to(piece.end)
            written = self.spool.written
        self.spool.resume(self._carried_to)
        return written

    async def _carry(self, receipts: Sequence[Receipt]) -> None:
        entries = [Entry(receipt, self.spool.home.writer) for receipt in receipts]
        self._oldest_ms = receipts[0].settled_ms if receipts else None
        await self._carrier.carry(entries)
        self._counters.written([receipt.request_id for receipt in receipts])
        self._carried = min(self._carried + len(receipts), self._ended)  # some come again after a loss
        self._oldest_ms = None

    async def _carried_up_to(self, end: Position) -> None:
        self.spool.carried(end)
        if end.segment > self._carried_to.segment:
            await _in_thread(_remove_before, self.spool.home.path, end.segment)
        self._carried_to = end

    async def _adopt_all(self) -> None:
        root = self._rules.root
        while True:
            try:
                for path in await _in_thread(journals_in, root):
                    await self._adopt_if_left(path)
            except OSError as exc:
                self._tell_unreadable(root, exc)
            self._taken_over.set()
            await asyncio.sleep(ADOPT_S)

    async def _adopt_if_left(self, path: Path) -> None:
        """Take over the journal at *path* if its process is dead. One that cannot be read keeps none of the others."""
        try:
            home = await _in_thread(take, path)
            if home is not None and await self._steadily(f"{_ADOPT} {path.name}", self._adopt(home)):
                self._unread.discard(path)
                self._counted.discard(path)
        except OSError as exc:
            self._tell_unreadable(path, exc)
        except UnicodeError:
            self._tell_unreadable(path, OSError(errno.EINVAL, "no journal"))

    async def _adopt(self, home: Home) -> None:
        """Everything in the journal of a dead process: into the counters at once, into the database when that can."""
        is_ours = True
        try:
            left, never, recent, book = await _in_thread(self._read_through, home)
            if home.path not in self._counted:  # again later, they would count it again
                self._counted.add(home.path)
                settle_left(self._counters, (*recent, *left), never)
            held = await still_held(self._counters, home.writer, book.knows)
            reader, ended = Reader(home.path), 0
            while (piece := await _in_thread(reader.next, MOST)) is not None:
                self._tell_of_damage(home, piece)
                entries = [Entry(receipt, home.writer) for receipt in _ends(piece)]
                for entry in entries:
                    if entry.receipt.request_id in held:
                        self._counters.settle(entry.receipt.request_id, spent_of(entry.receipt))
                await self._carrier.carry(entries)
                ended += len(entries)
            for start in range(0, len(left), MOST):
                await self._carrier.carry([Entry(receipt, home.writer) for receipt in left[start : start + MOST]])
            is_ours = False  # who removes it lets go of it, also when nobody waits for that any more
            await _in_thread(home.remove)
            self._reports.adopted(home.writer, ended, len(left))
        finally:
            if is_ours:
                home.release()

    def _read_through(self, home: Home) -> tuple[list[Receipt], list[Admission], list[Receipt], Book]:
        """See `left_behind`; then the ends that were young when the process died, and what there are records of."""
        book, slots, recent = Book(), read_slots(home.path), list[Receipt]()
        now_ms = int(self._epoch_s() * 1000)
        reader = Reader(home.path)
        while (piece := reader.next(MOST)) is not None:
            for found in piece.found:
                receipt = book.take(found.record) if isinstance(found, Found) else None
                if receipt is not None and receipt.settled_ms >= now_ms - RESETTLE_S * 1000:
                    recent.append(receipt)
        left, never = left_behind(
            book.open.values(),
            lambda admitted: progress_at(slots, admitted.place, admitted.serial),
            bill_interrupted=self._rules.bill_interrupted(),
            now_ms=now_ms,
        )
        return left, never, recent, book

    def _tell_of_damage(self, home: Home, piece: Piece) -> None:
        for damage in piece.found:
            if not isinstance(damage, Damage):
                continue
            name = name_of(piece.segment)
            if damage.is_torn and piece.segment == numbers_in(home.path)[-1]:
                self._reports.torn(home.writer, damage)
                continue
            try:
                path = put_aside(home, name)
            except OSError:  # no room for a copy: what could be read is worth more
                path = home.path / name
            self._reports.damaged(str(path), damage)

    def _tell_unreadable(self, path: Path, exc: OSError) -> None:
        if path not in self._unread:
            self._unread.add(path)
            self._reports.unreadable(str(path), exc)


def _ends(piece: Piece) -> Iterator[Receipt]:
    for found in piece.found:
        if isinstance(found, Found) and isinstance(found.record, Settled):
            yield found.record.receipt


def _remove_before(path: Path, segment: int) -> None:
    """Let go of what is in the database: what is open of it stands in the newest file as well."""
    for number in numbers_in(path):
        if number < segment:
            (path / name_of(number)).unlink(missing_ok=True)  # one that was cancelled may be at it still


async def _in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What *call* gives; files are read, and thousands of records, while others are served."""
    return await asyncio.get_running_loop().run_in_executor(None, partial(call, *args, **kwargs))


async def still_held(counters: Counters, writer: str, is_recorded: Callable[[str], bool]) -> Collection[str]:
    """
    The recorded requests of the dead process *writer* for which something is held all the same: its last word on them
    was lost. What it had not come to record was never sent to a provider, and is given back at once.
    """
    end_s = asyncio.get_running_loop().time() + HELD_S
    while True:
        try:
            held = await counters.held_by(writer)
            break
        except StoreUnavailable:
            if asyncio.get_running_loop().time() >= end_s:
                return ()  # counters take it to be spent some time
            await asyncio.sleep(HELD_AGAIN_S)
    for request_id in held:
        if not is_recorded(request_id):
            counters.settle(request_id, Spent())
    return {request_id for request_id in held if is_recorded(request_id)}


def settle_left(counters: Counters, receipts: Iterable[Receipt], never: Iterable[Admission]) -> None:
    """Tell *counters* what *receipts* of a dead process came to; what they hold for its *never* is given back."""
    for receipt in receipts:
        counters.settle(receipt.request_id, spent_of(receipt), key_id=receipt.key_id)
    for admission in never:
        counters.settle(admission.request_id, Spent(), key_id=admission.key_id)


def spent_of(receipt: Receipt) -> Spent:
    """What counters have to know of *receipt*."""
    return Spent(receipt.usage.total_tokens, receipt.weighted_tokens, receipt.cost_nano_usd)
