"""Tenants and keys in the database: every change is one transaction with its audit row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import and_, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.account_checks import check_fields
from gateway.core.accounts import BadTerms, BeyondRights, Burst, Tier, beyond
from gateway.core.credentials import ENTROPY_BYTES, Prefix, digest_of, last4, make_secret
from gateway.core.ports import Terms
from gateway.core.records import Actor, KeyDraft, KeyRecord, NotThere, Secret, Taken, Tenant
from gateway.storage.account_rows import columns_of, key_record, rows_of, tenant_of, write_audit
from gateway.storage.database import Database, Step
from gateway.storage.key_rules import EVERYBODYS
from gateway.storage.tables import keys, policies, tenants, tiers

T = TypeVar("T")

Chance = Callable[[int], bytes]
EARLIER_MS = 86_400_000  # that the row of an earlier secret stays behind its end: calls by it may have to be cut later
# What follows the key, and with it the secrets that stand in for it since it was rotated; a secret's own is the rest.
SHARED = (
    "tier", "limits", "models", "region_preference", "prefer_batch", "budgets", "policy", "when_blind", "log_bodies",
)  # fmt: skip

_NO_TIER = "this is not within the tenant's tier: name a tier of the key's own with it, which may be the same"
_ALONE = "only a key with the right `operate` may give it"


class SqlAccounts:
    """
    Args:
        terms: The tiers of the file that is in force now.
        chance: So many random bytes, as `os.urandom` gives them.
        now_ms: Epoch milliseconds.
        on_change: Called behind each change, for what this process remembers of keys.
    """

    def __init__(
        self,
        database: Database,
        terms: Callable[[], Terms],
        *,
        chance: Chance,
        now_ms: Callable[[], int],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._terms = terms
        self._chance = chance
        self._now_ms = now_ms
        self._on_change = on_change

    async def _change(self, step: Step[T]) -> T:
        try:
            return await self._database.write(step)
        finally:
            self._on_change()  # it may have been committed although the answer was lost

    # -- tenants --

    async def tenants(self, after: str, limit: int) -> Sequence[Tenant]:
        """Those behind *after* by id, at most *limit*."""

        async def step(connection: AsyncConnection) -> list[Tenant]:
            statement = select(tenants).where(tenants.c.id > after).order_by(tenants.c.id).limit(limit)
            return [tenant_of(row) for row in await rows_of(connection, statement)]

        return await self._database.read(step)

    async def tenant(self, tenant_id: str) -> Tenant:
        """
        Raises:
            NotThere: There is none.
        """
        return await self._database.read(lambda connection: _tenant(connection, tenant_id))

    async def create_tenant(self, actor: Actor, tenant_id: str, fields: Mapping[str, Any]) -> Tenant:
        """
        Make the tenant of *fields*: `name`, `tier`, `budgets` and, where it is to have one, `policy`.

        Raises:
            BadTerms: There is no such tier or policy, or a field makes no sense.
            Taken: There is such a tenant.
        """
        now_ms = self._now_ms()
        check_fields(fields, now_ms)
        row = {**fields, "id": tenant_id, "created_ms": now_ms, "updated_ms": now_ms, "disabled_ms": None}

        async def step(connection: AsyncConnection) -> Tenant:
            await _tier_of(connection, self._terms(), fields["tier"], {})
            await _need_policy(connection, self._terms(), fields.get("policy"), (EVERYBODYS,))
            await connection.execute(insert(tenants).values(columns_of(row)))
            await write_audit(
                connection, actor, "tenant.created", tenant_id, tenant=tenant_id, at_ms=now_ms, details=fields
            )
            return Tenant(**row)

        try:
            return await self._change(step)
        except IntegrityError:
            raise Taken(f"There is a tenant {tenant_id} already.") from None

    async def update_tenant(self, actor: Actor, tenant_id: str, changes: Mapping[str, Any]) -> Tenant:
        """
        Change the members of *changes*: those of `create_tenant`, and `is_disabled`.

        Raises:
            NotThere: There is none.
            BadTerms: There is no such tier or policy, or a field makes no sense.
        """
        now_ms = self._now_ms()
        check_fields(changes, now_ms)

        async def step(connection: AsyncConnection) -> Tenant:
            found = await _tenant(connection, tenant_id)
            named = {name: value for name, value in changes.items() if name != "is_disabled"}
            if "tier" in named:
                await _tier_of(connection, self._terms(), named["tier"], {})
            await _need_policy(connection, self._terms(), named.get("policy"), (EVERYBODYS,))
            if "is_disabled" in changes:
                named["disabled_ms"] = (found.disabled_ms or now_ms) if changes["is_disabled"] else None
            row = columns_of({**named, "updated_ms": now_ms})
            await connection.execute(update(tenants).where(tenants.c.id == tenant_id).values(row))
            await write_audit(
                connection, actor, "tenant.updated", tenant_id, tenant=tenant_id, at_ms=now_ms, details=changes
            )
            return await _tenant(connection, tenant_id)

        return await self._change(step)

    # -- keys --

    async def keys(self, tenant: str | None, after: tuple[int, str] | None, limit: int) -> Sequence[KeyRecord]:
        """Those of *tenant*, or of all for None, newest first, behind the (created_ms, id) *after*, at most *limit*."""
        statement = select(keys).where(keys.c.rotated_from.is_(None))
        if tenant is not None:
            statement = statement.where(keys.c.tenant == tenant)
        if after is not None:
            created_ms, key_id = after
            same = and_(keys.c.created_ms == created_ms, keys.c.id > key_id)
            statement = statement.where(or_(keys.c.created_ms < created_ms, same))
        ordered = statement.order_by(keys.c.created_ms.desc(), keys.c.id).limit(limit)

        async def step(connection: AsyncConnection) -> list[KeyRecord]:
            return [key_record(row) for row in await rows_of(connection, ordered)]

        return await self._database.read(step)

    async def key(self, tenant: str | None, key_id: str) -> KeyRecord:
        """
        Raises:
            NotThere: *tenant* (None: anybody) has no such key.
        """
        return await self._database.read(lambda connection: _key(connection, tenant, key_id))

    async def create_key(self, actor: Actor, draft: KeyDraft) -> Secret:
        """
        Make a key.

        Raises:
            NotThere: There is no such tenant, or none that *actor* may touch.
            BadTerms: Something in *draft* makes no sense; `BeyondRights` of what *actor* may not give.
        """
        if not actor.is_operator and actor.tenant != draft.tenant:
            raise NotThere(f"There is no tenant {draft.tenant}.")
        if not actor.is_operator and "operate" in draft.rights:
            raise BeyondRights([("rights", "only a key with the right `operate` may give that right")])
        now_ms, key_id = self._now_ms(), f"key_{self._chance(10).hex()}"
        prefix: Prefix = "anm-sk" if draft.rights == ("inference",) else "anm-ak"
        text = make_secret(prefix, self._chance(ENTROPY_BYTES))
        fields = {name: getattr(draft, name) for name in ("tenant", "name", "rights", *SHARED, "expires_ms")}
        check_fields(fields, now_ms)
        row = {
            "id": key_id, "digest": digest_of(text), "prefix": prefix, "last4": last4(text),
            "created_ms": now_ms, "updated_ms": now_ms, "revoked_ms": None, "revoked_now": False, "rotated_from": None,
        }  # fmt: skip

        async def step(connection: AsyncConnection) -> KeyRecord:
            given = await _given(connection, actor, draft.tenant, fields)
            await self._check(connection, actor, draft.tenant, {name: given[name] for name in SHARED})
            await connection.execute(insert(keys).values(columns_of(given) | row))
            await write_audit(
                connection, actor, "key.created", key_id, tenant=draft.tenant, at_ms=now_ms, details=given
            )
            return await _key(connection, draft.tenant, key_id)

        return Secret(await self._change(step), text)

    async def update_key(self, actor: Actor, key_id: str, changes: Mapping[str, Any]) -> KeyRecord:
        """
        Change the members of *changes*: `name`, `expires_ms` or any of `SHARED`.

        Raises:
            NotThere, BadTerms: As `create_key`.
            Taken: It is revoked.
        """
        now_ms = self._now_ms()
        check_fields(changes, now_ms)

        async def step(connection: AsyncConnection) -> KeyRecord:
            found = await _living(connection, actor, key_id)
            given = await _given(connection, actor, found.tenant, changes)
            shared = {name: getattr(found, name) for name in SHARED}
            new = {name: value for name, value in given.items() if name in SHARED}
            await self._check(connection, actor, found.tenant, shared | new, changed=frozenset(new))
            stamp = {"updated_ms": now_ms}
            await connection.execute(update(keys).where(_with_earlier(key_id)).values(columns_of(new) | stamp))
            await connection.execute(update(keys).where(keys.c.id == key_id).values(columns_of(given) | stamp))
            if (ends_ms := given.get("expires_ms")) is not None:  # no secret of a key outlives it
                await _end_earlier(connection, key_id, ends_ms)
            await write_audit(
                connection, actor, "key.updated", key_id, tenant=found.tenant, at_ms=now_ms, details=given
            )
            return await _key(connection, found.tenant, key_id)

        return await self._change(step)

    async def rotate_key(self, actor: Actor, key_id: str, overlap_ms: int) -> Secret:
        """
        Give the key a new secret; the old one is taken for *overlap_ms* more, and none before it for longer. All are
        the same key: what is spent by any counts together.

        Raises:
            NotThere: As `create_key`.
            Taken: It is revoked.
        """
        now_ms = self._now_ms()
        ends_ms = now_ms + overlap_ms

        async def step(connection: AsyncConnection) -> Secret:
            found = await _living(connection, actor, key_id)
            prefix: Prefix = "anm-ak" if found.prefix == "anm-ak" else "anm-sk"
            text = make_secret(prefix, self._chance(ENTROPY_BYTES))
            (old,) = await rows_of(connection, select(keys).where(keys.c.id == key_id))
            fresh = {"digest": digest_of(text), "last4": last4(text), "updated_ms": now_ms}
            await connection.execute(update(keys).where(keys.c.id == key_id).values(fresh))
            await _end_earlier(connection, key_id, ends_ms)
            over = (keys.c.rotated_from == key_id, keys.c.expires_ms <= now_ms - EARLIER_MS)
            await connection.execute(delete(keys).where(*over))
            earlier = {"id": f"key_{self._chance(10).hex()}", "rotated_from": key_id}
            until_ms = ends_ms if found.expires_ms is None else min(ends_ms, found.expires_ms)
            await connection.execute(insert(keys).values({**old, **earlier, "expires_ms": until_ms}))
            await write_audit(
                connection, actor, "key.rotated", key_id, tenant=found.tenant, at_ms=now_ms,
                details={"overlap_ms": overlap_ms},
            )  # fmt: skip
            return Secret(await _key(connection, found.tenant, key_id), text)

        return await self._change(step)

    async def revoke_key(self, actor: Actor, key_id: str, *, now: bool) -> KeyRecord:
        """
        Have the key, and its earlier secrets, be unknown from now on. Again: nothing but, with *now*, the cutting.

        Args:
            now: Whether its calls under way are cut as well.

        Raises:
            NotThere: As `create_key`.
        """
        now_ms = self._now_ms()

        async def step(connection: AsyncConnection) -> KeyRecord:
            found = await _touchable(connection, actor, key_id)
            values = {"revoked_ms": found.revoked_ms or now_ms, "updated_ms": now_ms}
            if now:
                values["revoked_now"] = True
            await connection.execute(update(keys).where(_with_earlier(key_id)).values(values))
            await write_audit(
                connection, actor, "key.revoked", key_id, tenant=found.tenant, at_ms=now_ms, details={"now": now}
            )
            return await _key(connection, found.tenant, key_id)

        return await self._change(step)

    async def _check(
        self, connection: AsyncConnection, actor: Actor, tenant: str, fields: Mapping[str, Any],
        changed: frozenset[str] = frozenset(SHARED),
    ) -> None:  # fmt: skip
        """
        See that *fields*, all of `SHARED`, make sense together.

        Raises:
            NotThere: There is no such tenant.
            BadTerms: They do not; `BeyondRights` where *actor* gives, by what is *changed*, more than the tenant has.
        """
        owner = await _tenant(connection, tenant)
        tier = await _tier_of(connection, self._terms(), fields["tier"] or owner.tier, fields["limits"])
        if changed & {"tier", "limits"} and not (actor.is_operator and fields["tier"]):
            own = await _tier_of(connection, self._terms(), owner.tier, {})
            more = beyond(own, tier) if fields["tier"] in (None, owner.tier) else ["tier"]
            if more:
                if actor.is_operator:
                    raise BadTerms([(more[0], _NO_TIER)])
                raise BeyondRights([(more[0], _too_much(own, more[0]))])
        if "policy" in changed:
            await _need_policy(connection, self._terms(), fields["policy"], (EVERYBODYS, tenant))


async def _given(
    connection: AsyncConnection, actor: Actor, tenant: str, fields: Mapping[str, Any]
) -> Mapping[str, Any]:  # fmt: skip
    """*fields* of a key of *tenant*, without a tier of its own where that is its tenant's, unless an operator gives it:
    a manager would keep it when the tenant is put on another."""
    if actor.is_operator or fields.get("tier") is None:
        return fields
    owner = await _tenant(connection, tenant)
    return {**fields, "tier": None} if fields["tier"] == owner.tier else fields


def _too_much(tier: Tier, field: str) -> str:
    """That *field* goes beyond *tier*, which is the tenant's, and what that has of it."""
    if field == "tier":
        return f"this is not the tenant's tier, {tier.name}; {_ALONE}"
    most = getattr(tier, field)
    if isinstance(most, frozenset):
        most = ", ".join(sorted(most)) or "none"
    elif isinstance(most, Burst):
        most = f"{most.capacity} credits and {most.refill_per_min} a minute"
    return f"this is not within the tenant's tier, {tier.name}, which has {'none' if most is None else most}; {_ALONE}"


async def _end_earlier(connection: AsyncConnection, key_id: str, ends_ms: int) -> None:
    """Let the earlier secrets of the key end at *ends_ms* at the latest."""
    late = (keys.c.rotated_from == key_id, keys.c.expires_ms > ends_ms)
    await connection.execute(update(keys).where(*late).values(expires_ms=ends_ms))


def _with_earlier(key_id: str) -> Any:
    return or_(keys.c.id == key_id, keys.c.rotated_from == key_id)


async def _tenant(connection: AsyncConnection, tenant_id: str) -> Tenant:
    found = await rows_of(connection, select(tenants).where(tenants.c.id == tenant_id))
    if not found:
        raise NotThere(f"There is no tenant {tenant_id}.")
    return tenant_of(found[0])


async def _key(connection: AsyncConnection, tenant: str | None, key_id: str) -> KeyRecord:
    statement = select(keys).where(keys.c.id == key_id, keys.c.rotated_from.is_(None))
    if tenant is not None:
        statement = statement.where(keys.c.tenant == tenant)
    found = await rows_of(connection, statement)
    if not found:
        raise NotThere(f"There is no key {key_id}.")
    return key_record(found[0])


async def _touchable(connection: AsyncConnection, actor: Actor, key_id: str) -> KeyRecord:
    """The key. An operator's is out of others' reach even in their own tenant: a new secret would make them one."""
    # Locked where two could change it at once: what the second one reads is what the first has written.
    await connection.execute(select(keys.c.id).where(keys.c.id == key_id).with_for_update())
    found = await _key(connection, actor.tenant, key_id)
    if "operate" in found.rights and not actor.is_operator:
        raise NotThere(f"There is no key {key_id}.")
    return found


async def _living(connection: AsyncConnection, actor: Actor, key_id: str) -> KeyRecord:
    found = await _touchable(connection, actor, key_id)
    if found.revoked_ms is not None:
        raise Taken(f"The key {key_id} is revoked.")
    return found


async def _tier_of(connection: AsyncConnection, terms: Terms, name: str, own: Mapping[str, Any]) -> Tier:
    """
    The tier *name* with *own* limits instead of its. Raises BadTerms, of one that is nowhere too.

    It is kept from being deleted until whoever is to be on it is there: else the one who deletes it does not see them,
    nor they that it goes. SQLite has one writer at a time anyhow.
    """
    chosen = select(tiers.c.limits).where(tiers.c.name == name).with_for_update(read=True)
    found = await rows_of(connection, chosen)
    return terms.tier(name, found[0]["limits"] if found else None, own)


async def _need_policy(connection: AsyncConnection, terms: Terms, name: str | None, owners: Sequence[str]) -> None:
    """See that one of *owners*, or the file, has the policy *name*, if it is one. It is kept as `_tier_of` keeps tiers.
    Raises BadTerms."""
    if name is None:
        return
    known = select(policies.c.name).where(policies.c.name == name, policies.c.tenant.in_(owners))
    if not await rows_of(connection, known.with_for_update(read=True)) and terms.filed_policy(name) is None:
        raise BadTerms([("policy", f"there is no policy {name}")])
