"""Changes of accounts that meet in PostgreSQL, held up where they would miss each other; SQLite has one at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import text

from gateway.core.accounts import BadTerms
from gateway.core.records import CLI, KeyDraft, Taken
from gateway.settings import FileTerms
from gateway.storage.account_rules import SqlRules
from gateway.storage.accounts import SqlAccounts
from gateway.storage.database import Database
from gateway.storage.tables import metadata
from tests.support.postgres import Postgres

# Of this database alone: a cluster is shared by tests.
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


class Bank:
    """A tenant, a policy and a tier, and what changes them."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.accounts = SqlAccounts(database, lambda: FileTerms({}), chance=os.urandom, now_ms=lambda: 1)
        self.rules = SqlRules(database, lambda: FileTerms({}), now_ms=lambda: 1)

    async def open(self) -> None:
        async with self.database.engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
        await self.accounts.create_tenant(CLI, "acme", {"name": "acme", "tier": "enterprise", "budgets": ()})
        await self.rules.put_policy(CLI, "acme", "strict", {})
        await self.rules.put_tier(CLI, "small", {"rpm": 5})

    async def make(self, **fields: Any) -> str:
        return (await self.accounts.create_key(CLI, KeyDraft("acme", "k", **fields))).key.id

    async def delete(self, field: str) -> None:
        """Take away the policy or the tier."""
        if field == "policy":
            await self.rules.delete_policy(CLI, "acme", "strict")
        else:
            await self.rules.delete_tier(CLI, "small")

    @asynccontextmanager
    async def held_up_at(self, table: str) -> AsyncIterator[Callable[[Awaitable[Any]], Awaitable[asyncio.Task[Any]]]]:
        """Whoever comes to write to *table* waits there until the end; begins a change, until it waits or is done."""
        async with self.database.engine.connect() as blocker, blocker.begin(), self.database.engine.connect() as looker:
            await blocker.execute(text(f"LOCK TABLE {table} IN SHARE MODE"))
            waiting = 0

            async def begin(change: Awaitable[Any]) -> asyncio.Task[Any]:
                nonlocal waiting
                task = asyncio.ensure_future(change)
                while not task.done():
                    now = (await looker.execute(text(WAITING))).scalar_one()
                    await looker.rollback()
                    if now > waiting:
                        waiting = now
                        break
                return task

            yield begin


@pytest_asyncio.fixture
async def bank(postgres: Postgres) -> AsyncIterator[Bank]:
    database = Database(postgres.create_database(f"races_{os.urandom(4).hex()}"))
    bank = Bank(database)
    await bank.open()
    yield bank
    await database.close()


async def outcomes(*tasks: asyncio.Task[Any]) -> list[Any]:
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(("field", "name"), [("policy", "strict"), ("tier", "small")])
async def test_a_key_is_made_before_what_it_needs_is_deleted(bank: Bank, field: str, name: str) -> None:
    """Who deletes a policy or a tier waits for a key that is being made under it, and is refused."""
    async with bank.held_up_at("keys") as begin:
        made = await begin(bank.make(**{field: name}))
        deleted = await begin(bank.delete(field))

    key_id, refused = await outcomes(made, deleted)

    assert isinstance(key_id, str)
    assert isinstance(refused, Taken)


@pytest.mark.parametrize(("field", "name"), [("policy", "strict"), ("tier", "small")])
async def test_what_a_key_needs_is_deleted_before_it_is_made(bank: Bank, field: str, name: str) -> None:
    """Who makes a key under a policy or a tier that is being deleted waits for that, and is refused."""
    async with bank.held_up_at("audit") as begin:
        deleted = await begin(bank.delete(field))
        made = await begin(bank.make(**{field: name}))

    done, refused = await outcomes(deleted, made)

    assert done is None
    assert isinstance(refused, BadTerms)


async def test_two_policies_that_stand_in_for_each_other(bank: Bank) -> None:
    """Of a tenant's policy and everybody's of that name one stays for the key that is under it."""
    await bank.rules.put_policy(CLI, None, "strict", {})
    await bank.make(policy="strict")
    async with bank.held_up_at("audit") as begin:
        own = await begin(bank.rules.delete_policy(CLI, "acme", "strict"))
        everybodys = await begin(bank.rules.delete_policy(CLI, None, "strict"))

    done, refused = await outcomes(own, everybodys)

    assert done is None
    assert isinstance(refused, Taken)


async def test_a_tenant_is_put_under_a_policy_before_it_is_deleted(bank: Bank) -> None:
    """Who deletes everybody's policy waits for a tenant that is being put under it, and is refused."""
    await bank.rules.put_policy(CLI, None, "house", {})
    async with bank.held_up_at("tenants") as begin:
        put = await begin(bank.accounts.update_tenant(CLI, "acme", {"policy": "house"}))
        deleted = await begin(bank.rules.delete_policy(CLI, None, "house"))

    tenant, refused = await outcomes(put, deleted)

    assert tenant.policy == "house"
    assert isinstance(refused, Taken)


async def test_a_policy_is_deleted_before_a_tenant_is_put_under_it(bank: Bank) -> None:
    """Who puts a tenant under a policy that is being deleted waits for that, and is refused."""
    await bank.rules.put_policy(CLI, None, "house", {})
    async with bank.held_up_at("audit") as begin:
        deleted = await begin(bank.rules.delete_policy(CLI, None, "house"))
        put = await begin(bank.accounts.update_tenant(CLI, "acme", {"policy": "house"}))

    done, refused = await outcomes(deleted, put)

    assert done is None
    assert isinstance(refused, BadTerms)
