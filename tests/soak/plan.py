"""What is done to the service while its customers call, and when: by seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

Kind = Literal["kill", "roll", "redis.stop", "redis.freeze", "redis.flush", "postgres.stop", "postgres.freeze"]

# Issue, proof: 20 SIGKILLs, 20 SIGTERMs, both stores gone three times each.
FULL: dict[Kind, int] = {
    "kill": 20,
    "roll": 20,
    "redis.stop": 3,
    "redis.freeze": 1,
    "redis.flush": 1,
    "postgres.stop": 3,
    "postgres.freeze": 1,
}
# A tenth of it, but nothing left out.
EVERYDAY: dict[Kind, int] = {**dict.fromkeys(FULL, 1), "kill": 2, "roll": 2}
# A Redis that keeps the journal may hang, but not forget: there it is to have a disk of its own (docs/ledger.md).
STREAM: dict[Kind, int] = {kind: count for kind, count in FULL.items() if kind not in ("redis.stop", "redis.flush")}
STREAM_EVERYDAY: dict[Kind, int] = {kind: EVERYDAY[kind] for kind in STREAM}
ALONE: dict[Kind, int] = {"kill": 20}
"""For a single process without stores beside it: killed and started again."""
ALONE_EVERYDAY: dict[Kind, int] = {"kill": 2}

_CALM = 0.15  # of the calls, at either end: for memory to settle before, to be measured after


@dataclass(frozen=True, slots=True)
class Disturbance:
    """*kind*, once so many calls have begun. `chance` in [0, 1) chooses a worker, or how long an outage lasts."""

    at: int
    kind: Kind
    chance: float


def plan(seed: int, calls: int, counts: dict[Kind, int]) -> list[Disturbance]:
    """As many of each kind as *counts* says, in the order of their coming, evenly over the middle of *calls*."""
    dice = random.Random(f"{seed}/plan")
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    dice.shuffle(kinds)
    begin, end = calls * _CALM, calls * (1 - _CALM)
    step = (end - begin) / max(1, len(kinds))
    return [
        Disturbance(int(begin + step * (number + dice.random())), kind, dice.random())
        for number, kind in enumerate(kinds)
    ]
