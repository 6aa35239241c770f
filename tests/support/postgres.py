"""A throwaway PostgreSQL cluster on loopback, with the server that Debian's package `postgresql` installs.

from tests.support.postgres import postgres  # in the conftest.py of a folder: the fixture, once per test session
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.gateway import free_port

USER = "gateway"
PASSWORD = "zq7canary4x-postgres"  # holds the canary, as every credential of the tests does; the server trusts loopback
START_S = 30  # a start takes under a second; the rest is for a busy machine

# Nothing has to survive, so nothing waits for the disk.
_OPTIONS = ("-c fsync=off", "-c full_page_writes=off", "-c listen_addresses=127.0.0.1", "-c max_connections=50")
_RUN_AS = "postgres"  # the server refuses to run as root


class PostgresError(Exception):
    """A program of the server failed; the message is what it wrote."""


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running cluster."""

    port: int
    programs: Path
    control: tuple[str | Path, ...] = ()
    starting: tuple[str | Path, ...] = ()

    def url(self, database: str = "postgres", scheme: str = "postgresql") -> str:
        """The URL of *database*."""
        return f"{scheme}://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Run *statement* and return its rows, one per line, columns separated by `|`."""
        command = [self.programs / "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.url(database), "-c", statement]
        return _run(command).strip()

    def create_database(self, name: str) -> str:
        """Make an empty database; returns its URL."""
        self.sql(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def stop(self) -> None:
        """Stop the server, in the middle of whatever it does. For a cluster of one's own: others share the fixture."""
        _run([*self.control, "stop", "-w", "-m", "fast"])

    def start(self) -> None:
        """Start it again, on the same port."""
        _run([*self.control, "start", *self.starting])


def programs() -> Path | None:
    """Where the newest installed server's programs are."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(found, key=lambda path: int(re.sub(r"\D", "", path.parent.name) or 0), default=None)


@contextmanager
def cluster() -> Iterator[Postgres]:
    """
    Make a cluster, start it on a free port, and in the end stop it and take it away.

    Raises:
        PostgresError: It cannot be made or started.
        FileNotFoundError: No server is installed.
    """
    where = programs()
    if where is None:
        raise FileNotFoundError("PostgreSQL is missing (no /usr/lib/postgresql/*/bin/initdb): see tests/prepare.sh")
    # Not in pytest's own folder, which other users may not enter.
    home = Path(tempfile.mkdtemp(prefix="gateway-postgres-"))
    prefix = _unprivileged(home)
    data, port = home / "data", free_port()
    control = [*prefix, where / "pg_ctl", "-D", data, "-s"]
    options = " ".join((f"-p {port}", f"-k {home}", *_OPTIONS))
    try:
        _run([*prefix, where / "initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"])
        try:
            starting = ("-w", "-t", str(START_S), "-l", home / "log", "-o", options)
            _run([*control, "start", *starting])
            yield Postgres(port, where, tuple(control), starting)
        finally:
            if (data / "postmaster.pid").exists():
                _run([*control, "stop", "-w", "-m", "immediate"])
    finally:
        shutil.rmtree(home)


def _unprivileged(home: Path) -> list[str]:
    """Hand *home* to a user that may run the server; returns what puts a command into that user's hands."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam(_RUN_AS)
    os.chown(home, user.pw_uid, user.pw_gid)
    return ["runuser", "-u", _RUN_AS, "--"]


def _run(command: list[str | Path]) -> str:
    # Output to a file, not a pipe: the server that pg_ctl starts would keep a pipe open.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/", check=False)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    if done.returncode:
        raise PostgresError(text)
    return text


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A cluster for the whole test session (one per worker of pytest-xdist)."""
    with cluster() as running:
        yield running
