"""Database revisions, shipped with the package, and the command that applies them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib import resources

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy import Connection, make_url, text
from sqlalchemy.exc import SQLAlchemyError

from gateway.loglines import clean
from gateway.storage.database import WRITES, open_engine
from gateway.storage.revisions import HEAD

# Two releases at once would both create what is missing. Any number will do that no other program uses for a lock of
# the same database; this one is "anoman" in ASCII.
LOCK = 0x616E6F6D616E


class MigrationError(Exception):
    """The database cannot be reached or its revisions cannot be applied. The message holds no credential."""


@dataclass(frozen=True, slots=True)
class Upgraded:
    """What `upgrade` did.

    Attributes:
        database: Its URL without password and query.
        known: The newest revision that this version of the gateway has.
        before: The revision that the database was at; None for an empty one.
    """

    database: str
    known: str
    before: str | None

    def __str__(self) -> str:
        if self.before == self.known:
            return f"{self.database}: already at revision {self.known}."
        return f"{self.database}: went from {self.before or 'no revision'} to {self.known}."


def upgrade(database_url: str) -> Upgraded:
    """
    Bring the database at *database_url* to the newest revision, in one transaction.

    Call it without a running event loop, and only once at a time: alembic keeps what it works on in global variables.

    Raises:
        MigrationError: Nothing was changed.
    """
    config = Config()
    with resources.as_file(resources.files(__name__)) as folder:
        config.set_main_option("script_location", str(folder).replace("%", "%%"))  # % is the format's escape
        try:
            before = asyncio.run(_upgrade(database_url, config))
        except (SQLAlchemyError, asyncpg.PostgresError, CommandError, OSError) as exc:
            raise MigrationError(f"{type(exc).__name__}: {clean(str(exc))}") from exc
    return Upgraded(make_url(database_url).set(query={}).render_as_string(hide_password=True), HEAD, before)


async def _upgrade(database_url: str, config: Config) -> str | None:
    engine = open_engine(database_url)
    try:
        async with engine.connect() as connection:
            await connection.execution_options(**{WRITES: True})
            async with connection.begin():
                return await connection.run_sync(_apply, config)
    finally:
        await engine.dispose()


def _apply(connection: Connection, config: Config) -> str | None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    before = MigrationContext.configure(connection).get_current_revision()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    return before
