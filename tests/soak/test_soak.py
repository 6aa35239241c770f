"""A tenth of `make soak`: the service under kills, restarts and outages, and its books against all others (G4-G6, G11).

The seed is fixed, so that a run that fails can be run again, and `SOAK_SEED` sets another; `make soak` draws its own.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from .__main__ import acts, interruptible
from .report import rendered

pytestmark = [pytest.mark.alone, pytest.mark.timeout(400)]

SEED, ROUNDS, OUTAGE_S = int(os.environ.get("SOAK_SEED", "4")), 5, 6.0
CALLS = {"stores": 4_000, "stream": 1_500, "alone": 1_500}

@pytest.mark.parametrize("name", acts(0, SEED, ROUNDS, OUTAGE_S))
async def test_books_agree(name: str) -> None:
    """Each attempt is in the ledger once, completed calls to the nano-USD, no budget overspent, nothing left over."""
    try:
        verdict = await interruptible(acts(CALLS.get(name, 0), SEED, ROUNDS, OUTAGE_S)[name]())
    except asyncio.CancelledError:
        pytest.exit("by SIGTERM, and nothing is left behind")
    print(rendered(f"{name}, seed {SEED}", verdict))

    assert [*map(str, verdict.offences)] == []
