"""The gateway as a service: one generation of processes after another, on the same stores and the same directory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from typing import Any

from tests.support import proc
from tests.support.config import Config
from tests.support.gateway import PLAIN, Gateway, UncleanExitError

_KILLED = "was sent SIGKILL"  # gunicorn's master, of a worker
_SERVING_S = 30.0


class Service:
    """
    What customers see as one address.

    Args:
        expected: Events of the level error that are to come here: the outages that are made.

    Attributes:
        kills_s: Epoch seconds of every SIGKILL.
        problems: What a generation did that it must never do: unclean ends, lines that ask a person to look.
    """

    def __init__(self, config: Config, workers: int, expected: frozenset[str]) -> None:
        self._expected = expected
        self.kills_s: list[float] = []
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
        """SIGTERM, and everything that has to hold of how a generation ends."""
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
        self.kills_s.append(time.time())
        workers = self.workers()
        victim = workers[int(chance * len(workers))]
        os.kill(victim, signal.SIGKILL)
        async with asyncio.timeout(_SERVING_S):
            while victim in (now := self.workers()) or len(now) < self._workers:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)

    async def kill_all(self) -> None:
        """SIGKILL for every process of the newest generation at once, as when its host is lost, and the next one."""
        self.kills_s.append(time.time())
        old = self._gateway
        old.expected_exit = -signal.SIGKILL
        os.killpg(old.pid, signal.SIGKILL)
        await old.exit_code()
        await self._end(old)
        await self.start()

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
        self.problems += [str(line) for line in gateway.log if self._is_problem(line)]

    def _is_problem(self, line: dict[str, Any]) -> bool:
        """Whether nobody expected it: an error that is no outage of ours, or anything with a traceback."""
        if line["event"] == "library.reported" and _KILLED in str(line.get("message")):
            return False
        if "Traceback" in str(line):
            return True
        return line["level"] in ("error", "critical") and line["event"] not in self._expected
