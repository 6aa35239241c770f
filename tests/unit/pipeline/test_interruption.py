"""The gateway leaves: whatever phase an exchange is in, it ends at once, and the client is told properly."""

from __future__ import annotations

import pytest

from gateway.core.errors import SHUTDOWN, GatewayError
from gateway.pipeline.services import Deadlines
from tests.support.notation import FIN, R, T
from tests.support.scripted_provider import EOF, NEVER, Play, status, tell
from tests.unit.pipeline.plays import HALF
from tests.unit.pipeline.scene import Scene, at

WAIT = status(500, EOF, retry_after="5")


@pytest.mark.parametrize(
    ("play", "stream"),
    [
        pytest.param(tell(head_s=NEVER), True, id="asking"),
        pytest.param(tell(R()), True, id="before the first token"),
        pytest.param(status(500, b"oh"), True, id="reading what failed"),
        pytest.param(WAIT, True, id="between two attempts"),
        pytest.param(tell(head_s=NEVER), False, id="json, asking"),
        pytest.param(HALF, False, id="json, reading"),
        pytest.param(status(500, b"oh"), False, id="json, reading what failed"),
        pytest.param(WAIT, False, id="json, between two attempts"),
    ],
)
async def test_before_the_commit(play: Play, stream: bool) -> None:
    """The client gets a plain 503 that it may retry elsewhere; no other route is asked."""
    scene = Scene(play, stream=stream)
    task = scene.start()
    await at(3.0)
    scene.interrupt(SHUTDOWN)

    with pytest.raises(GatewayError) as caught:
        await task
    outcome = await scene.end()

    assert (outcome, caught.value.kind.code, scene.receipt.total_ms) == ("failed", "shutting_down", 3_000.0)
    assert (scene.asked, scene.heard) == ([(0.0, "a")], [])
    assert scene.receipt.failure_class == "gateway_shutdown"


@pytest.mark.parametrize(
    "play",
    [
        pytest.param(tell(head_s=NEVER), id="asking"),
        pytest.param(tell(R()), id="before the first token"),
        pytest.param(status(500, b"oh", head_s=29.0), id="reading what failed"),
        pytest.param(tell(29.0, T("Hi")), id="stalled"),
        pytest.param(tell(29.0, *(T("Hi"), 0.25) * 40), id="flowing"),
    ],
)
async def test_after_the_commit(play: Play) -> None:
    """The client gets the error frame, the terminator and a proper end in the same instant."""
    scene = Scene(play, routes=("a", "b"))
    scene.start()
    await at(30.0)
    scene.interrupt(SHUTDOWN)

    outcome = await scene.end()

    assert (outcome, scene.asked, scene.left_s) == ("interrupted", [(0.0, "a")], 30.0)
    assert scene.heard[-3:] == [(30.0, "error gateway_shutdown"), (30.0, "[DONE]"), (30.0, "end")]
    assert (scene.attempts, scene.receipt.failure_reason) == ([("a", "failed")], "shutdown")


async def test_a_finished_answer() -> None:
    """One that only waits for its usage is ended well: nothing of it is missing."""
    scene = Scene(tell(T("Hi"), 1.0, FIN()), deadlines=Deadlines(usage_grace_s=50.0))
    scene.start()
    await at(3.0)
    scene.interrupt(SHUTDOWN)

    outcome = await scene.end()

    assert (outcome, scene.receipt.note, scene.attempts) == ("completed", "after_finish:shutdown", [("a", "ok")])
    assert scene.heard[3:] == [(3.0, word) for word in ("finish", "metadata", "[DONE]", "end")]


async def test_a_client_that_is_behind() -> None:
    """It has a moment to take the last frames; then it is cut off so that it cannot take them for a proper end."""
    scene = Scene(tell(T("Hi"), 1.0, T(" there")))
    scene.start()
    await at(0.5)
    scene.sink.stop_reading()
    await at(3.0)
    scene.interrupt(SHUTDOWN)

    outcome = await scene.end()

    assert (outcome, scene.left_s) == ("interrupted", 3.0)
    assert scene.heard[3:] == [
        (1.0, " there"), (3.0, "error gateway_shutdown"), (3.0, "[DONE]"), (4.5, "abort")
    ]  # fmt: skip


async def test_a_client_that_catches_up_in_that_moment() -> None:
    """It gets its proper end."""
    scene = Scene(tell(T("Hi"), 1.0, T(" there")))
    scene.start()
    await at(0.5)
    scene.sink.stop_reading()
    await at(3.0)
    scene.interrupt(SHUTDOWN)
    await at(4.0)
    scene.sink.read_on()

    assert (await scene.end(), scene.heard[-1]) == ("interrupted", (4.0, "end"))


@pytest.mark.parametrize(
    ("play", "deadlines"),
    [
        pytest.param(tell(T("Hi")), Deadlines(idle_s=3.0), id="of a deadline"),
        pytest.param(tell(T("Hi")), Deadlines(heartbeat_s=3.0), id="of a heartbeat"),
        pytest.param(tell(T("Hi"), 3.0, T(" there")), Deadlines(), id="of a frame"),
    ],
)
async def test_in_the_turn(play: Play, deadlines: Deadlines) -> None:
    """The interruption is what is told, and once; it was not the provider that was late."""
    scene = Scene(play, deadlines=deadlines)
    scene.start().get_loop().call_at(scene.exchange.started_s + 3.0, scene.interrupt, SHUTDOWN)

    outcome = await scene.end()

    assert (outcome, scene.receipt.failure_reason) == ("interrupted", "shutdown")
    assert scene.heard[3:] == [(3.0, word) for word in ("error gateway_shutdown", "[DONE]", "end")]
