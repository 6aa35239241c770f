"""Which implementation stands behind each storage port."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.aio import Tasks
from gateway.core.accounts import Key
from gateway.core.ports import StoreUnavailable, Terms
from gateway.storage.database import Database
from gateway.storage.memory import MemoryCounters
from gateway.storage.redis_counters import RedisCounters
from gateway.storage.redis_upkeep import NOBODY, Observer, SharingRules
from gateway.storage.spending import SqlSpending
from gateway.storage.sql_keys import AllKeys, SqlKeys, open_keys

Counting = MemoryCounters | RedisCounters


@dataclass(frozen=True, slots=True)
class Watchers:
    """Whom stores tell of what an operator has to know.

    Attributes:
        storage_changed: See `Database`.
        key_unusable: See `SqlKeys`.
        limits: See `RedisCounters`.
    """

    storage_changed: Callable[[StoreUnavailable | None], None]
    key_unusable: Callable[[str, str], None]
    limits: Observer = NOBODY


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of this process. `keys` and `counters` can do more than their ports."""

    database: Database
    keys: AllKeys
    counters: Counting


def open_stores(
    keys: Mapping[str, Key],
    terms: Terms,
    *,
    database_url: str,
    tasks: Tasks,
    watchers: Watchers,
    clock_s: Callable[[], float],
    epoch_s: Callable[[], float],
    workers: int = 1,
    succeeds: bool = False,
    redis_url: str = "",
    sharing: SharingRules = SharingRules(),  # noqa: B008 - it is frozen
) -> Stores:
    """
    The stores for *workers* processes that serve the same *keys* (by plain secret) and database.

    Args:
        succeeds: Whether this process takes the place of one of them that has ended.
        redis_url: Of the Redis that counts for all processes there are; "" where each counts its part.

    Raises:
        ValueError: A secret is empty, or *workers* is below 1.
    """
    database = Database(database_url, watchers.storage_changed)
    stored = SqlKeys(database, terms, watchers.key_unusable)
    ahead_s = epoch_s() - clock_s()
    spending = SqlSpending(database)

    def steady_s() -> float:
        """Epoch seconds by a clock that is never put on nor back: minutes and days are not to be counted twice."""
        return clock_s() + ahead_s

    counters: Counting = MemoryCounters(steady_s, workers, spending, succeeds=succeeds)
    if redis_url:
        counters = RedisCounters(
            redis_url, spending, sharing, tasks, clock_s=steady_s, workers=workers, observer=watchers.limits
        )
    return Stores(database, open_keys(keys, stored, tasks, clock_s=clock_s, epoch_s=epoch_s), counters)
