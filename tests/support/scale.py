"""How long the property tests run."""

from __future__ import annotations

import os


def examples(n: int) -> int:
    """*n* examples of the everyday run, times `GATEWAY_FUZZ_SCALE` (a float, 1 by default); at least one."""
    return max(1, round(n * float(os.environ.get("GATEWAY_FUZZ_SCALE", "1"))))
