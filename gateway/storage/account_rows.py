"""Rows of accounts as records, and the audit row that goes with every change, in the same transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs
from sqlalchemy import Result, RowMapping, Select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.record_views import budget_views
from gateway.core.records import Actor, AuditEntry, KeyRecord, Policy, Tenant
from gateway.storage.key_rows import budget_entries, budgets_of
from gateway.storage.tables import audit


async def rows_of(connection: AsyncConnection, statement: Select[Any]) -> list[RowMapping]:
    """What *statement* gives."""
    found: Result[Any] = await connection.execute(statement)
    return list(found.mappings())


def tenant_of(row: RowMapping) -> Tenant:
    """The record of a row of `tenants`."""
    return Tenant(**{**row, "budgets": budgets_of(row["budgets"])})


def key_record(row: RowMapping) -> KeyRecord:
    """The record of a row of `keys`, of which the digest is no part."""
    named = {field: row[field] for field in structs_fields(KeyRecord)}
    models = named["models"]
    return KeyRecord(
        **{
            **named,
            "rights": tuple(named["rights"]),
            "models": None if models is None else tuple(models),
            "budgets": budgets_of(named["budgets"]),
        }
    )


def policy_of(row: RowMapping) -> Policy:
    """The record of a row of `policies`."""
    return Policy(**{**row, "tenant": row["tenant"] or None})


def audit_entry(row: RowMapping) -> AuditEntry:
    """The record of a row of `audit`."""
    return AuditEntry(**row)


def structs_fields(record: type[Struct]) -> tuple[str, ...]:
    """The names of a record's fields, which are those of its columns."""
    return tuple(field.name for field in structs.fields(record))


def columns_of(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of records as columns have them."""
    named = {name: list(value) if isinstance(value, tuple) else value for name, value in changes.items()}
    if "budgets" in changes:
        named["budgets"] = budget_entries(changes["budgets"])
    return named


def _told(details: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of records as they are told, since nobody but a reader wants them from here."""
    named = columns_of(details)
    if "budgets" in details:
        named["budgets"] = budget_views(details["budgets"])
    return named


async def write_audit(
    connection: AsyncConnection, actor: Actor, action: str, target: str, *, tenant: str | None, at_ms: int,
    details: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Note what *actor* does. Rows are only ever added; *details* hold no secret, which is nowhere but with its owner.

    Args:
        tenant: Whose it is to read; None for the operators alone.
    """
    row = {
        "at_ms": at_ms,
        "tenant": tenant,
        "actor": actor.name,
        "action": action,
        "target": target,
        "details": _told(details or {}) | ({} if actor.address is None else {"address": actor.address}),
    }
    await connection.execute(audit.insert().values(row))
