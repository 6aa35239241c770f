"""A key as rows of the database have it, and as the rest of the gateway knows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import RowMapping, Select, func, select

from gateway.core.accounts import Budget, Key, Tier, bounded
from gateway.core.ports import Terms
from gateway.storage import key_rules
from gateway.storage.key_rules import KeyRules
from gateway.storage.tables import keys, tenants, tiers


def select_keys() -> Select[Any]:
    """Keys, each with what else decides on its calls: `tenant_tier`, `tenant_budgets`, `disabled_ms`, `tier_limits`,
    which is None where the database has not the tier, and what `key_rules` has of its policies."""
    tier = func.coalesce(keys.c.tier, tenants.c.tier)
    return (
        select(
            keys,
            tenants.c.tier.label("tenant_tier"),
            tenants.c.budgets.label("tenant_budgets"),
            tenants.c.disabled_ms,
            tiers.c.limits.label("tier_limits"),
            *key_rules.columns(),
        )
        .join(tenants, keys.c.tenant == tenants.c.id)
        .join(tiers, tiers.c.name == tier, isouter=True)
        .join(key_rules.own, key_rules.OWN, isouter=True)
        .join(key_rules.shared, key_rules.SHARED, isouter=True)
        .join(key_rules.of_tenant, key_rules.OF_TENANT, isouter=True)
    )


def key_of(row: RowMapping, terms: Terms, rules: KeyRules) -> Key:
    """
    The key of a *row* of `select_keys` that is not revoked.

    Raises:
        BadTerms: Its tier or a policy is nowhere, or has what this version does not know.
    """
    expires_ms = row["expires_ms"]
    return Key(
        id=row["rotated_from"] or row["id"],
        tenant=row["tenant"],
        tier=_tier_of(row, terms),
        residency=row["region_preference"],
        rights=frozenset(row["rights"]),
        models=None if row["models"] is None else tuple(row["models"]),
        budgets=(*budgets_of(row["budgets"]), *budgets_of(row["tenant_budgets"])),
        policy=row["policy"],
        prefer_batch=row["prefer_batch"],
        when_blind=row["when_blind"],
        log_bodies=row["log_bodies"],
        expires_s=None if expires_ms is None else expires_ms / 1000,
        rules=rules.of(row),
    )


def _tier_of(row: RowMapping, terms: Terms) -> Tier:
    """What the key may do: on its tenant's plan no more than that has now, which may have been more when the key was
    made. Only operators give a key a plan of its own, which it keeps with whatever goes beyond it."""
    name, limits = row["tier"] or row["tenant_tier"], row["tier_limits"]
    tier = terms.tier(name, limits, row["limits"])
    if row["tier"] is not None or not row["limits"]:
        return tier
    return bounded(tier, terms.tier(name, limits, {}))


def budgets_of(entries: Iterable[Mapping[str, Any]]) -> tuple[Budget, ...]:
    """The budgets of a JSON column."""
    return tuple(Budget(entry["scope"], entry["period"], entry["limit_nano_usd"]) for entry in entries)


def budget_entries(budgets: Iterable[Budget]) -> list[dict[str, Any]]:
    """*budgets* for a JSON column."""
    return [
        {"scope": budget.scope, "period": budget.period, "limit_nano_usd": budget.limit_nano_usd} for budget in budgets
    ]
