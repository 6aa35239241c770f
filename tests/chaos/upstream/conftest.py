from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import uvloop

from gateway.upstream.client import AiohttpUpstream
from tests.chaos.upstream.raw_peer import RawPeer, client, crashes


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Both loops: the production server runs on uvloop, whose sockets close differently."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def no_crash() -> Iterator[None]:
    crashes.clear()
    yield
    assert crashes == []


@pytest.fixture
async def upstream() -> AsyncIterator[AiohttpUpstream]:
    made = client()
    yield made
    await made.close()


@pytest.fixture
async def peer() -> AsyncIterator[RawPeer]:
    async with RawPeer() as raw:
        yield raw
