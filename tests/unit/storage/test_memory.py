"""The in-process stores."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from gateway.aio import Tasks
from gateway.core.accounts import Budget, Burst, Key
from gateway.core.errors import INFLIGHT_CAP, RATE_LIMIT_EXCEEDED
from gateway.core.exchange import Limits
from gateway.core.ports import Admitted, Booked, Draw, Order, Refused, Spent
from gateway.settings import FileTerms
from gateway.storage.memory import MemoryCounters, MemoryKeys
from gateway.storage.open import Watchers, open_stores
from tests.support.books import Clock, key


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_key_is_found_by_its_secret() -> None:
    """The owner of a secret is found; whatever is no secret of ours is simply unknown."""
    keys = MemoryKeys({"anm-sk-one": key("k1"), "anm-sk-two": key("k2")})

    found = [await keys.find(secret) for secret in ("anm-sk-two", "anm-sk-on", "", "\udcff\ud800", "x" * 8000)]

    assert found == [key("k2"), None, None, None, None]


async def test_secrets_are_not_kept() -> None:
    """Nothing reachable from the store holds a plain secret."""
    keys = MemoryKeys({"anm-sk-canary": key()})

    assert "anm-sk-canary" not in repr(vars(keys))


async def test_reload_replaces_every_key() -> None:
    """After a reload the old secrets are unknown and the new ones found."""
    keys = MemoryKeys({"old": key("k1")})
    keys.replace({"new": key("k2")})

    assert [await keys.find("old"), await keys.find("new")] == [None, key("k2")]


async def test_empty_secret_is_refused_at_load() -> None:
    """A configuration slip must not let in whoever sends no key; the table in force stays."""
    keys = MemoryKeys({"old": key("k1")})

    with pytest.raises(ValueError, match="empty"):
        keys.replace({"": key("k2")})
    assert await keys.find("old") == key("k1")


async def test_rpm_is_counted_down_and_refused(clock: Clock) -> None:
    """The answer tells what is left, and a refusal when the minute ends."""
    counters, mine = MemoryCounters(clock), key(rpm=2)
    first = await counters.admit(Order(mine, "r1"))
    clock.now_s += 15
    second, third = await counters.admit(Order(mine, "r2")), await counters.admit(Order(mine, "r3"))
    clock.now_s += 45
    fourth = await counters.admit(Order(mine, "r4"))

    assert [first, second, third, fourth] == [
        Admitted(Limits(2, 1), 1000.0),
        Admitted(Limits(2, 0), 1015.0),
        Refused(RATE_LIMIT_EXCEEDED, 45.0, Limits(2, 0), "2 per minute", "rpm"),
        Admitted(Limits(2, 1), 1060.0),
    ]


async def test_inflight_refusal_spends_nothing(clock: Clock) -> None:
    """A request refused for too many at once leaves the minute as it was."""
    counters, mine = MemoryCounters(clock), key(rpm=5, inflight=1)
    await counters.admit(Order(mine, "r1"))
    refused = await counters.admit(Order(mine, "r2"))
    counters.settle("r1", Spent())
    admitted = await counters.admit(Order(mine, "r2"))

    assert [refused, admitted] == [
        Refused(INFLIGHT_CAP, 1, Limits(5, 4), "1 at once", "inflight"),
        Admitted(Limits(5, 3), 1000.0),
    ]


async def test_no_limits(clock: Clock) -> None:
    """A tier without limits admits all and says so by leaving the numbers out."""
    counters = MemoryCounters(clock)

    verdicts = {await counters.admit(Order(key(), f"r{number}")) for number in range(500)}

    assert verdicts == {Admitted(Limits(None, None), 1000.0)}


async def test_release_is_idempotent(clock: Clock) -> None:
    """A second release, or one of a request that never was, frees nobody else's place."""
    counters, mine = MemoryCounters(clock), key(inflight=2)
    await counters.admit(Order(mine, "r1"))
    await counters.admit(Order(mine, "r2"))
    for request_id in ("r1", "r1", "never", "r1"):
        counters.settle(request_id, Spent())

    verdicts = [type(await counters.admit(Order(mine, request_id))) for request_id in ("r3", "r4")]

    assert verdicts == [Admitted, Refused]


async def test_request_id_in_use_is_an_error(clock: Clock) -> None:
    """Two running requests must not share one place."""
    counters = MemoryCounters(clock)
    await counters.admit(Order(key(), "r1"))

    with pytest.raises(ValueError, match="already"):
        await counters.admit(Order(key(), "r1"))


async def test_each_of_several_workers_enforces_its_part(clock: Clock) -> None:
    """With four workers each admits a quarter of the limit, rounded up."""
    counters, mine = MemoryCounters(clock, share=4), key(rpm=10)

    admitted = [isinstance(await counters.admit(Order(mine, f"r{number}")), Admitted) for number in range(5)]

    assert admitted == [True, True, True, False, False]


async def test_a_worker_tells_the_whole_of_a_limit(clock: Clock) -> None:
    """What a plan has is told as it was sold; what is left of it, as this worker may give it."""
    counters = MemoryCounters(clock, share=4)
    mine = key(rpm=40, tpm=400, burst=Burst(20, 1), allowance=1000)
    told = (await counters.admit(Order(mine, "r1", weighted=Draw(50, 50)))).limits

    assert (told.rpm, told.tpm, told.burst_capacity, told.weighted) == (40, 400, 20, 1000)
    assert (told.rpm_remaining, told.tpm_remaining, told.burst_credits, told.weighted_remaining) == (9, 100, 5, 250)


async def test_memory_is_bounded_by_the_last_minute(clock: Clock) -> None:
    """Keys that were seen once leave nothing behind."""
    counters = MemoryCounters(clock)
    for number in range(2000):
        clock.now_s += 1
        mine = key(f"k{number}", rpm=1)
        await counters.admit(Order(mine, "r"))
        counters.settle("r", Spent())

    assert len(counters) <= 120  # each admission looks at two: what has ended is gone within as many more


class Spent10:
    """Ten nano-USD of everything."""

    async def booked(self, scope: str, owner: str, since_ms: int, ids: Collection[str]) -> Booked:
        return Booked(10, 10)


@pytest.mark.parametrize(("succeeds", "days", "left"), [(False, 0, 5), (True, 0, 0), (False, 3, 0)])
async def test_a_part_that_may_have_been_used_up_counts_as_used(
    clock: Clock, succeeds: bool, days: int, left: int
) -> None:  # fmt: skip
    """
    Of 20 each of two processes has ten, and ten are spent: half of them are taken to be its own, but all of them where
    it follows one that has died, or loads an account that it may have had before.
    """
    counters = MemoryCounters(clock, 2, Spent10(), succeeds=succeeds)
    clock.now_s += days * 86_400
    mine = key(budgets=(Budget("key", "total", 20),))
    draws = [await counters.admit(Order(mine, f"r{number}", nano_usd=Draw(1, 1))) for number in range(12)]

    assert sum(isinstance(verdict, Admitted) for verdict in draws) == left


async def test_a_look_at_limits_keeps_nothing(clock: Clock) -> None:
    """What a session may still spend is told by the ledger, whatever it is called, and nothing stays in memory."""
    counters = MemoryCounters(clock, spending=Spent10())
    mine = key(budgets=(Budget("session", "total", 25),))
    told = [await counters.usage_limits(mine, f"s{number}") for number in range(3)]

    assert [(row["used"], row["remaining"]) for one in told for row in one["data"]] == [  # type: ignore[attr-defined]
        ("0.00000001", "0.000000015")
    ] * 3
    assert len(counters) == 0


async def test_a_look_at_limits_of_several_workers(clock: Clock) -> None:
    """Budgets are told whole, with what the ledger has; of rates and places it is said that they are a part."""
    counters = MemoryCounters(clock, 2, Spent10())
    mine = key(rpm=10, inflight=4, budgets=(Budget("key", "total", 25),))
    await counters.admit(Order(mine, "r1", nano_usd=Draw(3, 3)))

    told = await counters.usage_limits(mine)

    rows = {row["limit"]: row for row in told["data"]}  # type: ignore[attr-defined]
    assert {name: (row["max"], row["used"], row["held"], row["is_part"]) for name, row in rows.items()} == {
        "requests_per_minute": (5, 1, 0, True),
        "requests_at_once": (2, 0, 1, True),
        "usd_total": ("0.000000025", "0.00000001", "0.000000003", False),
    }
    assert rows["usd_total"]["remaining"] == "0.000000012"


def test_share_below_one_is_refused(clock: Clock) -> None:
    """A share of zero would divide by zero at the first request instead of at start."""
    with pytest.raises(ValueError, match="share"):
        MemoryCounters(clock, share=0)


class Interleavings(RuleBasedStateMachine):
    """Random admissions and releases of three keys against a plain count."""

    held: Bundle[tuple[Key, str]] = Bundle("held")
    KEYS = (key("a", rpm=4, inflight=2), key("b", rpm=3), key("c", inflight=1))

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.counters = MemoryCounters(self.clock)
        self.number = 0
        self.running: dict[str, set[str]] = defaultdict(set)
        self.admitted_s: dict[str, list[float]] = defaultdict(list)

    @rule(target=held, mine=st.sampled_from(KEYS))
    def admit(self, mine: Key) -> tuple[Key, str]:
        self.number += 1
        request_id = f"r{self.number}"
        verdict = asyncio.run(self.counters.admit(Order(mine, request_id)))
        if isinstance(verdict, Admitted):
            self.running[mine.id].add(request_id)
            self.admitted_s[mine.id].append(self.clock.now_s)
        elif verdict.kind is INFLIGHT_CAP:
            assert len(self.running[mine.id]) == mine.tier.inflight
        return mine, request_id

    @rule(request=consumes(held))
    def release(self, request: tuple[Key, str]) -> None:
        self.counters.settle(request[1], Spent())
        self.running[request[0].id].discard(request[1])

    @rule(request=held)
    def release_and_keep(self, request: tuple[Key, str]) -> None:
        self.release(request)

    @rule(seconds=st.integers(1, 61))
    def wait(self, seconds: int) -> None:
        self.clock.now_s += seconds

    @invariant()
    def limits_hold(self) -> None:
        for mine in self.KEYS:
            assert mine.tier.inflight is None or len(self.running[mine.id]) <= mine.tier.inflight
            stamps, start_s, used = self.admitted_s[mine.id], -60.0, 0
            for at_s in stamps:
                start_s, used = (at_s, 1) if at_s >= start_s + 60 else (start_s, used + 1)
                assert mine.tier.rpm is None or used <= mine.tier.rpm

    def teardown(self) -> None:
        for mine in self.KEYS:
            for request_id in list(self.running[mine.id]):
                self.counters.settle(request_id, Spent())
        self.clock.now_s += 61
        last = key("last")
        asyncio.run(self.counters.admit(Order(last, "last")))
        self.counters.settle("last", Spent())
        assert len(self.counters) <= 1


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


async def test_open_stores(clock: Clock, tmp_path: Path) -> None:
    """The stores are opened together and share what they are told."""
    stores = open_stores(
        {"secret": key(rpm=4)},
        FileTerms({}),
        database_url=f"sqlite:///{tmp_path}/gateway.db",
        tasks=Tasks(lambda name, exc: None),
        watchers=Watchers(lambda outage: None, lambda key_id, reason: None),
        clock_s=clock,
        epoch_s=clock,
        workers=4,
    )
    mine = await stores.keys.find("secret")

    assert mine == key(rpm=4)
    assert [await stores.counters.admit(Order(mine, "r1")), await stores.counters.admit(Order(mine, "r2"))] == [
        Admitted(Limits(4, 0), 1000.0),
        Refused(RATE_LIMIT_EXCEEDED, 60.0, Limits(4, 0), "4 per minute", "rpm"),
    ]
