"""A PostgreSQL that can be stopped, frozen and started again, as the Redis of `tests.support.redis`."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import proc
from tests.support.postgres import START_S, Postgres, cluster

_RUN_AS = ("runuser", "-u", "postgres", "--")  # the server refuses to run as root


class Database:
    """The server of a cluster; its port stays."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._data = Path(postgres.sql("SHOW data_directory"))
        # The server's own note of how it was started: the program, then `-D` and the rest, each in quotes.
        _, *options = shlex.split(self._read("postmaster.opts"))
        self._options = shlex.join(options)

    def database(self, name: str) -> str:
        """A new, empty database's URL."""
        return self._postgres.create_database(name)

    def stop(self) -> None:
        """Take it away at once: connections are cut, the port refuses new ones."""
        self._control("stop", "-w", "-m", "immediate")

    def start(self) -> None:
        """Start it again and wait until it answers; what was committed is there."""
        self._control("start", "-w", "-t", str(START_S), "-l", str(self._data.parent / "log"), "-o", self._options)

    def freeze(self) -> None:
        """Stop its processes where they are: connections stay, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in proc.tree(int(self._read("postmaster.pid").split()[0])):
            os.kill(pid, number)

    def _read(self, name: str) -> str:
        return (self._data / name).read_text()

    def _control(self, *arguments: str) -> None:
        prefix = _RUN_AS if os.geteuid() == 0 else ()
        command = [*prefix, str(self._postgres.programs / "pg_ctl"), "-D", str(self._data), "-s", *arguments]
        # Nothing of ours may stay open in the server that pg_ctl starts.
        subprocess.run(command, check=True, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


@contextmanager
def database() -> Iterator[Database]:
    """A server of its own, gone afterwards."""
    with cluster() as postgres:
        yield Database(postgres)
