"""
Carrying receipts from a journal into the database, until it has them: through outages, and past those that it refuses.

A batch is one transaction. What the database refuses for its contents is found by halving the batch, and put aside; the
rest of the batch is written. While the database is away, the same batch is tried again and again: the journal keeps the
order, and what follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from sqlalchemy.exc import SQLAlchemyError

from gateway.aio import Tasks
from gateway.core.journal import Settled, encode
from gateway.core.ports import StoreUnavailable
from gateway.storage.writing import Entry

# A batch has what has gathered in a quarter of a second, and no more than this: 0.012 ms a row (reliability 5.4).
MOST = 500
GATHER_S = 0.25
WAIT_S = 0.1  # before a database that was away is asked again; doubled up to
WAIT_MAX_S = 5.0
STUMBLED_S = 1.0  # before what met a mistake of ours is tried again: it may be of one row, which others follow
_REFUSED = (SQLAlchemyError, ValueError, OverflowError)  # the database, or its driver, by what there is in a row


class Shelf(Protocol):
    """Where entries go, as `storage.writing.BookWriter`."""

    async def write(self, entries: Sequence[Entry]) -> None: ...

    async def bury(self, entry: Entry, record: bytes, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class CarrierReports:
    """
    Who is told what.

    Attributes:
        delayed: The database does not take anything, from now on; once until `caught_up`.
        buried: What it will never take: a request's id, and why.
    """

    delayed: Callable[[BaseException], None]
    caught_up: Callable[[], None]
    buried: Callable[[str, str], None]


class Carrier:
    """One way into the database, used by everything here that has a journal to empty."""

    def __init__(self, shelf: Shelf, reports: CarrierReports) -> None:
        self._shelf = shelf
        self._reports = reports
        self._is_delayed = False

    async def carry(self, entries: Sequence[Entry]) -> None:
        """Return when the database has *entries*, or has them as dead letters."""
        wait_s = WAIT_S
        while entries:
            try:
                await self._write(entries)
                break
            except StoreUnavailable as exc:
                if not self._is_delayed:
                    self._is_delayed = True
                    self._reports.delayed(exc)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, WAIT_MAX_S)
        if entries and self._is_delayed:
            self._is_delayed = False
            self._reports.caught_up()

    async def _write(self, entries: Sequence[Entry]) -> None:
        """Raises StoreUnavailable; a part may have been written."""
        try:
            await self._shelf.write(entries)
        except _REFUSED as exc:
            if len(entries) == 1:
                await self._bury(entries[0], exc)
                return
        else:
            return
        middle = len(entries) // 2
        await self._write(entries[:middle])
        await self._write(entries[middle:])

    async def _bury(self, entry: Entry, cause: Exception) -> None:
        reason = type(cause).__name__
        try:
            await self._shelf.bury(entry, encode(Settled(entry.receipt)), reason)
        except _REFUSED as exc:
            raise StoreUnavailable("no dead letter can be written") from exc
        self._reports.buried(entry.receipt.request_id, reason)


class Backlog:
    """
    How far the database is behind a journal: the half that its keepers have in common.

    Args:
        epoch_s: Epoch seconds.
        tasks: Where their own run, and what nobody had thought of is told.

    Attributes:
        known: What their steps are known to raise.
    """

    known: ClassVar[tuple[type[Exception], ...]] = (OSError, StoreUnavailable, UnicodeError)

    def __init__(self, epoch_s: Callable[[], float], tasks: Tasks) -> None:
        self._epoch_s = epoch_s
        self._tasks = tasks
        self._stumbling: set[str] = set()
        self._ended = self._carried = 0
        self._oldest_ms: int | None = None  # of those that are being carried

    async def _steadily(self, step: str, work: Awaitable[object]) -> bool:
        """
        Whether *work* was done; not where it met what nobody had thought of, which is told once until it is done.

        A bug of ours in it must not end what only a restart would begin anew: it is to be tried again.

        Raises:
            Exception: One that is `known`.
        """
        try:
            await work
        except self.known:
            raise
        except Exception as exc:
            if step not in self._stumbling:
                self._stumbling.add(step)
                self._tasks.tell(step, exc)
            return False
        self._stumbling.discard(step)
        return True

    @property
    def backlog(self) -> int:
        """Ends of this process that the database does not have yet."""
        return self._ended - self._carried

    @property
    def lag_s(self) -> float:
        """The age of the oldest of them, as far as it is known; 0 where there is none."""
        return 0.0 if self._oldest_ms is None else max(0.0, self._epoch_s() - self._oldest_ms / 1000)
