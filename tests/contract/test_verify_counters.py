"""The counters in Redis beside the ledger: found where they differ, and put right without losing what is held."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from pathlib import Path

import pytest
from sqlalchemy import insert

from gateway.core.accounts import Budget, Key, Period, Tier, session_key
from gateway.core.journal import Settled, encode
from gateway.policy.entitlement import Account, entitlement
from gateway.policy.periods import number_of, start_ms
from gateway.storage.database import Database
from gateway.storage.journal.homes import make_home
from gateway.storage.journal.segments import HEADER, frame, name_of
from gateway.storage.redis_link import Link, open_link
from gateway.storage.redis_script import EPOCH_KEY, evalsha, load, script, tick
from gateway.storage.tables import dead_letters
from gateway.storage.verifying_counters import BETWEEN_S, SKEW_MS, Counter, check_counters, repair, still_so
from tests.contract.test_commands import run
from tests.support.booked import Row, book, charge, trace
from tests.support.redis import Redis
from tests.unit.admissions import ended

SESSION = "s"
PERIODS: tuple[Period, ...] = ("day", "month", "total")
KEY = Key(
    "key_0000000000aa", "acme", Tier("t", weighted_tokens_per_month=10**6),
    budgets=tuple(Budget(scope, period, 10**9) for scope in ("key", "tenant", "session") for period in PERIODS),
)  # fmt: skip


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def rows() -> list[Row]:
    """A call of a moment ago, and one of another key of the tenant."""
    same = {"admitted_ms": now_ms(), "session_key": session_key("acme", SESSION)}
    one, other = charge(key_id=KEY.id, **same), charge(key_id="key_0000000000bb", admitted_ms=now_ms())
    return [one, {**one, "kind": "correction", "attempt": -2, "cost_nano_usd": -500, "weighted_tokens": -2}, other]


def expected(account: Account) -> int:
    paid, weighted = (97_000, 70) if account.scope != "tenant" else (194_500, 142)
    return paid if account.is_money else weighted


async def loaded(link: Link, more: int = 0) -> list[Account]:
    """Counters of every kind, loaded with what was spent and *more*."""
    await link.ask("SCRIPT", "LOAD", script(), timeout_s=5)
    epoch = int((await link.ask(*evalsha(tick("run")), timeout_s=5))[0])
    accounts = list(entitlement(KEY, SESSION).accounts)
    for account in accounts:
        period = number_of(account.period, now_ms())
        step = load(account, period, expected(account) + more, (), epoch=epoch)
        await link.ask(*evalsha(step), timeout_s=5)
    return accounts


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs is looked at again at once."""
    monkeypatch.setattr("gateway.storage.verifying_counters.BETWEEN_S", BETWEEN_S / 100)


async def test_counters(tabled: Database, redis: Redis) -> None:
    """Every counter of a current period is compared with what the ledger has since the period began."""
    async with tabled.engine.begin() as connection:
        await book(connection, ledger_rows=rows())
    link = await open_link(redis.url, lambda: None, timeout_s=5)
    try:
        await link.ask("FLUSHALL", timeout_s=5)
        accounts = await loaded(link)
        good = await check_counters(link, tabled.read, now_ms)
        await loaded_anew(link, accounts)
        wrong = await check_counters(link, tabled.read, now_ms)
        left = await repair(link, wrong[1])
        mended = await check_counters(link, tabled.read, now_ms)
        held = await link.ask("HGET", f"{{anoman}}:account:{accounts[0].name}", "held", timeout_s=5)
    finally:
        link.close()

    assert good == (len(accounts), [])
    assert {(one.name, one.used, one.charged) for one in wrong[1]} == {
        (account.name, expected(account) + 5, expected(account)) for account in accounts
    }
    assert (left, mended, held) == ([], (len(accounts), []), "7")


async def loaded_anew(link: Link, accounts: list[Account]) -> None:
    """Five too many in each, of which seven are held."""
    for account in accounts:
        name = f"{{anoman}}:account:{account.name}"
        await link.ask("HINCRBY", name, "used", 5, timeout_s=5)
        await link.ask("HSET", name, "held", 7, timeout_s=5)


async def test_what_is_left_alone(tabled: Database, redis: Redis) -> None:
    """Counters of another epoch or an earlier period, and such as are not loaded yet, are none of the ledger's now."""
    link = await open_link(redis.url, lambda: None, timeout_s=5)
    try:
        await link.ask("FLUSHALL", timeout_s=5)
        accounts = await loaded(link, more=5)
        names = [f"{{anoman}}:account:{account.name}" for account in accounts]
        await link.ask("HSET", names[0], "loaded", 0, timeout_s=5)
        await link.ask("HINCRBY", names[1], "period", -1, timeout_s=5)
        await link.ask("HSET", names[3], "epoch", "1", timeout_s=5)
        seen, _ = await check_counters(link, tabled.read, now_ms)
        await link.ask("DEL", EPOCH_KEY, timeout_s=5)
        later = await check_counters(link, tabled.read, now_ms)
    finally:
        link.close()

    assert seen == len(accounts) - 3
    assert later == (0, [])


async def test_a_clock_that_was_put_forward(tabled: Database, redis: Redis) -> None:
    """A counter of a period that has not begun is told of, however right its sum, and the repair begins it anew; one
    that begins within a minute is none."""
    async with tabled.engine.begin() as connection:
        await book(connection, ledger_rows=rows())
    link = await open_link(redis.url, lambda: None, timeout_s=5)
    try:
        await link.ask("FLUSHALL", timeout_s=5)
        accounts = [account for account in await loaded(link) if account.period != "total"]
        names = [f"{{anoman}}:account:{account.name}" for account in accounts]
        for name in names:
            await link.ask("HINCRBY", name, "period", 1, timeout_s=5)
        count, wrong = await check_counters(link, tabled.read, now_ms)
        left = await repair(link, wrong)
        gone = [await link.ask("EXISTS", name, timeout_s=5) for name in names]
    finally:
        link.close()

    told = {(one.name, one.used, one.charged, one.is_ahead) for one in wrong}
    assert told == {(account.name, expected(account), expected(account), True) for account in accounts}
    assert (count, left, gone) == (len(accounts) + 3, [], [0] * len(accounts))


@pytest.mark.parametrize(("before_ms", "is_told"), [(SKEW_MS - 1_000, False), (SKEW_MS + 1_000, True)])
async def test_a_clock_that_is_a_little_ahead(
    tabled: Database, redis: Redis, before_ms: int, is_told: bool
) -> None:  # fmt: skip
    """Around midnight Redis may be in the new day a minute before us."""
    link = await open_link(redis.url, lambda: None, timeout_s=5)
    try:
        await link.ask("FLUSHALL", timeout_s=5)
        day = start_ms("day", number_of("day", now_ms()))
        await loaded(link)
        _, wrong = await check_counters(link, tabled.read, lambda: day - before_ms)
    finally:
        link.close()

    assert any(one.is_ahead and one.name.endswith(":day") for one in wrong) is is_told


async def test_a_call_that_comes_meanwhile(redis: Redis) -> None:
    """A counter that has changed since it was looked at is not set back."""
    link = await open_link(redis.url, lambda: None, timeout_s=5)
    try:
        await link.ask("FLUSHALL", timeout_s=5)
        (account, *_) = await loaded(link)
        name = f"{{anoman}}:account:{account.name}"
        epoch, period = await link.ask("HMGET", name, "epoch", "period", timeout_s=5)
        seen = Counter(account.name, epoch, period, expected(account), 1)
        await link.ask("HINCRBY", name, "used", 3, timeout_s=5)
        left = await repair(link, [seen])
        used = await link.ask("HGET", name, "used", timeout_s=5)
    finally:
        link.close()

    assert (left, used) == ([seen], str(expected(account) + 3))


async def test_the_command(tabled: Database, url: str, redis: Redis, tmp_path: Path) -> None:
    """`ledger verify` names the counters that differ, and `--repair` sets them."""
    booked = rows()
    traced = [trace(booked[0], cost_nano_usd=97_000, weighted_tokens=70), trace(booked[2])]
    async with tabled.engine.begin() as connection:
        await book(connection, ledger_rows=booked, trace_rows=traced)
    link = await open_link(redis.url, lambda: None, timeout_s=5)
    try:
        await link.ask("FLUSHALL", timeout_s=5)
        accounts = await loaded(link, more=5)
    finally:
        link.close()
    (tmp_path / "gateway.toml").write_text(f'[storage]\nredis_url = "{redis.url}"\n')

    wrong = await run(url, "ledger", "verify", "--json", cwd=tmp_path)
    repaired = await run(url, "ledger", "verify", "--repair", cwd=tmp_path)
    good = await run(url, "ledger", "verify", cwd=tmp_path)

    assert wrong[0] == 1
    assert json.loads(wrong[1].splitlines()[-1]) == {
        "missing": 0, "extra": 0, "mismatch": len(accounts), "counters": len(accounts),
    }  # fmt: skip
    assert (repaired[0], good[0]) == (0, 0)
    changes = json.loads(wrong[1].splitlines()[-2])["examples"]
    assert sorted(repaired[1].splitlines()[:-1]) == sorted(
        re.sub(r"(\S+) counts (\d+), charged (\d+)", r"set \1 \2 -> \3", text) for text in changes
    )
    assert good[1] == f"missing/extra/mismatch = 0/0/0; {len(accounts)} counters in Redis looked at.\n"


@pytest.mark.parametrize(
    "change",
    [
        *[f"HSET account used {value}" for value in ("abc", "1.5", "9" * 40, "\\xff")],
        "HSET account period zz", "HSET account held x", "HSET account loaded x", "HDEL account used",
        "SET account x", "HSET epoch born x", "SET epoch x",
    ],
)  # fmt: skip
async def test_what_is_no_number(tabled: Database, redis: Redis, change: str) -> None:
    """It is a difference like others, beside which all else is looked at; the repair puts it aside."""
    link = await open_link(redis.url, lambda: None, timeout_s=5)
    try:
        await link.ask("FLUSHALL", timeout_s=5)
        accounts = await loaded(link)
        async with tabled.engine.begin() as connection:
            await book(connection, ledger_rows=rows())
        names = {"account": f"{{anoman}}:account:{accounts[0].name}", "epoch": EPOCH_KEY}
        command, what, *words = change.split()
        await link.ask(command, names[what], *words, timeout_s=5)
        count, wrong = await check_counters(link, tabled.read, now_ms)
        left = await repair(link, wrong)
        mended = await check_counters(link, tabled.read, now_ms)
        epoch = await link.ask("EXISTS", EPOCH_KEY, names[what], timeout_s=5)
    finally:
        link.close()

    assert count == (len(accounts) if what == "account" or "born" in change else 0)
    assert [(one.name, one.used) for one in wrong] == [(accounts[0].name if what == "account" else "epoch", None)]
    assert (left, mended, epoch) == ([], (0, []), 0)


@pytest.mark.parametrize("durability", ["spool", "redis-stream"])
async def test_no_repair_while_a_journal_is_behind(
    tabled: Database, url: str, redis: Redis, tmp_path: Path, durability: str
) -> None:
    """What a call has added to counters that is still in a journal is not taken for a mistake; once the ledger has it,
    or has buried it, what differs is."""
    link = await open_link(redis.url, lambda: None, timeout_s=5)
    await link.ask("FLUSHALL", timeout_s=5)
    accounts = await loaded(link)  # of rows that are not in the ledger
    payload = encode(Settled(ended("r1")))
    if durability == "spool":
        home = make_home(tmp_path / "spool", "one", "writer")
        (home.path / name_of(1)).write_bytes(HEADER + frame(payload))
    else:
        await link.ask("HSET", "anoman:journals", "one", "writer", timeout_s=5)
        await link.ask("XADD", "anoman:journal:one", "*", "r", payload, timeout_s=5)
    ledger_section = f'[ledger]\ndurability = "{durability}"\ndirectory = "{tmp_path}/spool"\n'
    (tmp_path / "gateway.toml").write_text(f'[storage]\nredis_url = "{redis.url}"\n{ledger_section}')

    refused = await run(url, "ledger", "verify", "--repair", cwd=tmp_path)
    async with tabled.engine.begin() as connection:
        row = {"at_ms": 1, "request_id": "r1", "tenant": "acme", "reason": "x", "record": payload}
        await connection.execute(insert(dead_letters).values(row))
    kept = await link.ask("HGET", f"{{anoman}}:account:{accounts[0].name}", "used", timeout_s=5)
    repaired = await run(url, "ledger", "verify", "--repair", cwd=tmp_path)
    link.close()

    assert (refused[0], kept) == (1, str(expected(accounts[0])))
    assert "Nothing is repaired: 1 call of the journals, " in refused[2]
    assert f"mismatch: {len(accounts)} times not so" in refused[1]
    assert repaired[0] == 0


async def test_a_repair_beside_load(tabled: Database, url: str, redis: Redis, tmp_path: Path) -> None:
    """Calls that a journal has and the ledger gets in its usual time are waited for; ones that end meanwhile are not,
    however many there are."""
    link = await open_link(redis.url, lambda: None, timeout_s=5)
    await link.ask("FLUSHALL", timeout_s=5)
    accounts = await loaded(link, more=5)
    async with tabled.engine.begin() as connection:
        await book(connection, ledger_rows=rows())
    home = make_home(tmp_path / "spool", "one", "writer")
    journal = home.path / name_of(1)
    journal.write_bytes(HEADER)
    (tmp_path / "gateway.toml").write_text(
        f'[storage]\nredis_url = "{redis.url}"\n[ledger]\ndirectory = "{tmp_path}/spool"\n'
    )

    async def serve() -> None:
        """One call after another, each in the journal for half a second before it is in the ledger."""
        for number in itertools.count():
            request_id = f"r{number}"
            with journal.open("ab") as file:
                file.write(frame(encode(Settled(ended(request_id)))))
            await asyncio.sleep(0.5)
            row = charge(request_id=request_id, tenant="other", admitted_ms=now_ms())
            async with tabled.engine.begin() as connection:
                await book(connection, ledger_rows=[row])

    serving = asyncio.create_task(serve())
    try:
        done = await run(url, "ledger", "verify", "--repair", cwd=tmp_path)
        used = [await link.ask("HGET", f"{{anoman}}:account:{one.name}", "used", timeout_s=5) for one in accounts]
    finally:
        serving.cancel()
        link.close()

    assert "Nothing is repaired" not in done[2]
    assert used == [str(expected(one)) for one in accounts]


async def test_a_call_on_its_way_into_the_ledger(tabled: Database, redis: Redis) -> None:
    """What the ledger has got between the look and the repair counts, and a counter that a call has changed is left."""
    link = await open_link(redis.url, lambda: None, timeout_s=5)
    try:
        await link.ask("FLUSHALL", timeout_s=5)
        accounts = await loaded(link, more=5)
        _, differing = await check_counters(link, tabled.read, now_ms)
        async with tabled.engine.begin() as connection:
            await book(connection, ledger_rows=rows())
        await link.ask("HINCRBY", f"{{anoman}}:account:{accounts[0].name}", "used", 3, timeout_s=5)
        same, changed = await still_so(link, tabled.read, now_ms, differing)
    finally:
        link.close()

    assert [one.name for one in changed] == [accounts[0].name]
    assert {one.name: one.charged for one in same} == {one.name: expected(one) for one in accounts[1:]}
