"""Rows of the books as calls leave them, to be put into a database by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.storage.tables import bodies, ledger, sessions, traces

DAY_MS = 86_400_000
NOON_MS = 1_772_366_400_000  # 2026-03-01 12:00 UTC
_numbers = itertools.count(1)

Row = dict[str, Any]


def request_id(number: int | None = None) -> str:
    """One of the form that the gateway makes; a new one without *number*."""
    return f"req_{next(_numbers) if number is None else number:032x}"


def charge(**changes: Any) -> Row:
    """A row of the ledger: a completed call of tenant acme."""
    row: Row = {
        "request_id": request_id(), "attempt": -1, "kind": "charge", "state": "settled", "basis": "provider_final",
        "tenant": "acme", "key_id": "key_000000000001", "model": "gpt-4o", "provider": "openai",
        "provider_model": "gpt-4o-2024", "provider_type": "cloud_direct", "region": "US", "routing_mode": "streaming",
        "outcome": "completed", "on_cancel": None, "prompt_tokens": 11, "completion_tokens": 7, "cached_tokens": 0,
        "cache_write_tokens": 0, "reasoning_tokens": 0, "weighted_tokens": 72, "cost_nano_usd": 97_500,
        "reserved_nano_usd": 200_000, "price_version": "0badcafe", "session_key": None, "admitted_ms": NOON_MS,
        "settled_ms": NOON_MS + 900, "recorded_ms": NOON_MS + 1000, "writer": "host:1:0",
    }  # fmt: skip
    return {**row, **changes}


def cost(of: Mapping[str, Any], attempt: int = 0, **changes: Any) -> Row:
    """What an attempt of the call that was charged by *of* came to at its provider."""
    return {**of, "attempt": attempt, "kind": "cost", "weighted_tokens": 0, "reserved_nano_usd": 0, **changes}


def trace(of: Mapping[str, Any] | None = None, **changes: Any) -> Row:
    """The trace of a call, that of the charge *of* if one is given."""
    booked = of or charge()
    same = (
        "request_id", "tenant", "key_id", "model", "provider", "provider_model", "provider_type", "routing_mode",
        "outcome", "prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens",
        "weighted_tokens", "cost_nano_usd",
    )  # fmt: skip
    row: Row = {name: booked[name] for name in same}
    row |= {
        "trace_id": booked["request_id"][-32:], "response_id": f"chatcmpl-{booked['request_id'][-12:]}",
        "endpoint": "chat_completions", "source": None, "stream": True, "session_id": None, "agent_id": None,
        "user": None, "metadata": None, "provider_region": booked["region"], "region": "id", "status": 200,
        "error_code": None, "failure_class": None, "failure_reason": None, "note": None,
        "attempts": [{"provider": "openai", "model": "gpt-4o-2024", "result": "ok"}],
        "started_ms": booked["admitted_ms"], "ttfb_us": 40_000, "ttft_us": 250_500, "total_us": 900_000,
        "overhead_us": 800, "cancel_us": None, "usage_basis": booked["basis"], "verdicts": None,
        "params": {"translated": [], "dropped": []}, "recorded_ms": booked["recorded_ms"],
    }  # fmt: skip
    return {**row, **changes}


def session(**changes: Any) -> Row:
    """A session of one call."""
    row: Row = {
        "tenant": "acme", "session_id": "s-1", "agent_id": None, "first_ms": NOON_MS, "last_ms": NOON_MS,
        "requests": 1, "failed": 0, "prompt_tokens": 11, "completion_tokens": 7, "weighted_tokens": 72,
        "cost_nano_usd": 97_500,
    }  # fmt: skip
    return {**row, **changes}


async def book(
    connection: AsyncConnection,
    *,
    ledger_rows: Iterable[Row] = (),
    trace_rows: Iterable[Row] = (),
    session_rows: Iterable[Row] = (),
    body_rows: Iterable[Row] = (),
) -> None:
    """Write the rows."""
    for table, rows in ((ledger, ledger_rows), (traces, trace_rows), (sessions, session_rows), (bodies, body_rows)):
        if values := list(rows):
            await connection.execute(insert(table), values)
