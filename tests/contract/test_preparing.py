"""What a server does for its database: the same tables by every way, at once from many processes, or a clear word."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Connection, MetaData, Table, insert, inspect, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.ports import StoreUnavailable
from gateway.storage import migrations
from gateway.storage.database import Database, open_engine
from gateway.storage.migrations import upgrade
from gateway.storage.preparing import prepare, prepare_sqlite
from gateway.storage.revisions import HEAD, REVISIONS
from gateway.storage.tables import audit, metadata
from tests.support.postgres import Postgres

SCRIPTS = Path(migrations.__file__).parent


def differences(connection: Connection) -> Sequence[Any]:
    return compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata)


def tables(connection: Connection) -> dict[str, Any]:
    """Everything that can be seen of the tables, by their names."""
    seen = inspect(connection)
    return {
        name: (
            [(c["name"], str(c["type"]), c["nullable"], c.get("autoincrement")) for c in seen.get_columns(name)],
            seen.get_pk_constraint(name),
            sorted(map(str, seen.get_indexes(name))),
            sorted(map(str, seen.get_unique_constraints(name))),
            sorted(map(str, seen.get_foreign_keys(name))),
        )
        for name in seen.get_table_names()
    }


async def of(database: Database, look: Any) -> Any:
    async def step(connection: AsyncConnection) -> Any:
        return await connection.run_sync(look)

    return await database.read(step)


async def test_migrations_make_the_tables(url: str, database: Database) -> None:
    """What the revisions make is what the code uses: nothing more, nothing less, nothing of another type."""
    await asyncio.to_thread(upgrade, url)

    assert await of(database, differences) == []


async def test_both_ways_make_the_same(tmp_path: Path) -> None:
    """A new SQLite file has the same tables whether a server or `migrate` has made it, to the last constraint."""
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("served", "migrated")]
    prepare_sqlite(urls[0])
    await asyncio.to_thread(upgrade, urls[1])
    seen = []
    for url in urls:
        database = Database(url)
        seen.append(await of(database, tables))
        await database.close()

    assert seen[0] == seen[1]
    assert set(seen[0]) == {*metadata.tables, "alembic_version"}


async def make(url: str, database: Database, how: str) -> None:
    """The tables, by the revisions or by their description."""
    if how == "migrated":
        await asyncio.to_thread(upgrade, url)
        return
    async with database.engine.begin() as connection:
        await connection.run_sync(metadata.create_all)


@pytest.mark.parametrize("how", ["migrated", "described"])
async def test_the_audit_log_is_only_added_to(url: str, database: Database, how: str) -> None:
    """A row of it is neither changed nor deleted by anybody's statement, whichever way its table was made."""
    await make(url, database, how)
    row = {"at_ms": 1, "actor": "cli", "action": "a", "target": "t", "details": {}}
    verbs = ["UPDATE audit SET actor = 'nobody'", "DELETE FROM audit"]
    verbs += ["TRUNCATE audit"] if url.startswith("postgres") else []
    async with database.engine.begin() as connection:
        await connection.execute(insert(audit).values(row))

    for verb in verbs:
        with pytest.raises(DBAPIError, match="rows of the audit log are only ever added"):
            async with database.engine.begin() as connection:
                await connection.execute(text(verb))

    async with database.engine.connect() as connection:
        assert (await connection.execute(select(audit.c.actor))).scalars().all() == ["cli"]


TRIGGERS = {
    "sqlite": "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name",
    "postgresql": "SELECT t.tgname, pg_get_triggerdef(t.oid), pg_get_functiondef(t.tgfoid) FROM pg_trigger t "
    "WHERE NOT t.tgisinternal ORDER BY t.tgname",
}


async def test_both_ways_make_the_same_triggers(postgres: Postgres, tmp_path: Path) -> None:
    """What revisions make is what the description makes, word for word."""
    for kind, seen in TRIGGERS.items():
        made = []
        for how in ("migrated", "described"):
            url = f"sqlite:///{tmp_path}/{how}.db" if kind == "sqlite" else postgres.create_database(f"triggers_{how}")
            database = Database(url)
            await make(url, database, how)
            async with database.engine.connect() as connection:
                made.append((await connection.execute(text(seen))).all())
            await database.close()

        assert made[0] == made[1]
        assert made[0]


async def test_known_revisions() -> None:
    """The list of revisions that servers know is that of the scripts."""
    script = ScriptDirectory(str(SCRIPTS))

    assert tuple(reversed([found.revision for found in script.walk_revisions()])) == REVISIONS
    assert script.get_current_head() == HEAD


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_release_before_goes_on(url: str, database: Database, revision: str) -> None:
    """Whatever a release of *revision* writes is taken by the tables of this one: both run while one replaces the
    other (D5). Its columns are those of its own scripts, which never change once they are released."""
    await asyncio.to_thread(migrate_to, url, revision)
    old = await of(database, columns)
    await asyncio.to_thread(migrate_to, url, "head")
    await database.close()  # statements that were prepared for the old tables go with their connections
    new = await of(database, columns)

    async def write(connection: AsyncConnection) -> None:
        for table in order(old):
            values = {column.name: filler(column) for column in old[table]}
            await connection.execute(
                insert(Table(table, MetaData(), *(Column(c.name, c.type) for c in old[table]))).values(values)
            )

    await database.write(write)

    assert {name: {c.name for c in found} - {c.name for c in new[name]} for name, found in old.items()} == {
        name: set() for name in old
    }


def migrate_to(url: str, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))

    async def run() -> None:
        engine = open_engine(url)
        async with engine.begin() as connection:
            await connection.run_sync(apply)
        await engine.dispose()

    def apply(connection: Connection) -> None:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)

    asyncio.run(run())


def columns(connection: Connection) -> dict[str, list[Column[Any]]]:
    """The columns that a writer has to know, by table: all but those that number themselves."""
    seen = inspect(connection)
    return {
        name: [Column(c["name"], c["type"]) for c in seen.get_columns(name) if c["name"] != "seq"]
        for name in seen.get_table_names()
        if name != "alembic_version"
    }


def order(tables: dict[str, Any]) -> list[str]:
    """Tenants before their keys."""
    return sorted(tables, key=lambda name: name == "keys")


def filler(column: Column[Any]) -> Any:
    """A value of the column's type."""
    kind = str(column.type).partition("(")[0]
    return {"JSON": {}, "BOOLEAN": False, "BLOB": b"x", "BYTEA": b"x", "TEXT": "x"}.get(kind, 1)


async def test_postgres_without_tables(url: str, database: Database) -> None:
    """A Postgres that nobody has migrated is told of with what to do; a migrated one is taken."""
    if database.dialect == "sqlite":
        await prepare(url, database)
    else:
        with pytest.raises(StoreUnavailable, match="run gateway migrate"):
            await prepare(url, database)
        await asyncio.to_thread(upgrade, url)

    await prepare(url, database)

    assert await of(database, differences) == []


async def test_newer_database(url: str, database: Database) -> None:
    """A database that a newer version has migrated is left alone: this version runs on until it is replaced."""
    await asyncio.to_thread(upgrade, url)

    async def age(connection: AsyncConnection) -> None:
        await connection.execute(text("UPDATE alembic_version SET version_num = 'from-the-future'"))

    await database.write(age)
    await prepare(url, database)

    assert await of(database, differences) == []


def test_many_processes(tmp_path: Path) -> None:
    """Of many that begin at once on no file, each finds the tables."""
    url = f"sqlite:///{tmp_path}/gateway.db"
    with ProcessPoolExecutor(6) as pool:
        outcomes = list(pool.map(prepare_sqlite, [url] * 6))
    connection = sqlite3.connect(tmp_path / "gateway.db")
    found = [
        connection.execute(what).fetchone() for what in ("SELECT count(*) FROM alembic_version", "PRAGMA journal_mode")
    ]
    connection.close()

    assert outcomes == [None] * 6
    assert found == [(1,), ("wal",)]


def test_what_the_last_release_left(tmp_path: Path) -> None:
    """Where `migrate` of the release without tables has made its table of revisions, the others are added."""
    path = tmp_path / "gateway.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
    connection.close()

    prepare_sqlite(f"sqlite:///{path}")

    connection = sqlite3.connect(path)
    found = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    connection.close()
    assert found == [(HEAD,)]


def test_no_place(tmp_path: Path) -> None:
    """A file that cannot be made is told of in one line."""
    with pytest.raises(StoreUnavailable, match=r"^OperationalError: unable to open database file$"):
        prepare_sqlite(f"sqlite:///{tmp_path}/nowhere/gateway.db")


def test_no_database(tmp_path: Path) -> None:
    """A file that is something else is left as it is."""
    path = tmp_path / "gateway.db"
    path.write_text("this is no database, but long enough to look like one that is broken" * 20)

    with pytest.raises(StoreUnavailable, match="not a database"):
        prepare_sqlite(f"sqlite:///{path}")

    assert path.read_text().startswith("this is no database")
