"""A cancellation in the very turn of the loop in which the upstream answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.aio import Tasks
from gateway.core.call import UpstreamRequest
from gateway.core.exchange import NOWHERE
from gateway.pipeline.services import Clock, Deadlines
from gateway.pipeline.stream_watch import StreamWatch


class Upstream:
    """Implements `Upstream` and `Asking`: answers when told to. `unclosed` counts the connections nobody has closed."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.unclosed = 0

    def ask(self, request: UpstreamRequest, on_sent: Callable[[], None]) -> Upstream:
        self.unclosed = 1
        return self

    async def answer(self) -> Any:
        await self.go.wait()
        return SimpleNamespace(close=self.close)

    def close(self) -> None:
        self.unclosed = 0


@pytest.mark.parametrize("turns", range(6))
async def test_an_answer_is_taken_or_closed(turns: int) -> None:
    """However many turns lie between answer and cancellation, the answer is handed over or its socket closed."""
    upstream, crashes = Upstream(), list[BaseException]()
    tasks = Tasks(lambda name, exc: crashes.append(exc))
    clock = Clock(time.monotonic, time.time, lambda: 0.0)
    services = SimpleNamespace(upstream=upstream, tasks=tasks, clock=clock, deadlines=Deadlines())
    call = SimpleNamespace(dialect="openai_chat")
    exchange = SimpleNamespace(started_s=time.monotonic(), call=call, place=NOWHERE)
    sink = SimpleNamespace(committed=False, on_leave=lambda leave: None)
    watch = StreamWatch(cast(Any, services), cast(Any, exchange), cast(Any, sink))
    asking = asyncio.create_task(watch.ask(UpstreamRequest("http://provider.test/", (), b""), lambda: None))
    for _ in range(3):
        await asyncio.sleep(0)  # until it waits

    upstream.go.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    asking.cancel()
    (outcome,) = await asyncio.gather(asking, return_exceptions=True)
    await tasks.drain(1)
    watch.close()

    assert upstream.unclosed == (0 if isinstance(outcome, asyncio.CancelledError) else 1)
    assert crashes == []
