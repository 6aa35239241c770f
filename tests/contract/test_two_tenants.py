"""Two tenants over every route of the admin API: neither learns of the other, nor changes anything of it (E16, G13)."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from sqlalchemy import inspect, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.administration import open_desk
from gateway.core.accounts import Right
from gateway.core.records import CLI, Actor
from gateway.http.admin.routes import AdminRoute
from gateway.storage.account_rules import SqlRules
from gateway.storage.database import Database
from gateway.storage.tables import metadata
from tests.contract.administered import RIGHTS, TERMS, Administered, administered
from tests.support.booked import book, charge, cost, request_id, session, trace

# In everything that is the victim's, wherever a text can stand.
CANARY = "umbrella"
VICTIM, ATTACKER = CANARY, "acme"
SESSION = f"{CANARY}-session"
POLICY = "of-that-name"
REQUEST = request_id(0xBEEF)
BODIES: dict[str, Any] = {
    "POST": {"tenant": VICTIM, "name": "mine"},
    "PATCH": {"name": "mine"},
    "PUT": {"rules": {}},
}
# Bodies that a route's form takes, where the ones above do not fit.
FITTING: dict[tuple[str, str], Any] = {
    ("POST", "tenants"): {"id": "new", "tier": "small"},
    ("POST", "keys/{id:key}/rotate"): {},
    ("POST", "keys/{id:key}/revoke"): {"now": True},
    ("PUT", "tiers/{name:label}"): {"limits": {}},
}


def routes() -> tuple[AdminRoute, ...]:
    """Every route there is; the stores are not asked for anything here."""
    nothing: Any = _Nothing()
    return open_desk(nothing, nothing, lambda: TERMS, lambda: (), lambda: 0).table.routes


class _Nothing:
    """Stands for stores that nobody asks."""

    def __getattr__(self, name: str) -> Any:
        return self


ROUTES = pytest.mark.parametrize("route", routes(), ids=lambda route: f"{route.method} {route.path}")


@pytest.fixture
def served(url: str, tabled: Database) -> str:
    """The URL of a database that has its tables."""
    return url


async def fill(api: Administered) -> None:
    """Give the victim something in every table that has tenants."""
    key = api.keys[VICTIM, "inference"].key.id
    booked = charge(request_id=REQUEST, tenant=VICTIM, key_id=key, model=CANARY, provider=CANARY)
    told = trace(booked, session_id=SESSION, agent_id=CANARY, user=CANARY, metadata={CANARY: CANARY})
    body = {"request_id": REQUEST, "tenant": VICTIM, "request": CANARY, "response": CANARY, "expires_ms": 2**45}

    async def step(connection: AsyncConnection) -> None:
        await book(
            connection,
            ledger_rows=[booked, cost(booked)],
            trace_rows=[told],
            session_rows=[session(tenant=VICTIM, session_id=SESSION)],
            body_rows=[body],
        )

    await api.database.write(step)
    rules = SqlRules(api.database, lambda: TERMS, now_ms=api.clock.now_ms)
    await rules.put_policy(Actor(CANARY), VICTIM, POLICY, {"calls": {"models": [f"{CANARY}-model"]}})
    await rules.put_tier(CLI, CANARY, {})


async def everything(database: Database) -> dict[str, list[str]]:
    """All rows of all tables."""

    async def step(connection: AsyncConnection) -> dict[str, list[str]]:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
        return {
            name: sorted(map(str, (await connection.execute(select(metadata.tables[name]))).all()))
            for name in names
            if name in metadata.tables
        }

    return await database.read(step)


def path_of(route: AdminRoute, api: Administered) -> str:
    """The path that names the victim's own thing."""
    key = api.keys[VICTIM, "inference"].key.id
    known = {"tenants": VICTIM, "keys": key, "tiers": CANARY, "policies": POLICY}
    known |= {"traces": REQUEST, "receipts": REQUEST, "sessions": SESSION}
    return re.sub(r"\{\w+:\w+\}", known.get(route.path.partition("/")[0], "unknown"), route.path)


async def ask(api: Administered, route: AdminRoute, query: str = "", **who: Any) -> Any:
    body = FITTING.get((route.method, route.path), BODIES.get(route.method))
    return await api.ask(route.method, path_of(route, api) + query, body, **who)


@ROUTES
async def test_crossing(served: str, route: AdminRoute) -> None:
    """Whatever one tenant asks, by the ids of the other's things too, it is told nothing of the other and changes
    nothing of it."""
    async with administered(served) as api:
        await fill(api)
        before = await everything(api.database)
        replies = {
            (right, query): await ask(api, route, query, tenant=ATTACKER, right=right)
            for right in RIGHTS[:3]
            for query in ("", f"?tenant={VICTIM}")
        }
        after = await everything(api.database)

    for (_, query), reply in replies.items():
        told = reply.body.decode().replace(f"There is no tenant {VICTIM}.", "")  # its own words, sent back
        assert CANARY not in told
        assert REQUEST not in told
        if reply.status not in (401, 403) and (query or "{" in route.path):
            makes_own = route.method == "PUT" and not query  # of that name, beside the other's
            assert reply.status == (200 if makes_own else 404)
    assert theirs(after) == theirs(before)


def theirs(rows: dict[str, list[str]]) -> dict[str, list[str]]:
    """What is the victim's."""
    return {name: [row for row in found if CANARY in row or REQUEST in row] for name, found in rows.items()}


@ROUTES
async def test_owner(served: str, route: AdminRoute) -> None:
    """The owner, or an operator, does get through by the very same request: the test above is about something."""
    async with administered(served) as api:
        await fill(api)
        right: Right = "operate" if route.right == "operate" else "manage"
        tenant = "house" if route.right == "operate" else VICTIM
        if route.path == "usage/limits":  # of the key that asks, which is to have some
            right = "inference"
        reply = await ask(api, route, tenant=tenant, right=right)

    assert reply.status in (200, 201, 409), reply.body
    if route.method == "GET" and route.path not in ("usage", "usage.csv", "usage/limits", "usage/allowances", "audit"):
        assert CANARY.encode() in reply.body or REQUEST.encode() in reply.body


async def test_interleaved(served: str) -> None:
    """Many requests of both at once, some of whose clients leave, never get each other's answers."""
    async with administered(served) as api:
        await fill(api)

        async def one(number: int) -> bytes:
            tenant = (ATTACKER, VICTIM)[number % 2]
            asking = asyncio.ensure_future(api.ask("GET", ("keys", "policies", "audit")[number % 3], tenant=tenant))
            if number % 5 == 0:
                await asyncio.sleep(0.001 * (number % 7))
                asking.cancel()
            done = (await asyncio.gather(asking, return_exceptions=True))[0]
            return b"" if isinstance(done, BaseException) or tenant == VICTIM else done.body

        told = await asyncio.gather(*(one(number) for number in range(200)))

    assert [body for body in told if CANARY.encode() in body] == []
    assert len([body for body in told if body]) > 50
