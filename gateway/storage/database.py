"""From the database URL of the settings to SQLAlchemy's asynchronous engine."""

from __future__ import annotations

from sqlalchemy import URL, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgres": "postgresql+asyncpg", "postgresql": "postgresql+asyncpg"}
# To connect, or (SQLite) for another writer to finish. A database in reach answers in milliseconds; asyncpg's own
# minute is longer than a platform waits for a release to say something.
CONNECT_S = 10.0


def async_url(text: str) -> URL:
    """
    *text* (sqlite:, postgres: or postgresql:, as the settings check it) with the driver we use.

    libpq's `sslmode`, which hosted databases put into their URLs, gets the name that asyncpg knows it by.

    Raises:
        KeyError: Another kind of database.
    """
    url = make_url(text)
    url = url.set(drivername=DRIVERS[url.drivername])
    mode = url.query.get("sslmode")
    if mode is None:
        return url
    return url.difference_update_query(["sslmode"]).update_query_dict({"ssl": mode})


def open_engine(text: str) -> AsyncEngine:
    """An engine for *text*, see `async_url`. It connects when it is first used; dispose of it."""
    return create_async_engine(async_url(text), connect_args={"timeout": CONNECT_S})
