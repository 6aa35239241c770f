"""Every command in the documents that looks at what is kept, run where a gateway has answered two calls."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.conformance.blocks import Block
from tests.conformance.demo import DEMO, ROOT, Run, Served, serving
from tests.conformance.test_docs import BLOCKS
from tests.support.client import Client
from tests.support.frames import chat
from tests.support.gateway import CHAT

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("conformance-books")]

WITHIN_S = 30.0  # for rows to be there; a second does on a free core
_MASKS = (
    (re.compile(r"\b(req|key)_[0-9a-f]+"), r"\1_*"),
    (re.compile(r"\b20\d\d-\d\d-\d\dT[0-9:.]+Z"), "*"),
    (re.compile(r"\b\d+ms\b"), "*ms"),
)


def masked(text: str) -> str:
    for pattern, replacement in _MASKS:
        text = pattern.sub(replacement, text)
    return text.rstrip("\n")


class Reader:
    """Who follows the documents: a folder, and what the shell's variables hold."""

    def __init__(self, served: Served, folder: Path, variables: Mapping[str, str]) -> None:
        self.served = served
        self._folder = folder
        self._variables = variables

    async def shell(self, text: str) -> Run:
        script = "".join(f"{name}={value}\n" for name, value in self._variables.items()) + self.served.placed(text)
        return await self.served.run(["sh", "-e", "-c", script], cwd=self._folder)


async def command(folder: Path, *arguments: str) -> str:
    run = await Served(0).run([sys.executable, "-m", "gateway", *arguments], cwd=folder)
    assert (run.code, run.errors.count("Traceback")) == (0, 0), run.errors
    return run.out.strip()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Reader]:
    folder = tmp_path_factory.mktemp("books")
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "gateway-demo.db").symlink_to("gateway.db")  # the demo's models, over the database of the commands
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        await command(folder, "tenants", "create", "acme")
        key = await command(folder, "keys", "create", "--tenant", "acme")
        admin = await command(folder, "keys", "create", "--tenant", "acme", "--admin", "read")
        async with serving(DEMO, cwd=folder) as served:
            ids = [await answered(served, key) for _ in range(2)]
            await written(served, admin)
            yield Reader(served, folder, {"KEY": key, "ADMIN_KEY": admin, "REQUEST_ID": ids[0]})


async def answered(served: Served, key: str) -> str:
    """The id of a call of the end user that the documents have."""
    client = Client(served.port, {"x-api-key": key, "anoman-session-id": "support-42"})
    reply = await client.request("POST", CHAT, chat("demo-echo", "Hello", stream=False, user="ani"))
    assert reply.status == 200, reply.body
    return dict(reply.headers)["x-request-id"]


async def written(served: Served, admin: str) -> None:
    """Wait until the books have both calls."""
    client = Client(served.port, {"x-api-key": admin})
    async with asyncio.timeout(WITHIN_S):
        while True:
            total: Any = (await client.request("GET", "/anoman/v1/usage")).json["total"]
            if total["requests"] == 2:
                return
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.how == "books"], ids=str)
async def test_commands(reader: Reader, block: Block) -> None:
    """It ends well, prints what the document says, and gets no error."""
    run = await reader.shell(block.text)

    assert (run.code, run.errors) == (0, "")
    if block.output is not None:
        assert masked(run.out.replace("\r\n", "\n")) == masked(block.output)
    else:
        assert "error" not in json.loads(run.out)
