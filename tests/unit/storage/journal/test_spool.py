"""The journal on disk: what waits for it, what does not, and what becomes of both when it fails."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.core.catalog import Provider, Route
from gateway.core.journal import Admitted, Grant, Opened, Progress, Record, Settled
from gateway.core.ports import StoreUnavailable
from gateway.core.usage import Usage
from gateway.storage.journal import segment_writer
from gateway.storage.journal import spool as spool_module
from gateway.storage.journal.homes import Home, journals_in, make_home, take
from gateway.storage.journal.reader import Reader
from gateway.storage.journal.segments import Found, numbers_in
from gateway.storage.journal.slots import progress_at, read_slots
from gateway.storage.journal.spool import Reports, Spool
from tests.support.disk import full_disk
from tests.unit.admissions import ONE, admission, ended

SOON_S = 5.0  # for what takes milliseconds
ROUTE = Route(Provider("openai", "openai_chat", "https://openai.test", "cloud_direct", "US", ONE), "gpt-x")


class Told:
    """What a spool reports, and an event for the last of it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.wrote = asyncio.Event()
        self.reports = Reports(
            lambda exc: self.log.append(f"failed {type(exc).__name__}"), lambda: self.log.append("restored"),
            lambda took_s: self.commits.append(took_s),
        )  # fmt: skip
        self.commits: list[float] = []

    async def next_write(self) -> None:
        self.wrote.clear()
        async with asyncio.timeout(SOON_S):
            await self.wrote.wait()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path, "1", "here:1:2")


@pytest_asyncio.fixture
async def told() -> Told:
    return Told()


@pytest_asyncio.fixture
async def spool(home: Home, told: Told) -> AsyncIterator[Spool]:
    spool = Spool(home, told.reports, told.wrote.set, segment_bytes=4096)
    yield spool
    await spool.close(SOON_S)


def written(home: Home) -> list[Record]:
    reader, records = Reader(home.path), list[Record]()
    while (piece := reader.next(100)) is not None:
        records += [found.record for found in piece.found if isinstance(found, Found)]
    return records


async def test_admitted_when_on_the_disk(spool: Spool, home: Home) -> None:
    """An exchange goes on when its admission can be read from the disk, and not before."""
    await spool.admit(admission("r1"))

    assert written(home) == [Admitted(admission("r1"), 0, 1)]


async def test_begun_before_limits_have_decided(spool: Spool, home: Home, told: Told) -> None:
    """What is begun goes to the disk at once and says so; that limits let it in is known as soon as it is kept, and
    what they granted with the first attempt."""
    begun = spool.begin(admission("r1", reserved_nano_usd=90_000))
    await told.next_write()
    before = progress_at(read_slots(home.path), 0, 1)

    place = await begun.kept(admission("r1", reserved_nano_usd=70_000, admitted_ms=1_000_007))
    after = progress_at(read_slots(home.path), 0, 1)
    place.sent(ROUTE)
    place.sent(ROUTE)
    await spool.close(SOON_S)

    assert (before, after) == (Progress(), Progress(is_granted=True))
    assert written(home) == [
        Admitted(admission("r1", reserved_nano_usd=90_000), 0, 1, is_early=True),
        Opened("r1", 0, 1, Grant(70_000, 1_000_007)),
        Opened("r1", 1, 1),
    ]


async def test_refused_by_limits(spool: Spool, home: Home, told: Told) -> None:
    """The receipt of a call that limits refuse ends what was begun of it, and leaves its place as one of no call."""
    spool.begin(admission("r1"))
    spool.record(ended("r1", booking=None, outcome="rejected"))
    left = progress_at(read_slots(home.path), 0, 1)
    while len(written(home)) < 2:
        await told.next_write()
    await spool.admit(admission("r2"))

    assert (left, spool.open) == (Progress(), 1)
    assert [type(record) for record in written(home)] == [Admitted, Settled, Admitted]
    last = written(home)[2]
    assert isinstance(last, Admitted)
    assert (last.admission, last.is_early) == (admission("r2"), False)


async def test_begun_on_a_full_disk(spool: Spool, home: Home, told: Told) -> None:
    """Who waits for what was begun is told that the disk does not take it; where limits have refused it, nobody is."""
    with full_disk(home.path):
        begun = spool.begin(admission("r1"))
        spool.begin(admission("r2"))
        spool.record(ended("r2", booking=None, outcome="rejected"))
        with pytest.raises(StoreUnavailable):
            await begun.kept(admission("r1"))
    await told.next_write()
    await spool.admit(admission("r3"))

    assert spool.open == 1
    assert [record.admission.request_id for record in written(home) if isinstance(record, Admitted)] == ["r3"]


async def test_many_at_once(spool: Spool, home: Home, told: Told) -> None:
    """All of a crowd are on the disk, with a fraction of the waits for it."""
    await asyncio.gather(*(spool.admit(admission(f"r{number}")) for number in range(200)))

    records = written(home)
    assert {record.admission.request_id for record in records if isinstance(record, Admitted)} == {
        f"r{number}" for number in range(200)
    }
    assert len(told.commits) < 50


async def test_ends_follow(spool: Spool, home: Home, told: Told) -> None:
    """The end is written soon, behind the admission and the attempts, though nobody waits."""
    place = await spool.admit(admission("r1"))
    place.sent(ROUTE)

    spool.record(ended("r1"))
    await told.next_write()

    assert written(home)[1:] == [Opened("r1", 0, 1), Settled(ended("r1"))]
    assert spool.open == 0


async def test_progress_outlives_the_process(spool: Spool, home: Home) -> None:
    """What an exchange notes can be read from the file at once; its end, too."""
    place = await spool.admit(admission("r1"))

    place.sent(ROUTE)
    place.moved(5, 12.5)
    running = progress_at(read_slots(home.path), 0, 1)
    spool.record(ended("r1", Usage(11, 22, 3), usage_basis="received", outcome="cancelled"))
    over = progress_at(read_slots(home.path), 0, 1)

    assert running == Progress((1,), 5)
    assert over == Progress((1,), 5, Usage(11, 22, 3), "received", "cancelled", is_granted=True)
    assert progress_at(read_slots(home.path), 0, 2) is None
    assert progress_at(b"", 0, 1) is None


async def test_a_place_is_not_given_away_before_its_end_is_written(spool: Spool, told: Told) -> None:
    """As long as the end stands in its place alone, nobody else gets that."""
    first = await spool.admit(admission("r1"))
    spool.record(ended("r1"))
    second = await spool.admit(admission("r2"))  # writes both
    third = await spool.admit(admission("r3"))

    assert [getattr(place, "place", None) for place in (first, second, third)] == [0, 1, 0]


async def test_more_than_there_are_places(home: Home, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exchange without a place is served, and its end is recorded."""
    monkeypatch.setattr("gateway.storage.journal.slots.SLOTS", 1)
    spool = Spool(home, told.reports, told.wrote.set)

    places = [await spool.admit(admission(f"r{number}")) for number in range(3)]
    for number, place in enumerate(places):
        place.sent(ROUTE)
        place.moved(3, 1.0)
        spool.record(ended(f"r{number}"))
    await spool.close(SOON_S)

    assert sum(isinstance(record, Settled) for record in written(home)) == 3


async def test_segments(spool: Spool, home: Home, told: Told) -> None:
    """A file that is full is followed by another, which has all that is open: the ones before it can go."""
    await spool.admit(admission("open"))
    for number in range(30):
        await spool.admit(admission(f"r{number}"))
        spool.record(ended(f"r{number}"))
    await told.next_write()

    numbers = numbers_in(home.path)
    for number in numbers[:-1]:
        (home.path / f"{number:08d}.log").unlink()
    left = written(home)

    assert len(numbers) > 5
    assert Admitted(admission("open"), 0, 1) in left


async def test_a_full_disk_refuses(spool: Spool, home: Home, told: Told) -> None:
    """When the disk takes nothing, nobody is let in, and ends wait; when it does again, they are written (D6)."""
    await spool.admit(admission("r1"))

    with full_disk(home.path):
        spool.record(ended("r1"))
        with pytest.raises(StoreUnavailable):
            await spool.admit(admission("r2"))
        with pytest.raises(StoreUnavailable):
            await spool.admit(admission("r3"))
        spool.record(ended("r3", booking=None))
        lines = [*told.log]
    await told.next_write()
    await spool.admit(admission("r4"))

    assert lines == ["failed OSError"]
    assert told.log == ["failed OSError", "restored"]
    ends = [record.receipt.request_id for record in written(home) if isinstance(record, Settled)]
    assert set(ends) == {"r1", "r3"}
    assert spool.open == 1


async def test_a_new_file_is_written_in_one_piece(
    spool: Spool, home: Home, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """
    Whoever empties the journal removes the files before the newest. Of what has ended that one has the end alone, so
    it must not be there without: a kill, or a disk that fails, in between would lose the exchange.
    """
    write_all, pieces = segment_writer._write_all, list[bytes]()
    monkeypatch.setattr(segment_writer, "_write_all", lambda file, *data: (pieces.append(data), write_all(file, *data)))
    for number in range(30):
        await spool.admit(admission(f"r{number}"))
        spool.record(ended(f"r{number}"))
    await told.next_write()

    assert len(numbers_in(home.path)) > 5
    assert len(pieces) == len(told.commits)


async def test_a_disk_that_hangs(
    spool: Spool, home: Home, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """A disk that does not even fail has callers refused in time (D6)."""
    monkeypatch.setattr(spool_module, "ADMIT_S", 0.1)
    pipe, end = os.pipe()
    write_all = segment_writer._write_all
    monkeypatch.setattr(segment_writer, "_write_all", lambda *data: (os.read(pipe, 1), write_all(*data)))

    with pytest.raises(StoreUnavailable):
        await spool.admit(admission("r1"))
    lines = [*told.log]
    os.write(end, b"1234")
    await told.next_write()
    await spool.admit(admission("r2"))

    assert lines == ["failed TimeoutError"]
    assert told.log == ["failed TimeoutError", "restored"]
    monkeypatch.undo()
    os.close(pipe)
    os.close(end)


async def test_leaving_while_the_disk_works(spool: Spool, home: Home, told: Told) -> None:
    """An exchange whose client leaves in the wait for the disk has an admission and an end like any other."""
    waiting = asyncio.create_task(spool.admit(admission("r1")))
    await asyncio.sleep(0)

    waiting.cancel()
    await asyncio.wait([waiting])
    spool.record(ended("r1", outcome="cancelled"))
    while len(written(home)) < 2:
        await told.next_write()

    assert [type(record) for record in written(home)] == [Admitted, Settled]
    assert spool.open == 0


@pytest.mark.parametrize("gone", ["file", "journal", "root"])
async def test_somebody_takes_the_files_away(spool: Spool, home: Home, told: Told, gone: str) -> None:
    """What is not in the database is written again, as is the place with its lock and all progress; it is told of."""
    place = await spool.admit(admission("r1"))
    place.moved(4, 1.0)
    await spool.admit(admission("r2"))
    spool.record(ended("r2"))
    await told.next_write()

    if gone == "file":
        (home.path / "00000001.log").unlink()
    else:
        shutil.rmtree(home.path if gone == "journal" else home.path.parent)
    await spool.admit(admission("r3"))
    place.moved(5, 2.0)

    admitted = {record.admission.request_id for record in written(home) if isinstance(record, Admitted)}
    assert admitted >= {"r1", "r3"}
    assert Settled(ended("r2")) in written(home)
    assert progress_at(read_slots(home.path), 0, 1) == Progress((), 5)
    assert told.log == ["failed FileNotFoundError", "restored"]
    assert abandoned(home.path.parent) == []
    assert journals_in(home.path.parent) == [home.path]


async def test_what_is_left_at_the_end(home: Home, told: Told) -> None:
    """Closing writes what was recorded last."""
    spool = Spool(home, told.reports, told.wrote.set)

    await spool.admit(admission("r1"))
    spool.record(ended("r1"))
    is_whole = await spool.close(SOON_S)

    assert is_whole
    assert [type(record) for record in written(home)] == [Admitted, Settled]


async def test_behind_the_end(home: Home, told: Told) -> None:
    """Once it is closed a spool lets nobody in, and the ends of those that it has let in are on the disk at once."""
    spool = Spool(home, told.reports, told.wrote.set)
    await spool.admit(admission("r1"))

    is_whole = await spool.close(SOON_S)
    with pytest.raises(StoreUnavailable):
        await spool.admit(admission("r2"))
    spool.record(ended("r1"))

    assert is_whole
    assert spool.is_whole
    assert written(home) == [Admitted(admission("r1"), 0, 1), Settled(ended("r1"))]


async def test_places_of_an_outage(spool: Spool, home: Home, told: Told) -> None:
    """The places of ends that the disk did not take are free again when it has taken them."""
    await spool.admit(admission("r1"))
    with full_disk(home.path):
        spool.record(ended("r1"))
        with pytest.raises(StoreUnavailable):
            await spool.admit(admission("r2"))
    await told.next_write()

    places = [await spool.admit(admission(name)) for name in ("r3", "r4")]

    assert {getattr(place, "place", None) for place in places} == {0, 1}


def abandoned(root: Path) -> list[Home]:
    return [home for path in journals_in(root) if (home := take(path)) is not None]


def test_locks(tmp_path: Path) -> None:
    """A journal whose process lives is nobody else's; one that is left is one taker's, once."""
    mine = make_home(tmp_path, "1", "me")
    left = make_home(tmp_path, "2", "dead")

    while_both_live = abandoned(tmp_path)
    left.release()
    (taken,) = abandoned(tmp_path)
    while_it_is_taken = abandoned(tmp_path)
    taken.remove()

    assert (while_both_live, while_it_is_taken, abandoned(tmp_path)) == ([], [], [])
    assert taken.writer == "dead"
    assert abandoned(tmp_path / "none") == []
    mine.remove()
    assert list(tmp_path.iterdir()) == []


def test_killed_in_a_removal(tmp_path: Path) -> None:
    """Of a journal whose remover was killed before the last file nothing is left, and nothing is taken over."""
    left = make_home(tmp_path, "1", "dead")
    (left.path / "writer").unlink()
    left.release()

    assert abandoned(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
