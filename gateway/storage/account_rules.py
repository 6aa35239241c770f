"""Tiers, policies and the audit log in the database; changes are as those of `storage.accounts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import delete, exists, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.ports import Terms
from gateway.core.records import Actor, AuditEntry, NotThere, Policy, Taken, TierRecord
from gateway.storage.account_rows import audit_entry, policy_of, rows_of, write_audit
from gateway.storage.database import Database, Step
from gateway.storage.key_rules import EVERYBODYS
from gateway.storage.tables import audit, keys, policies, tenants, tiers

T = TypeVar("T")


class SqlRules:
    """See `SqlAccounts` for the arguments."""

    def __init__(
        self,
        database: Database,
        terms: Callable[[], Terms],
        *,
        now_ms: Callable[[], int],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._terms = terms
        self._now_ms = now_ms
        self._on_change = on_change

    async def _change(self, step: Step[T]) -> T:
        try:
            return await self._database.write(step)
        except IntegrityError:  # somebody else has just made the same: it is to be changed now
            return await self._database.write(step)
        finally:
            self._on_change()

    # -- tiers --

    async def tiers(self, after: str, limit: int) -> Sequence[TierRecord]:
        """Those behind *after* by name, at most *limit*: the database's, and the file's that it has none of."""

        async def step(connection: AsyncConnection) -> list[TierRecord]:
            return [
                TierRecord(row["name"], "database", row["limits"]) for row in await rows_of(connection, select(tiers))
            ]

        # All of them, which operators made by hand: a database may have another order of names than the file's here.
        terms = self._terms()
        filed = {name: _not_stored(terms, name) for name in terms.names}
        stored = {tier.name: tier for tier in await self._database.read(step)}
        behind = [tier for name, tier in (filed | stored).items() if name > after]
        return sorted(behind, key=lambda tier: tier.name)[:limit]

    async def tier(self, name: str) -> TierRecord:
        """
        Raises:
            NotThere: There is none.
        """

        async def step(connection: AsyncConnection) -> Mapping[str, Any] | None:
            found = await rows_of(connection, select(tiers.c.limits).where(tiers.c.name == name))
            return found[0]["limits"] if found else None

        limits = await self._database.read(step)
        if limits is not None:
            return TierRecord(name, "database", limits)
        if name not in self._terms().names:
            raise NotThere(f"There is no tier {name}.")
        return _not_stored(self._terms(), name)

    async def put_tier(self, actor: Actor, name: str, limits: Mapping[str, Any]) -> TierRecord:
        """
        Have the tier be *limits*, for all who are on it.

        Raises:
            BadTerms: They make no sense.
        """
        now_ms = self._now_ms()
        self._terms().tier(name, limits, {})

        async def step(connection: AsyncConnection) -> TierRecord:
            values = {"limits": dict(limits), "updated_ms": now_ms}
            changed = await connection.execute(update(tiers).where(tiers.c.name == name).values(values))
            if not changed.rowcount:
                await connection.execute(insert(tiers).values(name=name, created_ms=now_ms, **values))
            action = "tier.updated" if changed.rowcount else "tier.created"
            await write_audit(connection, actor, action, name, tenant=None, at_ms=now_ms, details={"limits": limits})
            return TierRecord(name, "database", limits)

        return await self._change(step)

    async def delete_tier(self, actor: Actor, name: str) -> None:
        """
        Take the database's tier away.

        Raises:
            NotThere: It has none of that name.
            Taken: Somebody is on it, and the file has none of that name.
        """
        now_ms = self._now_ms()

        async def step(connection: AsyncConnection) -> None:
            gone = await connection.execute(delete(tiers).where(tiers.c.name == name))
            if not gone.rowcount:
                raise NotThere(f"The database has no tier {name}.")
            if name not in self._terms().names:
                there = (select(tenants.c.id), select(keys.c.id).where(keys.c.revoked_ms.is_(None)))
                for table, chosen in zip((tenants, keys), there, strict=True):
                    if await rows_of(connection, chosen.where(table.c.tier == name).limit(1)):
                        raise Taken(f"There are {table.name} on the tier {name}.")
            await write_audit(connection, actor, "tier.deleted", name, tenant=None, at_ms=now_ms)

        await self._change(step)

    # -- policies --

    async def policies(self, tenant: str | None, after: tuple[str, str] | None, limit: int) -> Sequence[Policy]:
        """Those that *tenant* may use, or all for None, by name and whose they are, behind *after*."""
        statement = select(policies)
        if tenant is not None:
            statement = statement.where(policies.c.tenant.in_((EVERYBODYS, tenant)))
        if after is not None:
            name, owner = after
            behind = (policies.c.name == name) & (policies.c.tenant > owner)
            statement = statement.where(or_(policies.c.name > name, behind))
        ordered = statement.order_by(policies.c.name, policies.c.tenant).limit(limit)

        async def step(connection: AsyncConnection) -> list[Policy]:
            return [policy_of(row) for row in await rows_of(connection, ordered)]

        return await self._database.read(step)

    async def policy(self, tenant: str | None, name: str) -> Policy:
        """
        The one that *tenant* gets by *name*: its own before everybody's; the latter for None.

        Raises:
            NotThere: There is none.
        """
        owners = (EVERYBODYS, tenant or EVERYBODYS)
        statement = select(policies).where(policies.c.name == name, policies.c.tenant.in_(owners))

        async def step(connection: AsyncConnection) -> list[Policy]:
            found = await rows_of(connection, statement.order_by(policies.c.tenant.desc()))
            return [policy_of(row) for row in found]

        found = await self._database.read(step)
        if not found:
            raise NotThere(f"There is no policy {name}.")
        return found[0]

    async def put_policy(self, actor: Actor, tenant: str | None, name: str, rules: Mapping[str, Any]) -> Policy:
        """
        Have the policy of *tenant*, or everybody's for None, be *rules*.

        Raises:
            BadTerms: They are none that this version enforces.
            NotThere: There is no such tenant.
        """
        now_ms = self._now_ms()
        self._terms().policy(rules)
        here = (policies.c.tenant == (tenant or EVERYBODYS)) & (policies.c.name == name)

        async def step(connection: AsyncConnection) -> Policy:
            if tenant is not None and not await rows_of(connection, select(tenants.c.id).where(tenants.c.id == tenant)):
                raise NotThere(f"There is no tenant {tenant}.")
            values = {"rules": dict(rules), "updated_ms": now_ms}
            changed = await connection.execute(update(policies).where(here).values(values))
            if not changed.rowcount:
                new = {"tenant": tenant or EVERYBODYS, "name": name, "created_ms": now_ms, **values}
                await connection.execute(insert(policies).values(new))
            action = "policy.updated" if changed.rowcount else "policy.created"
            await write_audit(connection, actor, action, name, tenant=tenant, at_ms=now_ms, details={"rules": rules})
            (row,) = await rows_of(connection, select(policies).where(here))
            return policy_of(row)

        return await self._change(step)

    async def delete_policy(self, actor: Actor, tenant: str | None, name: str) -> None:
        """
        Take the policy of *tenant*, or everybody's for None, away.

        Raises:
            NotThere: There is none.
            Taken: A key or a tenant is under it, and gets no other of that name.
        """
        now_ms = self._now_ms()
        here = (policies.c.tenant == (tenant or EVERYBODYS)) & (policies.c.name == name)

        async def step(connection: AsyncConnection) -> None:
            # All of that name: two that take away one each would both leave the keys to the other's.
            named = select(policies.c.tenant).where(policies.c.name == name).order_by(policies.c.tenant)
            await connection.execute(named.with_for_update())
            if not (await connection.execute(delete(policies).where(here))).rowcount:
                raise NotThere(f"There is no policy {name}.")
            if self._terms().filed_policy(name) is None:
                await _need_none(connection, name)
            await write_audit(connection, actor, "policy.deleted", name, tenant=tenant, at_ms=now_ms)

        await self._change(step)

    # -- audit --

    async def audit(
        self, tenant: str | None, filters: Mapping[str, str], before: int | None, limit: int
    ) -> Sequence[AuditEntry]:
        """
        The entries of *tenant*, or all for None, newest first, before the number *before*, at most *limit*.

        Args:
            filters: What `actor`, `action` and `target` have to be, where they are given.
        """
        statement = select(audit).where(*(audit.c[name] == value for name, value in filters.items()))
        if tenant is not None:
            statement = statement.where(audit.c.tenant == tenant)
        if before is not None:
            statement = statement.where(audit.c.seq < before)
        ordered = statement.order_by(audit.c.seq.desc()).limit(limit)

        async def step(connection: AsyncConnection) -> list[AuditEntry]:
            return [audit_entry(row) for row in await rows_of(connection, ordered)]

        return await self._database.read(step)


async def _need_none(connection: AsyncConnection, name: str) -> None:
    """
    See that nobody is left without the policy *name*, who is under one of that name.

    Raises:
        Taken: A key would have neither its tenant's nor everybody's, or a tenant not everybody's.
    """
    everybodys = policies.c.tenant == EVERYBODYS
    for table, given in ((keys, everybodys | (policies.c.tenant == keys.c.tenant)), (tenants, everybodys)):
        left = select(table.c.id).where(table.c.policy == name, ~exists().where(policies.c.name == name, given))
        if table is keys:
            left = left.where(keys.c.revoked_ms.is_(None))
        if await rows_of(connection, left.limit(1)):
            raise Taken(f"There are {table.name} under the policy {name}.")


def _not_stored(terms: Terms, name: str) -> TierRecord:
    """The tier *name* of the file, or the one that ships where the file has none of that name. Raises KeyError."""
    return TierRecord(name, "shipped" if terms.is_shipped(name) else "file", terms.written(name))
