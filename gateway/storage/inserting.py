"""
Many rows into a table at once, and which of them were not there before.

SQLAlchemy's own way would spend more on each row than the gateway on the rest of a request. PostgreSQL gets all of them
as one parameter, a JSON array that it takes apart itself (4 us a row of ours). SQLite runs in this process, and takes
50 us and more to look up the members of a row in JSON (measured, of 44); bound one by one it takes 10. Its driver tells
nothing of rows that come so many at a time, so what is there is asked before: nobody else writes meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import astuple
from sqlalchemy import JSON, Table, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # behind backslashes that mean themselves, if any


class Insert:
    """
    An INSERT of rows whose members are named as the columns are, inside a transaction that writes.

    Args:
        told: The columns by which the caller wants to know of rows that were not there, the first of them indexed.
        conflict: What is done where a row of the key is there: an upsert, with `{least}` and `{most}` for the smaller
            and the larger of two values.
    """

    def __init__(
        self, table: Table, row: type[Struct], told: Sequence[str] = (), conflict: str = "ON CONFLICT DO NOTHING"
    ) -> None:
        self._decoder = msgspec.json.Decoder(list[row])  # type: ignore[valid-type]
        self._told = told
        fields = row.__struct_fields__
        self._documents = [place for place, name in enumerate(fields) if isinstance(table.c[name].type, JSON)]
        names, columns = ", ".join([f'"{name}"' for name in fields]), ", ".join(told)
        head = f"INSERT INTO {table.name} ({names})"
        source = f"json_populate_recordset(NULL::{table.name}, CAST(:rows AS json))"
        tail = conflict.format(least="least", most="greatest") + (f" RETURNING {columns}" if told else "")
        self._of_document: TextClause = text(f"{head} SELECT {names} FROM {source} {tail}")  # noqa: S608 - names are ours
        marks = ", ".join("?" * len(fields))
        self._of_values = f"{head} VALUES ({marks}) {conflict.format(least='min', most='max')}"
        if told:
            known = f"SELECT {columns} FROM {table.name}"  # noqa: S608 - as above
            self._known = f"{known} WHERE {told[0]} IN (SELECT value FROM json_each(?))"  # noqa: S608 - as above

    async def add(self, connection: AsyncConnection, rows: Sequence[Struct]) -> set[tuple[Any, ...]]:
        """
        Insert *rows*; what those that were not there have in the columns `told`.

        Raises:
            SQLAlchemyError: The database does not take them.
            UnicodeError: There is half a surrogate in them.
            OverflowError: A number in them is no integer of 64 bits.
        """
        if not rows:
            return set()
        document = msgspec.json.encode(rows).decode()
        # The one character that PostgreSQL has no place for: a caller's model may be called anything.
        if "\\u0000" in document:
            document = _NUL.sub(r"\1", document)
            rows = self._decoder.decode(document)
        if connection.dialect.name == "sqlite":
            return await self._bind(connection, rows)
        found = await connection.execute(self._of_document, {"rows": document})
        return {tuple(row) for row in found} if self._told else set()

    async def _bind(self, connection: AsyncConnection, rows: Sequence[Struct]) -> set[tuple[Any, ...]]:
        keys, known = {tuple([getattr(row, name) for name in self._told]) for row in rows}, set()
        if self._told:
            firsts = msgspec.json.encode([key[0] for key in keys]).decode()
            known = {tuple(row) for row in await connection.exec_driver_sql(self._known, (firsts,))}
        await connection.exec_driver_sql(self._of_values, [self._values(row) for row in rows])
        return keys - known

    def _values(self, row: Struct) -> tuple[Any, ...]:
        values = list(astuple(row))
        for place in self._documents:
            if values[place] is not None:
                values[place] = msgspec.json.encode(values[place]).decode()
        return tuple(values)
