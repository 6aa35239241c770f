"""Limits that processes share over a Redis: exact over processes, and what becomes of calls while it is away."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.soak.processes import gateway_command
from tests.support.acts import head, pause_ms
from tests.support.client import Client, Reply
from tests.support.config import Config
from tests.support.frames import chat
from tests.support.gateway import CHAT, PLAIN, Gateway
from tests.support.limits import limited, secret, tables
from tests.support.notation import DONE, FIN, HANG, R, T, U, json_answer
from tests.support.provider import FakeProvider
from tests.support.redis import Redis, server

TEN_CALLS = "0.0052"  # of those of `tests.wire.test_limits`, each of which holds some 0.00051
FOUR_CALLS = "0.0022"
HELD = Decimal("0.00052")
ROOMY = "1"  # for a thousand of them
# The real command, in a hurry to forget what the database has.
FORGETFUL = """
import gateway.__main__, gateway.storage.redis_upkeep as upkeep

upkeep.REMEMBERED_S = 0.5
gateway.__main__.main()
"""
Keys = dict[str, dict[str, Any]]
LONG = {"idle_s": 60, "first_token_s": 60, "non_stream_s": 60}
PATIENT: Config = {"server": {"first_byte_s": 60, "header_s": 60, "body_s": 60}, "stream": LONG}
FAST: Config = {"limits": {"redis_timeout_ms": 100, "blind_s": 60, "rejoin_s": 0.2}}


@pytest.fixture
def redis() -> Iterator[Redis]:
    with server() as running:
        yield running


class Scene:
    """A provider, a Redis, and gateways that share both and a database."""

    def __init__(self, provider: FakeProvider, gateways: list[Gateway]) -> None:
        self.provider, self.gateways = provider, gateways

    def client(self, number: int = 0, name: str = "mine") -> Client:
        return self.gateways[number].client(secret(name))

    async def ask(self, number: int = 0, name: str = "mine", **more: Any) -> Reply:
        return await self.client(number, name).request("POST", CHAT, call(**more))


def call(**more: Any) -> dict[str, Any]:
    return chat("m", **{"stream": False, "max_tokens": 50, **more})


@asynccontextmanager
async def scene(
    folder: Path,
    url: str,
    keys: dict[str, dict[str, Any]],
    *,
    processes: int = 1,
    workers: int = 1,
    **overrides: Config,
) -> AsyncIterator[Scene]:
    async with FakeProvider() as provider, AsyncExitStack() as stack:
        config = limited(provider.base_url, await tables(folder), keys, url, **overrides)
        gateways = [Gateway(config, workers=workers, flags=PLAIN) for _ in range(processes)]
        await asyncio.gather(*map(stack.enter_async_context, gateways))
        provider.script("m", [json_answer("Hi", (7, 50))])
        yield Scene(provider, gateways)


async def test_lim_01_processes_share_a_budget(tmp_path: Path, redis: Redis) -> None:
    """LIM-01: 200 calls at once over four processes on a budget for ten: ten reach the provider."""
    async with scene(tmp_path, redis.url, {"mine": {"budget_usd": TEN_CALLS}}, processes=4, **PATIENT) as it:
        replies = await asyncio.gather(*[it.ask(number % 4) for number in range(200)])

        codes = [reply.status for reply in replies]
        assert (codes.count(200), codes.count(402), len(it.provider.requests)) == (10, 190, 10)


ABSURD: list[dict[str, Any]] = [
    *({"prompt_tokens": count, "completion_tokens": 3} for count in (10**30, 2**63, 2**53, -5, 1e308, "7", True, [1])),
    *({"prompt_tokens": 7, "completion_tokens": count} for count in (10**30, -(2**63), 10**12, {"x": 1})),
    {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 10**8}},
    {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": -(10**8)}},
    {"prompt_tokens": 7, "completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 10**30}},
]


async def test_budgets_of_a_provider_that_lies(tmp_path: Path, redis: Redis) -> None:
    """
    Counts that cannot be cost no more than what was held for the call, and never less than nothing: the budget goes on,
    and the books agree. One that could be empties it, and they agree still.
    """
    async with scene(tmp_path, redis.url, {"mine": {"budget_usd": ROOMY}}) as it:
        for usage in ABSURD:
            it.provider.script("m", [json_answer("a", usage=usage)], [R() + T("a") + FIN("stop", usage) + DONE])
            assert [(await it.ask(stream=stream)).status for stream in (False, True)] == [200, 200], usage
        odd = await it.gateways[0].settled(2 * len(ABSURD))
        it.provider.script("m", [json_answer("a", (7, 1))], [json_answer("a", (10**8, 10**8))])
        after = [await it.ask() for _ in range(2)]
        await it.gateways[0].settled(2)
        refused = await it.ask()

    assert all(0 < Decimal(line["cost_usd"]) <= HELD for line in odd)
    assert [reply.status for reply in after] == [200] * 2
    assert (refused.status, refused.json["error"]["code"]) == (402, "budget_exceeded")
    config = tmp_path / "verified.toml"
    config.write_text(it.gateways[0].config, encoding="utf-8")
    assert await gateway_command(config, "ledger", "verify") == (
        0, "missing/extra/mismatch = 0/0/0; 1 counters in Redis looked at.\n"
    )  # fmt: skip


async def test_minutes_and_places_are_shared(tmp_path: Path, redis: Redis) -> None:
    """What one process admits, another one counts; a stream that its client leaves gives its place back at once."""
    async with scene(tmp_path, redis.url, {"mine": {"rpm": 5}, "one": {"inflight": 1}}, processes=2) as it:
        replies = [await it.ask(number % 2) for number in range(6)]
        assert [reply.headers.get("x-anoman-rate-remaining-rpm") for reply in replies] == ["4", "3", "2", "1", "0", "0"]
        assert replies[5].status == 429

        it.provider.script("m", [head(), R(), T("a"), HANG], [json_answer("Hi")])
        async with it.client(0, "one").stream(CHAT, call(stream=True)) as stream:
            async for _ in stream.frames():
                break
            assert (await it.ask(1, "one")).status == 429
            stream.close()
            await it.gateways[0].line(lambda line: line.get("outcome") == "cancelled")
        assert (await it.ask(1, "one")).status == 200


async def test_no_budget_stops_a_stream_that_none_bounds(tmp_path: Path, redis: Redis) -> None:
    """A key with a budget of sessions alone: a stream without a session is bound by nothing, and goes to its end."""
    mine = {"budgets": [{"scope": "session", "period": "total", "usd": "0.0001"}]}
    async with scene(tmp_path, redis.url, {"mine": mine}) as it:
        it.provider.script("m", [head(), R(), T("a"), T("b"), FIN(), U(7, 2), DONE])

        reply = await it.client().request("POST", CHAT, chat("m", max_tokens=50))

        assert b"budget_exceeded" not in reply.body
        assert (await it.gateways[0].settled(1))[0]["outcome"] == "completed"


async def test_lim_06_redis_is_stopped_and_comes_back(tmp_path: Path, redis: Redis) -> None:
    """
    LIM-06: without Redis a process admits its part of the minute and refuses what a budget bounds, says so in a header
    and one line; with it again all is as before, without a restart.
    """
    keys = {"mine": {"rpm": 8}, "poor": {"budget_usd": "5"}}
    async with scene(tmp_path, redis.url, keys, workers=2, **FAST) as it:
        assert [(await it.ask(name=name)).status for name in keys] == [200, 200]
        redis.stop()
        await it.gateways[0].logged("limits.blind", 2, within_s=15)  # each worker finds out for itself

        alone = [await it.ask() for _ in range(12)]
        poor = await it.ask(name="poor")
        assert 4 <= [reply.status for reply in alone].count(200) <= 8  # of each worker that was asked, four
        assert {reply.status for reply in alone} == {200, 429}
        assert {reply.headers.get("x-anoman-limits") for reply in alone} == {"local"}
        assert (poor.status, poor.json["error"]["code"]) == (503, "limits_unavailable")
        assert poor.headers.get("retry-after") == "1"

        redis.start()
        for _ in range(2):
            await it.gateways[0].logged("limits.shared", within_s=15)
        again = [await it.ask() for _ in range(9)]
        assert [reply.status for reply in again] == [200] * 8 + [429]
        assert {reply.headers.get("x-anoman-limits") for reply in again} == {None}
        assert (await it.ask(name="poor")).status == 200


async def test_redis_is_gone_at_boot(tmp_path: Path, redis: Redis) -> None:
    """The gateway serves all the same, and finds Redis when it comes."""
    redis.stop()
    async with scene(tmp_path, redis.url, {"mine": {"rpm": 5}, "poor": {"budget_usd": "5"}}, **FAST) as it:
        first = await it.ask()
        assert (first.status, first.headers.get("x-anoman-limits")) == (200, "local")
        assert (await it.ask(name="poor")).status == 503

        redis.start()
        await it.gateways[0].logged("limits.shared", within_s=15)

        assert (await it.ask(name="poor")).status == 200


@pytest.mark.parametrize(("choice", "status"), [("open", 200), ("closed", 503)])
async def test_when_it_stays_away_the_key_decides(tmp_path: Path, redis: Redis, choice: str, status: int) -> None:
    """After `limits.blind_s` a key is let in without limits, or not at all."""
    redis.stop()
    keys = {"mine": {"rpm": 1, "when_blind": choice}}
    async with scene(tmp_path, redis.url, keys, limits={**FAST["limits"], "blind_s": 0}) as it:
        replies = [await it.ask() for _ in range(4)]

        assert {reply.status for reply in replies} == {status}
        assert {reply.headers.get("x-anoman-limits") for reply in replies} == {"local"}


async def test_a_frozen_redis_is_not_waited_for(tmp_path: Path, redis: Redis) -> None:
    """
    Reliability D2: it answers nothing and refuses nothing. Calls wait for the time-out until three in a row have, then
    for nothing; when it goes on, so do they.
    """
    async with scene(tmp_path, redis.url, {"mine": {"rpm": 1000}, "poor": {"budget_usd": "5"}}, **FAST) as it:
        assert (await it.ask(name="poor")).status == 200
        redis.freeze()
        try:
            loop, waits = asyncio.get_running_loop(), []
            for _ in range(40):
                began_s = loop.time()
                assert (await it.ask()).status == 200
                waits.append(loop.time() - began_s)
            assert sum(wait > 0.1 for wait in waits) <= 3
            assert sorted(waits)[20] < 0.1
            assert (await it.ask(name="poor")).status == 503
        finally:
            redis.thaw()
        await it.gateways[0].logged("limits.shared", within_s=15)

        assert (await it.ask(name="poor")).status == 200


@pytest.mark.parametrize(
    ("command", "undo"),
    [
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
    ],
    ids=["read-only replica", "out of memory"],
)
async def test_a_redis_that_refuses_is_none(
    tmp_path: Path, redis: Redis, command: tuple[str, ...], undo: tuple[str, ...]
) -> None:
    """Reliability D3: READONLY and OOM are outages like any other, and over when they are."""
    async with scene(tmp_path, redis.url, {"mine": {"rpm": 100}, "poor": {"budget_usd": "5"}}, **FAST) as it:
        assert (await it.ask(name="poor")).status == 200
        redis.command(*command)
        await it.gateways[0].logged("limits.blind", within_s=15)

        assert [(await it.ask(name=name)).status for name in ("mine", "poor")] == [200, 503]

        redis.command(*undo)
        await it.gateways[0].logged("limits.shared", within_s=15)
        assert [(await it.ask(name=name)).status for name in ("mine", "poor")] == [200, 200]


async def test_a_lost_script_is_loaded_again(tmp_path: Path, redis: Redis) -> None:
    """SCRIPT FLUSH costs one call a round trip more."""
    async with scene(tmp_path, redis.url, {"mine": {"rpm": 10, "budget_usd": "5"}}) as it:
        assert (await it.ask()).status == 200
        redis.command("SCRIPT", "FLUSH")

        reply = await it.ask()

        assert (reply.status, reply.headers.get("x-anoman-rate-remaining-rpm")) == (200, "8")
        assert [line for line in it.gateways[0].log if line["event"] == "limits.blind"] == []


async def test_dis_08_a_place_comes_back_however_its_request_ends(tmp_path: Path, redis: Redis) -> None:
    """DIS-04, DIS-08: after 200 clients that vanish, at whatever moment, no place is held."""
    async with scene(tmp_path, redis.url, {"one": {"inflight": 50}}) as it:
        it.provider.script("m", [head(), R(), T("a"), HANG])

        async def vanish(number: int) -> None:
            stream = await it.client(0, "one").open("POST", CHAT, call(stream=True))
            await asyncio.sleep(number % 20 / 1000)  # at every moment of its admission
            stream.rst()
            await stream.dispose()

        for start in range(0, 200, 40):
            await asyncio.gather(*[vanish(start + number) for number in range(40)])
        it.provider.script("m", [json_answer("Hi")])
        async with asyncio.timeout(10):
            names = redis.keys()
            running = next((name for name in names if ":running:" in name), "none")
            while places := redis.command("ZCARD", running):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)  # Redis tells nobody

        assert places == 0
        assert (await it.ask(name="one")).status == 200


LEASE: Config = {"lease_s": 2, "renew_s": 0.5}


@pytest.mark.parametrize(("limits", "end"), [({}, signal.SIGKILL), (LEASE, signal.SIGSTOP)])
async def test_places_of_a_dead_process_are_free_in_time(
    tmp_path: Path, redis: Redis, limits: Config, end: signal.Signals
) -> None:
    """G6: kill -9 with 100 requests in flight: their places are free as soon as its journal is taken over; where that
    cannot be, as of a process that hangs or is lost with its machine, as soon as their leases have ended."""
    async with scene(tmp_path, redis.url, {"one": {"inflight": 100}}, processes=2, limits=limits, stream=LONG) as it:
        it.provider.script("m", [head(), R(), T("a"), HANG])
        async with AsyncExitStack() as stack:
            streams = [it.client(0, "one").stream(CHAT, call(stream=True)) for _ in range(100)]
            await asyncio.gather(*map(stack.enter_async_context, streams))
            it.provider.script("m", [json_answer("Hi")])
            await asyncio.sleep(3)  # longer than the short lease: those of the living are renewed
            assert (await it.ask(1, "one")).status == 429

            it.gateways[0].expected_exit = -9
            it.gateways[0].signal(end)
            killed_s = asyncio.get_running_loop().time()
            while (await it.ask(1, "one")).status == 429:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)
            free_s = asyncio.get_running_loop().time() - killed_s
            if end is not signal.SIGKILL:
                it.gateways[0].signal(signal.SIGKILL)

        assert free_s < 10


async def test_admissions_are_counted_by_verdict(tmp_path: Path, redis: Redis) -> None:
    """One call for each limit, and three that are let in, are in `/metrics` as such."""
    keys: Keys = {
        "mine": {"rpm": 1},
        "tokens": {"tpm": 100},
        "poor": {"budget_usd": "0"},
        "planned": {"weighted_tokens_per_month": 1},
        "place": {"inflight": 1},
    }
    async with scene(tmp_path, redis.url, keys, **FAST) as it:
        asked = [(await it.ask(name=name)).status for name in ("mine", "mine", "tokens", "tokens", "poor", "planned")]
        it.provider.script("m", [head(), R(), T("a"), HANG])
        async with it.client(0, "place").stream(CHAT, call(stream=True)):
            asked.append((await it.ask(name="place")).status)
        redis.stop()
        await it.gateways[0].logged("limits.blind", within_s=15)
        asked.append((await it.ask(name="poor")).status)
        await asyncio.sleep(1.2)  # they are poured once a second
        metrics = await it.gateways[0].metrics()

    found = [sample for sample in metrics.samples if sample.name == "gateway_admissions_total"]
    ones = dict.fromkeys(("rpm", "tpm", "inflight", "budget", "allowance", "blind"), 1)
    assert asked == [200, 429, 200, 429, 402, 402, 429, 503]
    assert {sample.labels["verdict"]: sample.value for sample in found} == {"admitted": 3, **ones}


def counters_of(redis: Redis, name: str) -> tuple[int, int]:
    """Nano-USD used and held of the budget that has *name* in its own."""
    everything = redis.keys()
    (found,) = [key for key in everything if ":account:" in key and key.endswith(name)]
    used, held = redis.command("HMGET", found, "used", "held")  # type: ignore[misc]
    return int(used), int(held)


async def test_counters_equal_the_ledger_after_a_flush_under_load(tmp_path: Path, redis: Redis) -> None:
    """
    Reliability D3: FLUSHALL three times while two processes serve streams and bodies, some of which are left. In the
    end the counter has what the ledger has, to the last nano-USD, and nothing is held.
    """
    keys = {"mine": {"budgets": [{"scope": "tenant", "period": "total", "usd": "50"}]}}
    async with scene(tmp_path, redis.url, keys, processes=2, **PATIENT) as it:
        words = [head(), R(), *[act for _ in range(20) for act in (T("a"), pause_ms(20))], FIN(), U(7, 20), DONE]
        it.provider.script("m", words, [json_answer("Hi", (7, 50))])
        stop = asyncio.Event()

        async def load(number: int) -> None:
            while not stop.is_set():
                body = call(stream=number % 2 == 0)
                stream = await it.client(number % 2).open("POST", CHAT, body)
                if number % 5 == 0:
                    await asyncio.sleep(0.1)  # and leave in the middle of it
                    stream.close()
                else:
                    await stream.reply()
                await stream.dispose()

        loads = [asyncio.create_task(load(number)) for number in range(12)]
        for _ in range(3):
            await asyncio.sleep(1)
            redis.flush()
        await asyncio.sleep(1)
        stop.set()
        await asyncio.gather(*loads)
        # A last call loads the counter if nobody has since; then the rows of all are on their way.
        assert (await it.ask()).status == 200
        async with asyncio.timeout(20):
            while counters_of(redis, "tenant:mine:total") != (ledger_of(tmp_path), 0):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.2)

        assert ledger_of(tmp_path) > 0
        told = (await it.client().request("GET", "/anoman/v1/usage/limits")).json["data"]
        (budget,) = [row for row in told if row["limit"] == "usd_total"]
        assert (budget["scope"], budget["held"], budget["resets_at"]) == ("tenant", "0.000000", None)
        assert Decimal(budget["used"]) * 10**9 == ledger_of(tmp_path)


async def test_what_the_database_does_not_have_is_told_again(tmp_path: Path, redis: Redis) -> None:
    """A flush while no row can be written, for longer than the rest is remembered: nothing is forgotten."""
    async with FakeProvider() as provider:
        config = limited(provider.base_url, await tables(tmp_path), {"mine": {"budget_usd": FOUR_CALLS}}, redis.url)
        async with Gateway(config, flags=PLAIN, command=("-c", FORGETFUL, "serve")) as gateway:
            provider.script("m", [json_answer("Hi", (7, 50))])
            it = Scene(provider, [gateway])
            with closing(sqlite3.connect(tmp_path / "gateway.db", isolation_level=None)) as holder:
                assert (await it.ask()).status == 200
                holder.execute("BEGIN IMMEDIATE")  # who reads can
                assert [(await it.ask()).status for _ in range(3)] == [200] * 3
                await gateway.logged("ledger.delayed", within_s=20)
                await asyncio.sleep(3)  # past the horizon, and past the tick that would forget
                redis.flush()
                during = (await it.ask()).status
                holder.execute("ROLLBACK")
            await gateway.logged("ledger.caught_up", within_s=20)
            await asyncio.sleep(3)
            redis.flush()
            after = (await it.ask()).status
            used = counters_of(redis, ":month")

    assert (during, after, len(provider.requests)) == (402, 402, 4)
    assert used == (ledger_of(tmp_path), 0)


def ledger_of(folder: Path) -> int:
    """The sum of all charges."""
    with closing(sqlite3.connect(folder / "gateway.db")) as database:
        statement = "SELECT COALESCE(SUM(cost_nano_usd), 0) FROM ledger WHERE kind IN ('charge', 'correction')"
        (total,) = database.execute(statement).fetchone()
    return int(total)


async def test_whoever_follows_a_dead_worker_does_not_spend_its_part_again(tmp_path: Path) -> None:
    """Without Redis: one of two workers spends its half of a budget and is killed; the next one has nothing of it."""
    async with scene(tmp_path, "", {"mine": {"budget_usd": TEN_CALLS}}, workers=2) as it:
        (gateway,) = it.gateways
        await gateway.logged("server.started", 2)
        one, other = sorted(set(gateway.pids) - {gateway.pid})
        os.kill(other, signal.SIGSTOP)
        try:
            spent = [(await it.ask()).status for _ in range(6)]
            while rows_of(tmp_path) < 5:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)
            os.kill(one, signal.SIGKILL)
            await gateway.logged("server.started", within_s=20)
            again = [(await it.ask()).status for _ in range(3)]
        finally:
            os.kill(other, signal.SIGCONT)

        assert (spent, again) == ([200] * 5 + [402], [402] * 3)


def rows_of(folder: Path) -> int:
    """Charges that are in the database."""
    with closing(sqlite3.connect(folder / "gateway.db")) as database:
        (count,) = database.execute("SELECT count(*) FROM ledger WHERE kind = 'charge'").fetchone()
    return int(count)
