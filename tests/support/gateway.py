"""The gateway as its users run it: a subprocess, a port, a log, and an exit that must be clean.

async with FakeProvider() as provider, Gateway(standard(provider.base_url)) as gateway:
    reply = await gateway.client().request("POST", CHAT, chat("m"))
    (settled,) = await gateway.settled(1)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

from tests.support import proc
from tests.support.client import Client, Watch
from tests.support.config import CANARY, KEY, Config, toml

CHAT = "/v1/chat/completions"
MESSAGES = "/anthropic/v1/messages"

SERVE = ("-m", "gateway", "serve")
STRICT = ("-X", "dev", "-W", "error")
"""Debug mode and warnings as errors: for everything but timings, which the debug mode makes slower."""
PLAIN = ()
"""As in production: for timings."""

READY_S = 30.0  # imports in debug mode take 1-3 s on a free core; the rest is for a busy machine
KILL_AFTER_S = 30.0  # what Heroku grants between SIGTERM and SIGKILL

_ROOT = Path(__file__).resolve().parents[2]
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV", "COVERAGE_PROCESS_START", "COVERAGE_FILE")
# asyncio's debug mode tells of callbacks above 100 ms. On a shared machine that measures the neighbours.
_SLOW_CALLBACK = re.compile(r"^Executing <.*> took [0-9.]+ seconds\n?$", re.MULTILINE)


class UncleanExitError(AssertionError):
    """The gateway did something at run time or on its way out that it must never do."""


class Metrics:
    """One reading of `/metrics`."""

    def __init__(self, text: str) -> None:
        self.samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples called *name* that have *labels*; 0 where there is none."""
        return sum(
            sample.value
            for sample in self.samples
            if sample.name == name and all(sample.labels.get(key) == value for key, value in labels.items())
        )


class Gateway:
    """
    `python -m gateway serve` on a free port, started and stopped by the `async with` block.

    Leaving the block sends SIGTERM (if the process still runs) and raises `UncleanExitError` unless: it exits with
    `expected_exit`; standard error is empty; every line of standard output is a JSON object; no request was settled
    twice; no process is left; and `CANARY` is in nothing it wrote and nothing that clients of this object received.

    Attributes:
        log: Every log line that has been read so far. The newest may still be on their way, and they come in order:
            wait for a line with `line` or `logged` before looking at those before it.
        expected_exit: Set it to -9 after a SIGKILL.
        stderr_may: A pattern of what is allowed on standard error.
    """

    def __init__(
        self,
        config: Config | str,
        *,
        workers: int = 1,
        flags: Sequence[str] = STRICT,
        env: Mapping[str, str] | None = None,
        port: int | None = None,
        command: Sequence[str] = SERVE,
    ) -> None:
        self.config = config if isinstance(config, str) else toml(config)
        self.port = free_port() if port is None else port
        self.watch = Watch(CANARY)
        self.log: list[dict[str, Any]] = []
        self.expected_exit = 0
        self.stderr_may: str | None = None
        self._arguments = [*flags, *command]
        self._workers = workers
        self._env = {**{name: os.environ[name] for name in _KEPT if name in os.environ}, **(env or {})}
        self._env["PYTHONPATH"] = str(_ROOT)
        self._stray: list[str] = []
        self._stdout = bytearray()
        self._stderr = bytearray()
        self._logged = asyncio.Event()
        self._taken: dict[str, int] = {}
        self._readers: list[asyncio.Task[None]] = []
        self._home = tempfile.TemporaryDirectory(prefix="gateway-test-")
        self._process: asyncio.subprocess.Process | None = None

    # -- asking it --

    def client(self, key: str | None = KEY, **headers: str) -> Client:
        """A client that sends *key* as a bearer token (None: no credential); `_` in names of *headers* becomes `-`."""
        pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
        if key is not None:
            pairs.append(("authorization", f"Bearer {key}"))
        return Client(self.port, pairs, self.watch)

    async def logged(self, event: str, count: int = 1, within_s: float = 5.0) -> list[dict[str, Any]]:
        """The next *count* log lines named *event* that were not handed out yet.

        Raises:
            TimeoutError: Fewer came within *within_s*.
        """
        start = self._taken.get(event, 0)
        try:
            async with asyncio.timeout(within_s):
                while len(lines := [line for line in self.log if line.get("event") == event]) < start + count:
                    self._logged.clear()
                    await self._logged.wait()
        except TimeoutError as exc:
            exc.add_note(f"{len(lines) - start} of {count} {event} lines; standard error: {self.stderr[-2000:]!r}")
            raise
        self._taken[event] = start + count
        return lines[start : start + count]

    async def line(self, fits: Callable[[dict[str, Any]], bool], within_s: float = 5.0) -> dict[str, Any]:
        """The first log line for which *fits* is true, as soon as it is there.

        Raises:
            TimeoutError: There is none after *within_s*.
        """
        seen = 0
        async with asyncio.timeout(within_s):
            while True:
                for entry in self.log[seen:]:
                    if fits(entry):
                        return entry
                seen = len(self.log)
                self._logged.clear()
                await self._logged.wait()

    async def settled(self, count: int = 1, within_s: float = 5.0) -> list[dict[str, Any]]:
        """The next *count* receipts; see `logged`."""
        return await self.logged("exchange.settled", count, within_s)

    async def metrics(self) -> Metrics:
        """What `/metrics` says now."""
        reply = await self.client(None).request("GET", "/metrics")
        return Metrics(reply.body.decode())

    @property
    def stderr(self) -> str:
        return self._stderr.decode("utf-8", "replace")

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def pids(self) -> list[int]:
        """The process and its workers."""
        return proc.tree(self.pid)

    def sockets(self, remote_port: int | None = None) -> int:
        """Established connections, to *remote_port* (a provider's) where it is given."""
        return proc.established(self.pids, remote_port=remote_port)

    def client_sockets(self) -> int:
        """Established connections of clients."""
        return proc.established(self.pids, local_port=self.port)

    def open_files(self) -> int:
        """Open descriptors of the process and its workers."""
        return sum(len(proc.descriptors(pid)) for pid in self.pids)

    # -- life --

    @property
    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError("not started")
        return self._process

    def signal(self, number: int) -> float:
        """Send a signal to the process alone. Returns the monotonic second."""
        self._running.send_signal(number)
        return time.monotonic()

    def terminate(self) -> float:
        """SIGTERM. Returns the monotonic second."""
        return self.signal(signal.SIGTERM)

    async def exit_code(self, within_s: float = KILL_AFTER_S) -> int:
        """Wait for the end of the process.

        Raises:
            TimeoutError: It still runs after *within_s*.
        """
        async with asyncio.timeout(within_s):
            while (code := self._running.returncode) is None:  # noqa: ASYNC110 - see below
                # `wait()` would also wait for whatever else holds its output open, and nothing else can be awaited.
                await asyncio.sleep(0.01)
        return code

    async def __aenter__(self) -> Self:
        path = Path(self._home.name) / "gateway.toml"
        path.write_text(self.config, encoding="utf-8")
        address = ["--config", str(path), "--host", "127.0.0.1", "--port", str(self.port)]
        workers = ["--workers", str(self._workers)] if self._workers > 1 else []
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *self._arguments,
            *address,
            *workers,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._home.name,
            env=self._env,
            start_new_session=True,
            limit=2**24,  # longest log line; asyncio's default of 64 KiB would end the reader
        )
        self._readers = [asyncio.create_task(self._read_log()), asyncio.create_task(self._read_errors())]
        try:
            await self._ready()
        except BaseException as exc:
            exc.add_note(f"standard error: {self.stderr[-4000:]}")
            await self._stop()
            raise
        return self

    async def _ready(self) -> None:
        async with asyncio.timeout(READY_S):
            while self._running.returncode is None:
                with contextlib.suppress(ConnectionError):
                    if (await self.client(None).request("GET", "/readyz")).status == 200:
                        return
                await asyncio.sleep(0.02)  # nothing to await: the port opens when it opens
        await asyncio.gather(*self._readers)
        raise UncleanExitError(f"exited with {self._running.returncode} before it was ready")

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        problems = await self._stop()
        if exc is None and problems:
            raise UncleanExitError("\n".join(problems))
        if exc is not None:
            exc.add_note("\n".join(["the gateway's side:", *problems, *map(str, self.log[-10:])]))

    async def _stop(self) -> list[str]:
        """End the process if it runs, and say everything that is wrong with how it ended."""
        problems: list[str] = []
        if self._running.returncode is None:
            self.terminate()
        try:
            code = await self.exit_code()
        except TimeoutError:
            problems.append(f"still running {KILL_AFTER_S} s after SIGTERM")
            code = self.expected_exit
        await asyncio.sleep(0)
        if proc.group_alive(self.pid):
            if not problems and not await self._group_ends():
                problems.append("left processes behind")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        await self._running.wait()
        await asyncio.gather(*self._readers)
        self._home.cleanup()
        if code != self.expected_exit:
            problems.append(f"exit code {code} instead of {self.expected_exit}")
        return problems + self._problems_of_output()

    async def _group_ends(self) -> bool:
        """Whether orphans, if any, are on their way out: workers whose parent was killed need a moment to notice."""
        for _ in range(100):
            if not proc.group_alive(self.pid):
                return True
            await asyncio.sleep(0.02)  # the kernel tells nobody when a grandchild ends
        return False

    def _problems_of_output(self) -> list[str]:
        problems = []
        stderr = _SLOW_CALLBACK.sub("", self.stderr)
        if self.stderr_may is not None:
            stderr = re.sub(self.stderr_may, "", stderr)
        if stderr.strip():
            problems.append(f"standard error: {stderr}")
        problems += [f"standard output is no JSON: {line!r}" for line in self._stray]
        receipts = Counter(line.get("request_id") for line in self.log if line.get("event") == "exchange.settled")
        problems += [f"settled {count} times: {request_id}" for request_id, count in receipts.items() if count > 1]
        if CANARY.encode() in self._stdout + self._stderr:
            problems.append("a credential is in the log or on standard error")
        problems += [f"a credential was sent to a client: {hit!r}" for hit in self.watch.hits]
        return problems

    async def _read_log(self) -> None:
        stdout = self._running.stdout
        while stdout is not None and (line := await stdout.readline()):
            self._stdout += line
            try:
                entry = json.loads(line)
            except ValueError:
                entry = None
            if isinstance(entry, dict):
                self.log.append(entry)
                self._logged.set()
            else:
                self._stray.append(line.decode("utf-8", "replace"))

    async def _read_errors(self) -> None:
        stderr = self._running.stderr
        while stderr is not None and (data := await stderr.read(65536)):
            self._stderr += data


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
