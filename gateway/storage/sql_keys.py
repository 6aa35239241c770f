"""Who owns a secret: the keys of the file, then those of the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Result, RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.aio import Tasks
from gateway.core.accounts import BadTerms, Key, Tier
from gateway.core.credentials import digest_of
from gateway.core.ports import Terms
from gateway.storage.database import Database
from gateway.storage.key_cache import KeyCache
from gateway.storage.key_rows import key_of, select_keys
from gateway.storage.key_rules import KeyRules
from gateway.storage.memory import MemoryKeys
from gateway.storage.tables import keys

# Keys that are made of rows in one go: 0.3 ms each, where limits and a policy are read for the first time (measured).
AT_A_TIME = 16
ANSWER_S = 2.0  # that a call waits for the database before what was read earlier serves


class SqlKeys:
    """
    What `KeyCache` loads by.

    Args:
        on_unusable: Told of a key that cannot be used, once until that changes: its id and why.
    """

    def __init__(self, database: Database, terms: Terms, on_unusable: Callable[[str, str], None]) -> None:
        self.use(terms)
        self._database = database
        self._on_unusable = on_unusable
        self._unusable: dict[str, str] = {}  # why, by id; bounded by the keys there are

    def use(self, terms: Terms) -> None:
        """Take *terms* from now on."""
        self._terms, self._rules = terms, KeyRules(terms)

    async def load(self, digests: Sequence[bytes]) -> Mapping[bytes, Key]:
        """
        The keys with *digests* that may be used, and those revoked whose calls are to be cut.

        Raises:
            StoreUnavailable: The database does not answer.
        """

        async def step(connection: AsyncConnection) -> Sequence[RowMapping]:
            found: Result[Any] = await connection.execute(select_keys().where(keys.c.digest.in_(digests)))
            return found.mappings().all()

        rows = await self._database.read(step, within_s=ANSWER_S)
        loaded = {}
        for number, row in enumerate(rows, start=1):
            key = self._usable(row)
            if key is not None:
                loaded[row["digest"]] = key
            if number % AT_A_TIME == 0:
                await asyncio.sleep(0)  # others are served in between
        return loaded

    def _usable(self, row: RowMapping) -> Key | None:
        """The key of *row*; None for one that is revoked, of a disabled tenant, or on a tier or under a policy that is
        nowhere: without its limits it would have none. Of one whose calls are to be cut only its name is needed."""
        key_id = row["rotated_from"] or row["id"]  # an earlier secret's own id is known to nobody
        if row["revoked_ms"] is not None:
            return Key(key_id, row["tenant"], Tier("revoked"), revoked_now=True) if row["revoked_now"] else None
        if row["disabled_ms"] is not None:
            return None
        try:
            key = key_of(row, self._terms, self._rules)
        except BadTerms as exc:
            if self._unusable.get(key_id) != str(exc):
                self._unusable[key_id] = str(exc)
                self._on_unusable(key_id, str(exc))
            return None
        self._unusable.pop(key_id, None)
        return key


class AllKeys:
    """The port `Keys`. Static keys never wait, and nothing is asked for them."""

    def __init__(self, static: MemoryKeys, stored: SqlKeys, cache: KeyCache) -> None:
        self._static = static
        self._stored = stored
        self._cache = cache

    async def find(self, secret: str) -> Key | None:
        digest = digest_of(secret)
        return self._static.get(digest) or await self._cache.find_digest(digest, secret)

    def knows(self, secret: str) -> bool:
        digest = digest_of(secret)
        return self._static.get(digest) is not None or self._cache.knows(digest)

    def replace(self, table: Mapping[str, Key], terms: Terms) -> None:
        """Take the static keys of *table* and the tiers of *terms* instead; see `MemoryKeys.replace`."""
        self._static.replace(table)
        self._stored.use(terms)
        self._cache.invalidate()

    def invalidate(self) -> None:
        """See `KeyCache.invalidate`."""
        self._cache.invalidate()

    def cut(self, ids: Iterable[str]) -> set[str]:
        """See `KeyCache.cut`."""
        return self._cache.cut(ids)


def open_keys(
    static: Mapping[str, Key],
    stored: SqlKeys,
    tasks: Tasks,
    *,
    clock_s: Callable[[], float],
    epoch_s: Callable[[], float],
) -> AllKeys:
    """
    The keys of *static* (by plain secret) and of *stored*.

    Raises:
        ValueError: A static secret is empty.
    """
    return AllKeys(MemoryKeys(static), stored, KeyCache(stored.load, tasks, clock_s, epoch_s))
