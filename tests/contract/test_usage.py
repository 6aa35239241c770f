"""Sums by whatever dimensions are the ledger's, to the last digit, on both kinds of database."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import pytest

from gateway.core.reading import DIMENSIONS, FIGURES, Dimension, Figures, Group, UsageAsked, UsageReport
from gateway.storage.database import Database
from gateway.storage.reading import SqlBooks
from tests.support.booked import DAY_MS, NOON_MS, Row, book, charge, cost, request_id, trace

EVER: dict[str, Any] = {"since_ms": 0, "until_ms": 2**53}
BIG = 2**50  # USD 1.1 million in one row: sums leave what a double can hold
# As callers choose them: empty, quotes, another's name, what a formula begins with, a script of another direction.
NAMES = [None, "", "ani", "Ani", "o'brien", '"', "=1+1", "a,b", "\u05d0", "ani\u00e9", 250 * "x", "%", "_", "\\"]


def books(tabled: Database) -> SqlBooks:
    return SqlBooks(tabled, lambda: NOON_MS)


def asked(*by: Dimension, **more: Any) -> UsageAsked:
    return UsageAsked(tenant=more.pop("tenant", None), by=by, **{**EVER, "limit": 1000, **more})


def random_rows(seed: int, calls: int) -> tuple[list[Row], list[Row]]:
    """Charges with costs and corrections, and traces; some traces are gone, and some calls had no provider."""
    chance = random.Random(seed)
    booked: list[Row] = []
    traced: list[Row] = []
    for _ in range(calls):
        figures = {name: chance.choice((0, chance.randrange(1000), chance.randrange(BIG))) for name in FIGURES[1:]}
        one = charge(
            tenant=chance.choice(("acme", "umbrella")), key_id=f"key_{chance.randrange(3):012x}",
            model=chance.choice(("gpt-4o", "claude", "")), provider=chance.choice((None, "openai", "anthropic")),
            region=chance.choice((None, "US", "ID")), routing_mode=chance.choice(("realtime", "streaming")),
            admitted_ms=NOON_MS + chance.randrange(-3 * DAY_MS, 3 * DAY_MS), **figures,
        )  # fmt: skip
        booked += [one, cost(one), cost(one, 1)][: chance.randrange(1, 4)]
        for at in range(chance.choice((0, 0, 1, 2))):
            change = {name: -chance.randrange(1000) for name in FIGURES[1:]}
            booked.append({**one, "kind": "correction", "attempt": -2 - at, **change})
        if chance.random() < 0.8:
            names = {name: chance.choice(NAMES) for name in ("user", "agent_id", "session_id")}
            traced.append(trace(one, **names))
    return booked, traced


def expected(booked: list[Row], traced: list[Row], by: tuple[Dimension, ...]) -> dict[tuple[str | None, ...], Figures]:
    """The sums of *booked* by *by*, added up one by one."""
    of_call = {row["request_id"]: row for row in traced}
    sums: dict[tuple[str | None, ...], Counter[str]] = defaultdict(Counter)
    for row in booked:
        if row["kind"] == "cost":
            continue
        group = tuple(_value(name, row, of_call.get(row["request_id"], {})) for name in by)
        sums[group]["requests"] += row["kind"] == "charge"
        for name in FIGURES[1:]:
            sums[group][name] += row[name]
    return {group: Figures(*(found[name] for name in FIGURES)) for group, found in sums.items()}


def _value(name: Dimension, row: Row, traced: Row) -> str | None:
    if name == "day":
        return f"2026-0{'3-' if row['admitted_ms'] >= NOON_MS - DAY_MS // 2 else '2-'}{_day(row['admitted_ms'])}"
    column = {"key": "key_id", "mode": "routing_mode", "agent": "agent_id", "session": "session_id"}.get(name, name)
    source = traced if name in ("user", "agent", "session", "endpoint") else row
    return source.get(column) or None


def _day(ms: int) -> str:
    """The day of the month, counted from the noon of March 1st, 2026; February had 28."""
    days = (ms - (NOON_MS - DAY_MS // 2)) // DAY_MS
    return f"{days + 1 if days >= 0 else days + 29:02d}"


def summed(groups: tuple[Group, ...]) -> Figures:
    return Figures(*(sum(getattr(group.figures, name) for group in groups) for name in FIGURES))


def pairs() -> list[tuple[Dimension, ...]]:
    return [(), *((one,) for one in DIMENSIONS), *((a, b) for a in DIMENSIONS for b in DIMENSIONS if a != b)]


@pytest.mark.parametrize("seed", range(3))
async def test_sums_equal_the_ledger(tabled: Database, seed: int) -> None:
    """Every grouping by none, one or two dimensions has just the groups and the sums that adding up by hand gives."""
    booked, traced = random_rows(seed, calls=60)
    async with tabled.engine.begin() as connection:
        await book(connection, ledger_rows=booked, trace_rows=traced)
    total = expected(booked, traced, ())[()]

    for by in pairs():
        report = await books(tabled).usage(asked(*by))

        assert {group.values: group.figures for group in report.groups} == expected(booked, traced, by), by
        assert (summed(report.groups), report.total) == (total, total), by


async def test_pages(tabled: Database) -> None:
    """Pages put together are the whole, each group once, with the total of all on each of them."""
    booked, traced = random_rows(7, calls=80)
    async with tabled.engine.begin() as connection:
        await book(connection, ledger_rows=booked, trace_rows=traced)

    for by in (("day",), ("user",), ("user", "day"), ("day", "session"), ("provider", "mode")):
        pages = await all_pages(books(tabled), asked(*by, limit=3))

        groups = tuple(group for page in pages for group in page.groups)
        assert len({group.values for group in groups}) == len(groups)
        assert {group.values: group.figures for group in groups} == expected(booked, traced, by)
        assert {page.total for page in pages} == {summed(groups)}
        assert all(len(page.groups) == 3 for page in pages[:-1])


async def all_pages(reader: SqlBooks, first: UsageAsked) -> list[UsageReport]:
    pages = [await reader.usage(first)]
    while pages[-1].has_more:
        after = tuple(value or "" for value in pages[-1].groups[-1].values)
        pages.append(await reader.usage(UsageAsked(first.tenant, first.by, 0, 2**53, after=after, limit=first.limit)))
    return pages


async def test_what_is_asked_for(tabled: Database) -> None:
    """Tenant, value and time bound what is added up; the last moment is not in it."""
    rows = [
        charge(tenant="acme", model="a", admitted_ms=NOON_MS), charge(tenant="acme", model="b", admitted_ms=NOON_MS),
        charge(tenant="acme", model="a", admitted_ms=NOON_MS + 10), charge(tenant="umbrella", admitted_ms=NOON_MS),
    ]  # fmt: skip
    async with tabled.engine.begin() as connection:
        await book(connection, ledger_rows=rows, trace_rows=[trace(rows[0], user="ani"), trace(rows[3], user="ani")])

    async def requests(**more: Any) -> int:
        return (await books(tabled).usage(asked(**more))).total.requests

    assert await requests() == 4
    assert await requests(tenant="acme") == 3
    assert await requests(tenant="acme", filters={"model": "a"}) == 2
    assert await requests(tenant="acme", until_ms=NOON_MS + 10) == 2
    assert await requests(tenant="acme", since_ms=NOON_MS + 10) == 1
    assert await requests(tenant="acme", filters={"user": "ani"}) == 1
    assert await requests(tenant="nobody") == 0


async def test_a_trace_of_another_tenant(tabled: Database) -> None:
    """A trace counts for its own tenant's charge alone, whatever request it names."""
    mine = charge(tenant="acme", request_id=request_id())
    async with tabled.engine.begin() as connection:
        await book(connection, ledger_rows=[mine], trace_rows=[trace(mine, tenant="umbrella", user="theirs")])

    report = await books(tabled).usage(asked("user", tenant="acme"))

    assert [group.values for group in report.groups] == [(None,)]


async def test_nothing(tabled: Database) -> None:
    """Of no calls the sums are zero, and there are no groups."""
    report = await books(tabled).usage(asked("day"))

    assert (report.groups, report.total, report.has_more) == ((), Figures(), False)
