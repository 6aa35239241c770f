"""`gateway demo` as a newcomer starts it, for the samples of the documentation."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.client import Client
from tests.support.gateway import free_port

ROOT = Path(__file__).resolve().parents[2]
NODE = Path(__file__).with_name("node")
READY_S = 30.0  # imports of two processes on a busy machine
PROGRAM_S = 60.0  # of a sample; the longest takes 6 s on a free core
DEMO = (sys.executable, "-m", "gateway", "demo")
PLACEHOLDER = "http://127.0.0.1:8080"
"""Where the gateway listens in the documentation."""


@dataclass(frozen=True, slots=True)
class Run:
    """How a program ended."""

    code: int
    out: str
    errors: str


@dataclass(frozen=True, slots=True)
class Served:
    """A gateway on a port of its own."""

    port: int

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def placed(self, text: str) -> str:
        """*text* with the documentation's address replaced by the real one."""
        return text.replace(PLACEHOLDER, self.base_url)

    async def run(self, command: Sequence[str], text: str = "", cwd: Path = ROOT) -> Run:
        """Run *command* to its end with *text* on its standard input; samples find the gateway by their variable."""
        env = {**os.environ, "ANOMAN_BASE_URL": self.base_url, "ANOMAN_API_KEY": "anm-sk-demo", "PYTHONUTF8": "1"}
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=cwd, env=env)
        try:
            async with asyncio.timeout(PROGRAM_S):
                out, errors = await process.communicate(text.encode())
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        return Run(process.returncode or 0, out.decode(), errors.decode())

    async def python(self, text: str) -> Run:
        """Run a Python program."""
        return await self.run([sys.executable, "-c", self.placed(text)])

    async def node(self, text: str, *arguments: str) -> Run:
        """Run an ES module; its imports are those of the conformance clients."""
        return await self.run(["node", "--input-type=module", "-", *arguments], self.placed(text), NODE)

    async def shell(self, text: str) -> Run:
        """Run a shell script."""
        return await self.run(["sh", "-e", "-c", self.placed(text)])


@asynccontextmanager
async def serving(
    command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> AsyncIterator[Served]:
    """What *command* starts, told its port by the environment, from the first good answer to a clean end.

    Args:
        cwd: Where it keeps what it keeps; by default a folder that goes with it.
    """
    served = Served(free_port())
    folder = tempfile.TemporaryDirectory(prefix="gateway-demo-")
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=DEVNULL,
        stdout=DEVNULL,
        cwd=cwd or folder.name,
        env={**os.environ, "PYTHONPATH": str(ROOT), "GATEWAY_SERVER_PORT": str(served.port), **(env or {})},
    )
    try:
        await _ready(process, served.port)
        yield served
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        code = await process.wait()
        folder.cleanup()
    assert code == 0


async def _ready(process: Process, port: int) -> None:
    async with asyncio.timeout(READY_S):
        while process.returncode is None:
            try:
                if (await Client(port).request("GET", "/readyz")).status == 200:
                    return
            except ConnectionError:
                await asyncio.sleep(0.02)  # nothing to await: the port opens when it opens
    raise AssertionError(f"the gateway exited with {process.returncode}")
