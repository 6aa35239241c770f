"""Tenants and keys in the database, on both: what is made, found, changed, refused and noted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.aio import Tasks
from gateway.core.accounts import BadTerms, BeyondRights, Budget, Key, Right
from gateway.core.credentials import digest_of, is_well_formed
from gateway.core.records import CLI, Actor, KeyDraft, NotThere, Secret, Taken
from gateway.settings import FileTerms, TierEntry
from gateway.storage.accounts import EARLIER_MS, SqlAccounts
from gateway.storage.database import Database
from gateway.storage.migrations import upgrade
from gateway.storage.sql_keys import AllKeys, SqlKeys, open_keys
from gateway.storage.tables import audit, keys, tiers

START_MS = 1_700_000_000_000
TERMS = FileTerms({"small": TierEntry(rpm=10, classes=("budget", "mid"))})
MANAGER = Actor("key_manager", "acme")


class Clock:
    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def epoch_s(self) -> float:
        return self.ms / 1000


class Bank:
    """Accounts in a database, and what serves by them."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = Clock()
        self.unusable: list[tuple[str, str]] = []
        self.tasks = Tasks(lambda name, exc: None)
        self.serving = self.another()
        self.accounts = SqlAccounts(
            database,
            lambda: TERMS,
            chance=os.urandom,
            now_ms=self.clock.now_ms,
            on_change=lambda: self.serving.invalidate(),
        )

    def another(self) -> AllKeys:
        """The keys as a process sees them that has not asked for any."""
        stored = SqlKeys(self.database, TERMS, lambda key_id, reason: self.unusable.append((key_id, reason)))
        return open_keys({}, stored, self.tasks, clock_s=self.clock.epoch_s, epoch_s=self.clock.epoch_s)

    async def tenant(self, name: str = "acme", **fields: Any) -> None:
        await self.accounts.create_tenant(CLI, name, {"name": name, "tier": "small", "budgets": (), **fields})

    async def make(self, tenant: str = "acme", actor: Actor = CLI, **fields: Any) -> Secret:
        return await self.accounts.create_key(actor, KeyDraft(tenant, "a key", **fields))

    async def find(self, made: Secret) -> Key | None:
        return await self.serving.find(made.text)

    async def change(self, statement: Any) -> None:
        async def step(connection: AsyncConnection) -> None:
            await connection.execute(statement)

        await self.database.write(step)
        self.serving.invalidate()

    async def rows(self, statement: Any) -> list[dict[str, Any]]:
        async def step(connection: AsyncConnection) -> list[dict[str, Any]]:
            return [dict(row) for row in (await connection.execute(statement)).mappings()]

        return await self.database.read(step)


@pytest_asyncio.fixture
async def bank(url: str, database: Database) -> AsyncIterator[Bank]:
    await asyncio.to_thread(upgrade, url)
    made = Bank(database)
    yield made
    await made.tasks.drain(1)


async def test_first_key(bank: Bank) -> None:
    """From nothing, a tenant and a key of it: found with its tenant's tier, and well-formed."""
    await bank.tenant(budgets=(Budget("tenant", "month", 10**9),))
    made = await bank.make(budgets=(Budget("key", "day", 5),), models=("gpt-*",), region_preference="id_only")

    key = await bank.find(made)

    assert key is not None
    assert (key.id, key.tenant, key.residency, key.models) == (made.key.id, "acme", "id_only", ("gpt-*",))
    assert (key.tier.name, key.tier.rpm, key.tier.classes) == ("small", 10, {"budget", "mid"})
    assert key.budgets == (Budget("key", "day", 5), Budget("tenant", "month", 10**9))
    assert is_well_formed(made.text)
    assert made.text not in repr(made)


async def test_secret_is_not_kept(bank: Bank) -> None:
    """The database has the digest and the last four digits, and nothing else of the secret."""
    await bank.tenant()
    made = await bank.make()

    (row,) = await bank.rows(select(keys))
    written = str(await bank.rows(select(audit))) + str(row)

    assert bytes(row["digest"]) == digest_of(made.text)
    assert (row["prefix"], row["last4"]) == ("anm-sk", made.text[-4:])
    assert made.text[7:-4] not in written


async def test_own_limits(bank: Bank) -> None:
    """A key's own limits take the place of the tier's, a tier of its own that of its tenant's."""
    await bank.tenant()
    own = await bank.find(await bank.make(limits={"rpm": 3, "classes": ["mid"]}))
    other = await bank.find(await bank.make(tier="enterprise"))

    assert own is not None
    assert (own.tier.rpm, own.tier.classes) == (3, {"mid"})
    assert other is not None
    assert (other.tier.name, other.tier.rpm, other.tier.classes) == ("enterprise", 100_000, None)


async def test_tier_of_the_database(bank: Bank) -> None:
    """A tier of the database goes before the file's of the same name."""
    await bank.tenant()
    made = await bank.make()
    row = {"name": "small", "limits": {"rpm": 7}, "created_ms": 1, "updated_ms": 1}
    await bank.change(insert(tiers).values(row))

    key = await bank.find(made)

    assert key is not None
    assert (key.tier.rpm, key.tier.classes) == (7, None)


@pytest.mark.parametrize("limits", [None, {"rpm": -1}, {"of": "later"}])
async def test_no_tier(bank: Bank, limits: dict[str, Any] | None) -> None:
    """A key whose tier is nowhere, or makes no sense, is refused and told of, once: without limits it would have
    none."""
    await bank.change(insert(tiers).values(name="gone", limits={}, created_ms=1, updated_ms=1))
    await bank.tenant(tier="gone")
    made = await bank.make()
    if limits is None:
        await bank.change(delete(tiers))
    else:
        await bank.change(update(tiers).values(limits=limits))

    found = [await bank.find(made)]
    bank.serving.invalidate()
    found.append(await bank.find(made))

    assert found == [None, None]
    assert [key_id for key_id, _ in bank.unusable] == [made.key.id]


async def test_no_tier_of_an_earlier_secret(bank: Bank) -> None:
    """Told is the id of its key, which is the only one that anybody knows."""
    await bank.change(insert(tiers).values(name="gone", limits={}, created_ms=1, updated_ms=1))
    await bank.tenant(tier="gone")
    made = await bank.make()
    await bank.accounts.rotate_key(CLI, made.key.id, 60_000)
    await bank.change(delete(tiers))

    assert await bank.find(made) is None
    assert [key_id for key_id, _ in bank.unusable] == [made.key.id]


async def test_disabled_tenant(bank: Bank) -> None:
    """The keys of a disabled tenant are unknown until it is enabled."""
    await bank.tenant()
    made = await bank.make()
    await bank.accounts.update_tenant(CLI, "acme", {"is_disabled": True})
    disabled = await bank.find(made)
    await bank.accounts.update_tenant(CLI, "acme", {"is_disabled": False})

    assert disabled is None
    assert await bank.find(made) is not None


async def test_revoked_at_once_here(bank: Bank) -> None:
    """The process that revokes a key refuses it from then on, however lately it has read it."""
    await bank.tenant()
    made = await bank.make()
    await bank.find(made)

    await bank.accounts.revoke_key(CLI, made.key.id, now=False)

    assert await bank.find(made) is None
    assert bank.serving.cut([made.key.id]) == set()


async def test_revoked_elsewhere(bank: Bank) -> None:
    """Another process refuses it within four seconds, and says that its calls are to be cut."""
    await bank.tenant()
    made = await bank.make()
    elsewhere = bank.another()
    await elsewhere.find(made.text)
    await bank.accounts.revoke_key(CLI, made.key.id, now=True)
    bank.clock.ms += 4000

    assert await elsewhere.find(made.text) is None
    assert elsewhere.cut([made.key.id]) == {made.key.id}


@pytest.mark.parametrize("before", ["disabled", "tierless"])
async def test_cut_whatever_else(bank: Bank, before: str) -> None:
    """Calls of a key that nobody could use any more, for its tenant or its tier, are cut like any other's."""
    await bank.change(insert(tiers).values(name="gone", limits={}, created_ms=1, updated_ms=1))
    await bank.tenant(tier="gone")
    made = await bank.make()
    await bank.find(made)
    if before == "disabled":
        await bank.accounts.update_tenant(CLI, "acme", {"is_disabled": True})
    else:
        await bank.change(delete(tiers))
    unusable = await bank.find(made)

    await bank.accounts.revoke_key(CLI, made.key.id, now=True)
    bank.serving.cut([made.key.id])  # reads it again
    await bank.tasks.drain(5)

    assert unusable is None
    assert bank.serving.cut([made.key.id]) == {made.key.id}


async def test_revoked_twice(bank: Bank) -> None:
    """A second revocation keeps the moment of the first; cutting can be added to it."""
    await bank.tenant()
    made = await bank.make()
    first = await bank.accounts.revoke_key(CLI, made.key.id, now=False)
    bank.clock.ms += 1000

    second = await bank.accounts.revoke_key(CLI, made.key.id, now=True)

    assert second.revoked_ms == first.revoked_ms == START_MS
    with pytest.raises(Taken):
        await bank.accounts.update_key(CLI, made.key.id, {"name": "new"})
    with pytest.raises(Taken):
        await bank.accounts.rotate_key(CLI, made.key.id, 0)


async def test_rotated(bank: Bank) -> None:
    """The new secret is the same key; without an overlap the old one is unknown."""
    await bank.tenant()
    made = await bank.make(budgets=(Budget("key", "day", 5),))

    fresh = await bank.accounts.rotate_key(CLI, made.key.id, 0)

    old, new = await bank.find(made), await bank.find(fresh)
    assert old is None
    assert new is not None
    assert (new.id, new.budgets) == (made.key.id, (Budget("key", "day", 5),))


async def test_overlap(bank: Bank) -> None:
    """With an overlap both secrets are the same key until it ends: what is spent by either counts together."""
    await bank.tenant()
    made = await bank.make()
    fresh = await bank.accounts.rotate_key(CLI, made.key.id, 60_000)
    both = [await bank.find(made), await bank.find(fresh)]
    bank.clock.ms += 60_000

    after = [await bank.find(made), await bank.find(fresh)]

    assert [key.id for key in both if key is not None] == [made.key.id] * 2
    assert after[0] is None
    assert after[1] is not None
    assert len(await bank.accounts.keys("acme", None, 10)) == 1


async def test_overlap_follows_the_key(bank: Bank) -> None:
    """What changes about a key holds for its earlier secret too, to its revocation; its own end comes no later."""
    await bank.tenant()
    made = await bank.make(expires_ms=START_MS + 10_000)
    fresh = await bank.accounts.rotate_key(CLI, made.key.id, 60_000)
    await bank.accounts.update_key(CLI, made.key.id, {"limits": {"rpm": 2}, "expires_ms": START_MS + 99_000})
    limited = await bank.find(made)
    bank.clock.ms += 10_000
    ended = [await bank.find(made), await bank.find(fresh)]
    bank.clock.ms -= 10_000
    await bank.accounts.revoke_key(CLI, made.key.id, now=False)

    assert limited is not None
    assert limited.tier.rpm == 2
    assert [key is None for key in ended] == [True, False]
    assert [await bank.find(made), await bank.find(fresh)] == [None, None]


async def test_end_within_an_overlap(bank: Bank) -> None:
    """A key that is made to end sooner ends with all of its secrets."""
    await bank.tenant()
    made = await bank.make()
    fresh = await bank.accounts.rotate_key(CLI, made.key.id, 60_000)
    await bank.accounts.update_key(CLI, made.key.id, {"expires_ms": START_MS + 10_000})
    before = [await bank.find(made), await bank.find(fresh)]
    bank.clock.ms += 10_000

    assert None not in before
    assert [await bank.find(made), await bank.find(fresh)] == [None, None]


async def test_rotated_by_two_at_once(bank: Bank) -> None:
    """Of many who rotate a key at once each gets a secret that counts, and none is lost."""
    await bank.tenant()
    made = await bank.make()

    fresh = await asyncio.gather(*(bank.accounts.rotate_key(CLI, made.key.id, 60_000) for _ in range(4)))

    found = [await bank.find(secret) for secret in (made, *fresh)]
    assert [key.id if key else None for key in found] == [made.key.id] * 5


@pytest.mark.parametrize("overlap_ms", [0, 60_000])
async def test_calls_of_an_old_secret_are_cut(bank: Bank, overlap_ms: int) -> None:
    """A stream that began by a secret which has been rotated out since is cut like any other of its key."""
    await bank.tenant()
    made = await bank.make()
    elsewhere = bank.another()
    await elsewhere.find(made.text)
    await bank.accounts.rotate_key(CLI, made.key.id, overlap_ms)
    bank.clock.ms += overlap_ms + 1000
    await bank.accounts.rotate_key(CLI, made.key.id, 0)
    await bank.accounts.revoke_key(CLI, made.key.id, now=True)
    bank.clock.ms += 1000
    elsewhere.cut([made.key.id])  # reads it again
    await bank.tasks.drain(5)

    assert elsewhere.cut([made.key.id]) == {made.key.id}


async def test_an_overlap_ends_with_a_shorter_one(bank: Bank) -> None:
    """Whoever rotates without an overlap is rid of every earlier secret, also of one whose own has not ended."""
    await bank.tenant()
    made = await bank.make()
    second = await bank.accounts.rotate_key(CLI, made.key.id, 3_600_000)
    third = await bank.accounts.rotate_key(CLI, made.key.id, 0)

    found = [await bank.find(secret) for secret in (made, second, third)]

    assert [key is not None for key in found] == [False, False, True]


async def test_old_secrets_go(bank: Bank) -> None:
    """Earlier secrets whose time has long been over are taken away when the key is rotated again."""
    await bank.tenant()
    made = await bank.make()
    for _ in range(3):
        await bank.accounts.rotate_key(CLI, made.key.id, 1000)
        bank.clock.ms += 1000 + EARLIER_MS

    assert len(await bank.rows(select(keys))) == 2


async def test_changes_of_a_key(bank: Bank) -> None:
    """What is named is changed, and nothing else."""
    await bank.tenant()
    made = await bank.make(limits={"rpm": 3})

    changed = await bank.accounts.update_key(CLI, made.key.id, {"name": "new", "log_bodies": True})

    assert (changed.name, changed.log_bodies, changed.limits) == ("new", True, {"rpm": 3})


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"tier": "none"}, "tier"), ({"limits": {"rpm": 0}}, "rpm"), ({"limits": {"tenant": "x"}}, "tenant"),
     ({"limits": {"classes": ["royal"]}}, "classes"), ({"policy": "none"}, "policy")],
)  # fmt: skip
async def test_senseless_key(bank: Bank, fields: dict[str, Any], field: str) -> None:
    """What the file would not take is not taken here, and the field is named; nothing is kept of it."""
    await bank.tenant()

    with pytest.raises(BadTerms) as raised:
        await bank.make(**fields)

    assert [name for name, _ in raised.value.problems] == [field]
    assert await bank.rows(select(keys)) == []


async def test_tenant_twice(bank: Bank) -> None:
    """A tenant's id is taken once, by whoever comes first."""
    outcomes = await asyncio.gather(*(bank.tenant() for _ in range(5)), return_exceptions=True)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", *["Taken"] * 4]


async def test_unknown_tenant(bank: Bank) -> None:
    """No key without a tenant, and no change to one that there is none of."""
    for attempt in (bank.make(), bank.accounts.update_tenant(CLI, "acme", {"name": "x"}), bank.accounts.tenant("acme")):
        with pytest.raises(NotThere):
            await attempt
    with pytest.raises(BadTerms):
        await bank.tenant(tier="none")


async def test_other_tenants_keys(bank: Bank) -> None:
    """Who manages a tenant neither sees, changes, rotates nor revokes what is another's, nor makes anything there."""
    await bank.tenant()
    await bank.tenant("other")
    made = await bank.make("other")
    attempts = (
        bank.accounts.key("acme", made.key.id),
        bank.accounts.update_key(MANAGER, made.key.id, {"name": "mine"}),
        bank.accounts.rotate_key(MANAGER, made.key.id, 0),
        bank.accounts.revoke_key(MANAGER, made.key.id, now=True),
        bank.make("other", MANAGER),
    )

    for attempt in attempts:
        with pytest.raises(NotThere):
            await attempt

    assert await bank.accounts.keys("acme", None, 10) == []
    assert await bank.find(made) is not None


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [({"tier": "enterprise"}, "tier", "this is not the tenant's tier, small; "),
     ({"limits": {"rpm": 11}}, "rpm", "tier, small, which has 10; "),
     ({"limits": {"classes": ["ultra"]}}, "classes", "tier, small, which has budget, mid; "),
     ({"rights": ("operate",)}, "rights", "")],
)  # fmt: skip
async def test_more_than_the_tenant_has(bank: Bank, fields: dict[str, Any], field: str, said: str) -> None:
    """Who manages a tenant gives no key more than the tenant's tier, whose figure is told, nor rights over others."""
    await bank.tenant()
    mine = await bank.make(actor=MANAGER, limits={"rpm": 10, "classes": ["mid"]}, tier="small")

    with pytest.raises(BeyondRights) as made:
        await bank.make(actor=MANAGER, **fields)
    if field != "rights":
        with pytest.raises(BeyondRights):
            await bank.accounts.update_key(MANAGER, mine.key.id, fields)

    assert made.value.problems[0][0] == field
    assert said in made.value.problems[0][1]


@pytest.mark.parametrize("way", ["made", "changed"])
@pytest.mark.parametrize(
    ("fields", "rpm", "classes"),
    [({"tier": "enterprise"}, 10, {"budget", "mid"}), ({"limits": {"rpm": 90_000}}, 10, {"budget", "mid"}),
     ({"limits": {"inflight": 3, "classes": ["mid", "ultra"]}}, 10, {"mid"}), ({"limits": {"rpm": 9}}, 9, None)],
)  # fmt: skip
async def test_a_managers_key_on_a_smaller_plan(
    bank: Bank, way: str, fields: dict[str, Any], rpm: int, classes: set[str] | None
) -> None:
    """What a manager gave of a plan that its tenant is no longer on is bounded by the one that it is on, and the key
    goes with the tenant when that is put on another again."""
    await bank.tenant(tier="enterprise")
    made = await bank.make(actor=MANAGER, **(fields if way == "made" else {}))
    if way == "changed":
        await bank.accounts.update_key(MANAGER, made.key.id, fields)

    await bank.accounts.update_tenant(CLI, "acme", {"tier": "small"})
    after = await bank.find(made)
    await bank.accounts.update_tenant(CLI, "acme", {"tier": "pro"})
    again = await bank.find(made)

    assert after is not None
    assert (after.tier.rpm, after.tier.classes) == (rpm, classes or {"budget", "mid"})
    assert again is not None
    assert again.tier.name == "pro"


async def test_an_operators_grant_stays(bank: Bank) -> None:
    """What an operator gives beyond the tenant's plan goes with a plan of the key's own, whatever the tenant's is."""
    await bank.tenant(tier="enterprise")
    plan = await bank.make(tier="enterprise")
    limits = await bank.make(tier="small", limits={"rpm": 500})

    await bank.accounts.update_tenant(CLI, "acme", {"tier": "small"})
    found = [await bank.find(plan), await bank.find(limits)]

    assert [key and (key.tier.name, key.tier.rpm) for key in found] == [("enterprise", 100_000), ("small", 500)]


async def test_an_operators_limits_without_a_plan(bank: Bank) -> None:
    """Limits beyond the tenant's plan alone are not taken from an operator either: the plan would bound them."""
    await bank.tenant()
    made = await bank.make(tier="small", limits={"rpm": 11})

    with pytest.raises(BadTerms, match="rpm: this is not within the tenant's tier: name a tier") as raised:
        await bank.make(limits={"rpm": 11})
    with pytest.raises(BadTerms):
        await bank.accounts.update_key(CLI, made.key.id, {"tier": None})

    assert not isinstance(raised.value, BeyondRights)


@pytest.mark.parametrize("right", ["read", "manage", "operate"])
async def test_operators_key_in_a_tenant(bank: Bank, right: Right) -> None:
    """Who manages a tenant cannot make an operator of itself by a new secret of an operator's key."""
    await bank.tenant()
    made = await bank.make(rights=(right,))
    attempts = [
        await asyncio.gather(attempt, return_exceptions=True)
        for attempt in (
            bank.accounts.rotate_key(MANAGER, made.key.id, 1000),
            bank.accounts.update_key(MANAGER, made.key.id, {"name": "mine"}),
            bank.accounts.revoke_key(MANAGER, made.key.id, now=False),
        )
    ]

    assert made.text.startswith("anm-ak-")
    assert all(isinstance(outcome, NotThere) is (right == "operate") for (outcome,) in attempts)


async def test_pages(bank: Bank) -> None:
    """Keys come newest first, page by page, each once, also where many were made in the same millisecond."""
    await bank.tenant()
    made = []
    for number in range(7):
        bank.clock.ms += number % 2
        made.append((await bank.make()).key)
    found = []
    after = None
    while page := await bank.accounts.keys("acme", after, 2):
        found += page
        after = (page[-1].created_ms, page[-1].id)

    assert found == sorted(made, key=lambda key: (-key.created_ms, key.id))


async def test_audit(bank: Bank) -> None:
    """Every change has its row, in the same transaction, with who did it and what was changed, and no secret."""
    await bank.tenant()
    made = await bank.make(actor=MANAGER)
    await bank.accounts.update_key(MANAGER, made.key.id, {"budgets": (Budget("key", "day", 5),)})
    await bank.accounts.rotate_key(CLI, made.key.id, 1000)
    await bank.accounts.revoke_key(CLI, made.key.id, now=True)
    await bank.accounts.update_tenant(CLI, "acme", {"is_disabled": True})
    with pytest.raises(BadTerms):
        await bank.make(tier="none")

    rows = await bank.rows(select(audit).order_by(audit.c.seq))

    assert [(row["action"], row["actor"], row["tenant"]) for row in rows] == [
        ("tenant.created", "cli", "acme"),
        ("key.created", "key_manager", "acme"),
        ("key.updated", "key_manager", "acme"),
        ("key.rotated", "cli", "acme"),
        ("key.revoked", "cli", "acme"),
        ("tenant.updated", "cli", "acme"),
    ]
    assert rows[2]["details"] == {"budgets": [{"scope": "key", "period": "day", "limit_usd": "0.000000005"}]}
    assert {row["target"] for row in rows} == {"acme", made.key.id}
