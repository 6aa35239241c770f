"""Keys of the database before the real gateway: made, revoked and without a database, from outside of it."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.core.credentials import make_secret
from gateway.core.records import CLI, KeyDraft, Secret
from gateway.settings import FileTerms
from gateway.storage.accounts import SqlAccounts
from gateway.storage.database import Database
from gateway.storage.migrations import upgrade
from tests.support.acts import no_answer
from tests.support.client import Client
from tests.support.config import Config, standard
from tests.support.frames import chat, messages
from tests.support.gateway import CHAT, MESSAGES, Gateway
from tests.support.notation import CBD, CBS, DONE, EOF_OK, FIN, HANG, MS, R, T, U
from tests.support.postgres import Postgres, cluster, postgres
from tests.support.provider import FakeProvider

__all__ = ["postgres"]

REVOKED_WITHIN_S = 5.0  # issue 4
ANSWER = [R(), T("a"), FIN(), U(7, 1), DONE, EOF_OK]
STRANGER = make_secret("anm-sk", b"\7" * 32)
_numbers = itertools.count()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database with its tables."""
    made = f"sqlite:///{tmp_path}/gateway.db"
    if request.param == "postgres":
        found: Postgres = request.getfixturevalue("postgres")
        made = found.create_database(f"wire_{next(_numbers)}")
    upgrade(made)
    return made


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """The URL of a SQLite file with its tables."""
    made = f"sqlite:///{tmp_path}/gateway.db"
    upgrade(made)
    return made


def configured(base_url: str, url: str, **more: Any) -> Config:
    return standard(base_url, storage={"database_url": url}, **more)


@asynccontextmanager
async def serving(url: str) -> AsyncIterator[tuple[FakeProvider, Gateway, SqlAccounts]]:
    """A gateway on the database, its provider, and what another process does to the accounts."""
    async with FakeProvider() as provider, elsewhere(url) as accounts:
        provider.script("m", ANSWER)
        patient = {"first_token_s": 60, "idle_s": 60, "non_stream_s": 60}
        async with Gateway(configured(provider.base_url, url, stream=patient)) as gateway:
            yield provider, gateway, accounts


@asynccontextmanager
async def elsewhere(url: str) -> AsyncIterator[SqlAccounts]:
    """What another process does to the accounts; there is a tenant."""
    database = Database(url)
    terms = FileTerms({})
    accounts = SqlAccounts(database, lambda: terms, chance=os.urandom, now_ms=lambda: time.time_ns() // 1_000_000)
    try:
        await accounts.create_tenant(CLI, "acme", {"name": "acme", "tier": "enterprise", "budgets": ()})
        yield accounts
    finally:
        await database.close()


async def key_of(accounts: SqlAccounts, **fields: Any) -> Secret:
    return await accounts.create_key(CLI, KeyDraft("acme", "a key", **fields))


async def status(client: Client) -> int:
    return (await client.request("GET", "/v1/models")).status


async def refused_after(client: Client, since_s: float) -> float:
    """Seconds from *since_s* until the key of *client*, which is asked all the time, is refused."""
    while await status(client) != 401:  # noqa: ASYNC110 - only the gateway knows
        await asyncio.sleep(0.05)
    return time.monotonic() - since_s


async def test_revoked_everywhere(url: str) -> None:
    """A key that is revoked elsewhere is refused by every process within five seconds; others go on."""
    async with FakeProvider() as provider, elsewhere(url) as accounts:
        config = configured(provider.base_url, url)
        async with Gateway(config) as one, Gateway(config) as two:
            gone, stays = await key_of(accounts), await key_of(accounts)
            clients = [gateway.client(gone.text) for gateway in (one, two)]
            before = [await status(client) for client in clients]
            await accounts.revoke_key(CLI, gone.key.id, now=False)
            since_s = time.monotonic()
            async with asyncio.timeout(30):
                took_s = await asyncio.gather(*(refused_after(client, since_s) for client in clients))
            others = [await status(gateway.client(stays.text)) for gateway in (one, two)]
            late = await clients[0].request("GET", "/v1/models")
            stranger = await one.client(STRANGER).request("GET", "/v1/models")

    assert before == others == [200, 200]
    assert max(took_s) <= REVOKED_WITHIN_S
    assert _masked(late.body) == _masked(stranger.body)
    assert _headers(late) == _headers(stranger)


def _masked(body: bytes) -> bytes:
    """*body* without the request's id."""
    at = body.index(b"req_")
    return body[:at] + body[at + 36 :]


def _headers(reply: Any) -> list[tuple[str, str]]:
    return sorted((name, value) for name, value in reply.headers if "req" not in name and name != "date")


async def test_kinds_of_keys(url: str) -> None:
    """An admin key calls no model, and a key for models opens nothing of the API; each is told so there."""
    async with serving(url) as (_, gateway, accounts):
        admin, caller = await key_of(accounts, rights=("manage",)), await key_of(accounts)
        replies = {
            (path, name): await gateway.client(made.text).request("GET", path)
            for path in ("/v1/models", "/anoman/v1/keys")
            for name, made in (("admin", admin), ("caller", caller))
        }
        counted = await gateway.client(admin.text).request("POST", "/anthropic/v1/messages/count_tokens", {})
        listed = (await gateway.client(admin.text).request("GET", "/anoman/v1/keys")).json

    assert {place: reply.status for place, reply in replies.items()} == {
        ("/v1/models", "admin"): 403,
        ("/v1/models", "caller"): 200,
        ("/anoman/v1/keys", "admin"): 200,
        ("/anoman/v1/keys", "caller"): 403,
    }
    for reply in (replies["/v1/models", "admin"], counted):
        assert reply.json["error"]["code"] == "right_denied"
        assert reply.json["error"]["message"] == (
            "This is an admin key (anm-ak-...); models are called with inference keys (anm-sk-...)."
        )
    assert {key["id"] for key in listed["data"]} == {admin.key.id, caller.key.id}


async def test_expired(url: str) -> None:
    """A key is refused from its last moment on, without anything being done."""
    async with serving(url) as (_, gateway, accounts):
        ends_ms = time.time_ns() // 1_000_000 + 3000
        made = await key_of(accounts, expires_ms=ends_ms)
        before = await status(gateway.client(made.text))
        async with asyncio.timeout(30):
            await refused_after(gateway.client(made.text), 0)
        at_ms = time.time_ns() // 1_000_000

    assert before == 200
    assert at_ms >= ends_ms


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_cut(url: str, path: str) -> None:
    """The streams of a key that was revoked with `now` end within five seconds with a frame that says so, and are paid
    for as far as they came; the provider is closed, and those of another key, or of one just revoked, go on."""
    async with serving(url) as (provider, gateway, accounts):
        provider.script("m", [R(), T("one two"), HANG])
        provider.script("claude", [MS(3), CBS(0), CBD(0, "one two"), HANG])
        cut, spared, other = [await key_of(accounts) for _ in range(3)]
        body = chat("m") if path == CHAT else messages("claude")
        streams = [await gateway.client(key.text).open("POST", path, body) for key in (cut, spared, other)]
        for stream in streams:
            await stream.head()
        await accounts.revoke_key(CLI, spared.key.id, now=False)
        await accounts.revoke_key(CLI, cut.key.id, now=True)
        since_s = time.monotonic()
        frames = await streams[0].all_frames(30)
        took_s = time.monotonic() - since_s
        (line,) = await gateway.settled(1)
        await refused_after(gateway.client(spared.text), since_s)
        running = [not stream.closed.done() for stream in streams[1:]]
        open_connections = provider.open_connections
        for stream in streams[1:]:
            stream.rst()

    told = b"".join(frames)
    assert took_s <= REVOKED_WITHIN_S
    assert b'"code":"key_revoked"' in told
    assert b'"failure_class":"policy_stop"' in told
    assert (path == CHAT) is told.endswith(b"data: [DONE]")
    assert streams[0].ended_properly
    assert running == [True, True]
    assert open_connections == 2
    assert (line["key_id"], line["outcome"], line["error_code"]) == (cut.key.id, "interrupted", "key_revoked")
    assert line["completion_tokens"] > 0
    assert float(line["cost_usd"]) > 0


async def test_cut_before_the_first_token(file_url: str) -> None:
    """A call that is still waited for ends with a plain 401, and no other route is tried."""
    async with serving(file_url) as (provider, gateway, accounts):
        provider.script("first", [no_answer()])
        provider.script("second", ANSWER)
        made = await key_of(accounts)
        asking = asyncio.ensure_future(gateway.client(made.text).request("POST", CHAT, chat("fallback", stream=False)))
        await provider.next_request()
        await accounts.revoke_key(CLI, made.key.id, now=True)
        reply = await asking

    assert (reply.status, reply.json["error"]["code"]) == (401, "key_revoked")
    assert reply.headers.get("x-should-retry") == "false"


async def test_without_a_database(tmp_path: Path) -> None:
    """When Postgres stops, keys that have been used go on, static ones too; a new one is 503, not 401; and it works
    again, with what was revoked meanwhile, when Postgres is back."""
    with cluster() as server:
        url = server.create_database("gateway")
        await asyncio.to_thread(upgrade, url)
        async with FakeProvider() as provider, Gateway(configured(provider.base_url, url)) as gateway:
            provider.script("m", ANSWER)
            async with elsewhere(url) as accounts:
                known, unseen = await key_of(accounts), await key_of(accounts)
                assert await status(gateway.client(known.text)) == 200
            await asyncio.to_thread(server.stop)
            lost = await _until(gateway.client(unseen.text), 503)
            during = [await status(gateway.client(known.text)) for _ in range(20)]
            static = await status(gateway.client())
            answered = await gateway.client(known.text).request("POST", CHAT, chat("m"))
            await asyncio.to_thread(server.start)
            await _until(gateway.client(unseen.text), 200)
            await gateway.logged("storage.found")

    assert (lost.json["error"]["code"], lost.headers.get("retry-after")) == ("storage_unavailable", "2")
    assert during == [200] * 20
    assert (static, answered.status) == (200, 200)


async def _until(client: Client, wanted: int) -> Any:
    async with asyncio.timeout(30):
        while (reply := await client.request("GET", "/v1/models")).status != wanted:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.1)
    return reply


async def test_without_tables(postgres: Postgres) -> None:
    """On a database that nobody has migrated the gateway serves static keys, and says what to do."""
    url = postgres.create_database(f"wire_{next(_numbers)}")

    async with FakeProvider() as provider, Gateway(configured(provider.base_url, url)) as gateway:
        (line,) = await gateway.logged("storage.unprepared")
        static = await status(gateway.client())
        stranger = (await gateway.client(STRANGER).request("GET", "/v1/models")).status

    assert "run gateway migrate" in line["reason"]
    assert (static, stranger) == (200, 503)


async def test_secret_is_nowhere(file_url: str, tmp_path: Path) -> None:
    """Neither the log nor the database's files hold a secret that was used."""
    async with serving(file_url) as (_, gateway, accounts):
        made = await key_of(accounts)
        await gateway.client(made.text).request("POST", CHAT, chat("m"))
        await gateway.client(made.text).request("POST", CHAT, chat("none"))
        lines = await gateway.settled(2)

    written = str(gateway.log) + gateway.stderr
    files = b"".join(path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file())  # noqa: ASYNC240
    assert {line["key_id"] for line in lines} == {made.key.id}
    assert made.text[7:-4] not in written
    assert made.text[7:-4].encode() not in files
