"""Keys, orders and clocks for tests of what is counted."""

from __future__ import annotations

from gateway.core.accounts import Budget, Burst, Key, Tier

USD = 10**9
"""In nano-USD."""


def key(
    name: str = "k1",
    *,
    tenant: str = "acme",
    rpm: int | None = None,
    inflight: int | None = None,
    tpm: int | None = None,
    burst: Burst | None = None,
    budgets: tuple[Budget, ...] = (),
    allowance: int | None = None,
    overage: int | None = None,
) -> Key:
    """A key of *tenant* with these limits alone."""
    tier = Tier(
        "test",
        rpm=rpm,
        inflight=inflight,
        tpm=tpm,
        burst=burst,
        weighted_tokens_per_month=allowance,
        overage_nano_usd_per_million=overage,
    )
    return Key(name, tenant, tier, budgets=budgets)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s
