"""The journal writes an admission while limits, a round trip away, are being asked."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from gateway.core.accounts import Budget, Key, Tier
from gateway.core.booking import Admission
from gateway.core.catalog import Catalog
from gateway.core.errors import GatewayError
from gateway.core.exchange import NOWHERE, Begun, Place
from gateway.core.ports import Admitted, Order, Refused, StoreUnavailable
from gateway.core.receipt import Receipt, Tariff
from gateway.pipeline.services import Clock
from gateway.pipeline.stages.admit import AdmissionRules, Admit, Refuse
from gateway.pipeline.stages.choose import Choose
from gateway.pipeline.stages.record import Record
from gateway.storage.memory import MemoryCounters
from tests.unit.pipeline.plays import GOOD
from tests.unit.pipeline.scene import EPOCH_S, MODES, Scene, at, catalog, elapsed_s, route, virtual_loop

CLOCK = Clock(lambda: virtual_loop().time(), lambda: EPOCH_S, lambda: 0.0)
TRIP_S = 1.0
FEW = Key("key_few", "acme", Tier("few", rpm=2))
RICH = Key("key_rich", "acme", Tier("rich"), budgets=(Budget("key", "month", 10**12),))


class FarCounters(MemoryCounters):
    """A round trip away."""

    is_far = True

    def __init__(self) -> None:
        super().__init__(virtual_loop().time)

    async def admit(self, order: Order) -> Admitted | Refused:
        await asyncio.sleep(TRIP_S)
        return await super().admit(order)


class Story:
    """A journal that notes what it is told, and when; `is_closed` when it takes nothing."""

    def __init__(self, *, is_closed: bool = False) -> None:
        self.is_closed = is_closed
        self.lines: list[tuple[float, str]] = []
        self.begun: list[Admission] = []
        self.kept: list[Admission] = []

    async def admit(self, admission: Admission) -> Place:
        self.lines.append((elapsed_s(), "admitted"))
        if self.is_closed:
            raise StoreUnavailable("closed")
        return NOWHERE

    def begin(self, admission: Admission) -> Begun:
        self.lines.append((elapsed_s(), "begun"))
        if self.is_closed:
            raise StoreUnavailable("closed")
        self.begun.append(admission)
        return OnItsWay(self, admission)

    def record(self, receipt: Receipt) -> None:
        """The scene has a ledger of its own."""


class OnItsWay:
    def __init__(self, story: Story, admission: Admission) -> None:
        self.admission = admission
        self._story = story

    async def kept(self, admission: Admission) -> Place:
        self._story.lines.append((elapsed_s(), "kept"))
        self._story.kept.append(admission)
        return NOWHERE


class World:
    """Counters, a journal, and the stages between them."""

    def __init__(self, counters: MemoryCounters, journal: Story | None = None) -> None:
        self.journal = journal or Story()
        record = Record(self.journal, Tariff(MODES, bill_interrupted=True, region="id"), CLOCK)
        admit = Admit(counters, CLOCK, AdmissionRules(MODES), meanwhile=record.begin)
        self._around = admit, Refuse(), record

    def scene(self, key: Key, known: Catalog | None = None) -> Scene:
        scene = Scene(GOOD, before=(Choose(known or catalog(route("a"))), *self._around))
        scene.exchange.key = key
        scene.begin()
        return scene

    async def serve(self, key: Key, known: Catalog | None = None) -> Receipt:
        """The receipt of a call of *key*."""
        scene = self.scene(key, known)
        with suppress(GatewayError):
            await scene.start()
        await scene.end()
        return scene.receipt


async def test_at_the_same_time() -> None:
    """The record is on its way before limits have decided, with what was asked of them; it becomes what they granted,
    by their clock."""
    world = World(FarCounters())

    receipt = await world.serve(RICH)

    assert world.journal.lines == [(0.0, "begun"), (TRIP_S, "kept")]
    (asked,), (granted,) = world.journal.begun, world.journal.kept
    assert asked.reserved_nano_usd == granted.reserved_nano_usd > 0
    assert (asked.admitted_ms, granted.admitted_ms) == (int(EPOCH_S * 1000), int((virtual_loop().time()) * 1000))
    assert receipt.booking is not None
    assert receipt.booking.admitted_ms == granted.admitted_ms


async def test_near_limits_are_asked_first() -> None:
    """Limits that take no time are asked before anything is written."""
    world = World(MemoryCounters(virtual_loop().time))

    receipt = await world.serve(RICH)

    assert [line for _, line in world.journal.lines] == ["admitted"]
    assert receipt.booking is not None


async def test_what_limits_refuse_is_no_call() -> None:
    """A call that was begun and is refused has no row of the ledger. The next one of its key is begun when limits have
    let it in, so that a flood of refused ones is no flood of writing; the one behind that again at once."""
    world = World(FarCounters())

    outcomes = [(await world.serve(FEW)).outcome for _ in range(2)]
    refused = [await world.serve(FEW) for _ in range(2)]
    before = [*world.journal.lines]
    await at(100.0)
    later = [await world.serve(FEW) for _ in range(2)]

    assert outcomes == [receipt.outcome for receipt in later] == ["completed", "completed"]
    assert [(receipt.error_code, receipt.booking) for receipt in refused] == [("rate_limit_exceeded", None)] * 2
    assert [line for _, line in before] == ["begun", "kept"] * 2 + ["begun"]
    assert [line for _, line in world.journal.lines[5:]] == ["admitted", "begun", "kept"]


async def test_what_is_known_to_be_refused_is_not_begun() -> None:
    """Of a call that nothing can serve nothing is written, whatever its limits say."""
    world = World(FarCounters())

    receipt = await world.serve(FEW, Catalog({}, {}))

    assert (receipt.error_code, world.journal.lines) == ("model_not_found", [])


async def test_a_client_that_leaves_while_limits_are_asked() -> None:
    """There was no call: what was begun of it comes to nothing."""
    world = World(FarCounters())
    scene = world.scene(RICH)
    scene.start()
    await at(TRIP_S / 2)

    scene.leave()
    outcome = await scene.end()

    assert (outcome, scene.receipt.booking) == ("cancelled", None)
    assert world.journal.lines == [(0.0, "begun")]


@pytest.mark.parametrize(("calls", "code"), [(1, "ledger_unavailable"), (3, "rate_limit_exceeded")])
async def test_a_journal_that_takes_nothing(calls: int, code: str) -> None:
    """It is told of calls that are within their limits, and of no others."""
    world = World(FarCounters(), Story(is_closed=True))

    receipts = [await world.serve(FEW) for _ in range(calls)]

    assert receipts[-1].error_code == code
    assert receipts[-1].booking is None
