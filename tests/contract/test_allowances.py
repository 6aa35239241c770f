"""What tenants have used of their month's allowance, and what is to be paid beyond, on both kinds of database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.core.records import CLI
from gateway.storage.account_rules import SqlRules
from gateway.storage.database import Database
from tests.contract.administered import TERMS, Administered, administered
from tests.contract.test_commands import run
from tests.support.booked import NOON_MS, book, charge, cost

MONTH = 31 * 86_400_000
OPERATOR: dict[str, Any] = {"tenant": "house", "right": "operate"}
PLAN = {"weighted_tokens_per_month": 1_000, "overage_usd_per_million": "1.20"}


@pytest.fixture
def served(url: str, tabled: Database) -> str:
    """The URL of a database that has its tables."""
    return url


async def fill(api: Administered) -> None:
    """Of March 2026: acme 1,501 tokens after a correction, umbrella 7; acme one in April. acme's plan has 1,000."""
    one = charge(tenant="acme", weighted_tokens=1_000)
    more = charge(tenant="acme", weighted_tokens=502)
    rows = [
        one, cost(one), more, {**more, "kind": "correction", "attempt": -1, "weighted_tokens": -1, "cost_nano_usd": 0},
        charge(tenant="umbrella", weighted_tokens=7),
        charge(tenant="acme", weighted_tokens=1, admitted_ms=NOON_MS + MONTH),
    ]  # fmt: skip
    await api.database.write(lambda connection: book(connection, ledger_rows=rows))
    await SqlRules(api.database, lambda: TERMS, now_ms=api.clock.now_ms).put_tier(CLI, "plan", PLAN)
    await api.json("PATCH", "tenants/acme", {"tier": "plan"}, **OPERATOR)


ACME = {
    "tenant": "acme", "month": "2026-03", "tier": "plan", "weighted_tokens": 1_501, "allowance": 1_000, "beyond": 501,
    "overage_usd_per_million": "1.200000", "overage_usd": "0.0006012",
}  # fmt: skip
HEAD = "tenant,month,tier,weighted_tokens,allowance,beyond,overage_usd_per_million,overage_usd"


async def test_overage(served: str) -> None:
    """Beyond the allowance each weighted token costs the plan's price, exactly; corrections count, costs do not."""
    async with administered(served) as api:
        await fill(api)
        mine = await api.json("GET", "usage/allowances?month=2026-03", right="read")
        path = "usage/allowances?month=2026-03"
        pages = [await api.json("GET", f"{path}&limit=1", **OPERATOR)]
        while pages[-1]["next"]:
            pages.append(await api.json("GET", f"{path}&cursor={pages[-1]['next']}", **OPERATOR))
        april = await api.json("GET", "usage/allowances?month=2026-04&tenant=acme", **OPERATOR)
        table = await api.ask("GET", "usage/allowances?month=2026-03&format=csv", right="read")
        wrong = await api.refusal("GET", "usage/allowances?month=2026-3", right="read")

    assert mine["data"] == [ACME]
    everybody = {row["tenant"]: row for page in pages for row in page["data"]}
    used = {name: row["weighted_tokens"] for name, row in everybody.items()}
    assert used == {"acme": 1501, "house": 0, "umbrella": 7}
    assert (everybody["umbrella"]["allowance"], everybody["umbrella"]["overage_usd"]) == (None, "0.000000")
    assert [(row["weighted_tokens"], row["beyond"]) for row in april["data"]] == [(1, 0)]
    assert table.body.decode().split("\r\n")[:2] == [HEAD, "acme,2026-03,plan,1501,1000,501,1.200000,0.0006012"]
    assert wrong == (400, "invalid_request", "month")


async def test_overage_on_the_command_line(served: str, url: str, tmp_path: Path) -> None:
    """The same for whoever has the database at hand, by plans of the file as well."""
    async with administered(served) as api:
        await fill(api)

    lines = await run(url, "tenants", "allowances", "acme", "--month", "2026-03", "--json", cwd=tmp_path)
    table = await run(url, "tenants", "allowances", "--month", "2026-03", "--csv", cwd=tmp_path)
    plain = await run(url, "tenants", "allowances", "acme", cwd=tmp_path)
    wrong = await run(url, "tenants", "allowances", "--month", "March", cwd=tmp_path)

    assert json.loads(lines[1]) == ACME
    assert [line.split(",")[:4] for line in table[1].split()] == [
        HEAD.split(",")[:4],
        ["acme", "2026-03", "plan", "1501"],
        ["house", "2026-03", "small", "0"],
        ["umbrella", "2026-03", "small", "7"],
    ]
    assert plain[1].split("\n")[0].split() == HEAD.split(",")
    assert wrong[0] == 2
