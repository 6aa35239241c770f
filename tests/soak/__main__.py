"""`python -m tests.soak`: see the README beside this file."""

from __future__ import annotations

import argparse
import random
import sys

import uvloop

from .conductor import Order, soak
from .plan import ALONE, ALONE_EVERYDAY, EVERYDAY, FULL
from .report import rendered, verdict_on
from .stages import Place, stage
from .world import customers

_FULL, _EVERYDAY = 100_000, 5_000
_PLACES: tuple[Place, ...] = ("stores", "alone")
_BUDGET_NANO_USD_PER_CALL = 20_000  # of all calls: a key with a budget meets it in the middle of the run


def order_of(place: Place, calls: int, seed: int) -> Order:
    """A run of *calls*: everything in full from 100,000 on, a tenth of it below."""
    counts = {"stores": (EVERYDAY, FULL), "alone": (ALONE_EVERYDAY, ALONE)}[place][calls >= _FULL]
    return Order(seed, calls, counts, per_s=None if calls >= _FULL else 150.0)


async def run(place: Place, calls: int, seed: int) -> bool:
    """Run one soak and print what came of it; whether nothing is wrong."""
    order = order_of(place, calls, seed)
    keys = customers(f"{calls * _BUDGET_NANO_USD_PER_CALL / 10**9:.6f}")
    async with stage(place, keys) as here:
        soaked = await soak(order, here)
    verdict = verdict_on(soaked)
    print(rendered(order, place, verdict), flush=True)
    return not verdict.offences


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Hold the books against each other.")
    parser.add_argument("--calls", type=int, default=_FULL, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**4), help="default: a new one")
    parser.add_argument("--place", choices=_PLACES, help="default: both, one after the other")
    arguments = parser.parse_args()
    places = (arguments.place,) if arguments.place else _PLACES
    good = [uvloop.run(run(place, arguments.calls, arguments.seed)) for place in places]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
