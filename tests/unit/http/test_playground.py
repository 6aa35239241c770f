"""What becomes of a panel in the very moment in which it is not wanted any more."""

from __future__ import annotations

import asyncio
from typing import cast

from gateway.core.exchange import Exchange
from gateway.http.panels import PanelSink, SharedStream
from gateway.http.playground import Panel


def panel_of(task: asyncio.Task[None]) -> Panel:
    """A panel that *task* runs; nothing is written for it."""
    return Panel(cast(Exchange, None), PanelSink(cast(SharedStream, None), "a"), task)


async def test_dropping_is_done_at_once() -> None:
    """When a panel is dropped its upstream is closed and its task told before anybody else has a turn; once only."""
    never = asyncio.Event()
    task = asyncio.ensure_future(never.wait())
    panel = panel_of(cast("asyncio.Task[None]", task))
    left: list[int] = []
    panel.sink.on_leave(lambda: left.append(1))

    panel.drop()
    told = task.cancelling()
    panel.drop()

    assert (left, told, task.cancelling()) == ([1], 1, 1)
    await asyncio.wait([task])


async def test_the_second_cancel_finds_nothing() -> None:
    """Of two that cancel a panel at once one is told that there was one; a panel that is through is none to cancel."""
    never = asyncio.Event()
    task = asyncio.ensure_future(never.wait())
    panel = panel_of(cast("asyncio.Task[None]", task))

    found = [panel.cancel(), panel.cancel()]
    await asyncio.wait([task])
    through = panel_of(cast("asyncio.Task[None]", task)).cancel()

    assert (found, through) == ([True, False], False)
