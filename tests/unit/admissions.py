"""An admission for tests that need one."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from gateway.core.booking import Admission, Booking, Sent, Way
from gateway.core.money import Price, Weight
from gateway.core.receipt import Receipt
from gateway.core.usage import Usage
from tests.unit.receipts import receipt

ONE, TWO = Weight(1, 1), Weight(2, 1)
PRICE = Price(1_000_000, 3_000_000, 500_000, 1_000_000)  # pico-USD: 1 USD per million of input, 3 of output
WAYS = (Way("azure", "gpt-x", "cloud_direct", "SG", ONE), Way("openai", "gpt-x", "cloud_direct", "US", TWO))
ADMITTED = Admission(
    request_id="r1", trace_id="t1", tenant="acme", key_id="k1", session_key="s" * 32, endpoint="chat_completions",
    model="gpt", stream=True, region="id", reserved_nano_usd=90_000, prompt_tokens=11, price=PRICE,
    price_version="cafe0001", weights=(ONE, ONE, Weight(1, 2)), ways=WAYS, admitted_ms=1_000_000, started_ms=999_990,
)  # fmt: skip


def admission(request_id: str = "r1", **changes: Any) -> Admission:
    """A streaming exchange of two routes, with *changes*."""
    return replace(ADMITTED, request_id=request_id, **changes)


def ended(request_id: str = "r1", usage: Usage | None = None, cost_nano_usd: int = 41_000, **changes: Any) -> Receipt:
    """The end of `admission(request_id)`, completed by the second route after the first had failed."""
    usage = usage or Usage(11, 22, cached_tokens=3)
    sent = (
        Sent(0, "azure", "gpt-x", "cloud_direct", "SG", "failed"),
        Sent(1, "openai", "gpt-x", "cloud_direct", "US", "ok", usage, "provider_final", cost_nano_usd),
    )
    booking = Booking(90_000, "cafe0001", "s" * 32, 1_000_000, sent)
    settled = {"booking": booking, "settled_ms": 1_001_000, "started_ms": 999_990}
    return receipt(request_id=request_id, usage=usage, cost_nano_usd=cost_nano_usd, **{**settled, **changes})
