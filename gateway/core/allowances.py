"""What tenants have used of their month's weighted tokens, and what is to be paid for those beyond."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from gateway.core.money import format_nano, per_million

COLUMNS = (
    "tenant", "month", "tier", "weighted_tokens", "allowance", "beyond", "overage_usd_per_million", "overage_usd",
)  # fmt: skip


class AllowanceUsed(Struct, frozen=True):
    """
    A tenant's month, by the ledger, beside the allowance of the tier that the tenant is on now.

    Attributes:
        month: As in `2026-03`, of UTC.
        allowance: Weighted tokens; None where the tier has none, or is nowhere.
        overage_nano_usd_per_million: What a million beyond those cost; None where there are to be none.
    """

    tenant: str
    month: str
    tier: str
    weighted_tokens: int
    allowance: int | None = None
    overage_nano_usd_per_million: int | None = None

    @property
    def beyond(self) -> int:
        """Weighted tokens that the allowance does not cover."""
        return 0 if self.allowance is None else max(0, self.weighted_tokens - self.allowance)

    def told(self) -> dict[str, Any]:
        """As in answers, by `COLUMNS`; the month's overage is rounded once, to nano-USD."""
        price = self.overage_nano_usd_per_million
        return {
            "tenant": self.tenant,
            "month": self.month,
            "tier": self.tier,
            "weighted_tokens": self.weighted_tokens,
            "allowance": self.allowance,
            "beyond": self.beyond,
            "overage_usd_per_million": None if price is None else format_nano(price),
            "overage_usd": format_nano(per_million(self.beyond, price or 0)),
        }
