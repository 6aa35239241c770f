"""An empty database of each kind, for tests that run on both."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.storage.database import Database
from gateway.storage.tables import metadata
from tests.support.postgres import Postgres

_numbers = itertools.count()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/gateway.db"
    cluster: Postgres = request.getfixturevalue("postgres")
    return cluster.create_database(f"contract_{next(_numbers)}")


@pytest_asyncio.fixture
async def database(url: str) -> AsyncIterator[Database]:
    """The way into it."""
    found = Database(url)
    yield found
    await found.close()


@pytest_asyncio.fixture
async def tabled(database: Database) -> Database:
    """As `database`, with this version's tables in it."""
    async with database.engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    return database
