"""No secret is in anything that the gateway writes or says, whatever goes wrong around it (E1, E25, H5).

Every secret here holds the canary, and the kit looks for it in the log, on standard error and in all that clients get;
a test only has to bring things about.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.providers.presets import PRESETS
from gateway.settings import from_document
from gateway.storage.database import Database
from gateway.storage.migrations import upgrade
from tests.support.config import CANARY, KEY, standard, toml
from tests.support.frames import chat
from tests.support.gateway import CHAT, Gateway, free_port
from tests.support.notation import json_answer
from tests.support.postgres import Postgres, postgres
from tests.support.provider import FakeProvider

__all__ = ["postgres"]

ADMIN = f"anm-ak-{CANARY}-nobody"
NAME = f"{CANARY}-named"
ROOT = Path(__file__).resolve().parents[2]


def password(scheme: str, port: int, place: str = "") -> str:
    return f"{scheme}://user:{CANARY}-password@127.0.0.1:{port}{place}"


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with FakeProvider() as running:
        running.script("m", [json_answer("a")])
        yield running


async def use(gateway: Gateway) -> list[int]:
    """What a client can do that has something to do with a store; the statuses."""
    client = gateway.client(KEY, idempotency_key=NAME)
    body = chat("m", stream=False)
    replies = [
        await client.request("POST", CHAT, body),
        await client.request("POST", CHAT, {**body, "user": "other"}),
        await gateway.client(KEY, idempotency_key=f"{NAME}\x7f").request("POST", CHAT, body),
        await gateway.client(ADMIN).request("GET", "/anoman/v1/usage"),
        await gateway.client(ADMIN).request("GET", "/anoman/v1/traces?cursor=x"),
        await gateway.client(KEY).request("GET", "/anoman/v1/usage"),
        await gateway.client(f"anm-sk-{CANARY}").request("POST", CHAT, body),
        await gateway.client(None).request("GET", "/metrics"),
        await gateway.client(None).request("GET", "/readyz"),
    ]
    return [reply.status for reply in replies]


async def test_a_database_that_answers(provider: FakeProvider, postgres: Postgres) -> None:
    """With PostgreSQL behind a URL with a password: calls, names, wrong keys of both kinds, metrics."""
    url = postgres.create_database("secrets")
    await asyncio.to_thread(upgrade, url)
    config = standard(provider.base_url, storage={"database_url": url})

    async with Gateway(config) as gateway:
        statuses = await use(gateway)

    assert statuses == [200, 422, 400, 401, 401, 403, 401, 200, 200]


async def test_a_database_that_refuses(provider: FakeProvider) -> None:
    """A database that nobody listens at, at the start and later: its URL is in no line, whatever the driver says."""
    config = standard(provider.base_url, storage={"database_url": password("postgres", free_port(), "/db")})

    async with Gateway(config) as gateway:
        statuses = await use(gateway)

    assert statuses[:3] == [503, 503, 400]
    assert any(line["event"].startswith("storage.") for line in gateway.log)


async def test_a_database_that_is_another(provider: FakeProvider, postgres: Postgres) -> None:
    """One that knows neither the user nor the database says so, and its words bring no password."""
    config = standard(provider.base_url, storage={"database_url": password("postgres", postgres.port, "/nowhere")})

    async with Gateway(config) as gateway:
        statuses = await use(gateway)

    assert statuses[0] == 503


async def test_a_redis_that_refuses(provider: FakeProvider) -> None:
    """The same of Redis."""
    config = standard(provider.base_url, storage={"redis_url": password("redis", free_port(), "/0")})

    async with Gateway(config) as gateway:
        statuses = await use(gateway)

    assert len(statuses) == 9


@pytest.mark.parametrize("command", [["settings"], ["check"], ["models"], ["migrate"], ["keys", "list"]])
async def test_commands(tmp_path: Path, command: list[str]) -> None:
    """No command of the command line shows the passwords of its stores, nor when it cannot reach them."""
    port = free_port()
    config = tmp_path / "gateway.toml"
    config.write_text(toml(standard("http://127.0.0.1:1")))
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "DATABASE_URL": password("postgres", port, f"/db?application_name={CANARY}"),
        "REDIS_URL": password("redis", port, "/0"),
    }

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *command, "--config", str(config)),
        env=environ,
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()

    assert out
    assert CANARY.encode() not in out


async def test_reprs(tmp_path: Path) -> None:
    """Neither the settings nor what is made of them show a secret to a debugger's `repr` or a traceback."""
    stores = {"database_url": password("postgres", 5432, "/db"), "redis_url": password("redis", 6379)}
    settings = from_document(standard("http://127.0.0.1:1", storage=stores), {}, {}, presets=PRESETS)
    database = Database(settings.storage.database_url)

    shown = [repr(settings), str(settings), repr(database), repr(database.engine), repr(database.engine.url)]
    await database.close()

    assert CANARY in settings.storage.database_url
    assert not [text for text in shown if CANARY in text]
