"""
A journal on disk: one thread writes what many exchanges want written, and waits for the disk once for all of them.

An exchange waits until its admission is on the disk. Its end is written soon after (`SOON_S`), and until then stands in
its slot, where it outlives the process.

When the disk fails, nobody is let in any more (`StoreUnavailable`); what has begun goes on, and its ends are kept in
memory until they can be written; those of calls that were refused, which cost nothing, are dropped: an outage may have
any number of them. After a failure a new file is begun: what a disk has of one that it failed to write is not known,
and it may claim to have written it the next time. So it is when somebody takes the files away: what the database does
not have of the newest one can be read for as long as it is open, and is written again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from gateway.core.booking import Admission
from gateway.core.exchange import Begun, Place
from gateway.core.journal import Admitted, Record, Settled
from gateway.core.ports import StoreUnavailable
from gateway.core.receipt import Receipt
from gateway.storage.journal.early import Early
from gateway.storage.journal.homes import Home
from gateway.storage.journal.segment_writer import SEGMENT_BYTES, Position, SegmentWriter, is_spare
from gateway.storage.journal.slots import Slot, Slots

SOON_S = 0.02  # that the end of an exchange waits for company on its way to the disk
RETRY_S = 1.0  # between two attempts at a disk that fails, while nobody comes who would be refused
# A disk takes 0.2 to some 10 ms. Whoever waits longer than this is refused: the client may go elsewhere.
ADMIT_S = 2.0
TICK_S = 0.25
# Ends that are kept at hand for the database, of some 5 KB; while it is away for longer, they are in the files alone.
AT_HAND = 2_000


@dataclass(slots=True)
class Ends:
    """Ends that are on the disk, in order, and *up_to* where that has all of them."""

    receipts: list[Receipt]
    up_to: Position


@dataclass(frozen=True, slots=True)
class Reports:
    """Who is told what, in the loop's thread.

    Attributes:
        failed: The disk does not take what we write, from now on; once until `restored`.
        committed: Seconds that the disk took for a group of records.
    """

    failed: Callable[[BaseException], None]
    restored: Callable[[], None]
    committed: Callable[[float], None]


@dataclass(slots=True)
class _Batch:
    """What goes to the disk together. Admissions have somebody who waits, ends a slot that becomes free."""

    records: list[Record]
    waiting: list[asyncio.Future[None]]
    slots: list[Slot]


class Spool:
    """
    The journal of this process. To be made inside the running loop, which is the only thread that may call it.

    Args:
        home: Its own; the caller releases it.
        wrote: Called when more of the journal is on the disk.
        dropped: Called with how many ends were not kept for a disk that fails.
        fsync: Whether admissions wait for the disk, or only until they outlive this process.

    Raises:
        OSError: It cannot be begun.
    """

    def __init__(
        self,
        home: Home,
        reports: Reports,
        wrote: Callable[[], None],
        *,
        dropped: Callable[[int], None] = lambda count: None,
        fsync: bool = True,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.home = home
        self._loop = asyncio.get_running_loop()
        self._reports = reports
        self._wrote = wrote
        self._dropped = dropped
        self._slots = Slots(home.path)
        self._held: dict[str, Slot] = {}
        self._later: list[Record] = []
        self._later_slots: list[Slot] = []
        self._unwritten: list[Slot] = []  # of ends that the disk has not taken
        self._pending: dict[asyncio.Future[None], float] = {}
        self._flush: asyncio.TimerHandle | None = None
        self._has_failed = False
        self._is_closing = self._has_ended = False
        self._losses = 0
        self._queue: SimpleQueue[_Batch | None] = SimpleQueue()
        self._writer = SegmentWriter(home, fsync=fsync, segment_bytes=segment_bytes)
        self._told = self._writer.written
        self._ends: Ends | None = Ends([], self._told)
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()
        self._ticker = self._loop.call_later(TICK_S, self._tick)

    @property
    def written(self) -> Position:
        """Up to where the journal is on the disk."""
        return self._writer.written

    def carried(self, position: Position) -> None:
        """The database has everything before *position*."""
        self._writer.carried = position

    def take_ends(self) -> Ends | None:
        """
        Those that have come to be on the disk since the last call: reading them from there would cost as much as all
        else that becomes of them. None where that has to be done, see `resume`.
        """
        ends = self._ends
        if ends is not None:
            self._ends = Ends([], ends.up_to)
        return ends

    def resume(self, position: Position) -> None:
        """Everything before *position* has been read; if that is all, what follows is kept at hand. Not while the disk
        fails: what it has not taken comes into the files with what it takes next."""
        if self._ends is None and position >= self._told and not self._has_failed:
            self._ends = Ends([], position)

    def look_after(self) -> None:
        """See whether the files are still there; somebody could not read one."""
        self._queue.put(_Batch([], [], []))

    @property
    def open(self) -> int:
        """Exchanges that have been let in and have not ended."""
        return len(self._held)

    @property
    def is_whole(self) -> bool:
        """Whether all that was ever handed over is on the disk, once the spool is closed."""
        is_idle = not self._thread.is_alive() and self._queue.empty() and not self._later
        return is_idle and not self._writer.is_failing

    async def admit(self, admission: Admission) -> Place:
        """
        Return when *admission* is on the disk; where the exchange notes its progress.

        Raises:
            StoreUnavailable: The disk does not take it.
        """
        slot, future = self._begin(admission)
        await self._answered(admission.request_id, future)
        return slot

    def begin(self, admission: Admission) -> Begun:
        """See the port `Journal`."""
        slot, future = self._begin(admission, is_early=True)
        return Early(admission, slot, partial(self._answered, admission.request_id, future))

    def _begin(self, admission: Admission, *, is_early: bool = False) -> tuple[Slot, asyncio.Future[None]]:
        if self._is_closing:
            raise StoreUnavailable("the journal is closed")
        slot = self._slots.take(admission, self._later_record)
        future = self._loop.create_future()
        self._held[admission.request_id] = slot
        self._pending[future] = self._loop.time()
        self._hand_over(Admitted(admission, slot.place, slot.serial, is_early), future)
        return slot, future

    async def _answered(self, request_id: str, future: asyncio.Future[None]) -> None:
        try:
            await future
        except StoreUnavailable:
            self._slots.give_back(self._held.pop(request_id))
            raise

    def record(self, receipt: Receipt) -> None:
        """Have *receipt* written soon; once the spool is closed, at once."""
        if self._has_ended:
            return  # nothing was open any more: it is of a call that was refused
        slot = self._held.pop(receipt.request_id, None)
        if slot is not None:
            if receipt.booking is not None:  # else limits have refused it, and the slot is of no call
                slot.settled(receipt)
            self._later_slots.append(slot)
        self._later_record(Settled(receipt))
        if self._is_closing:
            self._write_left()

    async def close(self, timeout_s: float) -> bool:
        """
        Write what is left, and let nobody in any more; whether the disk took it within *timeout_s*.

        What is open may still be recorded.
        """
        self._is_closing = True
        self._ticker.cancel()
        self._send_later()
        self._queue.put(None)
        await self._loop.run_in_executor(None, self._thread.join, timeout_s)
        self._write_left()
        return self.is_whole

    def end(self) -> None:
        """Give back the files of a spool that is closed and has nothing open."""
        self._has_ended = True
        if not self._thread.is_alive():  # else it may be writing, to a disk that hangs
            self._writer.close()
            self._slots.close()

    def _write_left(self) -> None:
        """Write what was handed over since the thread had its last word, in this one: it costs a wait for the disk."""
        if not self._thread.is_alive():
            self._send_later()
            self._queue.put(None)
            self._run()

    def _later_record(self, record: Record) -> None:
        self._later.append(record)
        if self._flush is None:
            self._flush = self._loop.call_later(SOON_S, self._send_later)

    def _send_later(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self._later:
            self._queue.put(self._take_later())

    def _take_later(self) -> _Batch:
        batch = _Batch(self._later, [], self._later_slots)
        self._later, self._later_slots = [], []
        return batch

    def _hand_over(self, admitted: Admitted, future: asyncio.Future[None]) -> None:
        """Wake the thread; what waits for company goes along."""
        batch = self._take_later()
        batch.records.append(admitted)
        batch.waiting.append(future)
        self._queue.put(batch)

    def _tick(self) -> None:
        """Refuse those who have waited too long: a disk can hang without an error."""
        self._ticker = self._loop.call_later(TICK_S, self._tick)
        before_s = self._loop.time() - ADMIT_S
        late = [future for future, since_s in self._pending.items() if since_s < before_s]
        for future in late:
            self._answer(future, StoreUnavailable("the journal's disk does not answer"))
        if late:
            self._fail(TimeoutError(f"the journal's disk has not answered for {ADMIT_S} s"))

    def _answer(self, future: asyncio.Future[None], error: StoreUnavailable | None) -> None:
        self._pending.pop(future, None)
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
            future.exception()  # seen: nobody waits for what limits have refused

    def _fail(self, exc: BaseException) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._reports.failed(exc)

    # -- the other thread --

    def _run(self) -> None:
        is_over = False
        while not is_over:
            batches, is_over = self._next()
            began_s = time.monotonic()
            records = [record for batch in batches for record in batch.records]
            error: BaseException | None = None
            try:
                self._writer.write(records)
            except OSError as exc:
                error = exc
            took_s = time.monotonic() - began_s
            try:
                self._loop.call_soon_threadsafe(self._written, batches, self._writer.written, error, took_s)
            except RuntimeError:
                return  # the loop is closed: nobody waits for anything any more
            if not is_over and self._queue.empty():
                self._writer.make_room()

    def _next(self) -> tuple[list[_Batch], bool]:
        """Everything that there is to be written, as soon as there is anything; whether that is the last."""
        batches: list[_Batch] = []
        try:
            first = self._queue.get(timeout=RETRY_S if self._writer.is_failing else None)
            while first is not None:
                batches.append(first)
                first = self._queue.get_nowait()
        except Empty:
            return batches, False
        return batches, True

    # -- the loop's thread again --

    def _written(
        self, batches: list[_Batch], position: Position, error: BaseException | None, took_s: float
    ) -> None:  # fmt: skip
        self._told = position
        for batch in batches:
            for future in batch.waiting:
                self._answer(future, None if error is None else StoreUnavailable(str(error)))
            self._unwritten += batch.slots
        if error is not None:
            self._ends = None  # they are written some time, and who knows with what
            self._dropped(sum(is_spare(record) for batch in batches for record in batch.records))
            self._fail(error)
            return
        self._keep_at_hand(batches)
        for slot in self._unwritten:  # also those of an outage: what was kept of it has been written along
            self._slots.give_back(slot)
        self._unwritten.clear()
        self._reports.committed(took_s)
        if self._losses != self._writer.losses:
            self._losses = self._writer.losses
            self._fail(FileNotFoundError("somebody has taken the journal's files away"))
            try:
                self._slots.renew(self.home.path, self._held.values())
            except OSError as exc:
                self._fail(exc)
        if self._has_failed and not self._writer.is_failing:
            self._has_failed = False
            self._reports.restored()
        self._wrote()

    def _keep_at_hand(self, batches: list[_Batch]) -> None:
        ends = self._ends
        if ends is None or self._told <= ends.up_to:  # read already, before it was told of
            return
        ends.up_to = self._told
        ends.receipts += [
            record.receipt for batch in batches for record in batch.records if isinstance(record, Settled)
        ]
        if len(ends.receipts) > AT_HAND:
            self._ends = None
