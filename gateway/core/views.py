"""Rows of the books as they are told: in the admin API and, with `--json`, on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gateway.core.entries import CHARGED
from gateway.core.money import format_nano
from gateway.core.reading import Dimension, Figures, Group, Row

_TRACE = (
    "request_id", "trace_id", "response_id", "tenant", "key_id", "endpoint", "source", "stream", "session_id",
    "agent_id", "user", "metadata", "model", "provider", "provider_model", "provider_type", "provider_region", "region",
    "routing_mode", "outcome", "status", "error_code", "failure_class", "failure_reason", "note", "attempts",
    "started_ms", "prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens",
    "usage_basis", "weighted_tokens",
)  # fmt: skip
_SPANS = ("ttfb", "ttft", "total", "overhead", "cancel")
_ENTRY = (
    "kind", "attempt", "state", "basis", "tenant", "key_id", "model", "provider", "provider_model", "provider_type",
    "region", "routing_mode", "outcome", "on_cancel", "prompt_tokens", "completion_tokens", "cached_tokens",
    "cache_write_tokens", "reasoning_tokens", "weighted_tokens", "price_version", "admitted_ms", "settled_ms",
)  # fmt: skip
_SESSION = (
    "tenant", "session_id", "agent_id", "first_ms", "last_ms", "requests", "failed", "prompt_tokens",
    "completion_tokens", "weighted_tokens",
)  # fmt: skip


def trace_view(row: Row) -> dict[str, Any]:
    """A trace under the names of the log line, times in milliseconds, the cost as an exact decimal of USD."""
    spans = {f"{name}_ms": None if (us := row[f"{name}_us"]) is None else us / 1000 for name in _SPANS}
    kept = {"verdicts": row["verdicts"], "params": row["params"]}
    return {**_part(row, _TRACE), "cost_usd": format_nano(row["cost_nano_usd"]), **spans, **kept}


def entry_view(row: Row) -> dict[str, Any]:
    """A row of the ledger, without what is the house's own: which process wrote it, what it had held."""
    return {**_part(row, _ENTRY), "cost_usd": format_nano(row["cost_nano_usd"])}


def session_view(row: Row) -> dict[str, Any]:
    """A session and its totals."""
    return {**_part(row, _SESSION), "cost_usd": format_nano(row["cost_nano_usd"])}


def receipt_view(request_id: str, rows: Sequence[Row]) -> dict[str, Any]:
    """What *rows*, of charges and corrections, and of costs where the reader may see them, make a request cost."""
    charged = [row for row in rows if row["kind"] in CHARGED]
    told: dict[str, Any] = {
        "request_id": request_id,
        "cost_usd": format_nano(sum(row["cost_nano_usd"] for row in charged)),
        "weighted_tokens": sum(row["weighted_tokens"] for row in charged),
        "entries": [entry_view(row) for row in rows],
    }
    return told


def group_view(by: Sequence[Dimension], group: Group) -> dict[str, Any]:
    """A group of usage."""
    return {**dict(zip(by, group.values, strict=True)), **group.figures.told()}


def usage_sheet(by: Sequence[Dimension], groups: Iterable[Group]) -> tuple[list[str], list[list[str | int | None]]]:
    """The same as the head and the rows of a table; money is text, since a spreadsheet would round it."""
    head = [*by, *Figures().told()]
    return head, [[*group.values, *group.figures.told().values()] for group in groups]


def _part(row: Row, names: Sequence[str]) -> dict[str, Any]:
    return {name: row[name] for name in names}
