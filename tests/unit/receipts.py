"""A settled exchange for tests that need one."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from gateway.core.call import ALL_PARAMS
from gateway.core.receipt import Receipt
from gateway.core.usage import Usage

COMPLETED = Receipt(
    request_id="r1", trace_id="t1", tenant="acme", key_id="k1", endpoint="/v1/chat/completions", model="gpt",
    provider="openai", provider_model="gpt-x", provider_type="cloud_direct", provider_region="US", region="id",
    attempts=(("azure", "gpt-x", "failed"), ("openai", "gpt-x", "ok")), outcome="completed", routing_mode="streaming",
    failure_class=None, failure_reason=None, error_code=None, status=200, usage=Usage(11, 22, cached_tokens=3),
    usage_basis="provider_final", weighted_tokens=33, cost_nano_usd=41_000, note=None, params=ALL_PARAMS, user=None,
    session_id=None, agent_id=None, ttfb_ms=40.0, ttft_ms=250.0, total_ms=900.0, overhead_ms=0.8,
    cancel_ms=None,
)  # fmt: skip


def receipt(**changes: Any) -> Receipt:
    """A completed streaming exchange, with *changes*."""
    return replace(COMPLETED, **changes)
