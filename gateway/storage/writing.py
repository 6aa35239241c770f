"""
Writing what receipts come to: the ledger, the traces, the sessions; in one transaction, and as often as one likes.

All rows of a table are one parameter, a JSON array that the database takes apart: SQLAlchemy would spend more on each
row than the gateway on the rest of a request. What is there already stays as it is, so a batch may be written again
when nobody knows whether it was: by a retry, by another process that replays the journal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import Struct
from sqlalchemy import Table, TextClause, TextualSelect, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.entries import (
    AMOUNTS,
    CHARGE,
    CORRECTION,
    Booked,
    LedgerRow,
    SessionRow,
    TraceRow,
    correction,
    ledger_rows,
    session_rows,
    trace_row,
)
from gateway.core.receipt import Receipt
from gateway.storage.database import Database
from gateway.storage.tables import dead_letters, ledger, sessions, traces

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # behind backslashes that mean themselves, if any


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
        self._sql = _Statements(database.dialect)

    async def write(self, entries: Sequence[Entry]) -> None:
        """
        Write what *entries* come to: all of it or nothing.

        Raises:
            StoreUnavailable: The database does not answer now. Whether anything was written is not known.
            SQLAlchemyError: It does not take something of this.
        """
        now_ms, entries = self._now_ms(), _one_each(entries)
        rows = [row for e in entries for row in ledger_rows(e.receipt, writer=e.writer, recorded_ms=now_ms)]
        marks = [trace_row(entry.receipt, recorded_ms=now_ms) for entry in entries]
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
        if rows:
            written = await connection.execute(self._sql.ledger, {"rows": _json(rows)})
            fresh = {row.request_id for row in written if row.kind == CHARGE}
            charges = [row for row in rows if row.kind == CHARGE]
            late = [row for row in charges if row.request_id in words and row.request_id not in fresh]
            if late:
                await self._correct(connection, late)
        if marks:
            new = {row.request_id for row in await connection.execute(self._sql.traces, {"rows": _json(marks)})}
            added = session_rows(mark for mark in marks if mark.request_id in new)
            if added:
                await connection.execute(self._sql.sessions, {"rows": _json(added)})

    async def _correct(self, connection: AsyncConnection, late: Sequence[LedgerRow]) -> None:
        """A process's own word on what was reconciled in its absence: the difference, as rows of their own."""
        ids = [row.request_id for row in late]
        columns = [ledger.c[name] for name in ("request_id", "attempt", "state", *AMOUNTS)]
        found = await connection.execute(
            select(*columns).where(ledger.c.request_id.in_(ids), ledger.c.kind.in_((CHARGE, CORRECTION)))
        )
        booked: dict[str, list[Booked]] = {}
        for request_id, attempt, state, *amounts in found:
            booked.setdefault(request_id, []).append(Booked(attempt, state, tuple(amounts)))
        corrections = [row for one in late if (row := correction(one, booked.get(one.request_id, [])))]
        if corrections:
            await connection.execute(self._sql.ledger, {"rows": _json(corrections)})


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


def _json(rows: Sequence[Struct]) -> str:
    """*rows* without the one character that PostgreSQL has no place for: a caller's model may be called anything."""
    text = msgspec.json.encode(rows).decode()
    return _NUL.sub(r"\1", text) if "\\u0000" in text else text


class _Statements:
    """What is said to a database of a kind: a JSON array goes in, of objects named as the columns are."""

    def __init__(self, dialect: str) -> None:
        self._is_sqlite = dialect == "sqlite"
        self.ledger = self._insert(ledger, LedgerRow, "request_id", "kind")
        self.traces = self._insert(traces, TraceRow, "request_id")
        self.sessions = self._sessions()

    def _insert(self, table: Table, row: type[Struct], *returning: str) -> TextualSelect:
        names = ", ".join(f'"{name}"' for name in row.__struct_fields__)
        sql = f"INSERT INTO {table.name} ({names}) {self._select(table, row)} ON CONFLICT DO NOTHING"
        return text(f"{sql} RETURNING {', '.join(returning)}").columns(*[table.c[name] for name in returning])

    def _select(self, table: Table, row: type[Struct]) -> str:
        fields = row.__struct_fields__
        if self._is_sqlite:  # WHERE, for ON CONFLICT would be read as a join's ON
            values = ", ".join(f"value ->> '$.{name}'" for name in fields)
            return f"SELECT {values} FROM json_each(:rows) WHERE true"  # noqa: S608 - names are ours
        names = ", ".join(f'"{name}"' for name in fields)
        return f"SELECT {names} FROM json_populate_recordset(NULL::{table.name}, CAST(:rows AS json))"  # noqa: S608 - as above

    def _sessions(self) -> TextClause:
        names = ", ".join(SessionRow.__struct_fields__)
        least, most = ("min", "max") if self._is_sqlite else ("least", "greatest")
        sums = ("requests", "failed", "prompt_tokens", "completion_tokens", "weighted_tokens", "cost_nano_usd")
        changes = [
            "agent_id = coalesce(excluded.agent_id, sessions.agent_id)",
            f"first_ms = {least}(sessions.first_ms, excluded.first_ms)",
            f"last_ms = {most}(sessions.last_ms, excluded.last_ms)",
            *(f"{name} = sessions.{name} + excluded.{name}" for name in sums),
        ]
        conflict = f"ON CONFLICT (tenant, session_id) DO UPDATE SET {', '.join(changes)}"
        return text(f"INSERT INTO sessions ({names}) {self._select(sessions, SessionRow)} {conflict}")
