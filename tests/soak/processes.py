"""The fake provider's process, and a folder that outlives the gateway's generations."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.client import Client, Watch
from tests.support.config import CANARY

from .records import Attempt, read_attempts

ROOT = Path(__file__).resolve().parents[2]
_END_S = 30.0  # it writes some 20 MB on its way out


async def gateway_command(config: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of `python -m gateway` with the settings in *config*."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *words, "--config", str(config)),
        cwd=ROOT,
        env={**os.environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode("utf-8", "replace")


class ProviderProcess:
    """`python -m tests.soak.provider`."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, path: Path) -> None:
        self.port = port
        self._process = process
        self._path = path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def open_requests(self) -> int:
        """How many it has not ended."""
        reply = await Client(self.port, [], Watch(CANARY)).request("GET", "/")
        return int(reply.json["open"])

    async def stop(self) -> list[Attempt]:
        """End it; what it has seen."""
        if self._process.returncode is None:
            self._process.terminate()
        async with asyncio.timeout(_END_S):
            if await self._process.wait():
                raise RuntimeError(f"the fake provider ended with {self._process.returncode}")
        return read_attempts(self._path)


@asynccontextmanager
async def provider_process(home: Path) -> AsyncIterator[ProviderProcess]:
    """A provider that listens; killed at the end if it was not stopped."""
    path = home / "attempts.jsonl"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.soak.provider", str(path)),
        cwd=ROOT,
        env={**os.environ},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield ProviderProcess(process, int(await process.stdout.readline()), path)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
