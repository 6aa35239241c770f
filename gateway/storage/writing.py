"""
Writing what receipts come to: the ledger, the traces, the sessions; in one transaction, and as often as one likes.

All rows of a table are one parameter, a JSON array that the database takes apart: SQLAlchemy would spend more on each
row than the gateway on the rest of a request. What is there already stays as it is, so a batch may be written again
when nobody knows whether it was: by a retry, by another process that replays the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Table, TextClause, TextualSelect, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.entries import (
    CHARGE,
    CORRECTION,
    LedgerRow,
    SessionRow,
    TraceRow,
    ledger_rows,
    session_rows,
    trace_row,
)
from gateway.core.receipt import Receipt
from gateway.storage.database import Database
from gateway.storage.tables import dead_letters, ledger, sessions, traces

_AMOUNTS = (
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "weighted_tokens",
    "cost_nano_usd",
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
        self._sql = _Statements(database.dialect)

    async def write(self, entries: Sequence[Entry]) -> None:
        """
        Write what *entries* come to: all of it or nothing.

        Raises:
            StoreUnavailable: The database does not answer now. Whether anything was written is not known.
            SQLAlchemyError: It does not take something of this.
        """
        now_ms = self._now_ms()
        rows = [row for e in entries for row in ledger_rows(e.receipt, writer=e.writer, recorded_ms=now_ms)]
        marks = _unique([trace_row(entry.receipt, recorded_ms=now_ms) for entry in entries])
        await self._database.write(lambda connection: self._write(connection, rows, marks))

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
        self, connection: AsyncConnection, rows: Sequence[LedgerRow], marks: Sequence[TraceRow]
    ) -> None:  # fmt: skip
        if rows:
            written = await connection.execute(self._sql.ledger, {"rows": _json(rows)})
            fresh = {row.request_id for row in written if row.kind == CHARGE}
            late = [row for row in rows if row.kind == CHARGE and row.request_id not in fresh]
            if late:
                await self._correct(connection, late)
        if marks:
            new = {row.request_id for row in await connection.execute(self._sql.traces, {"rows": _json(marks)})}
            added = session_rows(mark for mark in marks if mark.request_id in new)
            if added:
                await connection.execute(self._sql.sessions, {"rows": _json(added)})

    async def _correct(self, connection: AsyncConnection, late: Sequence[LedgerRow]) -> None:
        """A process's own word on what was reconciled in its absence: the difference, as rows of their own."""
        ids = [row.request_id for row in late if row.state != "reconciled"]
        if not ids:
            return
        columns = [ledger.c[name] for name in ("request_id", "attempt", "state", *_AMOUNTS)]
        found = await connection.execute(
            select(*columns).where(ledger.c.request_id.in_(ids), ledger.c.kind.in_((CHARGE, CORRECTION)))
        )
        booked: dict[str, list[Booked]] = {}
        for request_id, attempt, state, *amounts in found:
            booked.setdefault(request_id, []).append(Booked(attempt, state, tuple(amounts)))
        corrections = [row for one in late if (row := correction(one, booked.get(one.request_id, [])))]
        if corrections:
            await connection.execute(self._sql.ledger, {"rows": _json(corrections)})


class Booked(Struct, frozen=True):
    """What the ledger has of a charge, or of a correction of it."""

    attempt: int
    state: str
    amounts: tuple[int, ...]


def correction(row: LedgerRow, booked: Sequence[Booked]) -> LedgerRow | None:
    """
    What has to be added to *booked* for it to say what *row* does; None where that is nothing, or not *row*'s to say.

    Only what stands there by a reconciliation is corrected, and only by the process that was there.
    """
    if row.state == "reconciled" or not any(one.state in ("reconciled", "voided") for one in booked):
        return None
    sums = [sum(amounts) for amounts in zip(*(one.amounts for one in booked), strict=True)]
    missing = {name: getattr(row, name) - there for name, there in zip(_AMOUNTS, sums, strict=True)}
    if not any(missing.values()):
        return None
    kinds = [one.attempt for one in booked]
    number = min(kinds) - 1 if len(kinds) > 1 else min(kinds)
    return replace(row, kind=CORRECTION, attempt=number, reserved_nano_usd=0, **missing)


def _unique(marks: Iterable[TraceRow]) -> list[TraceRow]:
    """One trace for each request: what a statement brings twice, PostgreSQL takes for an error or for two."""
    return list({mark.request_id: mark for mark in marks}.values())


def _json(rows: Sequence[Struct]) -> str:
    return msgspec.json.encode(rows).decode()


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
