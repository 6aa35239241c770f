"""
The tables, the same on SQLite and PostgreSQL. `storage.migrations` makes them; a test holds the two together.

Money is whole nano-USD and time is epoch milliseconds, both as 64-bit integers: SQLite has no exact decimals, and keeps
no time zones. Text that callers chose stands in `traces` alone, apart from the money. Names of columns that receipts
have too are theirs.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from gateway.storage.append_only import keep_rows

# Constraints have names of their own: a later revision has to be able to say which one it drops.
metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

tiers = Table(
    "tiers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("limits", JSON, nullable=False),  # as [tiers.NAME] in the file
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
)

policies = Table(
    "policies",
    metadata,
    Column("tenant", Text, nullable=False),  # "": for every tenant to use that has none of that name
    Column("name", Text, nullable=False),
    Column("rules", JSON, nullable=False),  # as [policies.NAME] in the file
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant", "name"),
)

tenants = Table(
    "tenants",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("tier", Text, nullable=False),  # by name: in this database, or in the file
    Column("budgets", JSON, nullable=False),  # [{"scope", "period", "limit_nano_usd"}]: scopes tenant and session
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("disabled_ms", BigInteger, nullable=True),
    Column("policy", Text, nullable=True),  # by name: everybody's, or the file's; its keys cannot go below it
)

keys = Table(
    "keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),  # SHA-256 of the secret
    Column("tenant", Text, ForeignKey("tenants.id"), nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("prefix", Text, nullable=False),  # anm-sk or anm-ak
    Column("last4", Text, nullable=False),
    Column("tier", Text, nullable=True),  # None: its tenant's
    Column("limits", JSON, nullable=False),  # rpm, inflight, classes instead of the tier's
    Column("rights", JSON, nullable=False),
    Column("models", JSON, nullable=True),
    Column("region_preference", Text, nullable=False),
    Column("prefer_batch", Boolean, nullable=False),
    Column("budgets", JSON, nullable=False),
    Column("policy", Text, nullable=True),
    Column("when_blind", Text, nullable=False),
    Column("log_bodies", Boolean, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=True),
    Column("revoked_ms", BigInteger, nullable=True),
    Column("revoked_now", Boolean, nullable=False),  # streams under way are cut as well
    Column("rotated_from", Text, nullable=True, index=True),  # of an earlier secret: the key that it stands in for
)

ledger = Table(
    "ledger",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("request_id", Text, nullable=False),
    Column("attempt", Integer, nullable=False),  # from 0; of charges and their corrections: -1 and on downwards
    Column("kind", Text, nullable=False),  # charge: the customer's; cost: a provider's; correction, cost_correction
    Column("state", Text, nullable=False),  # settled, voided, reconciled
    Column("basis", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("model", Text, nullable=False),  # a slug of the catalogue, "" where the call named none
    Column("provider", Text, nullable=True),
    Column("provider_model", Text, nullable=True),
    Column("provider_type", Text, nullable=True),
    Column("region", Text, nullable=True),  # the provider's
    Column("routing_mode", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("on_cancel", Text, nullable=True),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("cache_write_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("weighted_tokens", BigInteger, nullable=False),
    Column("cost_nano_usd", BigInteger, nullable=False),
    Column("reserved_nano_usd", BigInteger, nullable=False),
    Column("price_version", Text, nullable=True),
    Column("session_key", Text, nullable=True),  # digest of tenant and session id, for budgets of sessions
    Column("admitted_ms", BigInteger, nullable=False),  # by the clock of the counters: it decides the period
    Column("settled_ms", BigInteger, nullable=False),
    Column("recorded_ms", BigInteger, nullable=False),  # when the row came here
    Column("writer", Text, nullable=False),  # the process that served, as host:pid:start
    UniqueConstraint("request_id", "attempt", "kind"),
    Index("ix_ledger_tenant_admitted", "tenant", "admitted_ms"),
    Index("ix_ledger_key_admitted", "key_id", "admitted_ms"),
    Index("ix_ledger_session_key", "session_key", "admitted_ms"),
    Index("ix_ledger_recorded", "recorded_ms"),
    Index("ix_ledger_admitted", "admitted_ms"),
)

traces = Table(
    "traces",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("trace_id", Text, nullable=False, index=True),
    Column("response_id", Text, nullable=True),  # the provider's name of its answer
    Column("tenant", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("source", Text, nullable=True),
    Column("stream", Boolean, nullable=False),
    Column("session_id", Text, nullable=True),
    Column("agent_id", Text, nullable=True),
    Column("user", Text, nullable=True),
    Column("metadata", JSON, nullable=True),
    Column("model", Text, nullable=False),  # as asked for
    Column("provider", Text, nullable=True),
    Column("provider_model", Text, nullable=True),  # as served
    Column("provider_type", Text, nullable=True),
    Column("provider_region", Text, nullable=True),
    Column("region", Text, nullable=False),
    Column("routing_mode", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("status", Integer, nullable=False),
    Column("error_code", Text, nullable=True),
    Column("failure_class", Text, nullable=True),
    Column("failure_reason", Text, nullable=True),
    Column("note", Text, nullable=True),
    Column("attempts", JSON, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("ttfb_us", BigInteger, nullable=True),
    Column("ttft_us", BigInteger, nullable=True),
    Column("total_us", BigInteger, nullable=True),
    Column("overhead_us", BigInteger, nullable=True),
    Column("cancel_us", BigInteger, nullable=True),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("cache_write_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("usage_basis", Text, nullable=False),
    Column("weighted_tokens", BigInteger, nullable=False),
    Column("cost_nano_usd", BigInteger, nullable=False),
    Column("verdicts", JSON, nullable=True),
    Column("params", JSON, nullable=True),
    Column("recorded_ms", BigInteger, nullable=False, index=True),  # when the row came
    Index("ix_traces_tenant_started", "tenant", "started_ms"),
    Index("ix_traces_tenant_session", "tenant", "session_id"),
    Index("ix_traces_started", "started_ms"),
    Index("ix_traces_response", "response_id"),
)

bodies = Table(
    "bodies",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("request", Text, nullable=True),  # redacted
    Column("response", Text, nullable=True),
    Column("expires_ms", BigInteger, nullable=False, index=True),
)

sessions = Table(
    "sessions",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("session_id", Text, nullable=False),
    Column("agent_id", Text, nullable=True),  # the newest that was named
    Column("first_ms", BigInteger, nullable=False),
    Column("last_ms", BigInteger, nullable=False),
    Column("requests", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),  # rejected, failed or interrupted
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("weighted_tokens", BigInteger, nullable=False),
    Column("cost_nano_usd", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant", "session_id"),
    Index("ix_sessions_tenant_last", "tenant", "last_ms"),
    Index("ix_sessions_last", "last_ms"),
)

audit = Table(
    "audit",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("tenant", Text, nullable=True),  # whose it is to read; None: the operator's
    Column("actor", Text, nullable=False),  # id of an admin key, or "cli"
    Column("action", Text, nullable=False),  # as in key.created
    Column("target", Text, nullable=False),
    Column("details", JSON, nullable=False),
    Index("ix_audit_tenant", "tenant", "seq"),
)
keep_rows(audit)

idempotency = Table(
    "idempotency",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("name", LargeBinary, nullable=False),  # SHA-256 of the header's value
    Column("call", LargeBinary, nullable=False),  # SHA-256 of endpoint and body
    Column("request_id", Text, nullable=False),
    Column("status", Integer, nullable=True),  # None while it is under way
    Column("headers", JSON, nullable=True),
    Column("body", LargeBinary, nullable=True),
    Column("holder", Text, nullable=False),  # the process that serves it, as in the ledger
    Column("renewed_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False, index=True),
    PrimaryKeyConstraint("tenant", "name"),
)

dead_letters = Table(
    "dead_letters",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("record", LargeBinary, nullable=False),  # as in the journal
)
