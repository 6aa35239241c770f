"""The time at which a trace came to the database, which nobody who writes traces has to tell."""

from __future__ import annotations

import asyncio
import time

from sqlalchemy import insert, select

from gateway.storage.database import Database
from gateway.storage.migrations import upgrade
from gateway.storage.tables import traces
from tests.support.booked import trace


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def recorded(database: Database) -> int:
    row = {name: value for name, value in trace().items() if name != "recorded_ms"}
    async with database.engine.begin() as connection:
        await connection.execute(insert(traces), [row])
        return int((await connection.execute(select(traces.c.recorded_ms))).scalar_one())


async def test_by_our_tables(tabled: Database) -> None:
    """A row that does not say it gets the database's own time."""
    before_ms = now_ms()

    assert before_ms - 2 <= await recorded(tabled) <= now_ms() + 2


async def test_by_the_revisions(database: Database, url: str) -> None:
    """So it does where the revisions made the table."""
    await asyncio.to_thread(upgrade, url)
    before_ms = now_ms()

    assert before_ms - 2 <= await recorded(database) <= now_ms() + 2
