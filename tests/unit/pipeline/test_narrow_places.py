"""Where two deadlines, or a deadline and somebody's leaving, meet."""

from __future__ import annotations

from gateway.core.call import CallOptions
from gateway.core.errors import SHUTDOWN
from gateway.dialects.registry import DIALECTS
from tests.support.notation import DONE, FIN, T, U, data
from tests.support.scripted_provider import EOF, NEVER, status, tell
from tests.unit.pipeline.plays import GOOD, STREAM_AND_JSON
from tests.unit.pipeline.scene import Scene, at

TWO_CHOICES = b'{"model":"m","stream":true,"n":2,"messages":[{"role":"user","content":"Hello there"}]}'
HALF_A_USAGE = data({"id": "c1", "choices": [], "usage": {"completion_tokens": 1}})


async def test_no_attempt_is_waited_for_across_the_commit() -> None:
    """One that could only start after commit_after_s would start behind the 200: the client is told at once instead."""
    scene = Scene(status(500, EOF, head_s=18.0, retry_after="4"), GOOD)

    outcome = await scene.end()

    assert (outcome, scene.asked, scene.heard) == ("failed", [(0.0, "a")], [])
    assert scene.receipt.total_ms == 18_000.0


async def test_the_heartbeat_after_a_stall() -> None:
    """It is not late by what the stall's own deadline would still have allowed."""
    scene = Scene(tell(T("a"), 1.0, T("b"), 40.0, FIN(), U(3, 1), DONE))
    scene.start()
    await at(0.5)
    scene.sink.stop_reading()
    await at(16.0)
    scene.sink.read_on()

    await scene.end()

    assert scene.heard[3:6] == [(1.0, "b"), (16.0, "ping"), (31.0, "ping")]


async def test_the_usage_grace_after_a_stall() -> None:
    """Nor is the end of an answer that was complete before its client fell behind."""
    scene = Scene(tell(T("Hi") + FIN()))
    scene.sink.stop_reading()
    scene.start()
    await at(5.0)
    scene.sink.read_on()

    await scene.end()

    assert scene.heard[-1] == (7.0, "end")


async def test_the_usage_grace_begins_with_an_event_that_is_no_progress() -> None:
    """A count can complete an answer of fewer choices than were asked for; the terminator is awaited no longer then."""
    scene = Scene(tell(T("Hi"), FIN(), 1.0, HALF_A_USAGE))
    scene.exchange.call = DIALECTS["openai_chat"].read_call(TWO_CHOICES, CallOptions(), ())

    await scene.end()

    assert (scene.heard[-1], scene.receipt.note) == ((3.0, "end"), "usage_late")


@STREAM_AND_JSON
async def test_the_books_of_a_leaving_in_the_turn_of_a_shutdown(stream: bool) -> None:
    """The client's leaving wins there too: a cancelled attempt, no failure, and the prompt that was sent is charged."""
    scene = Scene(tell(head_s=NEVER), stream=stream)
    scene.start()
    await at(3.0)
    scene.leave()
    scene.interrupt(SHUTDOWN)

    outcome = await scene.end()

    assert (outcome, scene.attempts, scene.failures) == ("cancelled", [("a", "cancelled")], [])
    assert scene.receipt.usage_basis == "estimated"
