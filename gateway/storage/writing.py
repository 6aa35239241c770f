"""
Writing what receipts come to: the ledger, the traces, the sessions; in one transaction, and as often as one likes.

What is there already stays as it is, so a batch may be written again when nobody knows whether it was: by a retry, by
another process that replays the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.entries import (
    AMOUNTS,
    CHARGE,
    CHARGED,
    COSTS_APART,
    Booked,
    Guessed,
    LedgerRow,
    SessionRow,
    TraceRow,
    correction,
    knows_more,
    ledger_rows,
    session_rows,
    trace_row,
)
from gateway.core.journal import CRASH
from gateway.core.receipt import Receipt
from gateway.storage.database import Database
from gateway.storage.inserting import Insert
from gateway.storage.tables import dead_letters, ledger, sessions, traces

_AT_A_TIME = 16  # entries whose rows are made before others are served: 0.2 ms and more
_SUMS = ("requests", "failed", "prompt_tokens", "completion_tokens", "weighted_tokens", "cost_nano_usd")
_CHANGES = (
    "agent_id = coalesce(excluded.agent_id, sessions.agent_id)",
    "first_ms = {least}(sessions.first_ms, excluded.first_ms)",
    "last_ms = {most}(sessions.last_ms, excluded.last_ms)",
    *(f"{name} = sessions.{name} + excluded.{name}" for name in _SUMS),
)
_LEDGER = Insert(ledger, LedgerRow, ("request_id", "kind"))
_TRACES = Insert(traces, TraceRow, ("request_id",))
_SESSIONS = Insert(
    sessions, SessionRow, conflict=f"ON CONFLICT (tenant, session_id) DO UPDATE SET {', '.join(_CHANGES)}"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A receipt, and the process that served it."""

    receipt: Receipt
    writer: str


class BookWriter:
    """
    The tables that the journal is drained into.

    Args:
        now_ms: Epoch milliseconds.
    """

    def __init__(self, database: Database, now_ms: Callable[[], int]) -> None:
        self._database = database
        self._now_ms = now_ms

    async def write(self, entries: Sequence[Entry]) -> None:
        """
        Write what *entries* come to: all of it or nothing.

        Raises:
            StoreUnavailable: The database does not answer now. Whether anything was written is not known.
            SQLAlchemyError: It does not take something of this.
        """
        now_ms, entries = self._now_ms(), _one_each(entries)
        rows: list[LedgerRow] = []
        marks: list[TraceRow] = []
        for start in range(0, len(entries), _AT_A_TIME):
            for entry in entries[start : start + _AT_A_TIME]:
                rows += ledger_rows(entry.receipt, writer=entry.writer, recorded_ms=now_ms)
                marks.append(trace_row(entry.receipt, recorded_ms=now_ms))
            await asyncio.sleep(0)
        words = {entry.receipt.request_id for entry in entries if not _is_guess(entry)}
        await self._database.write(lambda connection: self._write(connection, rows, marks, words))

    async def bury(self, entry: Entry, record: bytes, reason: str) -> None:
        """
        Put aside what the database does not take.

        Raises:
            StoreUnavailable: As `write`.
        """
        values = {
            "at_ms": self._now_ms(),
            "request_id": entry.receipt.request_id.replace("\0", ""),
            "tenant": entry.receipt.tenant.replace("\0", ""),
            "reason": reason,
            "record": record,
        }

        async def step(connection: AsyncConnection) -> None:
            known = select(dead_letters.c.seq).where(
                dead_letters.c.request_id == values["request_id"], dead_letters.c.record == record
            )
            if (await connection.execute(known)).first() is None:
                await connection.execute(insert(dead_letters).values(values))

        await self._database.write(step)

    async def _write(
        self,
        connection: AsyncConnection,
        rows: Sequence[LedgerRow],
        marks: Sequence[TraceRow],
        words: Container[str],
    ) -> None:
        guessed: list[Guessed] = []
        if rows:
            fresh = {request_id for request_id, kind in await _LEDGER.add(connection, rows) if kind == CHARGE}
            late = [row for row in rows if row.request_id not in fresh]
            if late:
                heard = await self._correct(connection, late, words)
                guessed = await self._take_guesses(connection, heard)
        if marks:
            new = await _TRACES.add(connection, marks)
            added = [mark for mark in marks if (mark.request_id,) in new]
            await _SESSIONS.add(connection, session_rows(added, guessed))

    async def _correct(
        self, connection: AsyncConnection, late: Sequence[LedgerRow], words: Container[str]
    ) -> Sequence[str]:  # fmt: skip
        """
        A process's own word on what was reconciled in its absence, or what more was found of it: the difference, as
        rows of their own, of charges and of costs. Whose last word is among *late*.
        """
        charges = [row for row in late if row.kind == CHARGE]
        columns = [ledger.c[name] for name in ("request_id", "kind", "attempt", "state", *AMOUNTS)]
        found = await connection.execute(
            select(*columns).where(ledger.c.request_id.in_([row.request_id for row in charges]))
        )
        booked: dict[tuple[str, int | None], list[Booked]] = {}
        for request_id, kind, attempt, state, *amounts in found:
            item = _item(request_id, kind, attempt)
            booked.setdefault(item, []).append(Booked(attempt, state, tuple(amounts)))
        heard = {
            request_id
            for one in charges
            if (request_id := one.request_id) in words or knows_more(one, booked.get((request_id, None), ()))
        }
        said = [row for row in late if row.request_id in heard]
        corrections = [correction(row, booked.get(_item(row.request_id, row.kind, row.attempt), ())) for row in said]
        await _LEDGER.add(connection, [row for row in corrections if row is not None])
        return sorted(heard)

    async def _take_guesses(self, connection: AsyncConnection, ids: Sequence[str]) -> list[Guessed]:
        """Make room for the traces of *ids*, where those that are there were drawn up in their process's absence."""
        columns = [traces.c[name] for name in Guessed.__struct_fields__]
        theirs = traces.c.request_id.in_(ids), traces.c.note == CRASH
        if not ids:
            return []
        found = await connection.execute(delete(traces).where(*theirs).returning(*columns))
        return [Guessed(*row) for row in found]


def _item(request_id: str, kind: str, attempt: int) -> tuple[str, int | None]:
    """What a row of the ledger says something of: the charge of a request, or one attempt's cost."""
    return request_id, None if kind in CHARGED else attempt % COSTS_APART


def _one_each(entries: Iterable[Entry]) -> list[Entry]:
    """*entries* without those that say the same again, or know less."""
    found: dict[str, Entry] = {}
    for entry in entries:
        known = found.get(entry.receipt.request_id)
        if known is None or _is_guess(known):
            found[entry.receipt.request_id] = entry
    return list(found.values())


def _is_guess(entry: Entry) -> bool:
    """Whether it is not the word of the process that served."""
    booking = entry.receipt.booking
    return booking is not None and booking.is_reconciled
