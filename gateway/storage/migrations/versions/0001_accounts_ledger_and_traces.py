"""Accounts, ledger and traces."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Rows of the audit log are only ever added.
_KEPT = {
    "sqlite": (
        "CREATE TRIGGER audit_keeps_update BEFORE UPDATE ON audit "
        "BEGIN SELECT RAISE(ABORT, 'rows of the audit log are only ever added'); END",
        "CREATE TRIGGER audit_keeps_delete BEFORE DELETE ON audit "
        "BEGIN SELECT RAISE(ABORT, 'rows of the audit log are only ever added'); END",
    ),
    "postgresql": (
        "CREATE FUNCTION audit_keeps() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'rows of the audit log are only ever added'; END $$",
        "CREATE TRIGGER audit_keeps BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION audit_keeps()",
    ),
}


def upgrade() -> None:
    _audit()
    _bodies()
    _dead_letters()
    _idempotency()
    _ledger()
    _policies()
    _sessions()
    _tenants()
    _tiers()
    _traces()
    _keys()


def _audit() -> None:
    op.create_table(
        "audit",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_audit")),
    )
    op.create_index("ix_audit_tenant", "audit", ["tenant", "seq"], unique=False)
    for statement in _KEPT[op.get_context().dialect.name]:
        op.execute(statement)


def _bodies() -> None:
    op.create_table(
        "bodies",
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=True),
        sa.Column("response", sa.Text(), nullable=True),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_bodies")),
    )
    op.create_index(op.f("ix_bodies_expires_ms"), "bodies", ["expires_ms"], unique=False)


def _dead_letters() -> None:
    op.create_table(
        "dead_letters",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_dead_letters")),
    )


def _idempotency() -> None:
    op.create_table(
        "idempotency",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.LargeBinary(), nullable=False),
        sa.Column("call", sa.LargeBinary(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("headers", sa.JSON(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("renewed_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "name", name=op.f("pk_idempotency")),
    )
    op.create_index(op.f("ix_idempotency_expires_ms"), "idempotency", ["expires_ms"], unique=False)


def _ledger() -> None:
    op.create_table(
        "ledger",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("basis", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=True),
        sa.Column("provider_model", sa.Text(), nullable=True),
        sa.Column("provider_type", sa.Text(), nullable=True),
        sa.Column("region", sa.Text(), nullable=True),
        sa.Column("routing_mode", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("on_cancel", sa.Text(), nullable=True),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=False),
        sa.Column("weighted_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_nano_usd", sa.BigInteger(), nullable=False),
        sa.Column("reserved_nano_usd", sa.BigInteger(), nullable=False),
        sa.Column("price_version", sa.Text(), nullable=True),
        sa.Column("session_key", sa.Text(), nullable=True),
        sa.Column("admitted_ms", sa.BigInteger(), nullable=False),
        sa.Column("settled_ms", sa.BigInteger(), nullable=False),
        sa.Column("recorded_ms", sa.BigInteger(), nullable=False),
        sa.Column("writer", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_ledger")),
        sa.UniqueConstraint("request_id", "attempt", "kind", name=op.f("uq_ledger_request_id_attempt_kind")),
    )
    op.create_index("ix_ledger_admitted", "ledger", ["admitted_ms"], unique=False)
    op.create_index("ix_ledger_key_admitted", "ledger", ["key_id", "admitted_ms"], unique=False)
    op.create_index("ix_ledger_recorded", "ledger", ["recorded_ms"], unique=False)
    op.create_index("ix_ledger_session_key", "ledger", ["session_key", "admitted_ms"], unique=False)
    op.create_index("ix_ledger_tenant_admitted", "ledger", ["tenant", "admitted_ms"], unique=False)


def _policies() -> None:
    op.create_table(
        "policies",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("rules", sa.JSON(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "name", name=op.f("pk_policies")),
    )


def _sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=True),
        sa.Column("first_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_ms", sa.BigInteger(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.Column("weighted_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_nano_usd", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "session_id", name=op.f("pk_sessions")),
    )
    op.create_index("ix_sessions_last", "sessions", ["last_ms"], unique=False)
    op.create_index("ix_sessions_tenant_last", "sessions", ["tenant", "last_ms"], unique=False)


def _tenants() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("tier", sa.Text(), nullable=False),
        sa.Column("budgets", sa.JSON(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), nullable=False),
        sa.Column("disabled_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tenants")),
    )


def _tiers() -> None:
    op.create_table(
        "tiers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("limits", sa.JSON(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tiers")),
    )


def _traces() -> None:
    op.create_table(
        "traces",
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("trace_id", sa.Text(), nullable=False),
        sa.Column("response_id", sa.Text(), nullable=True),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("stream", sa.Boolean(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=True),
        sa.Column("agent_id", sa.Text(), nullable=True),
        sa.Column("user", sa.Text(), nullable=True),
        sa.Column("metadata", sa.JSON(), nullable=True),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=True),
        sa.Column("provider_model", sa.Text(), nullable=True),
        sa.Column("provider_type", sa.Text(), nullable=True),
        sa.Column("provider_region", sa.Text(), nullable=True),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("routing_mode", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("failure_class", sa.Text(), nullable=True),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("attempts", sa.JSON(), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("ttfb_us", sa.BigInteger(), nullable=True),
        sa.Column("ttft_us", sa.BigInteger(), nullable=True),
        sa.Column("total_us", sa.BigInteger(), nullable=True),
        sa.Column("overhead_us", sa.BigInteger(), nullable=True),
        sa.Column("cancel_us", sa.BigInteger(), nullable=True),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=False),
        sa.Column("usage_basis", sa.Text(), nullable=False),
        sa.Column("weighted_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_nano_usd", sa.BigInteger(), nullable=False),
        sa.Column("verdicts", sa.JSON(), nullable=True),
        sa.Column("params", sa.JSON(), nullable=True),
        sa.Column("recorded_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_traces")),
    )
    op.create_index(op.f("ix_traces_recorded_ms"), "traces", ["recorded_ms"], unique=False)
    op.create_index("ix_traces_response", "traces", ["response_id"], unique=False)
    op.create_index("ix_traces_started", "traces", ["started_ms"], unique=False)
    op.create_index("ix_traces_tenant_session", "traces", ["tenant", "session_id"], unique=False)
    op.create_index("ix_traces_tenant_started", "traces", ["tenant", "started_ms"], unique=False)
    op.create_index(op.f("ix_traces_trace_id"), "traces", ["trace_id"], unique=False)


def _keys() -> None:
    op.create_table(
        "keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("last4", sa.Text(), nullable=False),
        sa.Column("tier", sa.Text(), nullable=True),
        sa.Column("limits", sa.JSON(), nullable=False),
        sa.Column("rights", sa.JSON(), nullable=False),
        sa.Column("models", sa.JSON(), nullable=True),
        sa.Column("region_preference", sa.Text(), nullable=False),
        sa.Column("prefer_batch", sa.Boolean(), nullable=False),
        sa.Column("budgets", sa.JSON(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=True),
        sa.Column("when_blind", sa.Text(), nullable=False),
        sa.Column("log_bodies", sa.Boolean(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=True),
        sa.Column("revoked_ms", sa.BigInteger(), nullable=True),
        sa.Column("revoked_now", sa.Boolean(), nullable=False),
        sa.Column("rotated_from", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.id"], name=op.f("fk_keys_tenant")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_keys_digest")),
    )
    op.create_index(op.f("ix_keys_rotated_from"), "keys", ["rotated_from"], unique=False)
    op.create_index(op.f("ix_keys_tenant"), "keys", ["tenant"], unique=False)
