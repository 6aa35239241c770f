"""A look into the database for a subcommand: as long as it takes, and without a way to change anything."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
from sqlalchemy import event, make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.commands.stored import fail
from gateway.core.ports import StoreUnavailable
from gateway.loglines import clean
from gateway.settings import StorageSettings
from gateway.storage.database import first_line, open_engine
from gateway.storage.preparing import check_known

T = TypeVar("T")
Step = Callable[[AsyncConnection], Awaitable[T]]


class Patient:
    """
    A way into the database for a command, whose statements may take as long as they like; nothing is written.

    Args:
        url: As in the settings.
    """

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)
        if self._engine.dialect.name == "sqlite":
            event.listen(self._engine.sync_engine, "connect", _read_only)

    async def read(self, step: Step[T]) -> T:
        """What *step* gives, in a transaction that it has to itself."""
        async with self._engine.connect() as connection, connection.begin():
            return await step(connection)

    async def close(self) -> None:
        """Close the connections."""
        await self._engine.dispose()


def _read_only(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA query_only = ON")
    cursor.close()


def need_database(url: str) -> None:
    """End the command where *url* is of a file that is not there: a look does not make one."""
    where = make_url(url)
    if where.get_backend_name() == "sqlite" and not Path(where.database or "").is_file():
        fail(f"There is no database yet: {where.database}. It is made when the gateway first serves.")


def look_into(storage: StorageSettings, work: Callable[[Patient], Awaitable[T]]) -> T:
    """What *work* gives with the database of *storage*; what is wrong with that ends the command in a line."""
    url = storage.database_url
    need_database(url)

    async def run() -> T:
        database = Patient(url)
        try:
            await database.read(check_known)
            return await work(database)
        finally:
            await database.close()

    try:
        return asyncio.run(run())
    except StoreUnavailable as exc:
        fail(f"The database cannot be read: {exc}")
    except (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as exc:
        fail(f"The database cannot be read: {type(exc).__name__}: {clean(first_line(exc))}")
