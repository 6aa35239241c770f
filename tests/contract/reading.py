"""Two tenants' books, and who may ask for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from gateway.core.accounts import Key, Right, Tier
from gateway.http.admin.reading import ReadingDesk
from gateway.http.admin.routes import AdminTable
from gateway.storage.database import Database
from gateway.storage.memory import MemoryKeys
from gateway.storage.reading import SqlBooks
from tests.support.admin import AdminDoor, open_admin
from tests.support.booked import NOON_MS
from tests.support.door import Reply

NOW_MS = NOON_MS + 60_000
_WHO: dict[str, tuple[str, Right]] = {
    "anm-ak-acme": ("acme", "read"),
    "anm-ak-umbrella": ("umbrella", "read"),
    "anm-ak-operator": ("house", "operate"),
    "anm-sk-acme": ("acme", "inference"),
    "anm-sk-umbrella": ("umbrella", "inference"),
}
CALLERS = {"anm-sk-acme": "key_00000000aaaa", "anm-sk-umbrella": "key_00000000bbbb"}


def _keys() -> MemoryKeys:
    return MemoryKeys(
        {
            secret: Key(CALLERS.get(secret, f"key_{secret}"), tenant, Tier("t"), rights=frozenset({right}))
            for secret, (tenant, right) in _WHO.items()
        }
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """The admin API over a database. Asks as the reader of acme, unless told otherwise."""

    door: AdminDoor

    async def ask(self, path: str, key: str = "anm-ak-acme") -> Reply:
        return await self.door.ask(path, key)

    async def json(self, path: str, key: str = "anm-ak-acme") -> Any:
        """What a request that is answered is answered."""
        reply = await self.ask(path, key)
        assert reply.status == 200, reply.body
        return reply.json

    async def refusal(self, path: str, key: str = "anm-ak-acme") -> tuple[int, str, str | None]:
        """Status, code and parameter of an error."""
        reply = await self.ask(path, key)
        error = reply.json["error"]
        return reply.status, error["code"], error["param"]

    async def pages(self, path: str, key: str = "anm-ak-acme") -> list[list[Any]]:
        """The rows of every page of a listing, in the order in which they are given."""
        mark, pages = "", []
        while True:
            page = await self.json(f"{path}{'&' if '?' in path else '?'}{mark}limit=2", key)
            pages.append(page["data"])
            if page["next"] is None:
                return pages
            mark = f"cursor={page['next']}&"


@asynccontextmanager
async def reading(database: Database) -> AsyncIterator[Reading]:
    """The routes over *database*."""
    table = AdminTable(ReadingDesk(SqlBooks(database, lambda: NOW_MS)).routes())
    async with open_admin(table, _keys(), lambda: NOW_MS) as door:
        yield Reading(door)
