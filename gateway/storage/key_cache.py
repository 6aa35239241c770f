"""Keys of the database behind a cache of this process: one query at a time, and none for what was asked just now.

A key is asked for again while it is in use, so that what becomes of it elsewhere holds here within `LATEST_S` and an
answer of the database. While there is none, keys that were seen go on, and unseen ones cannot be told from wrong ones.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gateway.aio import Tasks
from gateway.core.accounts import Key
from gateway.core.credentials import digest_of, is_well_formed
from gateway.core.ports import StoreUnavailable

Load = Callable[[Sequence[bytes]], Awaitable[Mapping[bytes, Key]]]
"""The keys with these digests, revoked ones only where their streams are to be cut. Raises StoreUnavailable."""

# Issue 4: revoked is refused everywhere within 5 s. What was read is served for so long, then while it is read again
# behind the back, then it is waited for; the second that is left is the database's.
FRESH_S = 2.0
LATEST_S = 4.0
STALE_S = 3600.0  # without a database: an hour is longer than failovers take, and shorter than a revocation may wait
RETRY_S = 1.0  # between questions to a database that does not answer
LOOK_S = 1.0  # the age at which keys of calls under way are read again, for the sake of `cut`
KNOWN_KEYS = 50_000  # of 1 KB each
UNKNOWN_KEYS = 10_000  # of 200 bytes each
AT_ONCE = 500  # digests in one query: a millisecond or two
MAX_WAITING = 10_000  # seconds' worth of strangers at any rate that a process can take


@dataclass(slots=True)
class _Entry:
    """
    Attributes:
        loaded_s: When the query began.
        is_gone: Whether it was no key any more by then. It stays for the sake of `cut`: calls of a revoked key that are
            under way may be cut later.
    """

    key: Key
    loaded_s: float
    is_gone: bool = False


class KeyCache:
    """
    The port `Keys` over *load*.

    One query is under way at any time, for all the keys that are waited for by then: neither five hundred calls with
    one cold key nor a flood of invented ones takes more than one connection.

    Args:
        clock_s: Monotonic seconds.
        epoch_s: What keys expire by.
    """

    def __init__(self, load: Load, tasks: Tasks, clock_s: Callable[[], float], epoch_s: Callable[[], float]) -> None:
        self._load = load
        self._tasks = tasks
        self._clock_s = clock_s
        self._epoch_s = epoch_s
        self._known: OrderedDict[bytes, _Entry] = OrderedDict()  # the one that was used longest ago comes first
        self._digests: dict[str, set[bytes]] = {}  # of the known, by id: a rotated key may have two for a while
        self._unknown: OrderedDict[bytes, float] = OrderedDict()  # when the query began
        self._cut: OrderedDict[str, None] = OrderedDict()  # ids
        self._waiting: dict[bytes, asyncio.Future[StoreUnavailable | None]] = {}
        self._flying: dict[bytes, asyncio.Future[StoreUnavailable | None]] = {}
        self._edition = 0
        self._failed_s: float | None = None  # the last failure, while nothing has succeeded since
        self._is_loading = False

    async def find(self, secret: str) -> Key | None:
        """See `core.ports.Keys`."""
        return await self.find_digest(digest_of(secret), secret)

    async def find_digest(self, digest: bytes, secret: str) -> Key | None:
        """As `find`, where the digest is known already."""
        entry = self._known.get(digest)
        if entry is None:
            return await self._find_unseen(digest) if is_well_formed(secret) else None
        self._known.move_to_end(digest)
        age_s = self._clock_s() - entry.loaded_s
        if age_s >= FRESH_S:
            await self._renew(digest, age_s)
            entry = self._known.get(digest)
        return self._usable(entry)

    def knows(self, digest: bytes) -> bool:
        """See `core.ports.Keys`."""
        entry = self._known.get(digest)
        return entry is not None and not entry.is_gone

    def invalidate(self) -> None:
        """Believe nothing that was read before now: something was changed by this very process."""
        self._edition += 1
        self._unknown.clear()
        long_ago_s = self._clock_s() - LATEST_S
        for entry in self._known.values():
            entry.loaded_s = min(entry.loaded_s, long_ago_s)

    def cut(self, ids: Iterable[str]) -> set[str]:
        """Those of *ids*, keys that have calls under way, whose calls are to be cut; the others are looked after."""
        now_s = self._clock_s()
        found = set()
        for key_id in ids:
            if key_id in self._cut:
                found.add(key_id)
                continue
            for digest in self._digests.get(key_id, ()):
                self._known.move_to_end(digest)
                if now_s - self._known[digest].loaded_s >= LOOK_S and not self._rests(now_s):
                    self._ask(digest)
        return found

    def __len__(self) -> int:
        """Entries held: what the memory bound is about."""
        return len(self._known) + len(self._unknown) + len(self._cut)

    async def _find_unseen(self, digest: bytes) -> Key | None:
        loaded_s, now_s = self._unknown.get(digest), self._clock_s()
        if loaded_s is not None and now_s - loaded_s < FRESH_S:
            return None
        if self._rests(now_s):
            raise StoreUnavailable("the database did not answer just now")
        outage = await asyncio.shield(self._ask(digest))
        if outage is not None:
            raise StoreUnavailable(str(outage)) from outage
        return self._usable(self._known.get(digest))

    async def _renew(self, digest: bytes, age_s: float) -> None:
        """Have a known key read again; wait for that where it is due."""
        is_out = self._failed_s is not None
        if not self._rests(self._clock_s()):
            asked = self._ask(digest)
            if (age_s >= LATEST_S and not is_out) or age_s >= STALE_S:
                await asyncio.shield(asked)
        entry = self._known.get(digest)
        if entry is not None and self._clock_s() - entry.loaded_s >= STALE_S:
            raise StoreUnavailable("the database has not answered for too long")

    def _rests(self, now_s: float) -> bool:
        """Whether the database is not to be asked now, because it did not answer just before."""
        return self._failed_s is not None and now_s - self._failed_s < RETRY_S

    def _usable(self, entry: _Entry | None) -> Key | None:
        if entry is None or entry.is_gone:
            return None
        key = entry.key
        return key if key.expires_s is None or self._epoch_s() < key.expires_s else None

    def _ask(self, digest: bytes) -> asyncio.Future[StoreUnavailable | None]:
        """Have *digest* read, once for all who wait; done with the outage when there is one."""
        found = self._flying.get(digest) or self._waiting.get(digest)
        if found is not None:
            return found
        future: asyncio.Future[StoreUnavailable | None] = asyncio.get_running_loop().create_future()
        if len(self._waiting) >= MAX_WAITING:
            future.set_result(StoreUnavailable("too many unknown keys at once"))
            return future
        self._waiting[digest] = future
        if not self._is_loading:
            self._is_loading = True
            self._tasks.spawn(self._load_all(), name="keys.load")
        return future

    async def _load_all(self) -> None:
        """Read what is waited for until nothing is."""
        try:
            while self._waiting:
                batch = list(self._waiting)[:AT_ONCE]
                self._flying = {digest: self._waiting.pop(digest) for digest in batch}
                self._resolve(await self._load_some(batch))
        finally:  # a bug, or the end of the process: nobody is left waiting, and no good key is called wrong
            self._is_loading = False
            self._flying, self._waiting = self._flying | self._waiting, {}
            self._resolve(StoreUnavailable("the look-up broke off"))

    async def _load_some(self, batch: Sequence[bytes]) -> StoreUnavailable | None:
        while True:
            began_s, edition = self._clock_s(), self._edition
            try:
                found = await self._load(batch)
            except StoreUnavailable as exc:
                self._failed_s = self._clock_s()
                return exc
            if edition == self._edition:
                break
        self._failed_s = None
        for digest in batch:
            self._keep(digest, found.get(digest), began_s)
        return None

    def _resolve(self, outage: StoreUnavailable | None) -> None:
        flying, self._flying = self._flying, {}
        for future in flying.values():
            future.set_result(outage)

    def _keep(self, digest: bytes, key: Key | None, began_s: float) -> None:
        entry = self._known.get(digest)
        if key is None and entry is not None:
            entry.is_gone, entry.loaded_s = True, began_s
            return
        self._drop(digest)
        if key is not None and key.revoked_now:
            self._cut[key.id] = None
            if len(self._cut) > UNKNOWN_KEYS:
                self._cut.popitem(last=False)
        if key is None or key.revoked_now:
            self._unknown[digest] = began_s
            self._unknown.move_to_end(digest)
            if len(self._unknown) > UNKNOWN_KEYS:
                self._unknown.popitem(last=False)
            return
        self._unknown.pop(digest, None)
        self._known[digest] = _Entry(key, began_s)
        self._digests.setdefault(key.id, set()).add(digest)
        if len(self._known) > KNOWN_KEYS:
            self._drop(next(iter(self._known)))

    def _drop(self, digest: bytes) -> None:
        entry = self._known.pop(digest, None)
        if entry is None:
            return
        digests = self._digests[entry.key.id]
        digests.discard(digest)
        if not digests:
            del self._digests[entry.key.id]
