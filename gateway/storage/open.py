"""Which implementation stands behind each storage port. In this version always the one in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.core.accounts import Key
from gateway.storage.memory import MemoryCounters, MemoryKeys, MemoryLedger


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of this process. `keys` and `counters` can do more than their ports: reload and count."""

    keys: MemoryKeys
    counters: MemoryCounters
    ledger: MemoryLedger


def open_stores(keys: Mapping[str, Key], *, clock_s: Callable[[], float], workers: int = 1) -> Stores:
    """
    The stores for *workers* processes that serve the same *keys* (by plain secret).

    Raises:
        ValueError: A secret is empty, or *workers* is below 1.
    """
    return Stores(MemoryKeys(keys), MemoryCounters(clock_s, workers), MemoryLedger())
