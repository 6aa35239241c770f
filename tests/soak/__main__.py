"""`python -m tests.soak`: see the README beside this file."""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import uvloop

from tests.support.config import Config

from . import scenes
from .conductor import Order, Stage, soak
from .plan import ALONE, ALONE_EVERYDAY, EVERYDAY, FULL, STREAM, STREAM_EVERYDAY
from .report import rendered, verdict_on
from .stages import Place, stage
from .verdict import Verdict
from .world import Customer, customers

FULL_CALLS = 100_000
# For calls of which all have to be decided: 200 of them at once may take longer than 0.1 s on a busy machine.
PATIENT = {"redis_timeout_ms": 5_000}
CALM_CALLS, CALM_EVERYDAY = 7_000, 1_500
_COUNTS = {"stores": (EVERYDAY, FULL), "stream": (STREAM_EVERYDAY, STREAM), "alone": (ALONE_EVERYDAY, ALONE)}
_BUDGET_NANO_USD_PER_CALL = 20_000  # of all calls: a key with a budget meets it in the middle of the run


def order_of(place: Place, calls: int, seed: int) -> Order:
    """A run of *calls*: everything in full from 100,000 on, a tenth of it below."""
    counts = _COUNTS[place][calls >= FULL_CALLS]
    if calls >= FULL_CALLS:
        return Order(seed, calls, counts, calm=CALM_CALLS)
    return Order(seed, calls, counts, calm=CALM_EVERYDAY if place == "alone" else 0, per_s=150.0)


async def soaked(place: Place, calls: int, seed: int) -> Verdict:
    """What one soak comes to."""
    keys = customers(f"{calls * _BUDGET_NANO_USD_PER_CALL / 10**9:.6f}")
    async with stage(place, keys) as here:
        return verdict_on(await soak(order_of(place, calls, seed), here))


async def played(
    scene: Callable[[Stage], Awaitable[Verdict]], keys: list[Customer], place: Place = "stores", **more: Config
) -> Verdict:
    """What a scene comes to, in four processes with *more* settings."""
    async with stage(place, keys, workers=4, **more) as here:
        return await scene(here)


def acts(calls: int, seed: int, rounds: int, outage_s: float) -> dict[str, Callable[[], Awaitable[Verdict]]]:
    """Everything that can be run, by name."""
    return {
        "stores": partial(soaked, "stores", calls, seed),
        "stream": partial(soaked, "stream", calls, seed),
        "alone": partial(soaked, "alone", calls, seed),
        "race": partial(played, scenes.race, scenes.racers(rounds), limits=PATIENT),
        "places": partial(played, scenes.places, scenes.placed()),
        "redis": partial(played, partial(scenes.redis_frozen, outage_s=outage_s), scenes.calm()),
        "postgres": partial(played, partial(scenes.postgres_away, outage_s=outage_s), scenes.calm()),
    }


async def interruptible(act: Awaitable[Verdict]) -> Verdict:
    """What *act* comes to. SIGTERM cancels it, so that everything which it has started ends before we do."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await act
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def main() -> int:
    """Run what the command line asks for; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Hold the books against each other.")
    parser.add_argument("--only", default="", help="comma-separated, such as stores,race (default: all)")
    parser.add_argument("--calls", type=int, default=FULL_CALLS, help="of a soak (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**4), help="default: a new one")
    parser.add_argument("--rounds", type=int, default=100, help="of the race (default: %(default)s)")
    parser.add_argument("--outage-s", type=float, default=60.0, help="of redis and postgres (default: %(default)s)")
    given = parser.parse_args()
    known = acts(given.calls, given.seed, given.rounds, given.outage_s)
    names = given.only.split(",") if given.only else list(known)
    if strange := set(names) - set(known):
        parser.error(f"no such: {', '.join(sorted(strange))}")
    offences = 0
    for name in names:
        try:
            verdict = uvloop.run(interruptible(known[name]()))
        except asyncio.CancelledError:
            return 128 + signal.SIGTERM
        print(rendered(f"{name}, seed {given.seed}", verdict), flush=True)
        offences += len(verdict.offences)
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
