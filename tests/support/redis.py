"""A throwaway Redis on loopback, with the server that Debian's package `redis-server` installs.

from tests.support.redis import redis  # in the conftest.py of a folder: the fixture, once per test session

with server() as mine:  # one of a test's own, for outages
    mine.freeze()
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from tests.support.gateway import free_port

PROGRAM = "redis-server"
PASSWORD = "zq7canary4x-redis"  # holds the canary, as every credential of the tests does
START_S = 30.0  # a start takes some 20 ms; the rest is for a busy machine

# Nothing is kept, so nothing waits for a disk and a restart begins empty.
_OPTIONS = (
    "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "warning",
    "--requirepass", PASSWORD,
)  # fmt: skip


class Redis:
    """
    A Redis server on one port, which it keeps through `stop` and `start`.

    Args:
        options: Further ones of the command line, as in `("--maxmemory", "2mb")`.
    """

    def __init__(self, options: Sequence[str] = ()) -> None:
        program = shutil.which(PROGRAM)
        if program is None:
            raise FileNotFoundError(f"{PROGRAM} is missing: see tests/prepare.sh")
        self.port = free_port()
        self._command = [program, "--port", str(self.port), *_OPTIONS, *options]
        self._home = tempfile.TemporaryDirectory(prefix="gateway-redis-")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """As `storage.redis_url` takes it."""
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """
        Start it, empty, and wait until it answers.

        Raises:
            RuntimeError: It ended at once; the message is what it wrote.
            TimeoutError: It does not answer.
        """
        log = Path(self._home.name) / "log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command, cwd=self._home.name, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        end_s = time.monotonic() + START_S
        while time.monotonic() < end_s:
            if self._process.poll() is not None:
                raise RuntimeError(log.read_text("utf-8", "replace"))
            with contextlib.suppress(OSError):
                if self.command("PING") == "PONG":
                    return
            time.sleep(0.01)  # nothing to await: the port opens when it opens
        raise TimeoutError("redis-server does not answer")

    def stop(self) -> None:
        """Kill it: what it knew is gone, and its port refuses connections."""
        if self._process is not None:
            self._process.kill()  # works on a stopped process too
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop the process where it is: connections stay, and the kernel accepts new ones, but nothing is answered."""
        os.kill(self._pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self._pid, signal.SIGCONT)

    def flush(self) -> None:
        """Take away every key, as FLUSHALL does."""
        self.command("FLUSHALL")

    def keys(self) -> list[str]:
        """The names of all that it holds."""
        found = self.command("KEYS", "*")
        assert isinstance(found, list)
        return sorted(map(str, found))

    def command(self, *words: str) -> object:
        """
        The reply to one command, on a connection of its own: text, a number, None or a list of them.

        Raises:
            OSError: It cannot be reached, or does not answer within five seconds.
            RuntimeError: The reply is an error.
        """
        with socket.create_connection(("127.0.0.1", self.port), timeout=5.0) as sock, sock.makefile("rb") as file:
            replies = cast("BinaryIO", file)  # the stub knows a reader only
            sock.sendall(_spelled("AUTH", PASSWORD) + _spelled(*words))
            _read(replies)
            return _read(replies)

    def close(self) -> None:
        """Stop it and take its folder away."""
        self.stop()
        self._home.cleanup()

    @property
    def _pid(self) -> int:
        if self._process is None:
            raise RuntimeError("not started")
        return self._process.pid


def _spelled(*words: str) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word.encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def _read(replies: BinaryIO) -> object:
    """One reply of the protocol RESP2 (redis.io, "Redis serialization protocol specification")."""
    line = replies.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionResetError("the server closed the connection")
    kind, rest = line[:1], line[1:-2].decode()
    if kind == b"+":
        return rest
    if kind == b"-":
        raise RuntimeError(rest)
    if kind == b":":
        return int(rest)
    if rest == "-1":
        return None
    if kind == b"$":
        return replies.read(int(rest) + 2)[:-2].decode("utf-8", "replace")
    return [_read(replies) for _ in range(int(rest))]


@contextmanager
def server(options: Sequence[str] = ()) -> Iterator[Redis]:
    """
    A running server, gone afterwards.

    Raises:
        FileNotFoundError: No server is installed.
    """
    redis = Redis(options)
    try:
        redis.start()
        yield redis
    finally:
        redis.close()


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[Redis]:
    """A server for the whole test session (one per worker of pytest-xdist)."""
    with server() as running:
        yield running


@pytest.fixture
def redis(shared_redis: Redis) -> Redis:
    """The session's server, empty."""
    shared_redis.flush()
    return shared_redis
