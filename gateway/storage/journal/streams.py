"""
The port `Journal` on a Redis stream, and everything that is done with such journals. See `stream_store`.

One task writes what many exchanges want written, in one round trip for all of them. Progress is written every second:
should the process die, at most that much of each open stream is not charged.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import msgspec

from gateway.aio import Patience, Tasks
from gateway.core.booking import Admission
from gateway.core.catalog import Route
from gateway.core.exchange import Place
from gateway.core.journal import Admitted, Book, Opened, Progress, Record, Settled, decode, encode, reconcile
from gateway.core.ports import Counters, StoreUnavailable
from gateway.core.receipt import Receipt
from gateway.storage.journal.carrying import GATHER_S, MOST, Backlog, Carrier
from gateway.storage.journal.keeping import ADOPT_S, RESETTLE_S, spent_of, still_held
from gateway.storage.journal.slots import MAX_SENT, way_of
from gateway.storage.journal.spool import SOON_S, Reports
from gateway.storage.journal.stream_store import Id, StreamStore
from gateway.storage.writing import Entry

ADMIT_S = 0.1  # H24: whoever waits for a call to be admitted waits no longer than this for Redis
RENEW_S = 1.0
# How long an exchange may stand in the way of those behind it being forgotten; then its records are written anew.
REWRITE_S = 60.0
STOP_S = 0.1  # between two attempts to stop a task
KEPT_BYTES = 16 * 1024 * 1024  # of ends that cost nothing, while Redis takes none; others are kept in any case
_PLACE = struct.Struct(f"<IB{MAX_SENT}s")  # tokens, attempts, their ways
_FIRST: Id = b"0"


@dataclass(slots=True)
class StreamPlace:
    """The place of one exchange, in memory; written when it has moved, once a second."""

    admission: Admission
    note: Callable[[Opened], None]
    tokens: int = 0
    ways: bytearray = field(default_factory=bytearray)
    has_moved: bool = False
    payloads: list[bytes] = field(default_factory=list)  # its records, while it is open
    first: Id | None = None  # of these, the oldest in the stream
    since_s: float = 0.0

    def sent(self, route: Route) -> None:
        """Note that an attempt by *route* is on its way."""
        way = way_of(route, self.admission.ways)
        if way is None or len(self.ways) >= MAX_SENT:
            return
        self.note(Opened(self.admission.request_id, len(self.ways), way))
        self.ways.append(way)
        self.has_moved = True

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
    return Progress(tuple(ways[: min(count, MAX_SENT)]), tokens)


@dataclass(frozen=True, slots=True)
class StreamRules:
    """As `SpoolRules`."""

    name: str
    writer: str
    bill_interrupted: bool = True


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A record on its way, who waits for it, and the place that it is of, while that is open, as its first or not."""

    payload: bytes
    place: StreamPlace | None = None
    future: asyncio.Future[None] | None = None
    ended: str | None = None
    is_paid: bool = True
    is_first: bool = False


class StreamKeeper(Backlog):
    """
    The port `Journal`, on Redis. To be made inside the running loop.

    Args:
        adopted: The writer of a journal that was taken over, how many ends it had, and how many were reconciled.
        epoch_s: The wall clock.
    """

    def __init__(
        self,
        rules: StreamRules,
        store: StreamStore,
        carrier: Carrier,
        counters: Counters,
        *,
        reports: Reports,
        adopted: Callable[[str, int, int], None],
        epoch_s: Callable[[], float],
        tasks: Tasks,
    ) -> None:
        self._rules = rules
        self._store = store
        self._carrier = carrier
        self._counters = counters
        self._reports = reports
        self._adopted = adopted
        super().__init__(epoch_s)
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, StreamPlace] = {}
        self._queue: list[_Waiting] = []
        self._wake, self._news = asyncio.Event(), asyncio.Event()
        self._flush: asyncio.TimerHandle | None = None
        self._running: list[asyncio.Task[None]] = []
        self._has_failed = self._is_stuck = False
        self._turn = asyncio.Lock()  # to write: what is on its way is newer than all that is known to be there
        self._newest: Id = _FIRST  # of these
        self._read_to: Id = _FIRST

    async def admit(self, admission: Admission) -> Place:
        """See the port."""
        place = StreamPlace(admission, self._note, since_s=self._loop.time())
        payload, future = encode(Admitted(admission)), self._loop.create_future()
        place.payloads.append(payload)
        self._open[admission.request_id] = place
        self._queue.append(_Waiting(payload, place, future, is_first=True))
        self._wake.set()
        patience = Patience(ADMIT_S, partial(self._refuse, [future])) if self._is_stuck else None
        try:
            await future
        except StoreUnavailable:
            self._open.pop(admission.request_id, None)
            raise
        finally:
            if patience is not None:
                patience.cancel()
        return place

    def record(self, receipt: Receipt) -> None:
        """See the port."""
        self._ended += 1
        self._open.pop(receipt.request_id, None)
        is_paid = receipt.booking is not None
        self._queue.append(_Waiting(encode(Settled(receipt)), ended=receipt.request_id, is_paid=is_paid))
        self._soon()

    def start(self) -> None:
        """Begin to write, and to empty journals."""
        steps = {"write": self._write_all, "renew": self._renew_all, "drain": self._empty_own, "adopt": self._adopt_all}
        self._running = [self._tasks.spawn(step(), name=f"journal.{name}") for name, step in steps.items()]

    async def taken_over(self) -> None:
        """Return at once: the journal's Redis has the counters too, and they know what a dead process holds."""

    async def close(self, timeout_s: float) -> None:
        """Stop, and bring into the database what can be in *timeout_s*; another process will bring the rest."""
        end_s = self._loop.time() + timeout_s
        await _stop(self._running)
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout_at(end_s):
                await self._write()
                await self._empty()
                if self._open or self._queue:
                    await self._store.release(self._rules.name)
                else:
                    await self._store.remove(self._rules.name)
        await self._store.close()

    # -- writing --

    def _silent(self, batch: list[_Waiting]) -> None:
        """Redis does not answer: those who wait for *batch* are refused, and those who wait behind it."""
        self._is_stuck = True
        self._refuse([one.future for one in (*batch, *self._queue) if one.future is not None])

    def _refuse(self, futures: Sequence[asyncio.Future[None]]) -> None:
        """The calls go elsewhere. Their records may be written all the same: the ends that follow close them."""
        for future in futures:
            if not future.done():
                exc = StoreUnavailable(f"Redis has not answered for {ADMIT_S} s")
                future.set_exception(exc)
                self._tell(exc)

    def _tell(self, exc: StoreUnavailable) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._reports.failed(exc)

    def _note(self, opened: Opened) -> None:
        place = self._open.get(opened.request_id)
        if place is not None:
            payload = encode(opened)
            place.payloads.append(payload)
            self._queue.append(_Waiting(payload, place))
            self._wake.set()  # at once: there is no map that would outlive us

    def _soon(self) -> None:
        if self._flush is None:
            self._flush = self._loop.call_later(SOON_S, self._flush_now)

    def _flush_now(self) -> None:
        self._flush = None
        self._wake.set()

    async def _write_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            with suppress(StoreUnavailable):
                await self._write()

    async def _write(self, moved: Sequence[StreamPlace] = ()) -> None:
        """
        Write what waits, in one round trip. Raises StoreUnavailable, when the ends are still to be written.

        Args:
            moved: Whose progress is written along.
        """
        async with self._turn:
            await self._write_batch(moved)

    async def _write_batch(self, moved: Sequence[StreamPlace]) -> None:
        batch, self._queue = [one for one in self._queue if one.future is None or not one.future.done()], []
        places = {place.admission.request_id: place.packed() for place in moved}
        gone: dict[str, bytes | None] = {one.ended: None for one in batch if one.ended is not None}
        if not batch and not places:
            return
        began_s, patience = self._loop.time(), Patience(ADMIT_S, partial(self._silent, batch))
        try:
            ids = await self._store.append(self._rules.name, [one.payload for one in batch], {**places, **gone})
        except StoreUnavailable as exc:
            self._fail(batch, exc)
            raise
        except BaseException:
            self._queue[:0] = batch
            raise
        finally:
            patience.cancel()
            self._is_stuck = False
        for place in moved:
            place.has_moved = False
        for one, number in zip(batch, ids, strict=True):
            self._newest = number
            if one.place is not None and one.is_first:
                one.place.first = number
            if one.future is not None and not one.future.done():
                one.future.set_result(None)
        self._reports.committed(self._loop.time() - began_s)
        if self._has_failed:
            self._has_failed = False
            self._reports.restored()
        self._news.set()

    def _fail(self, batch: list[_Waiting], exc: StoreUnavailable) -> None:
        """Nobody is let in; ends and attempts wait for the next time."""
        kept, size = [], 0
        for one in batch:
            if one.future is not None:
                if not one.future.done():
                    one.future.set_exception(StoreUnavailable(str(exc)))
                continue
            size += len(one.payload)
            if one.is_paid or size < KEPT_BYTES:
                kept.append(one)
            else:
                self._carried += 1  # a trace of what cost nothing: it will not be in the database
        self._queue[:0] = kept
        self._tell(exc)

    async def _renew_all(self) -> None:
        while True:
            with suppress(StoreUnavailable):
                await self._store.renew(self._rules.name, self._rules.writer)
                self._rewrite()
                await self._write([place for place in self._open.values() if place.has_moved])
            await asyncio.sleep(RENEW_S)

    def _rewrite(self) -> None:
        """Put what is open for long behind the others: those before it need not be kept for it."""
        before_s = self._loop.time() - REWRITE_S
        for place in self._open.values():
            if place.first is not None and place.since_s < before_s:
                place.since_s, place.has_moved = self._loop.time(), True
                self._queue[:0] = [_Waiting(text, place, is_first=n == 0) for n, text in enumerate(place.payloads)]

    # -- emptying --

    async def _empty_own(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(GATHER_S)  # for company
            self._news.clear()
            try:
                await self._empty()
            except StoreUnavailable:
                await asyncio.sleep(RENEW_S)
                self._news.set()

    async def _empty(self) -> None:
        """Bring everything that is written by now into the database."""
        rules = self._rules
        if _order(self._newest) < _order(self._read_to):
            self._read_to = _FIRST  # it is another stream, begun by a clock that is behind
        while found := await self._store.read(rules.name, self._read_to, MOST):
            entries = [Entry(receipt, rules.writer) for receipt in _ends(found)]
            self._oldest_ms = entries[0].receipt.settled_ms if entries else None
            await self._carrier.carry(entries)
            self._counters.written([entry.receipt.request_id for entry in entries])
            self._carried += len(entries)
            self._oldest_ms = None
            self._read_to = found[-1][0]
            firsts = [place.first for place in self._open.values() if place.first is not None]
            await self._store.trim(rules.name, min([self._read_to, self._newest, *firsts], key=_order))

    async def _adopt_all(self) -> None:
        while True:
            with suppress(StoreUnavailable):
                while (taken := await self._store.take(self._rules.name, self._rules.writer)) is not None:
                    await self._adopt(*taken)
            await asyncio.sleep(ADOPT_S)

    async def _adopt(self, name: str, writer: str) -> None:
        """Everything in the journal of a dead process: into the counters at once, into the database when that can."""
        holding = self._tasks.spawn(self._hold(name), name="journal.hold")
        try:
            left, ended = await self._read_through(name)
            for receipt in (*ended, *left):
                if receipt.settled_ms >= (self._epoch_s() - RESETTLE_S) * 1000:
                    self._counters.settle(receipt.request_id, spent_of(receipt), key_id=receipt.key_id)
            known = {receipt.request_id: receipt for receipt in (*ended, *left)}
            for request_id in await still_held(self._counters, writer, known.__contains__):
                self._counters.settle(request_id, spent_of(known[request_id]))
            entries = [Entry(receipt, writer) for receipt in (*ended, *left)]
            for start in range(0, len(entries), MOST):
                await self._carrier.carry(entries[start : start + MOST])
            await _stop([holding])  # else it might hold what is not there any more
            await self._store.remove(name)
            self._adopted(writer, len(ended), len(left))
        finally:
            holding.cancel()

    async def _hold(self, name: str) -> None:
        while True:
            with suppress(StoreUnavailable):
                await self._store.hold(name, self._rules.writer)
            await asyncio.sleep(RENEW_S)

    async def _read_through(self, name: str) -> tuple[list[Receipt], list[Receipt]]:
        """The ends of what is open in the journal *name*, as far as they can be told, and those that it has."""
        book, ended, at = Book(), list[Receipt](), _FIRST
        while found := await self._store.read(name, at, MOST):
            ended += [receipt for record in _records(found) if (receipt := book.take(record)) is not None]
            at = found[-1][0]
        places = await self._store.places(name)
        now_ms, bill = int(self._epoch_s() * 1000), self._rules.bill_interrupted
        left = [
            reconcile(case, progress_of(places.get(request_id.encode())), bill_interrupted=bill, now_ms=now_ms)
            for request_id, case in book.open.items()
        ]
        return left, ended


async def _stop(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel *tasks* until they have ended: the library takes a cancellation for its own while it connects."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=STOP_S)


def _records(found: list[tuple[Id, bytes]]) -> list[Record]:
    """Those that this version knows."""
    records = []
    for _, payload in found:
        with suppress(msgspec.DecodeError):
            records.append(decode(payload))
    return records


def _ends(found: list[tuple[Id, bytes]]) -> list[Receipt]:
    return [record.receipt for record in _records(found) if isinstance(record, Settled)]


def _order(number: Id) -> tuple[int, int]:
    """Ids of a stream are milliseconds and a count, in decimal."""
    milliseconds, _, count = number.partition(b"-")
    return int(milliseconds), int(count or 0)
