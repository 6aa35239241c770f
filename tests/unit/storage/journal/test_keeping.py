"""A process's journal on its way into the database, and those of dead ones."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.aio import Tasks
from gateway.core.catalog import Provider, Route
from gateway.core.ports import Journal, Spent, StoreUnavailable
from gateway.storage.journal import keeping
from gateway.storage.journal import spool as spool_module
from gateway.storage.journal.carrying import Carrier, CarrierReports
from gateway.storage.journal.homes import QUARANTINE, Home
from gateway.storage.journal.keeping import KeeperReports, SpoolKeeper, SpoolRules
from gateway.storage.journal.reader import Reader
from gateway.storage.journal.segments import Damage, frame, name_of
from gateway.storage.journal.spool import Reports
from gateway.storage.memory import MemoryCounters
from gateway.storage.writing import Entry
from tests.support.disk import full_disk
from tests.unit.admissions import ONE, admission, ended

NOW_S = 1_001.5  # shortly after the ends of `ended`
SOON_S = 10.0
ROUTE = Route(Provider("openai", "openai_chat", "https://openai.test", "cloud_direct", "US", ONE), "gpt-x")


class Shelf:
    """A database of entries by request; it is as slow, away, or particular as a test wants it."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.order: list[str] = []
        self.buried: list[str] = []
        self.delay_s = 0.0
        self.is_away = False
        self.refuses: Callable[[Entry], bool] = lambda entry: False
        self.asked = asyncio.Event()

    async def write(self, entries: Sequence[Entry]) -> None:
        self.asked.set()
        await asyncio.sleep(self.delay_s)
        if self.is_away:
            raise StoreUnavailable("away")
        if any(map(self.refuses, entries)):
            raise ValueError("refused")
        for entry in entries:
            self.order.append(entry.receipt.request_id)
            self.entries.setdefault(entry.receipt.request_id, entry)

    async def bury(self, entry: Entry, record: bytes, reason: str) -> None:
        self.buried.append(entry.receipt.request_id)

    async def has(self, count: int) -> None:
        async with asyncio.timeout(SOON_S):
            while len(self.entries) < count:  # noqa: ASYNC110 - nothing else happens at the last one
                await asyncio.sleep(0.01)


class Counters(MemoryCounters):
    """Those of one process, and what they are told of others' calls."""

    def __init__(self) -> None:
        super().__init__(lambda: NOW_S)
        self.settled: dict[str, Spent] = {}
        self.places: dict[str, str] = {}
        self.known: list[str] = []
        self.held: dict[str, list[str]] = {}
        self.is_away = False

    def settle(self, request_id: str, spent: Spent, *, key_id: str = "") -> None:
        self.settled[request_id] = spent
        self.places[request_id] = key_id

    def written(self, request_ids: Iterable[str]) -> None:
        self.known.extend(request_ids)

    async def held_by(self, owner: str) -> list[str]:
        if self.is_away:
            self.is_away = False
            raise StoreUnavailable("away")
        return self.held.get(owner, [])


class House:
    """Keepers of one directory and one database, and what they report."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.shelf = Shelf()
        self.counters = Counters()
        self.log: list[tuple[Any, ...]] = []
        self._tasks = Tasks(lambda name, exc: self.log.append(("crash", name, exc)))
        self.bills_interrupted = True
        self._number = 0

    def keeper(self, segment_bytes: int = 64 * 1024) -> SpoolKeeper:
        """One more process's."""
        self._number += 1
        name = str(self._number)
        rules = SpoolRules(
            self.root, name, f"writer-{name}", bill_interrupted=lambda: self.bills_interrupted,
            segment_bytes=segment_bytes,
        )  # fmt: skip
        log = self.log
        reports = CarrierReports(
            lambda exc: log.append(("delayed",)), lambda: log.append(("caught_up",)),
            lambda request_id, reason: log.append(("buried", request_id)),
        )  # fmt: skip
        return SpoolKeeper(
            rules, Carrier(self.shelf, reports), self.counters,
            reports=Reports(lambda exc: log.append(("failed",)), lambda: None, lambda took_s: None),
            keeper_reports=KeeperReports(
                lambda path, damage: log.append(("damaged", Path(path).parent.name, damage)),
                lambda writer, ended, reconciled: log.append(("adopted", writer, ended, reconciled)),
                lambda writer, damage: log.append(("torn", writer, damage.length)),
                lambda path, exc: log.append(("unreadable", Path(path).name, type(exc).__name__)),
            ),
            epoch_s=lambda: NOW_S, tasks=self._tasks,
        )  # fmt: skip

    async def adopted(self) -> None:
        """Wait until a journal has been taken over, and is gone."""
        async with asyncio.timeout(SOON_S):
            while not any(line[0] == "adopted" for line in self.log):  # noqa: ASYNC110 - a list tells nobody
                await asyncio.sleep(0.01)

    async def dies(self, keeper: SpoolKeeper) -> None:
        """The process of *keeper* is gone: the kernel lets go of its lock, and nobody else does anything."""
        await keeper.spool.close(SOON_S)
        keeper.spool.home.release()


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "spool")


@pytest.fixture
def from_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """No end is kept at hand."""
    monkeypatch.setattr(spool_module, "AT_HAND", 0)


@pytest.fixture(params=["at hand", "from files"])
def both_ways(request: pytest.FixtureRequest) -> None:
    """Ends are carried as they were recorded, or as they are read."""
    if request.param == "from files":
        request.getfixturevalue("from_files")


async def serve(keeper: SpoolKeeper, name: str) -> None:
    (await keeper.admit(admission(name))).sent(ROUTE)
    keeper.record(ended(name))


async def begin_early(dead: Journal) -> None:
    """Four calls, of which limits have not let in one, have refused one, and have let in two; one of these is sent."""
    dead.begin(admission("asked"))
    dead.begin(admission("refused"))
    dead.record(ended("refused", booking=None, outcome="rejected"))
    await dead.begin(admission("granted")).kept(admission("granted"))
    begun = dead.begin(admission("sent", reserved_nano_usd=90_000))
    (await begun.kept(admission("sent", reserved_nano_usd=70_000, admitted_ms=1_000_007))).sent(ROUTE)


def see_early_ends(shelf: Shelf, counters: Counters) -> None:
    """What those come to once their process has died."""
    bookings = {name: entry.receipt.booking for name, entry in shelf.entries.items()}
    assert set(bookings) == {"refused", "granted", "sent"}
    refused, granted, sent = (bookings[name] for name in ("refused", "granted", "sent"))
    assert refused is None
    assert granted is not None
    assert sent is not None
    assert (sent.reserved_nano_usd, sent.admitted_ms) == (70_000, 1_000_007)
    assert counters.settled.items() >= {"asked": Spent(), "granted": Spent(), "sent": Spent(11, 0, 0)}.items()
    assert counters.places["asked"] == admission("asked").key_id


@pytest.mark.usefixtures("both_ways")
async def test_slow_database_and_eager_collector(house: House) -> None:
    """A thousand calls have a thousand entries, though the database takes 0.2 s for a batch and the collector runs all
    the time (USE-19)."""
    house.shelf.delay_s = 0.2
    keeper = house.keeper()
    keeper.start()

    serving = asyncio.gather(*(serve(keeper, f"r{number}") for number in range(1000)))
    while not serving.done():
        gc.collect()
        await asyncio.sleep(0.005)
    await keeper.close(SOON_S)

    assert len(house.shelf.entries) == len(house.shelf.order) == 1000
    assert keeper.backlog == 0
    assert list(house.root.iterdir()) == []


@pytest.mark.usefixtures("both_ways")
async def test_database_away(house: House) -> None:
    """What waits for the database comes in its order, poison aside, and the operator is told once of each (D4)."""
    house.shelf.is_away = True
    house.shelf.refuses = lambda entry: entry.receipt.request_id in ("r7", "r150")
    keeper = house.keeper(segment_bytes=4096)
    keeper.start()

    for number in range(200):
        await serve(keeper, f"r{number}")
    async with asyncio.timeout(SOON_S):
        while ("delayed",) not in house.log:  # noqa: ASYNC110 - a list tells nobody
            await asyncio.sleep(0.01)
    backlog = keeper.backlog
    house.shelf.is_away = False
    await house.shelf.has(198)
    await keeper.close(SOON_S)

    assert backlog == 200
    assert house.shelf.order == [f"r{number}" for number in range(200) if number not in (7, 150)]
    assert house.shelf.buried == ["r7", "r150"]
    assert sorted(house.log) == [("buried", "r150"), ("buried", "r7"), ("caught_up",), ("delayed",)]


async def test_files_go_when_they_are_drained(house: House) -> None:
    """What the database has is not kept on the disk, though a call of the first minute is still open."""
    keeper = house.keeper(segment_bytes=4096)
    keeper.start()
    await keeper.admit(admission("open"))

    for number in range(100):
        await serve(keeper, f"r{number}")
    await house.shelf.has(100)
    async with asyncio.timeout(SOON_S):
        while len(list(keeper.spool.home.path.glob("*.log"))) > 2:  # noqa: ASYNC110 - a folder tells nobody
            await asyncio.sleep(0.01)
    await keeper.close(SOON_S)
    keeper.spool.home.release()  # as the kernel, at the end of the process
    other = house.keeper()
    other.start()
    await house.shelf.has(101)

    assert house.shelf.entries["open"].receipt.booking is not None
    await other.close(SOON_S)


async def test_taking_over(house: House) -> None:
    """The ends of a dead process reach the database, what it left open is brought to its end, and its limits are given
    back, before the database is there."""
    dead = house.keeper()
    await serve(dead, "r1")
    (await dead.admit(admission("r2"))).sent(ROUTE)
    place = await dead.admit(admission("r3"))
    place.sent(ROUTE)
    place.moved(4, 1.0)
    await dead.admit(admission("r4"))
    await house.dies(dead)
    house.shelf.is_away = True

    other = house.keeper()
    other.start()
    await house.shelf.asked.wait()
    settled = {**house.counters.settled}
    house.shelf.is_away = False
    await house.shelf.has(4)
    await house.adopted()
    await other.close(SOON_S)

    assert house.counters.places == dict.fromkeys(settled, admission("r1").key_id)
    assert settled == {"r1": Spent(33, 33, 41_000), "r2": Spent(11, 0, 0), "r3": Spent(15, 30, 23_000), "r4": Spent()}
    assert {name: entry.writer for name, entry in house.shelf.entries.items()} == dict.fromkeys(settled, "writer-1")
    assert ("adopted", "writer-1", 1, 3) in house.log
    assert list(house.root.iterdir()) == []


async def test_taking_over_what_limits_were_being_asked(house: House) -> None:
    """Of a process that dies between the record of an admission and its limits' word nothing is told or owed, and what
    it may hold is given back; with their word it is a call, though it had been sent nowhere."""
    dead = house.keeper()
    await begin_early(dead)
    await house.dies(dead)

    other = house.keeper()
    other.start()
    await house.adopted()
    await other.close(SOON_S)

    see_early_ends(house.shelf, house.counters)
    assert ("adopted", "writer-1", 1, 2) in house.log


async def test_interrupted_answers_are_billed_as_is_said_now(house: House) -> None:
    """What was open in a dead process is brought to its end by the setting in force then, and not by that of old."""
    dead = house.keeper()
    place = await dead.admit(admission("r1"))
    place.sent(ROUTE)
    place.moved(4, 1.0)
    await house.dies(dead)

    other = house.keeper()
    house.bills_interrupted = False
    other.start()
    await house.shelf.has(1)
    await house.adopted()
    await other.close(SOON_S)

    assert house.counters.settled == {"r1": Spent(15, 0, 0)}


async def test_counters_hear_what_the_database_has(house: House) -> None:
    """Not before it has it: until then lost counters have to be told of it again."""
    house.shelf.is_away = True
    keeper = house.keeper()
    keeper.start()
    await serve(keeper, "r1")
    await serve(keeper, "r2")
    await asyncio.sleep(0.3)  # longer than the drain waits for company

    before = [*house.counters.known]
    house.shelf.is_away = False
    await house.shelf.has(2)
    await keeper.close(SOON_S)

    assert (before, house.counters.known) == ([], ["r1", "r2"])


async def test_old_ends_are_not_counted_again(house: House) -> None:
    """Counters know a call again for two minutes: what ended longer ago was settled by its own process."""
    dead = house.keeper()
    await dead.admit(admission("old"))
    dead.record(ended("old", settled_ms=int(NOW_S * 1000) - 61_000))
    await house.dies(dead)

    other = house.keeper()
    other.start()
    await house.shelf.has(1)
    await house.adopted()
    await other.close(SOON_S)

    assert house.counters.settled == {}


async def test_what_is_held_of_the_dead(house: House) -> None:
    """Nothing that a dead process holds waits for its expiry: what it had not come to record it had sent nowhere, and
    of an end, however old, its last word may have been lost. Counters that are away for a moment are asked again."""
    dead = house.keeper()
    for name, age_ms in (("old", 61_000), ("other", 61_000)):
        await dead.admit(admission(name))
        dead.record(ended(name, settled_ms=int(NOW_S * 1000) - age_ms))
    await house.dies(dead)
    house.counters.held = {"writer-1": ["old", "unrecorded"], "writer-2": ["living"]}
    house.counters.is_away = True

    other = house.keeper()
    other.start()
    await house.shelf.has(2)
    await other.close(SOON_S)

    assert house.counters.settled == {"old": Spent(33, 33, 41_000), "unrecorded": Spent()}


async def test_a_damaged_file(house: House) -> None:
    """What can be read of a damaged file is taken, a copy is put aside, and the operator is told (D7)."""
    dead = house.keeper()
    for number in range(5):
        await serve(dead, f"r{number}")
    await house.dies(dead)
    path = dead.spool.home.path / name_of(1)
    data = bytearray(path.read_bytes())
    data[300] ^= 0xFF
    path.write_bytes(data)

    other = house.keeper()
    other.start()
    await house.shelf.has(5)
    await house.adopted()
    await other.close(SOON_S)

    ((_, place, damage),) = [line for line in house.log if line[0] == "damaged"]
    assert (place, damage.is_tail) == (QUARANTINE, False)
    assert isinstance(damage, Damage)
    assert [path.name for path in house.root.iterdir()] == [QUARANTINE]


async def test_a_torn_tail(house: House) -> None:
    """A record that a killed process had not come to the end of is no damage: no copy is kept, nobody is alarmed."""
    dead = house.keeper()
    for number in range(5):
        await serve(dead, f"r{number}")
    await house.dies(dead)
    with (dead.spool.home.path / name_of(1)).open("r+b") as file:
        file.seek(dead.spool.written.offset)
        file.write(frame(b"x" * 300)[:200])

    other = house.keeper()
    other.start()
    await house.shelf.has(5)
    await house.adopted()
    await other.close(SOON_S)

    assert [line for line in house.log if line[0] in ("damaged", "torn")] == [("torn", "writer-1", 200)]
    assert [*house.root.iterdir()] == []


async def test_a_torn_file_that_others_follow(house: House) -> None:
    """In the middle of a journal it is damage: a process goes on in a new file only after a disk that failed."""
    dead = house.keeper()
    await serve(dead, "r0")
    await house.dies(dead)
    whole = (dead.spool.home.path / name_of(1)).read_bytes().rstrip(b"\0")
    (dead.spool.home.path / name_of(1)).write_bytes(whole + frame(b"x" * 300)[:200])
    (dead.spool.home.path / name_of(2)).write_bytes(whole)

    other = house.keeper()
    other.start()
    await house.shelf.has(1)
    await house.adopted()
    await other.close(SOON_S)

    assert [line[0] for line in house.log if line[0] in ("damaged", "torn")] == ["damaged"]


@pytest.mark.parametrize("is_back", [True, False])
async def test_an_end_amid_an_outage(house: House, is_back: bool) -> None:
    """What was read and not written when the process has to go is not lost: written at the end, or by the next one."""
    house.shelf.is_away = True
    keeper = house.keeper()
    keeper.start()
    await serve(keeper, "r1")
    await house.shelf.asked.wait()

    house.shelf.is_away = not is_back
    await keeper.close(0.5)
    left = [path.name for path in house.root.iterdir()]
    house.shelf.is_away = False
    other = house.keeper()
    other.start()
    await house.shelf.has(1)
    if not is_back:
        await house.adopted()
    await other.close(SOON_S)

    assert left == ([] if is_back else ["journal-1"])
    assert house.shelf.order == ["r1"]
    assert list(house.root.iterdir()) == []


async def test_an_end_that_cannot_wait(house: House) -> None:
    """A process that has to go leaves what the database does not take in time to the next one."""
    house.shelf.is_away = True
    keeper = house.keeper()
    keeper.start()
    await serve(keeper, "r1")

    await keeper.close(0.3)
    house.shelf.is_away = False
    other = house.keeper()
    other.start()
    await house.shelf.has(1)
    await house.adopted()
    await other.close(SOON_S)

    assert house.shelf.order == ["r1"]
    assert list(house.root.iterdir()) == []


async def test_an_end_amid_the_end(house: House) -> None:
    """What is recorded while the process waits for the database as its last act is not removed with the journal."""
    house.shelf.delay_s = 0.2
    keeper = house.keeper()
    await serve(keeper, "r1")
    (await keeper.admit(admission("r2"))).sent(ROUTE)

    closing = asyncio.create_task(keeper.close(SOON_S))
    await house.shelf.asked.wait()
    keeper.record(ended("r2"))
    await closing

    assert house.shelf.order == ["r1", "r2"]
    assert list(house.root.iterdir()) == []


async def test_an_end_amid_the_last_turn(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is recorded as the spool is closed, when the database has all else, is carried too, and nobody waits for
    it for ever."""
    keeper = house.keeper()
    keeper.start()
    await serve(keeper, "r1")
    (await keeper.admit(admission("r2"))).sent(ROUTE)
    await house.shelf.has(1)
    await keeper._empty()
    close = keeper.spool.close

    async def closing(timeout_s: float) -> bool:
        is_whole = await close(timeout_s)
        keeper.record(ended("r2"))  # in the very turn of the loop
        return is_whole

    monkeypatch.setattr(keeper.spool, "close", closing)
    await keeper.close(SOON_S)

    assert house.shelf.order == ["r1", "r2"]
    assert list(house.root.iterdir()) == []


async def test_an_end_behind_the_end(house: House) -> None:
    """A call that outlives the journal's close comes to its own end: nobody else reckons it meanwhile, and then the
    next process has that end."""
    keeper, other = house.keeper(), house.keeper()
    (await keeper.admit(admission("r1"))).sent(ROUTE)
    await keeper.close(SOON_S)

    other.start()
    await other.taken_over()
    keeper.record(ended("r1"))
    keeper.spool.home.release()  # as the kernel, at the end of the process
    await house.shelf.has(1)
    await house.adopted()
    await other.close(SOON_S)

    assert house.shelf.entries["r1"].receipt == ended("r1")
    assert list(house.root.iterdir()) == []


async def test_an_end_amid_a_removal(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has to go while it removes a journal closes the lock's descriptor once: the next file has it."""
    begun, goes_on, is_over = (threading.Event() for _ in range(3))
    remove = Home.remove

    def slow(home: Home) -> None:
        begun.set()
        goes_on.wait(SOON_S)
        remove(home)
        is_over.set()

    dead, other = house.keeper(), house.keeper()
    await serve(dead, "r1")
    await house.dies(dead)
    with monkeypatch.context() as patched:
        patched.setattr(Home, "remove", slow)
        other.start()
        await asyncio.to_thread(begun.wait, SOON_S)
        for task in other._running:
            task.cancel()
        await asyncio.wait(other._running)
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]  # the lowest numbers there are
    goes_on.set()
    await asyncio.to_thread(is_over.wait, SOON_S)
    await other.close(SOON_S)

    for file in files:
        os.close(file)
    assert list(house.root.iterdir()) == []


@pytest.mark.usefixtures("both_ways")
async def test_files_that_somebody_takes_away(house: House) -> None:
    """Every call comes into the database, those before the loss and those behind it, without another one to come."""
    house.shelf.delay_s = 0.3
    keeper = house.keeper()
    keeper.start()
    await serve(keeper, "r1")
    await house.shelf.asked.wait()
    await serve(keeper, "r2")
    await keeper.spool.admit(admission("r3"))  # on the disk, and so is the end of r2

    shutil.rmtree(house.root)
    await house.shelf.has(2)
    keeper.record(ended("r3"))
    await house.shelf.has(3)
    await serve(keeper, "r4")
    shutil.rmtree(house.root)
    await keeper.close(SOON_S)

    assert sorted(house.shelf.entries) == ["r1", "r2", "r3", "r4"]
    assert keeper.backlog == 0
    assert list(house.root.iterdir()) == []
    assert ("failed",) in house.log
    assert not [line for line in house.log if line[0] == "crash"]


@pytest.mark.usefixtures("from_files")
async def test_no_file_can_be_opened_for_a_while(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is read again when that can be done; the operator is told once (D9)."""
    tries = 0

    def refuse(*_: object) -> bytes:
        nonlocal tries
        tries += 1
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    keeper = house.keeper()
    keeper.start()
    with monkeypatch.context() as patched:
        patched.setattr(keeping, "RETRY_S", 0.01)
        patched.setattr(Reader, "_read", refuse)
        await serve(keeper, "r1")
        async with asyncio.timeout(SOON_S):
            while tries < 2:  # noqa: ASYNC110 - nothing else happens at the last one
                await asyncio.sleep(0.01)
    await house.shelf.has(1)
    await keeper.close(SOON_S)

    assert house.log == [("unreadable", keeper.spool.home.path.name, "OSError")]


async def test_more_than_is_kept_at_hand(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the database is away longer than ends are kept, the files have them; then nothing is read any more."""
    monkeypatch.setattr(spool_module, "AT_HAND", 3)
    names = [f"r{number}" for number in range(10)]
    house.shelf.is_away = True
    keeper = house.keeper()
    keeper.start()
    for name in names:
        await serve(keeper, name)
        await asyncio.sleep(0.05)  # each of them for itself

    house.shelf.is_away = False
    await house.shelf.has(10)
    async with asyncio.timeout(SOON_S):
        while keeper.spool._ends is None:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)
    monkeypatch.setattr(Reader, "_read", None)
    await serve(keeper, "r10")
    await keeper.close(SOON_S)

    assert [*dict.fromkeys(house.shelf.order)] == [*names, "r10"]
    assert keeper.backlog == 0


async def test_ends_that_a_disk_did_not_take(house: House) -> None:
    """They come into the database with what the disk takes next, and nothing beside them is lost."""
    keeper = house.keeper()
    await serve(keeper, "r1")
    await keeper.admit(admission("r2"))

    with full_disk(keeper.spool.home.path):
        keeper.record(ended("r2"))
        with pytest.raises(StoreUnavailable):
            await keeper.admit(admission("r3"))
        for _ in range(3):  # while they are in memory alone, whatever there is to be read
            await keeper._empty()
    keeper.start()
    await serve(keeper, "r4")
    await keeper.close(SOON_S)

    assert sorted(house.shelf.entries) == ["r1", "r2", "r4"]
    assert house.log == [("failed",)]


async def test_refusals_of_an_outage(house: House) -> None:
    """
    What is refused for the disk does not pile up until nothing of it has room any more: calls pass again as soon as
    one could, with the ends of those that cost something; and a disk that was full is no damage (D6).
    """
    keeper = house.keeper()
    keeper.start()
    await serve(keeper, "r1")
    await keeper.admit(admission("r2"))

    with full_disk(keeper.spool.home.path, room=100):
        for number in range(200):
            with pytest.raises(StoreUnavailable):
                await keeper.admit(admission(f"no{number}"))
            keeper.record(replace(ended(f"no{number}"), booking=None))
        keeper.record(ended("r2"))
        with pytest.raises(StoreUnavailable):
            await keeper.admit(admission("no"))
    with full_disk(keeper.spool.home.path, room=20_000):
        await serve(keeper, "r3")
    await house.shelf.has(3)
    await keeper.close(SOON_S)

    assert sorted(house.shelf.entries) == ["r1", "r2", "r3"]
    assert keeper.backlog == 0
    assert house.log == [("failed",)]


async def test_leaving_what_was_at_hand(house: House) -> None:
    """Ends whose carrying was cut short come again, in front of those behind them."""
    house.shelf.delay_s = SOON_S
    keeper = house.keeper()
    keeper.start()
    await serve(keeper, "r1")
    await house.shelf.asked.wait()

    house.shelf.delay_s = 0.0
    await serve(keeper, "r2")
    await keeper.close(SOON_S)

    assert house.shelf.order == ["r1", "r2"]


async def test_journals_that_are_none(house: House) -> None:
    """What lies among the journals and cannot be read is told of once, and keeps nobody from the others."""
    dead = house.keeper()
    await serve(dead, "r1")
    await house.dies(dead)
    (house.root / "journal-0").write_text("no folder")
    (house.root / "journal-01" / "lock").mkdir(parents=True)
    (house.root / "journal-02").mkdir()

    other = house.keeper()
    other.start()
    await house.shelf.has(1)
    await house.adopted()
    await other.close(SOON_S)

    assert [line[1] for line in house.log if line[0] == "unreadable"] == ["journal-0", "journal-01"]
    assert ("adopted", "writer-1", 1, 0) in house.log
