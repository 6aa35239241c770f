"""What a server does for its database before it serves: SQLite gets its tables, Postgres is looked at."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from functools import partial

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    create_engine,
    inspect,
    select,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.ports import StoreUnavailable
from gateway.loglines import clean
from gateway.storage.database import CONNECT_S, WRITES, Database, async_url, attend_sqlite, first_line
from gateway.storage.revisions import HEAD, REVISIONS
from gateway.storage.tables import metadata

# As alembic makes it: the tables of a new database come from the metadata, since importing alembic costs half a second
# and 30 MB in every process that serves. A test holds both ways together.
versions = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
_LOCKED_S = 0.02  # between attempts to change the mode of a file that others use


async def prepare(database_url: str, database: Database) -> None:
    """
    Make sure of the tables: on SQLite they are made, on Postgres that is for `gateway migrate` to do.

    Raises:
        StoreUnavailable: They are not there; the message says why, in one line without a credential.
    """
    if database.dialect == "sqlite":
        await asyncio.get_running_loop().run_in_executor(None, partial(prepare_sqlite, database_url))
        return
    revision = await database.read(_read_revision)
    if revision is None or revision in REVISIONS[:-1]:
        raise StoreUnavailable(f"the database is at {revision or 'no revision'}, not at {HEAD}: run gateway migrate")


def prepare_sqlite(database_url: str) -> None:
    """
    Make the tables of a new file, or bring those of an older version up to this one; a newer version's are left alone.

    Any number of processes may do this at once. It is to be called where waiting is no harm.

    Raises:
        StoreUnavailable: As `prepare`.
    """
    engine = create_engine(async_url(database_url).set(drivername="sqlite"), connect_args={"timeout": CONNECT_S})
    attend_sqlite(engine, CONNECT_S)
    try:
        _use_wal(engine)
        with engine.connect().execution_options(**{WRITES: True}) as connection, connection.begin():
            revision = _make_new(connection)
    except (SQLAlchemyError, sqlite3.Error, OSError) as exc:
        raise StoreUnavailable(f"{type(exc).__name__}: {clean(first_line(exc))}") from exc
    finally:
        engine.dispose()
    if revision is None or revision in REVISIONS[:-1]:
        # Here, because serving can nearly always do without.
        from gateway.storage.migrations import MigrationError, upgrade

        try:
            upgrade(database_url)
        except MigrationError as exc:
            raise StoreUnavailable(str(exc)) from exc


def _use_wal(engine: Engine) -> None:
    """Let readers and a writer not wait for each other. The mode stays with the file; where it cannot be had, as on
    some network file systems, things are slower and still right."""
    end_s = time.monotonic() + CONNECT_S
    with engine.raw_connection() as connection:  # outside of any transaction
        while True:
            try:
                connection.cursor().execute("PRAGMA journal_mode = WAL").close()
                return
            except sqlite3.OperationalError as exc:  # this one statement does not wait for others by itself
                if "locked" not in str(exc) or time.monotonic() > end_s:
                    raise
                time.sleep(_LOCKED_S)


def _make_new(connection: Connection) -> str | None:
    """Make everything where nothing is; the revision that the file is at."""
    names, revision = set(inspect(connection).get_table_names()), _revision_of(connection)
    if revision is not None or names - {versions.name}:
        return revision
    metadata.create_all(connection)
    versions.create(connection, checkfirst=True)  # `migrate` of a version that had no tables left it there
    connection.execute(versions.insert().values(version_num=HEAD))
    return HEAD


async def check_known(connection: AsyncConnection) -> None:
    """
    See that this version knows the tables, where there are any. What serves goes on with those of a newer version until
    it is replaced; a command has time to be looked for.

    Raises:
        StoreUnavailable: A newer version has made them.
    """
    revision = await connection.run_sync(_revision_of)
    if revision is not None and revision not in REVISIONS:
        raise StoreUnavailable(
            f"a newer version of the gateway has made its tables (revision {clean(revision)}, and this one knows none "
            f"behind {HEAD}): use the command of that version"
        )


async def _read_revision(connection: AsyncConnection) -> str | None:
    return await connection.run_sync(_revision_of)


def _revision_of(connection: Connection) -> str | None:
    if not inspect(connection).has_table(versions.name):
        return None
    revision: str | None = connection.execute(select(versions.c.version_num)).scalar()
    return revision
