"""Run by alembic: inside of `python -m gateway migrate`, or for developers by the command `alembic` itself.

The latter takes the database from the environment, or from the file given by `alembic -x config=gateway.toml`.
"""

from __future__ import annotations

import asyncio

from alembic import context
from sqlalchemy import Connection

from gateway.providers.presets import PRESETS
from gateway.settings import environment, load
from gateway.storage.database import async_url, open_engine
from gateway.storage.tables import metadata


def database_url() -> str:
    """The settings' database. As a program of its own, alembic has nobody above it who could hand it in."""
    path = context.get_x_argument(as_dictionary=True).get("config")
    return load(path if isinstance(path, str) else None, environment(), {}, presets=PRESETS).storage.database_url


def run(connection: Connection) -> None:
    """Apply what alembic was asked for."""
    context.configure(connection=connection, target_metadata=metadata)
    with context.begin_transaction():
        context.run_migrations()


async def connect_and_run() -> None:
    """As `run`, on a connection of its own."""
    engine = open_engine(database_url())
    try:
        async with engine.begin() as connection:
            await connection.run_sync(run)
    finally:
        await engine.dispose()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
elif context.is_offline_mode():  # `alembic upgrade head --sql` prints the statements
    context.configure(url=async_url(database_url()), literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    asyncio.run(connect_and_run())
