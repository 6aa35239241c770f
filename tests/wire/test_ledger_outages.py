"""What is served and what is recorded while the database, the disk or Redis is away."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from itertools import chain
from pathlib import Path

from gateway.storage.migrations import upgrade
from tests.support.config import standard
from tests.support.frames import chat
from tests.support.gateway import CHAT, PLAIN, Gateway
from tests.support.notation import DONE, FIN, R, T, U, json_answer
from tests.support.postgres import cluster
from tests.support.provider import FakeProvider
from tests.support.redis import server
from tests.support.rows import Ledger

CALLS = 300
AT_ONCE = 30
THOUSAND = 1020  # by `AT_ONCE` as well


async def call_many(gateway: Gateway, count: int) -> list[int]:
    """The statuses of *count* calls, `AT_ONCE` of them at a time."""

    async def caller(own: int) -> list[int]:
        return [(await gateway.client().request("POST", CHAT, chat("m"))).status for _ in range(own)]

    return [*chain(*await asyncio.gather(*(caller(count // AT_ONCE) for _ in range(AT_ONCE))))]


async def test_a_database_that_is_locked(tmp_path: Path) -> None:
    """While another one holds the database calls are served; afterwards every row is there, once (D4, USE-19)."""
    books = Ledger(tmp_path)
    async with (
        FakeProvider() as provider,
        Gateway(standard(provider.base_url, **books.sections), flags=PLAIN) as gateway,
    ):
        provider.script("m", [R(), T("Once "), T("upon"), FIN(), U(7, 2), DONE])
        await gateway.client().request("POST", CHAT, chat("m"))
        await books.has("ledger", 2)

        with closing(sqlite3.connect(books.file, isolation_level=None)) as holder:
            holder.execute("BEGIN EXCLUSIVE")
            statuses = await call_many(gateway, CALLS)
            await gateway.logged("ledger.delayed", within_s=20)
            holder.execute("ROLLBACK")
        await gateway.logged("ledger.caught_up", within_s=20)
        rows = await books.has("ledger", 2 * CALLS + 2)

    assert statuses == [200] * CALLS
    assert len(rows) == 2 * CALLS + 2
    assert len(books.rows("traces")) == CALLS + 1
    assert sum(row["cost_nano_usd"] for row in rows if row["kind"] == "charge") == 37_500 * (CALLS + 1)


# The real command, with a database that takes 200 ms for each batch and a collector that never rests.
EAGER = """
import asyncio, gc, threading, time
import gateway.__main__
from gateway.storage.database import Database

inner = Database.write

async def write(self, step, **more):
    await asyncio.sleep(0.2)
    return await inner(self, step, **more)

def collect():
    while True:
        gc.collect()
        time.sleep(0.01)

Database.write = write
threading.Thread(target=collect, daemon=True).start()
gateway.__main__.main()
"""


async def test_use_19_slow_database_and_eager_collector(tmp_path: Path) -> None:
    """USE-19: a thousand streams, and an end as soon as they are over: a thousand rows, nothing left in the journal."""
    books = Ledger(tmp_path)
    async with FakeProvider() as provider:
        config = standard(provider.base_url, **books.sections)
        async with Gateway(config, flags=PLAIN, command=("-c", EAGER, "serve")) as gateway:
            provider.script("m", [R(), T("Once "), T("upon"), FIN(), U(7, 2), DONE])
            statuses = await call_many(gateway, THOUSAND)

    rows = books.rows("ledger", "kind = 'charge'")
    assert statuses == [200] * THOUSAND
    assert len(rows) == len({row["request_id"] for row in rows}) == len(books.rows("traces")) == THOUSAND
    assert sum(row["cost_nano_usd"] for row in rows) == 37_500 * THOUSAND
    assert books.journals == []


async def test_postgres_away(tmp_path: Path) -> None:
    """
    Calls go on while Postgres is stopped for some seconds, one of them with a row that it will never take. Afterwards
    all rows are there in their order, none lost, none twice, and that one is a dead letter (D4; reliability 5.7, 6).
    """
    with cluster() as server:
        url = await asyncio.to_thread(server.create_database, "outage")
        await asyncio.to_thread(upgrade, url)
        server.sql("ALTER TABLE traces ADD CHECK (session_id IS DISTINCT FROM 'poison')", "outage")
        books = Ledger(tmp_path).sections | {"storage": {"database_url": url}}
        async with FakeProvider() as provider, Gateway(standard(provider.base_url, **books), flags=PLAIN) as gateway:
            provider.script("m", [R(), T("Once "), T("upon"), FIN(), U(7, 2), DONE])
            stop, statuses = asyncio.Event(), list[int]()

            async def trickle() -> None:
                while not stop.is_set():
                    statuses.append((await gateway.client().request("POST", CHAT, chat("m"))).status)
                    await asyncio.sleep(0.05)

            calls = asyncio.create_task(trickle())
            await gateway.settled(10)
            await asyncio.to_thread(server.stop)
            await gateway.logged("ledger.delayed", within_s=20)
            await gateway.settled(10)
            poisoned = await gateway.client(anoman_session_id="poison").request("POST", CHAT, chat("m"))
            await asyncio.sleep(3)
            before = len(statuses)
            await asyncio.to_thread(server.start)
            await gateway.logged("ledger.caught_up", within_s=20)
            stop.set()
            await calls
            await gateway.logged("ledger.buried")
            ids = [line["request_id"] for line in gateway.log if line["event"] == "exchange.settled"]
        (poison,) = server.sql("SELECT request_id FROM dead_letters", "outage").split()
        traces = server.sql("SELECT request_id FROM traces ORDER BY ctid", "outage").split()
        counts = "SELECT kind, count(*), count(DISTINCT request_id) FROM ledger GROUP BY kind ORDER BY kind"
        rows = server.sql(counts, "outage")
        cost = server.sql("SELECT sum(cost_nano_usd) FROM ledger WHERE kind = 'charge'", "outage")

    assert poisoned.headers.get("x-request-id") == poison
    assert before > 30
    assert statuses == [200] * len(statuses)
    assert traces == [request_id for request_id in ids if request_id != poison]
    assert len(traces) == len(statuses)
    assert rows.split() == [f"{kind}|{len(statuses)}|{len(statuses)}" for kind in ("charge", "cost")]
    assert int(cost) == 37_500 * len(statuses)


async def test_redis_away(tmp_path: Path) -> None:
    """Without the Redis of its journal a call is refused, and no provider is asked; then it is served again (D6)."""
    with server() as redis:
        books = Ledger(tmp_path, redis.url)
        async with (
            FakeProvider() as provider,
            Gateway(standard(provider.base_url, **books.sections)) as gateway,
        ):
            provider.script("m", [json_answer("Yes.", (5, 2))])
            before = await gateway.client().request("POST", CHAT, chat("m", stream=False))
            await books.has("ledger", 2)

            redis.freeze()
            refused = await gateway.client().request("POST", CHAT, chat("m", stream=False))
            asked = len(provider.requests)
            redis.thaw()
            await gateway.logged("ledger.accepting", within_s=20)
            after = await gateway.client().request("POST", CHAT, chat("m", stream=False))
            rows = await books.until("ledger", lambda rows: sum(row["state"] == "settled" for row in rows) >= 4)

    assert (before.status, refused.status, after.status) == (200, 503, 200)
    assert refused.json["error"]["code"] in ("ledger_unavailable", "limits_unavailable")
    assert asked == 1
    assert len({row["request_id"] for row in rows if row["state"] == "settled"}) == 2
