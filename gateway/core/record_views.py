"""Records of accounts as they are told: in the admin API and, with `--json`, on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import structs

from gateway.core.accounts import Budget
from gateway.core.money import format_nano
from gateway.core.records import AuditEntry, KeyRecord, Policy, Secret, Tenant, TierRecord


def tenant_view(tenant: Tenant) -> dict[str, Any]:
    """A tenant; amounts are decimals of USD."""
    return {**structs.asdict(tenant), "budgets": budget_views(tenant.budgets)}


def key_view(key: KeyRecord) -> dict[str, Any]:
    """A key, of whose secret the last four digits are told."""
    return {**structs.asdict(key), "budgets": budget_views(key.budgets)}


def secret_view(secret: Secret) -> dict[str, Any]:
    """A key with its secret, which is told this once."""
    return {**key_view(secret.key), "secret": secret.text}


def plain_view(record: TierRecord | Policy | AuditEntry) -> dict[str, Any]:
    """A record that is told as it is."""
    return structs.asdict(record)


def budget_views(budgets: Iterable[Budget]) -> list[dict[str, Any]]:
    """Budgets, their limits as decimals of USD."""
    return [
        {"scope": budget.scope, "period": budget.period, "limit_usd": format_nano(budget.limit_nano_usd)}
        for budget in budgets
    ]
