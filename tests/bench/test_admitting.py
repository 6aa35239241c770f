"""What `tests.bench.admitting` measures are calls that are let in, and on the books; nothing here looks at a clock."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.postgres import cluster
from tests.support.redis import server

from .admitting import AT_ONCE, disk_ms, measure, place, told

CHARGES = "SELECT count(*) FROM ledger WHERE kind = 'charge'"


async def test_embedded(tmp_path: Path) -> None:
    """Each admission that was timed is a call that the ledger has."""
    async with place(f"sqlite:///{tmp_path / 'bench.db'}", "", tmp_path) as at:
        took_ms = await measure(at, warm_s=0, run_s=0)
    with closing(sqlite3.connect(tmp_path / "bench.db")) as database:
        ((charges,),) = database.execute(CHARGES)

    assert len(took_ms) == charges == AT_ONCE


async def test_with_stores(tmp_path: Path) -> None:
    """So it is with PostgreSQL and Redis."""
    with cluster() as postgres, server() as redis:
        async with place(postgres.create_database("bench"), redis.url, tmp_path) as at:
            took_ms = await measure(at, warm_s=0, run_s=0)
        charges = int(postgres.sql(CHARGES, "bench"))

    assert len(took_ms) == charges == AT_ONCE


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """A line has how many there were, their middle, the 99th of a hundred, and the most."""
    told("disk", [float(number) for number in range(1, 102)])

    assert capsys.readouterr().out.split() == ["disk", "101", "51.00", "100.98", "101.0"]


def test_the_disk(tmp_path: Path) -> None:
    """Each write of the disk's line is there, as long as a record."""
    took_ms = disk_ms(tmp_path)

    assert (tmp_path / "probe").stat().st_size == 400 * len(took_ms)
