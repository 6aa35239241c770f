"""What a gateway has written into its database, read from outside: SQLite files and journals of a test's own folder."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.support.config import Config

Row = dict[str, Any]


class Ledger:
    """
    The database and the journals of gateways that are started one after the other, in *folder*, or in a Redis.

    books = Ledger(tmp_path)
    Gateway(standard(url, **books.sections))
    """

    def __init__(self, folder: Path, redis_url: str | None = None) -> None:
        self.file = folder / "gateway.db"
        self.spool = folder / "spool"
        self.redis_url = redis_url

    @property
    def sections(self) -> dict[str, Config]:
        """What a configuration needs to use them."""
        storage, ledger = {"database_url": f"sqlite:///{self.file}"}, {"directory": str(self.spool)}
        if self.redis_url is not None:
            storage["redis_url"], ledger = self.redis_url, {"durability": "redis-stream"}
        return {"storage": storage, "ledger": ledger}

    def rows(self, table: str, where: str = "1", *values: object) -> list[Row]:
        """The rows of *table*, oldest first."""
        with closing(sqlite3.connect(self.file, timeout=10)) as connection:
            connection.row_factory = sqlite3.Row
            found = connection.execute(f"SELECT * FROM {table} WHERE {where} ORDER BY rowid", values)
            return [dict(row) for row in found]

    async def until(self, table: str, holds: Callable[[list[Row]], bool], within_s: float = 15.0) -> list[Row]:
        """
        The rows of *table* as soon as *holds* is true of them.

        Raises:
            TimeoutError: It was not within *within_s*.
        """
        rows: list[Row] = []
        try:
            async with asyncio.timeout(within_s):
                while not holds(rows := self.rows(table)):  # noqa: ASYNC110 - a file tells nobody that it changed
                    await asyncio.sleep(0.05)
        except TimeoutError as exc:
            exc.add_note(f"{len(rows)} rows: {rows[-20:]}")
            raise
        return rows

    async def has(self, table: str, count: int, within_s: float = 15.0) -> list[Row]:
        """The rows of *table* as soon as there are *count*. Raises TimeoutError."""
        return await self.until(table, lambda rows: len(rows) >= count, within_s)

    async def has_progress(self) -> None:
        """Wait until what is open has been noted: on disk it is at once, in Redis within a second."""
        if self.redis_url is not None:
            await asyncio.sleep(1.5)  # Redis has no word for "as soon as it changes"

    @property
    def journals(self) -> list[Path]:
        """Those of processes at work, and of dead ones that nobody has taken over."""
        return sorted(self.spool.glob("journal-*")) if self.spool.exists() else []
