"""What nobody had thought of, in the middle of emptying journals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.storage.journal import keeping
from gateway.storage.journal.homes import LOCK, journals_in, make_home, take
from gateway.storage.writing import Entry
from tests.unit.storage.journal.test_keeping import SOON_S, House, serve


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setattr(keeping, "STUMBLED_S", 0.01)
    monkeypatch.setattr(keeping, "ADOPT_S", 0.01)
    return House(tmp_path / "spool")


def break_writing(house: House, monkeypatch: pytest.MonkeyPatch, times: int) -> list[str]:
    """Have the database's writer fail for a mistake of ours so often, or for ever; whom that was for."""
    tries: list[str] = []
    write = house.shelf.write

    async def fail(entries: Sequence[Entry]) -> None:
        if len(tries) < times:
            tries.append(entries[0].writer)
            raise TypeError("a mistake of ours")
        await write(entries)

    monkeypatch.setattr(house.shelf, "write", fail)
    return tries


async def test_a_mistake_of_ours(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told of once, as an internal error, and the journal is emptied as soon as that can be done."""
    tries = break_writing(house, monkeypatch, 3)
    keeper = house.keeper()
    keeper.start()

    await serve(keeper, "r1")
    await house.shelf.has(1)
    await keeper.close(SOON_S)

    assert len(tries) == 3
    assert [(line[0], line[1], type(line[2])) for line in house.log] == [("crash", "journal.drain", TypeError)]


async def test_a_mistake_to_the_end(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that never gets over it ends in order, and leaves its journal to others."""
    break_writing(house, monkeypatch, 10**9)
    keeper = house.keeper()
    await serve(keeper, "r1")

    await keeper.close(SOON_S)

    assert [line[:2] for line in house.log] == [("crash", "journal.drain")]
    assert journals_in(house.root) == [keeper.spool.home.path]


async def test_a_mistake_with_one_journal(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with one journal of the dead keeps none of the others; it is taken when that can be done."""
    for name in ("r1", "r2"):
        dead = house.keeper()
        await serve(dead, name)
        await house.dies(dead)
    tries = break_writing(house, monkeypatch, 1)
    keeper = house.keeper()

    keeper.start()
    await house.shelf.has(2)
    await keeper.close(SOON_S)

    assert tries == ["writer-1"]
    assert house.shelf.order == ["r2", "r1"]
    assert [line[:2] for line in house.log if line[0] == "crash"] == [("crash", "journal.adopt journal-1")]


def test_killed_while_it_removes(tmp_path: Path) -> None:
    """Wherever a process is killed that removes a journal, nothing of it stays."""
    for count in (1, 2):
        home = make_home(tmp_path, str(count), "writer")
        for name in ("writer", LOCK)[:count]:
            (home.path / name).unlink()
        home.release()

    taken = [take(path) for path in journals_in(tmp_path)]

    assert taken == [None, None]
    assert journals_in(tmp_path) == []
