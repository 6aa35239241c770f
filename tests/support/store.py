"""A database file of a test's own, with the tables of this version in it."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

from gateway.storage.migrations import upgrade
from tests.support.config import Config


async def new_store(folder: Path) -> Store:
    """An empty database in *folder*."""
    store = Store(folder / "store.db")
    await asyncio.to_thread(upgrade, store.url)  # it runs a loop of its own
    return store


class Store:
    """A SQLite file. It can be looked at and changed behind a running gateway's back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    @property
    def settings(self) -> Config:
        """The section `storage` for it."""
        return {"database_url": self.url}

    def sql(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """Run *statement* in a transaction of its own; its rows."""
        connection = sqlite3.connect(self.path, timeout=10)
        try:
            with connection:
                return connection.execute(statement, values).fetchall()
        finally:
            connection.close()

    def rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """As `sql`, each row by the names of its columns."""
        connection = sqlite3.connect(self.path, timeout=10)
        try:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(statement, values)]
        finally:
            connection.close()

    def lock(self) -> sqlite3.Connection:
        """Keep everybody else from writing until the connection is closed."""
        connection = sqlite3.connect(self.path, timeout=10, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        return connection
