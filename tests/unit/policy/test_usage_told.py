"""Limits as their owner is told of them."""

from __future__ import annotations

import pytest

from gateway.policy.entitlement import entitlement
from gateway.policy.limits import usage
from gateway.policy.verdict import Count, Standing
from tests.support.books import key


@pytest.mark.parametrize(
    ("used", "beyond", "overage_usd"),
    [(999, 0, "0.000000"), (1000, 0, "0.000000"), (1001, 1, "0.0000012"), (1_001_000, 1_000_000, "1.200000")],
)
def test_overage(used: int, beyond: int, overage_usd: str) -> None:
    """What is beyond an allowance with an overage price is told, with what it comes to by now."""
    mine = entitlement(key(allowance=1000, overage=1_200_000_000), None)
    standing = Standing(tallies=(Count(24_315, used, 0, is_loaded=True),))

    (row,) = usage(mine, standing, 0)["data"]  # type: ignore[misc]

    assert (row["beyond"], row["overage_usd"], row["used"]) == (beyond, overage_usd, used)


def test_an_allowance_that_ends_has_no_overage() -> None:
    """A hard allowance has no price beyond it, and is told without one."""
    standing = Standing(tallies=(Count(24_315, 1000, 0, is_loaded=True),))

    (row,) = usage(entitlement(key(allowance=1000), None), standing, 0)["data"]  # type: ignore[misc]

    assert "overage_usd" not in row
