"""Words that guards hold back of a stream, and when the watch lets them go."""

from __future__ import annotations

import asyncio

from gateway.pipeline.stream_watch import StreamWatch
from tests.support.notation import T
from tests.unit.dialects.conversations import openai
from tests.unit.pipeline.plays import GOOD
from tests.unit.pipeline.scene import Scene

HOLD_S = 0.04


class Held:
    has_ended = False

    def ease(self) -> bytes:
        return T("held")


async def test_silence() -> None:
    """They leave once nothing has come for the time that they are held."""
    scene = Scene(GOOD)
    watch = StreamWatch(scene.services, scene.exchange, scene.sink, Held())
    watch.commit()
    watch.started(openai())
    watch.hold(watch.now_s(), HOLD_S)
    await asyncio.sleep(HOLD_S)

    watch.tick()

    assert [word for _, word in scene.heard] == ["200", "held"]


async def test_the_rest_of_an_answer_begins() -> None:
    """
    What a part that broke has armed is over when the rest starts: its first frame is yet to be written, and words held
    back behind it may not leave in front of it.
    """
    scene = Scene(GOOD)
    watch = StreamWatch(scene.services, scene.exchange, scene.sink, Held())
    watch.commit()
    watch.started(openai())
    watch.hold(watch.now_s(), HOLD_S)
    watch.await_rest()
    watch.started(openai())
    await asyncio.sleep(HOLD_S)

    watch.tick()

    assert [word for _, word in scene.heard] == ["200"]
