"""`migrate` on real databases: an empty one, one that has everything, one that cannot be reached."""

from __future__ import annotations

import asyncio
import itertools
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from gateway.storage.migrations import LOCK, MigrationError, upgrade
from gateway.storage.revisions import HEAD
from gateway.storage.tables import metadata
from tests.support.gateway import free_port
from tests.support.postgres import PASSWORD, Postgres

ROOT = Path(__file__).resolve().parents[2]
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
EVERYTHING = sorted([*metadata.tables, "alembic_version"])
_numbers = itertools.count()


def migrate(
    folder: Path, *, config: str | None = None, command: tuple[str, ...] = (), **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m gateway migrate` in *folder*, which holds *config* as gateway.toml if it is given."""
    arguments = list(command) or ["-m", "gateway", "migrate"]
    if config is not None:
        (folder / "gateway.toml").write_text(config)
        arguments += ["--config", "gateway.toml"]
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def sqlite_tables(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        return [name for (name,) in names if not name.startswith("sqlite_")]
    finally:
        connection.close()


@pytest.fixture
def new_database(postgres: Postgres) -> Callable[[], str]:
    """Makes empty PostgreSQL databases; gives their names."""

    def make() -> str:
        name = f"migrations_{next(_numbers)}"
        postgres.create_database(name)
        return name

    return make


def test_sqlite(tmp_path: Path) -> None:
    """On SQLite the file of the settings is made, with all the tables in it, and the output says so."""
    done = migrate(tmp_path, config='[storage]\ndatabase_url = "sqlite:///own.db"\n')

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"sqlite:///own.db: went from no revision to {HEAD}.\n"
    assert sqlite_tables(tmp_path / "own.db") == EVERYTHING


def test_again(tmp_path: Path) -> None:
    """A second run changes nothing and says so."""
    migrate(tmp_path)
    before = (tmp_path / "gateway.db").read_bytes()

    second = migrate(tmp_path)

    assert (second.returncode, second.stderr) == (0, "")
    assert second.stdout == f"sqlite:///gateway.db: already at revision {HEAD}.\n"
    assert (tmp_path / "gateway.db").read_bytes() == before


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_postgres(scheme: str, postgres: Postgres, new_database: Callable[[], str], tmp_path: Path) -> None:
    """On PostgreSQL both spellings of the scheme work, from DATABASE_URL as platforms set it, and no password shows."""
    name = new_database()

    done = migrate(tmp_path, DATABASE_URL=postgres.url(name, scheme))

    assert (done.returncode, done.stderr) == (0, "")
    assert postgres.sql(TABLES, name).splitlines() == EVERYTHING
    assert f"@127.0.0.1:{postgres.port}/{name}: went from no revision to {HEAD}." in done.stdout
    assert PASSWORD not in done.stdout


def test_postgres_with_sslmode(postgres: Postgres, new_database: Callable[[], str], tmp_path: Path) -> None:
    """The `sslmode` that hosted databases put into their URLs is obeyed."""
    url = postgres.url(new_database())

    lax = migrate(tmp_path, DATABASE_URL=f"{url}?sslmode=prefer")
    strict = migrate(tmp_path, DATABASE_URL=f"{url}?sslmode=require")

    assert (lax.returncode, lax.stderr) == (0, "")
    assert strict.returncode == 1
    assert "SSL" in strict.stderr  # the cluster of the tests has none


async def test_two_at_once(postgres: Postgres, new_database: Callable[[], str], tmp_path: Path) -> None:
    """A release waits while another one migrates the same database, and then goes on."""
    name = new_database()
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    other = await asyncpg.connect(postgres.url(name))
    await other.execute(f"SELECT pg_advisory_lock({LOCK})")

    release = asyncio.create_task(asyncio.to_thread(migrate, tmp_path, DATABASE_URL=postgres.url(name)))
    async with asyncio.timeout(30):
        while not await other.fetchval(waiting):  # noqa: ASYNC110 - only the server knows
            await asyncio.sleep(0.05)
    tables = postgres.sql(TABLES, name)
    await other.close()
    done = await release

    assert tables == ""
    assert (done.returncode, done.stderr) == (0, "")
    assert postgres.sql(TABLES, name).splitlines() == EVERYTHING


def test_unreachable(tmp_path: Path) -> None:
    """A database that does not answer is one clear line without the password, and exit code 1."""
    url = f"postgres://gateway:{PASSWORD}@127.0.0.1:{free_port()}/gateway"

    done = migrate(tmp_path, DATABASE_URL=url)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("The database cannot be migrated: ConnectionRefusedError")
    assert PASSWORD not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_unknown_revision(tmp_path: Path) -> None:
    """A database of a newer version is left alone."""
    path = tmp_path / "newer.db"
    upgrade(f"sqlite:///{path}")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE alembic_version SET version_num = 'from-the-future'")
    connection.commit()
    connection.close()

    with pytest.raises(MigrationError, match="from-the-future"):
        upgrade(f"sqlite:///{path}")


def test_alembic_command(tmp_path: Path) -> None:
    """Developers' `alembic` finds the revisions through alembic.ini, and the database through the settings."""
    (tmp_path / "gateway.toml").write_text(f'[storage]\ndatabase_url = "sqlite:///{tmp_path}/dev.db"\n')
    alembic = ("-m", "alembic", "-c", str(ROOT / "alembic.ini"), "-x", f"config={tmp_path}/gateway.toml")

    done = migrate(tmp_path, command=(*alembic, "upgrade", "head"))
    printed = migrate(tmp_path, command=(*alembic, "upgrade", "head", "--sql"))

    assert (done.returncode, done.stderr) == (0, "")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert sqlite_tables(tmp_path / "dev.db") == EVERYTHING
    assert "CREATE TABLE ledger" in printed.stdout
