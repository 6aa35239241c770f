"""Keys behind the cache: how often the database is asked, and what serves while it does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest
import pytest_asyncio

from gateway.aio import Tasks
from gateway.core.accounts import Key, Tier
from gateway.core.credentials import digest_of, make_secret
from gateway.core.ports import StoreUnavailable
from gateway.storage import key_cache
from gateway.storage.key_cache import AT_ONCE, FRESH_S, LATEST_S, LOOK_S, RETRY_S, STALE_S, KeyCache

SECRET = make_secret("anm-sk", b"\1" * 32)
OTHER = make_secret("anm-sk", b"\2" * 32)
DIGEST = digest_of(SECRET)
KEY = Key("key_1", "acme", Tier("t"))


class Stage:
    """A cache over a dictionary, on a clock of the test's own."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.epoch_s = 5000.0
        self.table: dict[bytes, Key] = {DIGEST: KEY}
        self.queries: list[list[bytes]] = []
        self.is_out = False
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.crashes: list[str] = []
        self.tasks = Tasks(lambda name, exc: self.crashes.append(name))
        self.cache = KeyCache(self.load, self.tasks, lambda: self.now_s, lambda: self.epoch_s)

    async def load(self, digests: Sequence[bytes]) -> Mapping[bytes, Key]:
        self.queries.append(list(digests))
        self.asked.set()
        found = {digest: self.table[digest] for digest in digests if digest in self.table}
        await self.gate.wait()
        if self.is_out:
            raise StoreUnavailable("gone")
        return found

    async def settled(self) -> None:
        """Whatever is read behind the back has been."""
        while len(self.tasks):  # noqa: ASYNC110 - a turn of the loop is the event
            await asyncio.sleep(0)


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    await made.tasks.drain(1)


async def test_cold_cache(stage: Stage) -> None:
    """Five hundred calls with a key that nobody has seen are one query (D13)."""
    found = await asyncio.gather(*(stage.cache.find(SECRET) for _ in range(500)))

    assert found == [KEY] * 500
    assert stage.queries == [[DIGEST]]


async def test_malformed(stage: Stage) -> None:
    """What cannot be a key of ours costs no query."""
    wrong = SECRET[:-1] + ("0" if SECRET[-1] != "0" else "1")
    secrets = (wrong, "", "anm-sk-demo", SECRET.replace("sk", "ak"), "\ud800")

    found = [await stage.cache.find(secret) for secret in secrets]

    assert found == [None] * 5
    assert stage.queries == []


async def test_fresh(stage: Stage) -> None:
    """A key that was read a moment ago is not read again, and neither is that there is none."""
    for secret in (SECRET, OTHER):
        await stage.cache.find(secret)
    stage.now_s += FRESH_S - 0.01

    found = [await stage.cache.find(SECRET), await stage.cache.find(OTHER)]

    assert found == [KEY, None]
    assert len(stage.queries) == 2


async def test_renewed_behind_the_back(stage: Stage) -> None:
    """From then on it serves while it is read again."""
    await stage.cache.find(SECRET)
    del stage.table[DIGEST]
    stage.now_s += FRESH_S

    at_once = await stage.cache.find(SECRET)
    await stage.settled()

    assert at_once == KEY
    assert await stage.cache.find(SECRET) is None


async def test_revoked(stage: Stage) -> None:
    """What was read longer ago than that is waited for: a key that was revoked since does not pass."""
    await stage.cache.find(SECRET)
    del stage.table[DIGEST]
    stage.now_s += LATEST_S

    assert await stage.cache.find(SECRET) is None


async def test_unknown_becomes_known(stage: Stage) -> None:
    """A key that was asked for too early is found as soon as that may have changed."""
    await stage.cache.find(OTHER)
    stage.table[digest_of(OTHER)] = KEY
    stage.now_s += FRESH_S

    assert await stage.cache.find(OTHER) == KEY


async def test_invalidated(stage: Stage) -> None:
    """After a change by this process nothing is believed that was read before, not even by a query under way."""
    stage.gate.clear()
    early = asyncio.ensure_future(stage.cache.find(SECRET))
    await stage.asked.wait()
    del stage.table[DIGEST]
    stage.cache.invalidate()
    stage.gate.set()

    assert await early is None
    assert len(stage.queries) == 2


async def test_invalidated_known(stage: Stage) -> None:
    """The same of a key that is in the cache."""
    await stage.cache.find(SECRET)
    del stage.table[DIGEST]

    stage.cache.invalidate()

    assert await stage.cache.find(SECRET) is None


async def test_outage(stage: Stage) -> None:
    """Without a database known keys go on, and unseen ones cannot be told from wrong ones."""
    await stage.cache.find(SECRET)
    stage.is_out = True
    stage.now_s += LATEST_S

    known = await stage.cache.find(SECRET)
    with pytest.raises(StoreUnavailable):
        await stage.cache.find(OTHER)

    assert known == KEY
    assert len(stage.queries) == 1 + 1  # it is not asked again at once


async def test_recovery(stage: Stage) -> None:
    """A database that is back is found by the next call after a moment, without making it wait."""
    await stage.cache.find(SECRET)
    stage.is_out = True
    stage.now_s += LATEST_S
    await stage.cache.find(SECRET)
    stage.is_out = False
    stage.now_s += RETRY_S

    stage.gate.clear()
    at_once = await stage.cache.find(SECRET)
    stage.gate.set()
    await stage.settled()
    other = await stage.cache.find(OTHER)

    assert (at_once, other) == (KEY, None)


async def test_outage_without_end(stage: Stage) -> None:
    """After an hour without a database a key might have been revoked long ago."""
    await stage.cache.find(SECRET)
    stage.is_out = True
    stage.now_s += STALE_S

    with pytest.raises(StoreUnavailable):
        await stage.cache.find(SECRET)


async def test_expired(stage: Stage) -> None:
    """A key is unknown from its last second on, however lately it was read."""
    stage.table[DIGEST] = Key("key_1", "acme", Tier("t"), expires_s=stage.epoch_s + 1)

    before = await stage.cache.find(SECRET)
    stage.epoch_s += 1

    assert before is not None
    assert await stage.cache.find(SECRET) is None
    assert len(stage.queries) == 1


async def test_flood(stage: Stage) -> None:
    """Invented keys share queries, one at a time, and leave no more behind than the bound says."""
    secrets = [make_secret("anm-sk", number.to_bytes(32)) for number in range(2 * AT_ONCE)]

    await asyncio.gather(*(stage.cache.find(secret) for secret in secrets))

    assert [len(batch) for batch in stage.queries] == [AT_ONCE, AT_ONCE]


async def test_bounds(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ones that were used longest ago make room."""
    for name in ("KNOWN_KEYS", "UNKNOWN_KEYS", "MAX_WAITING"):
        monkeypatch.setattr(key_cache, name, 3)
    secrets = [make_secret("anm-sk", number.to_bytes(32)) for number in range(10)]
    for number, secret in enumerate(secrets[:5]):
        stage.table[digest_of(secret)] = Key(f"key_{number}", "acme", Tier("t"))
    for secret in secrets:
        await stage.cache.find(secret)

    kept = len(stage.cache)
    found = await asyncio.gather(*(stage.cache.find(secret) for secret in secrets), return_exceptions=True)

    assert kept == 6
    assert sum(isinstance(outcome, StoreUnavailable) for outcome in found) == 1


async def test_caller_that_leaves(stage: Stage) -> None:
    """A caller that goes away takes nothing from the others who wait for the same key."""
    stage.gate.clear()
    leaver, stayer = (asyncio.ensure_future(stage.cache.find(SECRET)) for _ in range(2))
    await stage.asked.wait()
    leaver.cancel()
    stage.gate.set()

    assert await stayer == KEY
    assert leaver.cancelled() or leaver.cancelling()


async def test_bug(stage: Stage) -> None:
    """A look-up that breaks is told, and leaves neither anybody waiting nor a good key called wrong."""

    async def broken(digests: Sequence[bytes]) -> Mapping[bytes, Key]:
        raise LookupError

    stage.cache._load = broken

    with pytest.raises(StoreUnavailable):
        await stage.cache.find(SECRET)
    await stage.settled()

    assert stage.crashes == ["keys.load"]


async def test_cut(stage: Stage) -> None:
    """A key with calls under way is read again all the time, until it is one whose calls are to be cut."""
    await stage.cache.find(SECRET)
    early = stage.cache.cut(["key_1", "key_other"])
    stage.table[DIGEST] = Key("key_1", "acme", Tier("t"), revoked_now=True)
    stage.now_s += LOOK_S

    meanwhile = stage.cache.cut(["key_1"])
    await stage.settled()
    late = stage.cache.cut(["key_1"])

    assert (early, meanwhile, late) == (set(), set(), {"key_1"})
    assert len(stage.queries) == 2
    assert await stage.cache.find(SECRET) is None


async def test_cut_after_revocation(stage: Stage) -> None:
    """Calls of a key that was revoked and left running can be cut later; it is known to nobody meanwhile."""
    await stage.cache.find(SECRET)
    del stage.table[DIGEST]
    stage.now_s += LOOK_S
    revoked = stage.cache.cut(["key_1"])
    await stage.settled()
    meanwhile = (stage.cache.knows(DIGEST), await stage.cache.find(SECRET))
    stage.table[DIGEST] = Key("key_1", "acme", Tier("t"), revoked_now=True)
    stage.now_s += LOOK_S
    stage.cache.cut(["key_1"])
    await stage.settled()

    late = stage.cache.cut(["key_1"])

    assert (revoked, meanwhile, late) == (set(), (False, None), {"key_1"})
    assert await stage.cache.find(SECRET) is None
