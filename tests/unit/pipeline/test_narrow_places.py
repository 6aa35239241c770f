"""Where two deadlines, or a deadline and somebody's leaving, meet."""

from __future__ import annotations

import pytest

from gateway.core.call import CallOptions
from gateway.core.errors import SHUTDOWN
from gateway.dialects.registry import DIALECTS
from tests.support.notation import DONE, FIN, T, U, data
from tests.support.scripted_provider import EOF, NEVER, Step, status, tell
from tests.unit.pipeline.plays import GOOD, RESET, STREAM_AND_JSON
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


@pytest.mark.parametrize(
    ("last", "outcome"),
    [(DONE, "completed"), (EOF, "interrupted"), (RESET, "interrupted"), (NEVER, "interrupted")],
)
async def test_half_of_the_choices_and_a_count(last: Step, outcome: str) -> None:
    """It may be the first choice's count alone: only the provider's terminator says that no other is to come."""
    scene = Scene(tell(T("Hi"), FIN(), HALF_A_USAGE, 1.0, last))
    scene.exchange.call = DIALECTS["openai_chat"].read_call(TWO_CHOICES, CallOptions(), ())

    assert await scene.end() == outcome


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
