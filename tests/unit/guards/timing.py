"""How the time of a scan grows with its text."""

from __future__ import annotations

import gc
import time

from gateway.core.guarding import Engine, Text

SMALL, TIMES = 10_000, 8
MOST = 24  # eight times the text may take that many times as long: 8 if linear, 64 if quadratic


def growth(engine: Engine, unit: str) -> float:
    """How many times as long eight times as many of *unit* take; times too short to tell count as 0.2 ms."""

    def took(chars: int) -> float:
        text = Text(unit * (chars // len(unit)))
        times = []
        for _ in range(3):
            began = time.process_time()
            engine.scan(text, lambda: None)
            times.append(time.process_time() - began)
        return min(times)

    gc.disable()  # it looks at the more of this process, the more a scan keeps for a moment
    try:
        return took(SMALL * TIMES) / max(took(SMALL), 0.0002)
    finally:
        gc.enable()
