"""What keys of the database are under: their own policy and their tenant's, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import delete, select, update

from gateway.core.accounts import BadTerms
from gateway.core.guarding import NO_RULES, CallTerms
from gateway.core.records import CLI, Actor, Taken
from gateway.providers.presets import PRESETS
from gateway.settings import FileTerms, from_document
from gateway.storage.account_rules import SqlRules
from gateway.storage.database import Database
from gateway.storage.key_rules import KeyRules
from gateway.storage.migrations import upgrade
from gateway.storage.tables import audit, policies
from tests.contract.test_accounts import TERMS, Bank

MANAGER = Actor("key_manager", "acme")


def limited(most: int) -> dict[str, Any]:
    return {"calls": {"max_tokens": most}}


class PolicyBank(Bank):
    """Accounts and policies, the latter changed by this process unless it is said to be another."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.policies = SqlRules(
            database, lambda: TERMS, now_ms=self.clock.now_ms, on_change=lambda: self.serving.invalidate()
        )
        self.elsewhere = SqlRules(database, lambda: TERMS, now_ms=self.clock.now_ms)

    async def put(self, tenant: str | None, name: str, most: int, actor: Actor = CLI) -> None:
        await self.policies.put_policy(actor, tenant, name, limited(most))

    async def most(self, text: str) -> int | str | None:
        """The longest answer that the key *text* may ask for; "none" where it is no key."""
        found = await self.serving.find(text)
        return "none" if found is None else found.rules.calls.max_tokens


@pytest_asyncio.fixture
async def bank(url: str, database: Database) -> AsyncIterator[PolicyBank]:
    await asyncio.to_thread(upgrade, url)
    made = PolicyBank(database)
    await made.tenant()
    yield made
    await made.tasks.drain(1)


async def test_no_policy(bank: PolicyBank) -> None:
    """A key under none, of a tenant under none, is under no rules."""
    found = await bank.find(await bank.make())

    assert found is not None
    assert found.rules == NO_RULES


async def test_a_keys_own_policy(bank: PolicyBank) -> None:
    """Its tenant's of that name counts before everybody's, and that one again when its tenant's is gone."""
    await bank.put(None, "small", 100)
    secret = (await bank.make(policy="small")).text
    seen = [await bank.most(secret)]
    await bank.put("acme", "small", 200)
    seen.append(await bank.most(secret))
    await bank.policies.delete_policy(CLI, "acme", "small")
    seen.append(await bank.most(secret))

    assert seen == [100, 200, 100]


async def test_both_bind(bank: PolicyBank) -> None:
    """Whatever policy a manager gives a key, the tenant's holds as well: the stricter of the two, field by field."""
    await bank.policies.put_policy(CLI, None, "house", {"calls": {"max_tokens": 100, "models": ["gpt-*"]}})
    await bank.accounts.update_tenant(CLI, "acme", {"policy": "house"})
    await bank.policies.put_policy(MANAGER, "acme", "mine", {"calls": {"max_tokens": 900, "regions": ["ID"]}})
    plain, loose = await bank.make(actor=MANAGER), await bank.make(actor=MANAGER, policy="mine")

    found = [await bank.find(made) for made in (plain, loose)]

    assert [key and key.rules.calls for key in found] == [
        CallTerms((("gpt-*",),), max_tokens=100),
        CallTerms((("gpt-*",),), regions=frozenset({"ID"}), max_tokens=100),
    ]


async def test_a_manager_cannot_stand_in_for_the_tenants_policy(bank: PolicyBank) -> None:
    """A policy of the tenant's own by the name that the tenant is under changes nothing for the tenant as a whole."""
    await bank.put(None, "house", 100)
    await bank.accounts.update_tenant(CLI, "acme", {"policy": "house"})
    secret = (await bank.make()).text

    await bank.put("acme", "house", 900, MANAGER)

    assert await bank.most(secret) == 100


async def test_policies_of_the_file(bank: PolicyBank) -> None:
    """Where the database has none of that name the file's counts, for a key and for a tenant; once the file has it no
    more, the key cannot be used, for it would be under nothing."""
    document = {"policies": {"filed": limited(50)}, "tiers": {"small": {}}}
    terms = FileTerms.of(from_document(document, {}, {}, presets=PRESETS))
    with pytest.raises(BadTerms):
        await bank.make(policy="filed")
    bank.accounts._terms = lambda: terms
    bank.serving.replace({}, terms)

    secret = (await bank.make(policy="filed")).text
    other = (await bank.make()).text
    seen = [await bank.most(secret), await bank.most(other)]
    await bank.accounts.update_tenant(CLI, "acme", {"policy": "filed"})
    seen.append(await bank.most(other))
    bank.serving.replace({}, TERMS)
    seen.append(await bank.most(secret))

    assert seen == [50, None, 50, "none"]
    assert bank.unusable[-1][1] == "policy: there is no policy filed"


async def test_a_change_elsewhere(bank: PolicyBank) -> None:
    """What another process changes holds here within five seconds, and at once what this one does."""
    await bank.put(None, "small", 100)
    secret = (await bank.make(policy="small")).text
    seen = [await bank.most(secret)]
    await bank.elsewhere.put_policy(CLI, None, "small", limited(5))
    bank.clock.ms += 4_900
    seen.append(await bank.most(secret))
    await bank.put(None, "small", 6)
    seen.append(await bank.most(secret))

    assert seen == [100, 5, 6]


async def test_a_tenant_that_is_put_under_a_policy(bank: PolicyBank) -> None:
    """It holds for the keys that there are, until it is taken away."""
    await bank.put(None, "house", 100)
    secret = (await bank.make()).text
    seen = [await bank.most(secret)]
    for policy in ("house", None):
        await bank.accounts.update_tenant(CLI, "acme", {"policy": policy})
        seen.append(await bank.most(secret))

    assert seen == [None, 100, None]


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"calls": {"max_tokens": 0}}, "policy small: calls.max_tokens: 0 is not within 1 to 100000000"),
        ({"new": {}}, "policy small: new: there is no such setting"),
    ],
)
async def test_rules_that_are_not_understood(bank: PolicyBank, rules: dict[str, Any], reason: str) -> None:
    """A key under rules that this version would not enforce cannot be used, and that is told once; it can again when
    they are put right."""
    await bank.put(None, "small", 100)
    secret = (await bank.make(policy="small")).text
    await bank.change(update(policies).values(rules=rules))
    seen = [await bank.most(secret), await bank.most(secret)]
    await bank.put(None, "small", 7)
    seen.append(await bank.most(secret))

    assert seen == ["none", "none", 7]
    assert [told for _, told in bank.unusable] == [reason]


@pytest.mark.parametrize("text", ["not json", "[" * 100_000, ""])
def test_rules_that_are_no_json(text: str) -> None:
    """A row that somebody wrote past us is the matter of the keys under it, and not of all that are read with them."""
    row = {"policy": "small", "policy_rules": text, "tenant_policy": None, "tenant_policy_rules": None}

    with pytest.raises(BadTerms, match="policy small: not JSON"):
        KeyRules(FileTerms({})).of(row)  # type: ignore[arg-type]  # of a row it reads the members


async def test_a_policy_that_is_gone(bank: PolicyBank) -> None:
    """However it went: a key under it cannot be used."""
    await bank.put(None, "small", 100)
    secret = (await bank.make(policy="small")).text

    await bank.change(delete(policies))

    assert await bank.most(secret) == "none"
    assert [told for _, told in bank.unusable] == ["policy: there is no policy small"]


async def test_a_tenants_policy_is_everybodys(bank: PolicyBank) -> None:
    """A tenant is put under no policy that is not there, nor under one of its own; and the one that it is under is not
    taken away."""
    await bank.put("acme", "mine", 100)
    for attempt in (
        bank.accounts.update_tenant(CLI, "acme", {"policy": "mine"}),
        bank.accounts.update_tenant(CLI, "acme", {"policy": "none"}),
        bank.tenant("other", policy="mine"),
    ):
        with pytest.raises(BadTerms, match="policy: there is no policy"):
            await attempt
    await bank.put(None, "house", 100)
    await bank.tenant("other", policy="house")
    await bank.put("other", "house", 1)

    await bank.policies.delete_policy(CLI, "other", "house")
    with pytest.raises(Taken, match="There are tenants under the policy house"):
        await bank.policies.delete_policy(CLI, None, "house")

    assert (await bank.accounts.tenant("other")).policy == "house"


async def test_audit(bank: PolicyBank) -> None:
    """Every change has its row: who, which policy, and the rules; operators' own are no tenant's to read."""
    await bank.put(None, "house", 100)
    await bank.accounts.update_tenant(CLI, "acme", {"policy": "house"})
    await bank.put("acme", "mine", 5, MANAGER)
    await bank.put("acme", "mine", 6, MANAGER)
    await bank.policies.delete_policy(MANAGER, "acme", "mine")

    rows = await bank.rows(select(audit).order_by(audit.c.seq))
    told = [(row["tenant"], row["actor"], row["action"], row["target"], row["details"]) for row in rows[1:]]

    assert told == [
        (None, "cli", "policy.created", "house", {"rules": limited(100)}),
        ("acme", "cli", "tenant.updated", "acme", {"policy": "house"}),
        ("acme", "key_manager", "policy.created", "mine", {"rules": limited(5)}),
        ("acme", "key_manager", "policy.updated", "mine", {"rules": limited(6)}),
        ("acme", "key_manager", "policy.deleted", "mine", {}),
    ]
