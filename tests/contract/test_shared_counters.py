"""Counters over a real Redis, as processes use them: what becomes of what others hold."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from gateway.aio import Tasks
from gateway.core.accounts import Budget, Scope
from gateway.core.ports import Admitted, Booked, Draw, Order, Spending, Spent
from gateway.policy.entitlement import entitlement
from gateway.policy.verdict import Open, Part
from gateway.storage.memory import NoSpending
from gateway.storage.redis_counters import RedisCounters
from gateway.storage.redis_link import Link, Word, open_link
from gateway.storage.redis_script import (
    IDS_AT_ONCE,
    evalsha,
    load_in_pieces,
    look,
    script,
    settle,
    tick,
    verdict_of,
)
from gateway.storage.redis_upkeep import NOBODY, TICK_S, Observer, SharingRules
from tests.support.books import USD, key
from tests.support.redis import Redis, server

RULES = SharingRules(timeout_s=0.1, rejoin_ms=100)
MINE = key("mine", budgets=(Budget("key", "total", USD),))
SOON_S = 20.0


class Ledger:
    """What has been charged, long ago: by whose calls is told of those that are asked for."""

    def __init__(self, **charged: int) -> None:
        self.charged = charged

    async def booked(self, scope: Scope, owner: str, since_ms: int, ids: Collection[str]) -> Booked:
        return Booked(sum(self.charged.values()), 0, tuple(name for name in self.charged if name in ids))


@asynccontextmanager
async def process(
    redis: Redis, spending: Spending | None = None, rules: SharingRules = RULES, observer: Observer = NOBODY
) -> AsyncIterator[RedisCounters]:
    """What one process has of the counters."""
    tasks = Tasks(lambda name, exc: None)
    counters = RedisCounters(
        redis.url, spending or NoSpending(), rules, tasks, clock_s=time.time, workers=2, observer=observer
    )  # fmt: skip
    await counters.start()
    yield counters
    await counters.close()
    await tasks.drain(1)


async def stands(counters: RedisCounters) -> tuple[object, object]:
    (row,) = (await counters.usage_limits(MINE))["data"]  # type: ignore[misc]
    return row["used"], row["held"]


@pytest.mark.parametrize("what", ["account:key:mine:total", "epoch", "open"])
async def test_something_else_under_a_name_of_the_counters(what: str) -> None:
    """It keeps its contents under another name, which is told, and calls pass again; what is held still is."""
    told: list[tuple[str, str]] = []
    with server() as redis:
        async with process(redis, observer=Observer(displaced=lambda *names: told.append(names))) as counters:
            assert isinstance(await counters.admit(Order(MINE, "r1", nano_usd=Draw(USD // 2, USD // 2))), Admitted)

            redis.command("SET", f"{{anoman}}:{what}", "theirs")
            async with asyncio.timeout(SOON_S):
                order = Order(MINE, "r2", nano_usd=Draw(1000, 1000))
                while not isinstance(await counters.admit(order), Admitted):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
                while await stands(counters) != ("0.000000", "0.500001"):  # noqa: ASYNC110 - it is told again
                    await asyncio.sleep(0.05)

            ((name, new_name),) = told
            assert name == f"{{anoman}}:{what}"
            assert redis.command("GET", new_name) == "theirs"
            for request_id in ("r1", "r2"):
                counters.settle(request_id, Spent())


@pytest.mark.parametrize(
    ("what", "field", "value"),
    [
        ("epoch", "id", "bogus"),
        ("epoch", "born", ""),
        *[("account:key:mine:total", "used", value) for value in ("abc", "", "1.5", "1e3", "9" * 40, "\\xff")],
        ("account:key:mine:total", "held", "nan"),
        ("account:key:mine:total", "period", "zz"),
        ("account:key:mine:total", "period", "9999"),
        ("account:key:mine:total", "done", "7"),
        ("account:key:mine:total", "loaded", "x"),
    ],
)
async def test_no_number_within_what_is_counted(what: str, field: str, value: str) -> None:
    """What somebody has put into a hash of ours is put aside whole, which is told; counting begins anew with what the
    ledger has, and with what is held."""
    told: list[tuple[str, str]] = []
    observer = Observer(displaced=lambda *names: told.append(names))
    with server() as redis:
        async with process(redis, Ledger(r0=7_000), observer=observer) as counters:
            assert isinstance(await counters.admit(Order(MINE, "r1", nano_usd=Draw(USD // 2, USD // 2))), Admitted)

            redis.command("HSET", f"{{anoman}}:{what}", field, value)
            async with asyncio.timeout(SOON_S):
                order = Order(MINE, "r2", nano_usd=Draw(1000, 1000))
                while not isinstance(await counters.admit(order), Admitted) or not told:
                    counters.settle("r2", Spent())
                    await asyncio.sleep(0.05)
                while await stands(counters) != ("0.000007", "0.500001"):  # noqa: ASYNC110 - it is told again
                    await asyncio.sleep(0.05)

            ((name, new_name),) = told
            assert name == f"{{anoman}}:{what}"
            assert redis.command("HGET", new_name, field) == value
            for request_id in ("r1", "r2"):
                counters.settle(request_id, Spent())


@pytest.mark.parametrize("field", ["opened", "used", "credits", "tokens_opened", "tokens"])
async def test_no_number_within_a_minute(field: str) -> None:
    """It is put aside, and the minute begins anew."""
    told: list[tuple[str, str]] = []
    quick = key("quick", rpm=10**6, tpm=10**6)
    with server() as redis:
        async with process(redis, observer=Observer(displaced=lambda *names: told.append(names))) as counters:
            assert isinstance(await counters.admit(Order(quick, "r1", tokens=1)), Admitted)

            redis.command("HSET", "{anoman}:minute:quick", field, "x")
            failed = await counters.admit(Order(quick, "r2", tokens=1))
            passed = await counters.admit(Order(quick, "r3", tokens=1))
            for request_id in ("r1", "r2", "r3"):
                counters.settle(request_id, Spent())

    assert [name for name, _ in told] == ["{anoman}:minute:quick"]
    assert [told_of.limits.is_blind for told_of in (failed, passed)] == [True, False]


@pytest.mark.parametrize("text", ["theirs", "mine\n0\nx\n", "mine\n0\n0\n\nkey:mine:total\n0\n1\nx"])
async def test_no_number_within_a_hold(text: str) -> None:
    """It is put aside, and what is settled by it is booked all the same."""
    told: list[tuple[str, str]] = []
    with server() as redis:
        async with process(redis, observer=Observer(displaced=lambda *names: told.append(names))) as counters:
            await counters.admit(Order(MINE, "r1", nano_usd=Draw(USD // 2, USD // 2)))
            name = f"{{anoman}}:hold:{redis.command('HGET', '{anoman}:epoch', 'id')}:r1"

            redis.command("SET", name, text)
            counters.settle("r1", Spent(nano_usd=3_000))
            async with asyncio.timeout(SOON_S):
                while not told or await stands(counters) != ("0.000000", "0.000000"):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
                await counters.admit(Order(MINE, "r2", nano_usd=Draw(1000, 1000)))
                stood = await stands(counters)
            counters.settle("r2", Spent())

    assert ([one for one, _ in told], stood) == ([name], ("0.000003", "0.000001"))


async def test_a_bug_in_the_upkeep_does_not_end_it() -> None:
    """What it owes is done a second later: what is held is told to counters that were begun anew meanwhile."""
    told: list[str] = []

    def stumble(name: str, _new_name: str) -> None:
        told.append(name)
        raise ValueError(name)

    with server() as redis:
        async with process(redis, observer=Observer(displaced=stumble)) as counters:
            assert isinstance(await counters.admit(Order(MINE, "r1", nano_usd=Draw(USD // 2, USD // 2))), Admitted)

            redis.command("HSET", "{anoman}:epoch", "id", "bogus")
            async with asyncio.timeout(SOON_S):
                while not told:  # noqa: ASYNC110 - the upkeep is to find it, not who asks
                    await asyncio.sleep(TICK_S / 10)
                while await stands(counters) != ("0.000000", "0.500000"):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
            counters.settle("r1", Spent())

    assert told == ["{anoman}:epoch"]


async def test_what_a_dead_process_holds_is_settled_when_redis_is_back() -> None:
    """Its journal is adopted while Redis is away: the hold does not run out, to be booked at the worst case."""
    with server() as redis:
        async with process(redis) as dead:
            order = Order(MINE, "r1", nano_usd=Draw(USD // 2, USD // 2))
            assert isinstance(await dead.admit(order), Admitted)
        async with process(redis) as living:
            redis.freeze()
            async with asyncio.timeout(SOON_S):
                while not living._upkeep.is_blind:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
                living.settle("r1", Spent(nano_usd=1_000))
                redis.thaw()
                while living._upkeep.is_blind or await stands(living) != ("0.000001", "0.000000"):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)


async def run_out(redis: Redis, request_id: str) -> None:
    """Have the hold of *request_id* be over, as after `hold_s` without renewal."""
    assert redis.command("ZADD", "{anoman}:open", "XX", "CH", "1", request_id) == 1


async def test_a_hold_that_ran_out_while_its_process_lives() -> None:
    """Another process books the worst case; the call's own says that it goes on, and in the end what it cost."""
    with server() as redis:
        async with (
            process(redis, rules=replace(RULES, renew_s=0.05)) as slow,
            process(redis) as other,
            asyncio.timeout(SOON_S),
        ):
            assert isinstance(await slow.admit(Order(MINE, "r1", nano_usd=Draw(USD // 2, USD // 2))), Admitted)
            await run_out(redis, "r1")
            await other._upkeep.ask(tick(""))
            while redis.command("ZSCORE", "{anoman}:open", "r1") is None:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
            meanwhile = await stands(other)
            slow.settle("r1", Spent(nano_usd=1_000))

            assert (meanwhile, await stands(slow)) == (("0.500000", "0.000000"), ("0.000001", "0.000000"))


async def test_a_process_does_not_sweep_its_own_holds() -> None:
    """What ran out while it had no connection is renewed with the new one, before anything is swept."""
    with server() as redis:
        async with process(redis) as counters, asyncio.timeout(SOON_S):
            assert isinstance(await counters.admit(Order(MINE, "r1", nano_usd=Draw(USD // 2, USD // 2))), Admitted)
            await run_out(redis, "r1")
            redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            while redis.command("ZSCORE", "{anoman}:open", "r1") == "1":  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)

            assert await stands(counters) == ("0.000000", "0.500000")
            counters.settle("r1", Spent())


async def test_who_looks_waits_for_what_is_told_again() -> None:
    """Counters are lost, and limits are looked at before a process has told them again of a call that has been in the
    ledger for long: it counts once."""
    ledger = Ledger(r1=1_000)
    (account,) = entitlement(MINE, None).accounts
    told_again = settle(Open("r1", "mine", parts=(Part(account, 0, 0),), epoch=1), Spent(nano_usd=1_000))
    with server() as redis:
        async with process(redis, ledger, replace(RULES, rejoin_ms=1_500)) as looker, asyncio.timeout(SOON_S):
            redis.flush()
            looking = asyncio.create_task(stands(looker))
            await asyncio.wait({looking}, timeout=0.3)  # it is to wait, so there is nothing else to be awaited
            await looker._upkeep.ask(told_again)

            assert await looking == ("0.000001", "0.000000")
            assert await stands(looker) == ("0.000001", "0.000000")


class Asked:
    """Steps as a process asks them, and how long the longest took Redis: of its processor's time, on a busy machine."""

    def __init__(self, redis: Redis, link: Link) -> None:
        self.longest_s = 0.0
        self._redis, self._link = redis, link

    async def __call__(self, step: list[Word]) -> Any:
        begun_s = self._busy_s()
        reply = await self._link.ask(*evalsha(step), timeout_s=30.0)
        self.longest_s = max(self.longest_s, self._busy_s() - begun_s)
        return reply

    def _busy_s(self) -> float:
        spent = re.findall(r"used_cpu_\w+_main_thread:([0-9.]+)", str(self._redis.command("INFO", "cpu")))
        assert len(spent) == 2
        return sum(map(float, spent))


@asynccontextmanager
async def asked() -> AsyncIterator[Asked]:
    with server() as redis:
        link = await open_link(redis.url, lambda: None, timeout_s=5.0)
        await link.ask("SCRIPT", "LOAD", script(), timeout_s=5.0)
        yield Asked(redis, link)
        link.close()


LIMITS = entitlement(key("busy", budgets=(Budget("tenant", "total", USD),)), None)
(BUSY,) = LIMITS.accounts


async def used(ask: Asked) -> int | None:
    """What the counter has; None where it is not loaded."""
    (count,) = verdict_of(await ask(look(Order(MINE, "look"), LIMITS, 0)), LIMITS).standing.tallies
    return count.used if count.is_loaded else None


async def test_a_counter_of_a_busy_tenant_is_loaded_in_time() -> None:
    """A load that names 60,000 calls of the last two minutes holds Redis for a part of the time that anybody waits for
    it; each of the calls is known afterwards."""
    ids = [f"req_{number:032x}" for number in range(60_000)]
    async with asked() as ask:
        epoch = int((await ask(tick("run")))[0])
        ask.longest_s = 0.0
        for step in load_in_pieces(BUSY, 0, 7, ids, epoch=epoch):
            await ask(step)
        longest_s = ask.longest_s
        for known in (ids[0], ids[IDS_AT_ONCE - 1], ids[IDS_AT_ONCE], ids[-1]):
            await ask(settle(Open(known, parts=(Part(BUSY, 0, 0),), epoch=1), Spent(nano_usd=1_000)))

        assert await used(ask) == 7
        assert longest_s < 0.05


async def test_pieces_of_two_that_load_are_kept_apart() -> None:
    """One has read the ledger before a call was in it, and another one after that: whoever is first loads what it has
    read itself, and the call counts once."""
    call = Open("r1", parts=(Part(BUSY, 0, 0),), epoch=1)
    ids = [f"r{number}" for number in range(1, IDS_AT_ONCE + 1)]
    async with asked() as ask:
        epoch = int((await ask(tick("run")))[0])
        late = load_in_pieces(BUSY, 0, 1_007, ids, epoch=epoch)
        await ask(settle(call, Spent(nano_usd=1_000)))
        await ask(next(late))
        for step in (*load_in_pieces(BUSY, 0, 7, [], epoch=epoch), next(late)):
            await ask(step)
        await ask(settle(call, Spent(nano_usd=1_000)))

        assert await used(ask) == 1_007


async def test_pieces_that_are_gone() -> None:
    """Where a piece is not there any more nothing is loaded: what it named would count twice."""
    ids = [str(number) for number in range(IDS_AT_ONCE)]
    async with asked() as ask:
        epoch = int((await ask(tick("run")))[0])
        *_, last = load_in_pieces(BUSY, 0, 7, ids, epoch=epoch)
        await ask(last)

        assert await used(ask) is None


async def test_many_that_were_booked_before() -> None:
    """Of more calls than one command names, told before their counter is loaded, those count that the ledger has not;
    told once more, none does."""
    calls = {f"r{nano_usd}": nano_usd for nano_usd in range(2 * IDS_AT_ONCE + 1)}
    charged = [name for name, nano_usd in calls.items() if nano_usd % 2]
    async with asked() as ask:
        epoch = int((await ask(tick("run")))[0])
        for _ in range(2):
            for name, nano_usd in calls.items():
                told = settle(Open(name, parts=(Part(BUSY, 0, 0),), epoch=1), Spent(nano_usd=nano_usd))
                await ask._link.ask(*evalsha(told), timeout_s=30.0)
            for step in load_in_pieces(BUSY, 0, 1_000_000, charged, epoch=epoch):
                await ask(step)

        assert await used(ask) == 1_000_000 + sum(range(0, len(calls), 2))


async def test_a_look_at_limits_keeps_nothing() -> None:
    """What a session may still spend is told by the ledger, whatever it is called, and nothing of it is in Redis."""
    mine = key("mine", budgets=(Budget("session", "total", USD), Budget("key", "total", USD)))
    with server() as redis:
        async with process(redis, Ledger(old=USD // 4)) as counters:
            assert isinstance(await counters.admit(Order(mine, "r1", nano_usd=Draw(1000, 1000))), Admitted)
            before = redis.keys()

            told = [await counters.usage_limits(mine, f"s{number}") for number in range(20)]

            assert sorted(redis.keys()) == sorted(before)
            rows = [(row["scope"], row["used"], row["held"]) for one in told for row in one["data"]]  # type: ignore[attr-defined]
            assert rows == [("session", "0.250000", "0.000000"), ("key", "0.250000", "0.000001")] * 20
            counters.settle("r1", Spent())
