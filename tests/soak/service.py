"""The gateway as a service: one generation of processes after another, on the same stores and the same directory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from tests.support import proc
from tests.support.config import Config
from tests.support.gateway import PLAIN, Gateway, UncleanExitError

_KILLED = "was sent SIGKILL"  # gunicorn's master, of a worker
_SERVING_S = 30.0
# After an outage its last errors come: a statement to a database that hangs ends by itself after 5 s, and may have
# waited for its turn for as long.
_ECHO_S = 10.0


class Service:
    """
    What customers see as one address.

    Args:
        expected: Events of the level error, each with the store whose outages make it come.

    Attributes:
        kills_s: Epoch seconds of every SIGKILL.
        outages_s: When a store was away: its name, and epoch seconds of the begin and the end.
        problems: What a generation did that it must never do: unclean ends, lines that ask a person to look.
    """

    def __init__(self, config: Config, workers: int, expected: Mapping[str, str]) -> None:
        self._expected = expected
        self.kills_s: list[float] = []
        self.outages_s: list[tuple[str, float, float]] = []
        self.problems: list[str] = []
        self._config = config
        self._workers = workers
        self._alive: list[Gateway] = []
        self._gateway: Gateway

    @property
    def port(self) -> int:
        """Of the newest generation."""
        return self._gateway.port

    @property
    def gateway(self) -> Gateway:
        """The newest generation."""
        return self._gateway

    async def start(self) -> None:
        """Start a generation; from now on customers come to it."""
        gateway = Gateway(self._config, workers=self._workers, flags=PLAIN)
        await gateway.__aenter__()
        self._gateway = gateway
        self._alive.append(gateway)
        if self._workers > 1:
            async with asyncio.timeout(_SERVING_S):
                while len(self.workers()) < self._workers:  # noqa: ASYNC110 - the kernel tells nobody of a fork
                    await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """SIGTERM, and everything that has to hold of how a generation ends, if there is one."""
        if self._gateway in self._alive:
            await self._end(self._gateway)

    async def roll(self) -> None:
        """The next generation takes the customers over, then the old one is told to go."""
        old = self._gateway
        await self.start()
        await self._end(old)

    async def kill(self, chance: float) -> None:
        """SIGKILL for one worker, whose place its master fills; for a single process the next one is started."""
        if self._workers == 1:
            await self.kill_all()
            return
        workers = self.workers()
        victim = workers[int(chance * len(workers))]
        self.kills_s.append(time.time())
        os.kill(victim, signal.SIGKILL)
        async with asyncio.timeout(_SERVING_S):
            while victim in (now := self.workers()) or len(now) < self._workers:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)

    async def kill_all(self) -> None:
        """SIGKILL for every process of the newest generation at once, as when its host is lost, and the next one."""
        old = self._gateway
        old.expected_exit = -signal.SIGKILL
        self.kills_s.append(time.time())
        os.killpg(old.pid, signal.SIGKILL)
        await old.exit_code()
        await self._end(old)
        await self.start()

    @asynccontextmanager
    async def without(self, store: str, begin: Callable[[], None], end: Callable[[], None]) -> AsyncIterator[None]:
        """*store* is away from *begin* to *end*, for as long as the block takes."""
        begun_s = time.time()
        await asyncio.to_thread(begin)
        try:
            yield
        finally:
            await asyncio.to_thread(end)
            self.outages_s.append((store, begun_s, time.time()))

    def workers(self) -> list[int]:
        """The processes that serve."""
        pids = proc.tree(self._gateway.pid)
        return pids if self._workers == 1 else pids[1:]

    def abandon(self) -> None:
        """Leave no process behind, whatever became of the run."""
        for gateway in self._alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(gateway.pid, signal.SIGKILL)

    async def _end(self, gateway: Gateway) -> None:
        self._alive.remove(gateway)
        try:
            await gateway.__aexit__(None, None, None)
        except UncleanExitError as exc:
            self.problems.append(str(exc))
        self.problems += [str(line) for line in gateway.log if self.is_problem(line)]

    def is_problem(self, line: dict[str, Any]) -> bool:
        """Whether nobody expected it: an error that is no outage of ours, or anything with a traceback."""
        if line["event"] == "library.reported" and _KILLED in str(line.get("message")):
            return False
        if "Traceback" in str(line):
            return True
        return line["level"] in ("error", "critical") and not self._is_expected(line)

    def _is_expected(self, line: dict[str, Any]) -> bool:
        at_s = datetime.fromisoformat(line["timestamp"]).timestamp()
        store = self._expected.get(line["event"])
        return any(name == store and begin <= at_s <= end + _ECHO_S for name, begin, end in self.outages_s)
