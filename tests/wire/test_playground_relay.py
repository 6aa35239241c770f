"""Runs of the playground with a relay that stands for the pipeline: what is told of a bug, and what is left behind."""

from __future__ import annotations

import asyncio
import gc
import re
import time
import weakref
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

from aiohttp import web
from msgspec.structs import replace

from gateway.aio import Tasks
from gateway.core.accounts import Key, Tier
from gateway.core.call import CallOptions
from gateway.core.exchange import Exchange
from gateway.core.ports import Sink
from gateway.dialects.openai_chat import read_call
from gateway.http.playground import Playground, Run
from gateway.http.sinks import StreamSink
from gateway.pipeline.services import Deadlines, Services
from gateway.siblings import Siblings
from tests.support.door import open_door, request
from tests.support.frames import parsed
from tests.support.panels import by_panel

PipelineRun = Callable[[Exchange, Sink], Awaitable[None]]


async def run_by(
    relay: PipelineRun, request: web.BaseRequest, tasks: Tasks, left: list[weakref.ref[Any]]
) -> web.StreamResponse:
    """The answer to a streaming run of panels "a" and "b", for each of which *relay* stands for the pipeline."""
    call = read_call(b'{"model":"m","messages":[{"role":"user"}],"stream":true}', CallOptions(), ())
    lead = Exchange("req_1", "t", "playground", call, Key("k", "acme", Tier("t")), 0.0)
    clock = SimpleNamespace(monotonic_s=time.monotonic)
    services = SimpleNamespace(deadlines=Deadlines(), clock=clock, headers=lambda exchange, receipt: ())
    each = {panel: replace(lead, request_id=f"req_1-{panel}", attempts=[]) for panel in "ab"}
    made = Run("run_1", StreamSink(request), cast(Services, services), lead, each)
    left.append(weakref.ref(made))
    answer = await Playground(tasks, Siblings()).run(made, relay)
    assert isinstance(answer, web.StreamResponse)
    return answer


async def test_a_panel_that_crashes() -> None:
    """A bug of ours in one panel is told in its frame and reported once; the others go on to a clean end."""
    crashes: list[tuple[str, str]] = []
    tasks = Tasks(lambda name, exc: crashes.append((name, str(exc))))

    async def relay(exchange: Exchange, sink: Sink) -> None:
        sink.open(())
        sink.write(b'data: {"choices":[]}\n\n')
        if exchange.request_id == "req_1-a":
            raise RuntimeError("a bug")
        await asyncio.sleep(0)
        sink.close(b'data: {"choices":[]}\n\ndata: [DONE]\n\n')

    async with open_door(lambda got: run_by(relay, got, tasks, [])) as door:
        reply = await door.raw(request("/anoman", "Connection: close"))

    said = by_panel(parsed(re.findall(rb"data: .*\n\n", reply)))
    assert [item.get("error", {}).get("code") for item in said["a"]] == [None, "internal_error"]
    assert [list(item) for item in said["b"]] == [["choices"], ["choices"]]
    assert reply.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert crashes == [("panel req_1-a", "a bug")]


async def test_a_run_leaves_no_cycle() -> None:
    """What it leaves is freed at once, like what one stream leaves."""
    left: list[weakref.ref[Any]] = []
    tasks = Tasks(lambda name, exc: None)

    async def relay(exchange: Exchange, sink: Sink) -> None:
        left.append(weakref.ref(sink))
        sink.on_leave(sink.abort)
        sink.open(())
        sink.write(b'data: {"choices":[]}\n\n')
        sink.close(b'data: {"choices":[]}\n\ndata: [DONE]\n\n')

    gc.disable()
    try:
        async with open_door(lambda got: run_by(relay, got, tasks, left)) as door:
            body = await door.raw(request("/anoman", "Connection: close"))

            assert body.count(b'"panel":"a"') == body.count(b'"panel":"b"') == 2
            assert [ref() for ref in left] == [None] * 3
    finally:
        gc.enable()
