"""Tenants, keys, tiers, policies and the audit log of the admin API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from gateway.core.account_checks import LABEL, NO_LABEL
from gateway.core.accounts import Scope
from gateway.core.catalog import unknown_models
from gateway.core.errors import INVALID_REQUEST, GatewayError
from gateway.core.record_views import key_view, plain_view, secret_view, tenant_view
from gateway.core.records import (
    Actor,
    AuditEntry,
    KeyDraft,
    KeyRecord,
    NotThere,
    Policy,
    Secret,
    Tenant,
    TierRecord,
)
from gateway.http.admin.bodies import read_as
from gateway.http.admin.forms import (
    MAX_OVERLAP_S,
    KeyFields,
    NewKey,
    NewTenant,
    PolicyForm,
    Revocation,
    Rotation,
    TenantChange,
    TierForm,
    actor_of,
    given,
    told,
)
from gateway.http.admin.pages import Page
from gateway.http.admin.routes import AdminRequest, AdminRoute, Reply, json_reply

_OF_TENANTS: tuple[Scope, ...] = ("tenant", "session")
_OF_KEYS: tuple[Scope, ...] = ("key", "session")


class Accounts(Protocol):
    """See `storage.accounts.SqlAccounts`."""

    async def tenants(self, after: str, limit: int) -> Sequence[Tenant]: ...
    async def tenant(self, tenant_id: str) -> Tenant: ...
    async def create_tenant(self, actor: Actor, tenant_id: str, fields: Mapping[str, Any]) -> Tenant: ...
    async def update_tenant(self, actor: Actor, tenant_id: str, changes: Mapping[str, Any]) -> Tenant: ...
    async def keys(self, tenant: str | None, after: tuple[int, str] | None, limit: int) -> Sequence[KeyRecord]: ...
    async def key(self, tenant: str | None, key_id: str) -> KeyRecord: ...
    async def create_key(self, actor: Actor, draft: KeyDraft) -> Secret: ...
    async def update_key(self, actor: Actor, key_id: str, changes: Mapping[str, Any]) -> KeyRecord: ...
    async def rotate_key(self, actor: Actor, key_id: str, overlap_ms: int) -> Secret: ...
    async def revoke_key(self, actor: Actor, key_id: str, *, now: bool) -> KeyRecord: ...


class AccountsDesk:
    """
    The handlers for tenants and keys.

    Args:
        slugs: What the models are called that this process serves now.
    """

    def __init__(self, accounts: Accounts, slugs: Callable[[], Collection[str]]) -> None:
        self._accounts = accounts
        self._slugs = slugs

    def routes(self) -> tuple[AdminRoute, ...]:
        """The rows of the admin API's table."""
        return (
            AdminRoute("GET", "tenants", "read", told(self.tenants), paged=True),
            AdminRoute("POST", "tenants", "operate", told(self.create_tenant)),
            AdminRoute("GET", "tenants/{id:label}", "read", told(self.tenant)),
            AdminRoute("PATCH", "tenants/{id:label}", "operate", told(self.update_tenant)),
            AdminRoute("GET", "keys", "read", told(self.keys), paged=True),
            AdminRoute("POST", "keys", "manage", told(self.create_key)),
            AdminRoute("GET", "keys/{id:key}", "read", told(self.key)),
            AdminRoute("PATCH", "keys/{id:key}", "manage", told(self.update_key)),
            AdminRoute("POST", "keys/{id:key}/rotate", "manage", told(self.rotate_key)),
            AdminRoute("POST", "keys/{id:key}/revoke", "manage", told(self.revoke_key)),
        )

    async def tenants(self, asked: AdminRequest) -> Reply:
        """All for operators, by id; to others their own."""
        page = asked.page
        if asked.tenant is not None:
            found: Sequence[Tenant] = [await self._accounts.tenant(asked.tenant)]
        else:
            mark = page.mark_of(str)
            found = await self._accounts.tenants("" if mark is None else str(mark[0]), page.limit + 1)
        return _page(page, [tenant_view(tenant) for tenant in found], ("id",))

    async def create_tenant(self, asked: AdminRequest) -> Reply:
        """A new tenant."""
        form = read_as(NewTenant, asked.body)
        if LABEL.fullmatch(form.id) is None:
            raise GatewayError(INVALID_REQUEST, f"id: is {NO_LABEL}.", param="id")
        fields = given(form, _OF_TENANTS)
        new_id = fields.pop("id")
        fields["name"] = fields["name"] or new_id
        return json_reply(tenant_view(await self._accounts.create_tenant(actor_of(asked), new_id, fields)), 201)

    async def tenant(self, asked: AdminRequest) -> Reply:
        """One tenant."""
        return json_reply(tenant_view(await self._accounts.tenant(_of_query(asked, asked.params["id"]))))

    async def update_tenant(self, asked: AdminRequest) -> Reply:
        """A tenant with what was given, and all else as before."""
        changes = _changes(given(read_as(TenantChange, asked.body), _OF_TENANTS))
        tenant_id = _of_query(asked, asked.params["id"])
        return json_reply(tenant_view(await self._accounts.update_tenant(actor_of(asked), tenant_id, changes)))

    async def keys(self, asked: AdminRequest) -> Reply:
        """Keys, newest first."""
        mark = asked.page.mark_of(int, str)
        after = None if mark is None else (int(mark[0]), str(mark[1]))
        found = await self._accounts.keys(asked.tenant, after, asked.page.limit + 1)
        return _page(asked.page, [key_view(key) for key in found], ("created_ms", "id"))

    async def create_key(self, asked: AdminRequest) -> Reply:
        """A new key, with its secret."""
        fields = given(read_as(NewKey, asked.body), _OF_KEYS)
        draft = KeyDraft(**{"tenant": asked.tenant or asked.key.tenant, "name": "", **fields})
        _of_query(asked, draft.tenant)
        made = await self._accounts.create_key(actor_of(asked), draft)
        return json_reply({**secret_view(made), "warnings": self._warnings(draft.models)}, 201)

    async def key(self, asked: AdminRequest) -> Reply:
        """One key."""
        return json_reply(key_view(await self._accounts.key(asked.tenant, asked.params["id"])))

    async def update_key(self, asked: AdminRequest) -> Reply:
        """A key with what was given, and all else as before."""
        changes = _changes(given(read_as(KeyFields, asked.body), _OF_KEYS))
        done = await self._accounts.update_key(actor_of(asked), await self._key_id(asked), changes)
        return json_reply({**key_view(done), "warnings": self._warnings(changes.get("models"))})

    async def rotate_key(self, asked: AdminRequest) -> Reply:
        """The key with a new secret."""
        overlap_s = read_as(Rotation, asked.body).overlap_s
        if not 0 <= overlap_s <= MAX_OVERLAP_S:
            words = f"overlap_s: is not within 0 to {MAX_OVERLAP_S}."
            raise GatewayError(INVALID_REQUEST, words, param="overlap_s")
        made = await self._accounts.rotate_key(actor_of(asked), await self._key_id(asked), overlap_s * 1000)
        return json_reply(secret_view(made))

    async def revoke_key(self, asked: AdminRequest) -> Reply:
        """The key, which nobody can use any more."""
        now = read_as(Revocation, asked.body).now
        return json_reply(
            key_view(await self._accounts.revoke_key(actor_of(asked), await self._key_id(asked), now=now))
        )

    def _warnings(self, models: Iterable[str] | None) -> list[str]:
        """What may be a mistake in the *models* of a key. It may be none: of another process, or to come."""
        unknown = unknown_models(models or (), self._slugs())
        return [f"models: {name} is no model that this gateway serves now" for name in unknown]

    async def _key_id(self, asked: AdminRequest) -> str:
        """That of the path, if it is a key of the tenant that the query names, should an operator name one."""
        key_id = asked.params["id"]
        if asked.is_operator and asked.tenant is not None:
            await self._accounts.key(asked.tenant, key_id)
        return key_id


class Rules(Protocol):
    """See `storage.account_rules.SqlRules`."""

    async def tiers(self, after: str, limit: int) -> Sequence[TierRecord]: ...
    async def tier(self, name: str) -> TierRecord: ...
    async def put_tier(self, actor: Actor, name: str, limits: Mapping[str, Any]) -> TierRecord: ...
    async def delete_tier(self, actor: Actor, name: str) -> None: ...
    async def policies(self, tenant: str | None, after: tuple[str, str] | None, limit: int) -> Sequence[Policy]: ...
    async def policy(self, tenant: str | None, name: str) -> Policy: ...
    async def put_policy(self, actor: Actor, tenant: str | None, name: str, rules: Mapping[str, Any]) -> Policy: ...
    async def delete_policy(self, actor: Actor, tenant: str | None, name: str) -> None: ...
    async def audit(
        self, tenant: str | None, filters: Mapping[str, str], before: int | None, limit: int
    ) -> Sequence[AuditEntry]: ...


class RulesDesk:
    """The handlers for tiers, policies and the audit log."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def routes(self) -> tuple[AdminRoute, ...]:
        """The rows of the admin API's table."""
        return (
            AdminRoute("GET", "tiers", "operate", told(self.tiers), paged=True),
            AdminRoute("GET", "tiers/{name:label}", "operate", told(self.tier)),
            AdminRoute("PUT", "tiers/{name:label}", "operate", told(self.put_tier)),
            AdminRoute("DELETE", "tiers/{name:label}", "operate", told(self.delete_tier)),
            AdminRoute("GET", "policies", "read", told(self.policies), paged=True),
            AdminRoute("GET", "policies/{name:label}", "read", told(self.policy)),
            AdminRoute("PUT", "policies/{name:label}", "manage", told(self.put_policy, "rules.")),
            AdminRoute("DELETE", "policies/{name:label}", "manage", told(self.delete_policy)),
            AdminRoute("GET", "audit", "read", told(self.audit), frozenset({"actor", "action", "target"}), paged=True),
        )

    async def tiers(self, asked: AdminRequest) -> Reply:
        """Those of the database and of the file, by name."""
        mark = asked.page.mark_of(str)
        found = await self._rules.tiers("" if mark is None else str(mark[0]), asked.page.limit + 1)
        return _page(asked.page, [plain_view(tier) for tier in found], ("name",))

    async def tier(self, asked: AdminRequest) -> Reply:
        """One tier."""
        return json_reply(plain_view(await self._rules.tier(asked.params["name"])))

    async def put_tier(self, asked: AdminRequest) -> Reply:
        """The tier as it was given, whatever it was."""
        limits = given(read_as(TierForm, asked.body))["limits"]
        return json_reply(plain_view(await self._rules.put_tier(actor_of(asked), asked.params["name"], limits)))

    async def delete_tier(self, asked: AdminRequest) -> Reply:
        """Nobody is on it any more, or the file's tier of that name counts again."""
        await self._rules.delete_tier(actor_of(asked), asked.params["name"])
        return json_reply({"name": asked.params["name"], "deleted": True})

    async def policies(self, asked: AdminRequest) -> Reply:
        """The tenant's and everybody's, by name."""
        mark = asked.page.mark_of(str, str)
        after = None if mark is None else (str(mark[0]), str(mark[1]))
        found = await self._rules.policies(asked.tenant, after, asked.page.limit + 1)
        views = [plain_view(policy) for policy in found]
        last = found[asked.page.limit - 1] if len(found) > asked.page.limit else None
        next_mark = None if last is None else (last.name, last.tenant or "")
        return Reply(asked.page.render(views[: asked.page.limit], next_mark=next_mark))

    async def policy(self, asked: AdminRequest) -> Reply:
        """The one that counts for the tenant."""
        return json_reply(plain_view(await self._rules.policy(asked.tenant, asked.params["name"])))

    async def put_policy(self, asked: AdminRequest) -> Reply:
        """The policy as it was given, whatever it was; an operator's without a tenant is everybody's."""
        rules = given(read_as(PolicyForm, asked.body))["rules"]
        done = await self._rules.put_policy(actor_of(asked), asked.tenant, asked.params["name"], rules)
        return json_reply(plain_view(done))

    async def delete_policy(self, asked: AdminRequest) -> Reply:
        """No key is under it any more, or everybody's of that name counts again."""
        await self._rules.delete_policy(actor_of(asked), asked.tenant, asked.params["name"])
        return json_reply({"name": asked.params["name"], "deleted": True})

    async def audit(self, asked: AdminRequest) -> Reply:
        """What was changed, newest first."""
        mark = asked.page.mark_of(int)
        before = None if mark is None else int(mark[0])
        found = await self._rules.audit(asked.tenant, asked.query, before, asked.page.limit + 1)
        return _page(asked.page, [_audit_view(asked, entry) for entry in found], ("seq",))


def _audit_view(asked: AdminRequest, entry: AuditEntry) -> dict[str, Any]:
    """Where an operator sits is nothing for tenants; of an entry it cannot be told whose address it is."""
    if asked.is_operator:
        return plain_view(entry)
    return plain_view(replace(entry, details={k: v for k, v in entry.details.items() if k != "address"}))


def _of_query(asked: AdminRequest, tenant_id: str) -> str:
    """*tenant_id*, unless it is another tenant than the one that is asked for."""
    if asked.tenant not in (None, tenant_id):
        raise NotThere(f"There is no tenant {tenant_id}.")
    return tenant_id


def _page(page: Page, rows: list[dict[str, Any]], by: tuple[str, ...]) -> Reply:
    """The first of *rows*, one more of which was looked for than the page may have, and the mark of the last."""
    shown = rows[: page.limit]
    next_mark = tuple(shown[-1][name] for name in by) if len(rows) > page.limit else None
    return Reply(page.render(shown, next_mark=next_mark))


def _changes(fields: dict[str, Any]) -> dict[str, Any]:
    if not fields:
        raise GatewayError(INVALID_REQUEST, "The body changes nothing.")
    return fields
