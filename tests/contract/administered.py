"""The whole admin API over a database with two tenants, and a key of each right for both and for the house."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.administration import open_desk
from gateway.aio import Tasks
from gateway.core.accounts import Right
from gateway.core.records import CLI, KeyDraft, Secret
from gateway.http.admin.routes import AdminTable
from gateway.http.door import Door
from gateway.policy.strangers import Strangers
from gateway.settings import FileTerms, TierEntry
from gateway.storage.accounts import SqlAccounts
from gateway.storage.database import Database
from gateway.storage.open import Stores, Watchers, open_stores
from tests.support.admin import AdminDoor, open_admin
from tests.support.booked import NOON_MS
from tests.support.door import Reply

TENANTS = ("acme", "umbrella", "house")
RIGHTS: tuple[Right, ...] = ("inference", "read", "manage", "operate")
TERMS = FileTerms({"small": TierEntry(rpm=10, classes=("budget", "mid"))})
SLUGS = ("gpt-4o", "claude")


class Clock:
    """The clock of everything; a test may move it."""

    def __init__(self) -> None:
        self.ms = NOON_MS

    def now_ms(self) -> int:
        return self.ms

    def now_s(self) -> float:
        return self.ms / 1000


@dataclass(frozen=True, slots=True)
class Administered:
    """The API. Asks as the manager of acme, unless told otherwise; `keys` is by tenant and right."""

    door: AdminDoor
    table: AdminTable
    stores: Stores
    keys: Mapping[tuple[str, Right], Secret]
    clock: Clock

    @property
    def database(self) -> Database:
        return self.stores.database

    async def ask(
        self, method: str, path: str, body: object = None, *, tenant: str = "acme", right: Right = "manage"
    ) -> Reply:
        """The answer to the key of *tenant* with *right*."""
        data = b"" if body is None else msgspec.json.encode(body)
        return await self.door.ask(path, self.keys[tenant, right].text, method, data)

    async def json(self, method: str, path: str, body: object = None, **who: Any) -> Any:
        """What a request that succeeds is answered."""
        reply = await self.ask(method, path, body, **who)
        assert reply.status in (200, 201), reply.body
        return reply.json

    async def refusal(self, method: str, path: str, body: object = None, **who: Any) -> tuple[int, str, str | None]:
        """Status, code and parameter of an error."""
        error = (reply := await self.ask(method, path, body, **who)).json["error"]
        return reply.status, error["code"], error["param"]


@asynccontextmanager
async def administered(url: str) -> AsyncIterator[Administered]:
    """The routes over the database at *url*, which has its tables."""
    clock, tasks = Clock(), Tasks(lambda name, exc: None)
    stores = open_stores(
        {},
        TERMS,
        database_url=url,
        tasks=tasks,
        watchers=Watchers(lambda outage: None, lambda key_id, reason: None),
        clock_s=clock.now_s,
        epoch_s=clock.now_s,
    )
    door_of_keys = Door(stores.keys, Strangers(clock.now_s), ())
    table = open_desk(stores, door_of_keys, lambda: TERMS, lambda: SLUGS, clock.now_ms).table
    accounts = SqlAccounts(stores.database, lambda: TERMS, chance=os.urandom, now_ms=clock.now_ms)
    keys: dict[tuple[str, Right], Secret] = {}
    for tenant in TENANTS:
        await accounts.create_tenant(CLI, tenant, {"name": f"{tenant} inc", "tier": "small", "budgets": ()})
        for right in RIGHTS if tenant == "house" else RIGHTS[:3]:
            keys[tenant, right] = await accounts.create_key(CLI, KeyDraft(tenant, f"{tenant} {right}", (right,)))
    try:
        async with open_admin(table, stores.keys, clock.now_ms) as door:
            yield Administered(door, table, stores, keys, clock)
    finally:
        await tasks.drain(1)
        await stores.database.close()
