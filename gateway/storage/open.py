"""Which implementation stands behind each storage port."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.core.accounts import Key
from gateway.storage.database import Database
from gateway.storage.memory import MemoryCounters, MemoryKeys, MemoryLedger


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of this process. `keys` and `counters` can do more than their ports: reload and count."""

    database: Database
    keys: MemoryKeys
    counters: MemoryCounters
    ledger: MemoryLedger


def open_stores(
    keys: Mapping[str, Key], database: Database, *, clock_s: Callable[[], float], workers: int = 1
) -> Stores:
    """
    The stores for *workers* processes that serve the same *keys* (by plain secret) and *database*.

    Raises:
        ValueError: A secret is empty, or *workers* is below 1.
    """
    return Stores(database, MemoryKeys(keys), MemoryCounters(clock_s, workers), MemoryLedger())
