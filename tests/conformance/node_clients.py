"""The Node SDKs: one process for all of them, asked over its standard input."""

from __future__ import annotations

import asyncio
import itertools
import json
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.conformance.loops import Looped
from tests.conformance.outcome import TOOL, Ask, Client, Fault, Outcome
from tests.conformance.python_anthropic import ANTHROPIC_ERRORS, ANTHROPIC_FINISH
from tests.conformance.python_openai import OPENAI_ERRORS, OPENAI_FINISH
from tests.support.notation import Dialect

VERCEL_ERRORS: dict[Fault, str] = dict.fromkeys(OPENAI_ERRORS, "AI_APICallError")
VERCEL_ERRORS["interrupted"] = "AI_StreamProviderError"
VERCEL_FINISH = ("stop", "tool-calls")
NODE = Path(__file__).with_name("node")
START_S = 30.0  # imports take 1-2 s on a free core
LONGEST_S = 30.0  # of one request, with the waits of retries


class Clients:
    """`node clients.mjs`, started and stopped by the `async with` block."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._ids = itertools.count()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def ask(self, client: str, ask: Ask) -> Outcome:
        """Have *client* make the request.

        Raises:
            TimeoutError: It did not come to an end.
        """
        return _outcome(await self._tell(client, ask))

    async def loop(self, client: str, ask: Ask) -> Looped:
        """Have *client* go through its tool loop.

        Raises:
            TimeoutError: It did not come to an end.
            RuntimeError: It ended in an exception.
        """
        looped = await self._tell(client, ask)
        return Looped(looped["text"], [(prompt, said) for prompt, said in looped["usages"]], looped["cities"])

    async def _tell(self, client: str, ask: Ask) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        number = next(self._ids)
        outcome: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = outcome
        line = json.dumps({"id": number, "client": client, "ask": {**ask.as_dict, "tool": TOOL}})
        self._process.stdin.write(line.encode() + b"\n")
        async with asyncio.timeout(LONGEST_S):
            return await outcome

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            "node", "clients.mjs", cwd=NODE, stdin=PIPE, stdout=PIPE, limit=2**24
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_S):
            first = await self._process.stdout.readline()
        assert b"ready" in first, "the Node clients did not start; `make test` installs what they need"
        self._reader = asyncio.create_task(self._read(self._process.stdout))
        return self

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        while line := await stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            waiting = self._waiting.pop(answer["id"])
            if waiting.done():
                continue
            if "error" in answer:
                waiting.set_exception(RuntimeError(answer["error"]))
            else:
                waiting.set_result(answer["outcome"])
        for waiting in self._waiting.values():
            waiting.set_exception(ConnectionError("the Node clients have gone"))

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        if self._process.stdin is not None:
            self._process.stdin.close()
        async with asyncio.timeout(5):
            code = await self._process.wait()
        if self._reader is not None:
            await self._reader
        assert code == 0


def _outcome(members: dict[str, Any]) -> Outcome:
    """JSON knows no pairs."""
    pairs = {name: tuple(members[name]) for name in ("usage", "tool") if members[name] is not None}
    return Outcome(**members | pairs)


def _vercel(name: str, dialect: Dialect) -> Client:
    return Client(name, dialect, None, VERCEL_ERRORS, VERCEL_FINISH, shows_extension=False, obeys_should_retry=False)


NODE_CLIENTS = [
    Client("openai-node", "openai", None, OPENAI_ERRORS, OPENAI_FINISH),
    Client("openai-node-helper", "openai", None, OPENAI_ERRORS, OPENAI_FINISH),
    Client("anthropic-node", "anthropic", None, ANTHROPIC_ERRORS, ANTHROPIC_FINISH),
    Client("anthropic-node-helper", "anthropic", None, ANTHROPIC_ERRORS, ANTHROPIC_FINISH),
    _vercel("vercel-openai", "openai"),
    _vercel("vercel-anthropic", "anthropic"),
]
