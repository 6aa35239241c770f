"""
The port `Journal` on a Redis stream, and everything that is done with such journals. See `stream_store`.

Admissions wait for Redis, a round trip; nothing else does. That a provider is asked leaves in the same turn of the loop
as the request itself: a process that is killed has sent both, or neither. Progress is written every second: should the
process die, at most that much of each open stream is not charged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import msgspec

from gateway.aio import Patience, Tasks
from gateway.core.booking import Admission
from gateway.core.exchange import Begun, Place
from gateway.core.journal import Admitted, Book, Opened, Record, Settled, decode, encode, left_behind
from gateway.core.ports import Counters, StoreUnavailable
from gateway.core.receipt import Receipt
from gateway.storage.journal.carrying import GATHER_S, MOST, STUMBLED_S, Backlog, Carrier
from gateway.storage.journal.early import Early
from gateway.storage.journal.keeping import ADOPT_S, RESETTLE_S, settle_left, spent_of, still_held
from gateway.storage.journal.spool import Reports
from gateway.storage.journal.stream_pipe import KEPT_BYTES, Letter, Pipe, PipeReports
from gateway.storage.journal.stream_place import StreamPlace, progress_of
from gateway.storage.journal.stream_store import Id, StreamStore
from gateway.storage.redis_link import RedisFailed
from gateway.storage.writing import Entry

# A Redis that was there a moment ago is waited for as long as its forks and slow commands take; a call takes seconds.
ADMIT_S = 0.5
AWAY_S = 0.1  # H24: where it is known not to answer, whoever waits for a call to be admitted waits no longer than this
RENEW_S = 1.0
# How long an exchange may stand in the way of those behind it being forgotten; then its records are written anew.
REWRITE_S = 60.0
_DRAIN, _ADOPT = "journal.drain", "journal.adopt"  # tasks
STOP_S = 0.1  # between two attempts to stop a task
_FIRST: Id = b"0"


@dataclass(frozen=True, slots=True)
class StreamRules:
    """As `SpoolRules`."""

    name: str
    writer: str
    bill_interrupted: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class StreamReports:
    """
    Who is told what, besides `Reports` and `CarrierReports`.

    Attributes:
        adopted: The writer of a journal that was taken over, how many ends it had, and how many were reconciled.
        displaced: A key of ours that held something else, and the name that this has now.
    """

    adopted: Callable[[str, int, int], None]
    displaced: Callable[[str, str], None]


class StreamKeeper(Backlog):
    """
    The port `Journal`, on Redis. To be made inside the running loop.

    Args:
        url: Of Redis, as `storage.redis_url`.
        epoch_s: The wall clock.
    """

    known = (StoreUnavailable,)

    def __init__(
        self,
        rules: StreamRules,
        url: str,
        carrier: Carrier,
        counters: Counters,
        *,
        reports: Reports,
        stream_reports: StreamReports,
        epoch_s: Callable[[], float],
        tasks: Tasks,
    ) -> None:
        self._rules = rules
        self._store = StreamStore(url)
        told = PipeReports(self._fail, self._restore, self._dropped, self._write_anew, stream_reports.displaced)
        self._pipe = Pipe(url, rules.name, rules.writer, told)
        self._carrier = carrier
        self._counters = counters
        self._reports, self._stream_reports = reports, stream_reports
        super().__init__(epoch_s, tasks)
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, StreamPlace] = {}
        self._uncarried: dict[str, bytes] = {}  # ends that the database does not have, by request: Redis may lose them
        self._there: set[str] = set()  # those of them that Redis had; all others are on their way
        self._uncarried_bytes = self._beyond = 0  # and how many more there are, for which there was no room
        self._gone: set[str] = set()  # whose progress is still in Redis, and not needed any more
        self._news = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []
        self._has_failed = False
        self._newest: Id = _FIRST  # of the records that are known to be there; all that is on its way is newer
        self._read_to: Id = _FIRST

    async def admit(self, admission: Admission) -> Place:
        """See the port."""
        place, future = self._begin(Admitted(admission))
        await self._answered(admission.request_id, future)
        return place

    def begin(self, admission: Admission) -> Begun:
        """See the port."""
        place, future = self._begin(Admitted(admission, is_early=True))
        place.is_granted = False
        return Early(admission, place, partial(self._answered, admission.request_id, future))

    def _begin(self, admitted: Admitted) -> tuple[StreamPlace, asyncio.Future[None]]:
        admission, now_s = admitted.admission, self._loop.time()
        place, payload = StreamPlace(admission, self._note, since_s=now_s), encode(admitted)
        future: asyncio.Future[None] = self._loop.create_future()
        place.payloads.append(payload)
        self._open[admission.request_id] = place
        letter = Letter(payload, partial(self._admitted, place, future), partial(_refuse, future))
        patience_s = AWAY_S if self._pipe.is_away else ADMIT_S
        self._pipe.offer(letter)
        patience = Patience(patience_s, partial(self._silent, future, patience_s))
        future.add_done_callback(partial(self._over, letter, patience, now_s))
        return place, future

    async def _answered(self, request_id: str, future: asyncio.Future[None]) -> None:
        try:
            await future
        except StoreUnavailable as exc:
            self._open.pop(request_id, None)
            self._tell(exc)
            raise

    def _over(self, letter: Letter, patience: Patience, began_s: float, future: asyncio.Future[None]) -> None:
        """Nobody waits for *letter* any more."""
        patience.cancel()
        self._pipe.withdraw(letter)
        if not future.cancelled() and future.exception() is None:
            self._reports.committed(self._loop.time() - began_s)

    def record(self, receipt: Receipt) -> None:
        """See the port."""
        self._ended += 1
        place = self._open.pop(receipt.request_id, None)
        if place is not None and place.is_kept:
            self._gone.add(receipt.request_id)
        payload = encode(Settled(receipt))
        landed = partial(self._end_landed, receipt.request_id)
        self._pipe.put(Letter(payload, landed, is_spare=receipt.booking is None))
        if receipt.booking is not None:
            self._remember(receipt.request_id, payload)
            self._pipe.flush()  # with what the customer is told

    def start(self) -> None:
        """Begin to write, and to empty journals."""
        steps = {
            "journal.write": self._pipe.run, "journal.renew": self._renew_all,
            _DRAIN: self._empty_own, _ADOPT: self._adopt_all,
        }  # fmt: skip
        self._running = [self._tasks.spawn(step(), name=name) for name, step in steps.items()]

    async def taken_over(self) -> None:
        """Return at once: the journal's Redis has the counters too, and they know what a dead process holds."""

    async def close(self, timeout_s: float) -> None:
        """Stop, and bring into the database what can be in *timeout_s*; another process will bring the rest."""
        end_s = self._loop.time() + timeout_s
        writing, *others = self._running or [self._tasks.spawn(self._pipe.run(), name="journal.write")]
        await _stop(others)
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout_at(end_s):
                is_carried = await self._steadily(_DRAIN, self._empty_all())
                if self._open or not is_carried:
                    await self._store.release(self._rules.name)
                else:
                    await self._store.remove(self._rules.name)
        await _stop([writing])
        self._pipe.close()
        await self._store.close()

    async def _empty_all(self) -> None:
        ended = -1
        while ended != self._ended:  # else one was recorded meanwhile
            ended = self._ended
            await self._pipe.emptied()
            await self._empty()

    # -- writing --

    def _admitted(self, place: StreamPlace, future: asyncio.Future[None], number: Id) -> None:
        place.first = number
        self._landed(number)
        if not future.done():
            future.set_result(None)

    def _landed(self, number: Id) -> None:
        self._newest = number
        self._news.set()

    def _silent(self, future: asyncio.Future[None], waited_s: float) -> None:
        """The call goes elsewhere. Its record may be written all the same: the end that follows closes it."""
        self._pipe.silent()
        if not future.done():
            future.set_exception(StoreUnavailable(f"Redis has not answered for {waited_s} s"))

    def _fail(self, exc: RedisFailed) -> None:
        self._tell(StoreUnavailable(str(exc)))

    def _tell(self, exc: StoreUnavailable) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._reports.failed(exc)

    def _restore(self) -> None:
        if self._has_failed:
            self._has_failed = False
            self._reports.restored()

    def _dropped(self) -> None:
        self._carried += 1  # a trace of what cost nothing: it will not be in the database

    def _remember(self, request_id: str, payload: bytes) -> None:
        if self._uncarried_bytes + len(payload) > KEPT_BYTES:
            self._beyond += 1
        else:
            self._uncarried[request_id] = payload
            self._uncarried_bytes += len(payload)

    def _end_landed(self, request_id: str, number: Id) -> None:
        if request_id in self._uncarried:
            self._there.add(request_id)
        self._landed(number)

    def _is_news(self, receipt: Receipt) -> bool:
        """Whether *receipt*, which the database has by now, was not carried before; nothing more is kept for it."""
        payload = self._uncarried.pop(receipt.request_id, None)
        if payload is not None:
            self._uncarried_bytes -= len(payload)
            self._there.discard(receipt.request_id)
        elif receipt.booking is not None:
            is_beyond = self._beyond > 0
            self._beyond -= is_beyond
            return is_beyond
        return True

    def _note(self, opened: Opened) -> None:
        place = self._open.get(opened.request_id)
        if place is not None:
            payload = encode(opened)
            place.payloads.append(payload)
            self._pipe.put(Letter(payload, self._landed))
            self._pipe.flush()  # with the request that it is about

    async def _renew_all(self) -> None:
        while True:
            self._rewrite()
            self._renew()
            await asyncio.sleep(RENEW_S)

    def _renew(self) -> None:
        """Say that this process lives, and what has come of answers."""
        moved = [place for place in self._open.values() if place.has_moved and place.is_granted]
        gone, self._gone = self._gone, set()
        for place in moved:
            place.has_moved, place.is_kept = False, True
        packed = {place.admission.request_id: place.packed() for place in moved}
        self._pipe.renew(packed, gone, partial(self._not_renewed, moved, gone))

    def _not_renewed(self, moved: Sequence[StreamPlace], gone: set[str], _exc: RedisFailed) -> None:
        for place in moved:
            place.has_moved = True
        self._gone |= gone

    def _rewrite(self) -> None:
        """Put what is open for long behind the others: those before it need not be kept for it."""
        before_s = self._loop.time() - REWRITE_S
        self._write_again([place for place in self._open.values() if place.first and place.since_s < before_s])

    def _write_anew(self) -> None:
        """The journal is another one from now on: what is open has to be in it, and ends that are not carried yet."""
        there, self._there = self._there, set()
        for request_id in there:
            self._pipe.put(Letter(self._uncarried[request_id], partial(self._end_landed, request_id)))
        self._write_again([place for place in self._open.values() if place.first])

    def _write_again(self, places: Sequence[StreamPlace]) -> None:
        for place in places:
            place.since_s, place.has_moved = self._loop.time(), True
            first, *others = place.payloads
            self._pipe.put(Letter(first, partial(self._again, place)))
            for payload in others:
                self._pipe.put(Letter(payload, self._landed))

    def _again(self, place: StreamPlace, number: Id) -> None:
        place.first = number
        self._landed(number)

    # -- emptying --

    async def _empty_own(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(GATHER_S)  # for company
            self._news.clear()
            try:
                if await self._steadily(_DRAIN, self._empty()):
                    continue
                await asyncio.sleep(STUMBLED_S)
            except StoreUnavailable:
                await asyncio.sleep(RENEW_S)
            self._news.set()

    async def _empty(self) -> None:
        """Bring everything that is written by now into the database."""
        rules = self._rules
        if _order(self._newest) < _order(self._read_to):
            self._read_to = _FIRST  # it is another stream, begun by a clock that is behind
        while found := await self._store.read(rules.name, self._read_to, MOST):
            entries = [Entry(receipt, rules.writer) for receipt in await self._ends(rules.name, found)]
            self._oldest_ms = entries[0].receipt.settled_ms if entries else None
            await self._carrier.carry(entries)
            self._counters.written([entry.receipt.request_id for entry in entries])
            self._carried += sum(self._is_news(entry.receipt) for entry in entries)
            self._oldest_ms = None
            self._read_to = found[-1][0]
            firsts = [place.first for place in self._open.values() if place.first is not None]
            await self._store.trim(rules.name, min([self._read_to, self._newest, *firsts], key=_order))

    async def _adopt_all(self) -> None:
        """
        A journal whose lease is over is taken when it still is at the next look: in between, Redis has read all that
        was sent to it, what a process wrote before it died, and the renewals of those that live, though it had stood
        still for longer than leases last.
        """
        suspects: set[str] = set()
        while True:
            with suppress(StoreUnavailable):
                await self._steadily(_ADOPT, self._adopt_left(suspects))
            await asyncio.sleep(ADOPT_S)

    async def _adopt_left(self, suspects: set[str]) -> None:
        """Take those of *suspects* that still are; they are the ones of this look from now on."""
        self._tell_displaced(await self._store.put_strangers_aside())
        unheld = await self._store.unheld(self._rules.name)
        for name in suspects & unheld:
            step = f"{_ADOPT} {name.partition('~')[0]}"  # behind it stands when it was taken
            await self._steadily(step, self._adopt_if_left(name))
        suspects.clear()
        suspects |= unheld

    async def _records(self, name: str, found: Sequence[tuple[Id, bytes]]) -> list[Record]:
        """The records that *found* are, of the journal *name*; what is none that this version knows is put aside."""
        records, others = list[Record](), list[Id]()
        for number, payload in found:
            try:
                records.append(decode(payload))
            except msgspec.DecodeError:
                others.append(number)
        if others:
            self._tell_displaced(await self._store.put_records_aside(name, others))
        return records

    async def _ends(self, name: str, found: Sequence[tuple[Id, bytes]]) -> list[Receipt]:
        return [record.receipt for record in await self._records(name, found) if isinstance(record, Settled)]

    def _tell_displaced(self, moved: list[tuple[str, str]]) -> None:
        for old_name, new_name in moved:
            self._stream_reports.displaced(old_name, new_name)

    async def _adopt_if_left(self, name: str) -> None:
        self._tell_displaced(await self._store.put_aside(name))
        if (taken := await self._store.take(name, self._rules.writer)) is not None:
            await self._adopt(*taken)

    async def _adopt(self, name: str, writer: str) -> None:
        """Everything in the journal of a dead process: into the counters at once, into the database when that can."""
        holding = self._tasks.spawn(self._hold(name), name="journal.hold")
        try:
            left, never, recent, book = await self._read_through(name)
            settle_left(self._counters, (*recent, *left), never)
            held, ended, at = await still_held(self._counters, writer, book.knows), 0, _FIRST
            while found := await self._store.read(name, at, MOST):
                entries = [Entry(receipt, writer) for receipt in await self._ends(name, found)]
                for entry in entries:
                    if entry.receipt.request_id in held:
                        self._counters.settle(entry.receipt.request_id, spent_of(entry.receipt))
                await self._carrier.carry(entries)
                ended, at = ended + len(entries), found[-1][0]
            for start in range(0, len(left), MOST):
                await self._carrier.carry([Entry(receipt, writer) for receipt in left[start : start + MOST]])
            await _stop([holding])  # else it might hold what is not there any more
            await self._store.remove(name)
            self._stream_reports.adopted(writer, ended, len(left))
        finally:
            holding.cancel()

    async def _hold(self, name: str) -> None:
        while True:
            with suppress(StoreUnavailable):
                await self._store.hold(name, self._rules.writer)
            await asyncio.sleep(RENEW_S)

    async def _read_through(self, name: str) -> tuple[list[Receipt], list[Admission], list[Receipt], Book]:
        """Of the journal *name*, as `SpoolKeeper` has it of its files."""
        book, recent, at = Book(), list[Receipt](), _FIRST
        since_ms = (self._epoch_s() - RESETTLE_S) * 1000
        while found := await self._store.read(name, at, MOST):
            records = await self._records(name, found)
            ended = [receipt for record in records if (receipt := book.take(record)) is not None]
            recent += [receipt for receipt in ended if receipt.settled_ms >= since_ms]
            at = found[-1][0]
        places = await self._store.places(name)
        left, never = left_behind(
            book.open.values(),
            lambda admitted: progress_of(places.get(admitted.admission.request_id.encode())),
            bill_interrupted=self._rules.bill_interrupted(),
            now_ms=int(self._epoch_s() * 1000),
        )
        return left, never, recent, book


def _refuse(future: asyncio.Future[None], exc: RedisFailed) -> None:
    if not future.done():
        future.set_exception(StoreUnavailable(str(exc)))


async def _stop(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel *tasks* until they have ended: the library takes a cancellation for its own while it connects."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=STOP_S)


def _order(number: Id) -> tuple[int, int]:
    """Ids of a stream are milliseconds and a count, in decimal."""
    milliseconds, _, count = number.partition(b"-")
    return int(milliseconds), int(count or 0)
