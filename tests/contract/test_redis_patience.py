"""How long a process waits for Redis: for its silence, not for what the process itself is held up by."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from gateway.aio import Tasks
from gateway.storage import redis_script
from gateway.storage.redis_link import RedisFailed, open_link
from gateway.storage.redis_upkeep import NOBODY, SharingRules, Upkeep
from tests.support.redis import Redis, server

HELD_UP_S = 0.3  # longer than anybody waits for Redis


@pytest.fixture
def redis() -> Iterator[Redis]:
    with server() as running:
        yield running


async def hold_up() -> None:
    """Keep the loop from everything else."""
    time.sleep(HELD_UP_S)  # noqa: ASYNC251 - as a busy machine does


async def test_a_loop_that_is_held_up(redis: Redis) -> None:
    """A command whose process could neither write nor read for a while has its reply in the end."""
    link = await open_link(redis.url, lambda: None, timeout_s=5.0)

    replies = await asyncio.gather(link.ask("PING", timeout_s=0.1), hold_up(), link.ask("PING", timeout_s=0.1))
    link.close()

    assert replies == ["PONG", None, "PONG"]


async def test_a_short_silence_is_one_failure(redis: Redis) -> None:
    """Commands that waited through the same silence do not make Redis given up, however many they are."""
    told: list[bool] = []
    tasks = Tasks(lambda name, exc: None)
    upkeep = Upkeep(redis.url, SharingRules(), tasks, on_change=told.append, observer=NOBODY)
    await upkeep.start()

    redis.freeze()
    asked = [upkeep.ask(redis_script.tick("")) for _ in range(20)]
    failed = await asyncio.gather(*asked, return_exceptions=True)
    redis.thaw()
    await asyncio.sleep(0.2)
    await upkeep.ask(redis_script.tick(""))
    await upkeep.close()

    assert {type(one) for one in failed} == {RedisFailed}
    assert told == []


async def test_a_long_silence_is_noticed_without_calls(redis: Redis) -> None:
    """After a first failure the process asks by itself, and gives Redis up within half a second."""
    told: list[bool] = []
    tasks = Tasks(lambda name, exc: None)
    upkeep = Upkeep(redis.url, SharingRules(), tasks, on_change=told.append, observer=NOBODY)
    await upkeep.start()

    redis.freeze()
    with pytest.raises(RedisFailed):
        await upkeep.ask(redis_script.tick(""))
    async with asyncio.timeout(1.5):  # three times that, for a busy machine
        while not told:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.01)
    redis.thaw()
    await upkeep.close()

    assert told == [True]
