"""The simplest watch there is, and what a test does with it."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.errors import Failure, UpstreamFailed
from gateway.pipeline.watch import JsonWatch
from tests.support.virtual_time import START_S
from tests.unit.pipeline.scene import Scene

LIMIT_S = 100.0  # for a request without streaming


def watching() -> JsonWatch:
    """One deadline, at second 100."""
    scene = Scene()
    return JsonWatch(scene.services, scene.sink, START_S)


async def silence() -> None:
    """A step that never ends by itself."""
    await asyncio.get_running_loop().create_future()


async def failure_of(watch: JsonWatch) -> Failure:
    """How a step that never ends does end."""
    with pytest.raises(UpstreamFailed) as caught:
        await watch.until(silence)
    return caught.value.failure


def cancelling() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()
