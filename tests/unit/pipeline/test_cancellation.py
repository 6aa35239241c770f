"""A client that leaves: the provider is left in the same instant."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.errors import SHUTDOWN
from gateway.pipeline.services import Deadlines
from tests.support.notation import DONE, FIN, R, T, U
from tests.support.scripted_provider import EOF, NEVER, Play, status, tell
from tests.unit.pipeline.plays import HALF, STREAM_AND_JSON
from tests.unit.pipeline.scene import Scene, at


@pytest.mark.parametrize(
    ("play", "stream", "when_s"),
    [
        pytest.param(tell(head_s=NEVER), True, 3.0, id="asking"),
        pytest.param(tell(head_s=NEVER), True, 40.0, id="asking, after the commit"),
        pytest.param(tell(R()), True, 3.0, id="before the first token"),
        pytest.param(tell(T("Hi")), True, 3.0, id="stalled"),
        pytest.param(tell(*(T("Hi"), 0.5) * 20), True, 3.0, id="flowing"),
        pytest.param(tell(head_s=NEVER), False, 3.0, id="json, asking"),
        pytest.param(HALF, False, 3.0, id="json, reading"),
    ],
)
async def test_the_provider_is_left_at_once(play: Play, stream: bool, when_s: float) -> None:
    """In every phase; nothing more is said, and the attempt is no failure of anybody's."""
    scene = Scene(play, stream=stream)
    task = scene.start()
    await at(when_s)
    heard = [*scene.heard]
    scene.leave()
    left_s = scene.left_s  # not a turn of the loop later

    outcome = await scene.end()

    assert (outcome, scene.attempts, scene.failures) == ("cancelled", [("a", "cancelled")], [])
    assert (left_s, scene.heard, task.cancelled()) == (when_s, heard, True)
    assert scene.receipt.cancel_ms == 0.0


@STREAM_AND_JSON
async def test_the_time_of_a_cancel(stream: bool) -> None:
    """It begins when the client is seen to leave, not when a busy loop gets to tell the exchange."""
    scene = Scene(tell(head_s=NEVER), stream=stream)
    task = scene.start()
    await at(3.0)
    scene.sink.leave()
    await at(3.25)
    task.cancel()

    assert (await scene.end(), scene.receipt.cancel_ms) == ("cancelled", 250.0)


@STREAM_AND_JSON
@pytest.mark.parametrize("play", [tell(head_s=NEVER), tell(b": hello\n\n")], ids=["asking", "reading"])
async def test_a_task_that_is_cancelled_by_others(play: Play, stream: bool) -> None:
    """As when the server is forced down, without a word of the client's: the provider is left in the same instant."""
    scene = Scene(play, stream=stream)
    task = scene.start()
    await at(3.0)
    task.cancel()

    assert (await scene.end(), scene.left_s, task.cancelled()) == ("cancelled", 3.0, True)


@STREAM_AND_JSON
async def test_only_the_newest_connection_is_dropped(stream: bool) -> None:
    """A client that leaves during the second attempt leaves the second provider; the first was left long ago."""
    scene = Scene(status(500, EOF), tell(head_s=NEVER), stream=stream, routes=("a", "b"))
    scene.start()
    await at(3.0)
    scene.leave()
    left = [asked.left_s for asked in scene.upstream.asked]

    assert (await scene.end(), left) == ("cancelled", [scene.exchange.started_s, scene.exchange.started_s + 3])


@STREAM_AND_JSON
async def test_a_client_that_leaves_between_two_attempts(stream: bool) -> None:
    """The next one does not take place, and the failed one stays failed and free."""
    scene = Scene(status(500, EOF, retry_after="5"), stream=stream)
    scene.start()
    await at(2.0)
    scene.leave()

    outcome = await scene.end()

    assert (outcome, scene.attempts, scene.receipt.total_ms) == ("cancelled", [("a", "failed")], 2_000.0)
    assert (scene.receipt.usage.total_tokens, scene.receipt.usage_basis) == (0, "none")


@pytest.mark.parametrize("usage", [(), (0.25, U(3, 1))], ids=["no usage", "usage"])
async def test_leaving_a_finished_answer_is_no_cancellation(usage: tuple[float | bytes, ...]) -> None:
    """All that was asked for had been produced: the exchange is complete, terminator or not."""
    scene = Scene(tell(T("Hi"), 1.0, FIN(), *usage), deadlines=Deadlines(usage_grace_s=50.0))
    scene.start()
    await at(1.5 if not usage else 1.125)
    scene.leave()

    assert (await scene.end(), scene.attempts) == ("completed", [("a", "ok")])


async def test_leaving_during_the_last_words() -> None:
    """The exchange was settled before they were said."""
    scene = Scene(tell(T("Hi"), 1.0, FIN(), U(3, 1), DONE))
    scene.start()
    await at(0.5)
    scene.sink.stop_reading()
    await at(2.0)
    scene.leave()

    assert (await scene.end(), scene.receipt.total_ms, scene.heard[-1]) == ("completed", 1_000.0, (1.0, "[DONE]"))


@pytest.mark.parametrize("play", [tell(head_s=NEVER), tell(T("Hi"))], ids=["asking", "stalled"])
async def test_a_leaving_that_only_a_heartbeat_finds_out(play: Play) -> None:
    """A write that fails is a client that has gone."""
    scene = Scene(play)
    task = scene.start()
    await at(21.0)
    scene.sink.gone = True

    outcome = await scene.end()

    due_s = 35.0 if scene.heard[0] == (20.0, "200") else 30.0
    assert (outcome, scene.left_s, task.cancelled()) == ("cancelled", due_s, False)
    assert scene.heard[-1][1] == "abort"


@STREAM_AND_JSON
async def test_a_second_cancellation_changes_nothing(stream: bool) -> None:
    """As when the server is forced down just then."""
    scene = Scene(tell(head_s=NEVER), stream=stream)
    task = scene.start()
    await at(3.0)
    scene.leave()
    scene.leave()
    await asyncio.sleep(0)
    scene.leave()

    assert (await scene.end(), task.cancelled()) == ("cancelled", True)


@STREAM_AND_JSON
@pytest.mark.parametrize("client_first", [True, False])
async def test_leaving_in_the_turn_of_a_shutdown(stream: bool, client_first: bool) -> None:
    """The client's leaving wins: there is nobody left to be told of the shutdown."""
    scene = Scene(tell(head_s=NEVER), stream=stream)
    task = scene.start()
    await at(3.0)
    if client_first:
        scene.leave()
    scene.interrupt(SHUTDOWN)
    if not client_first:
        scene.leave()

    assert (await scene.end(), scene.left_s, task.cancelled()) == ("cancelled", 3.0, True)


@pytest.mark.parametrize("turns", range(8))
@STREAM_AND_JSON
async def test_leaving_around_the_turn_of_the_head(turns: int, stream: bool) -> None:
    """However many turns lie between the provider's head and the leaving, no connection is left open."""
    scene = Scene(tell(head_s=3.0), stream=stream)
    scene.start()
    await at(3.0)
    for _ in range(turns):
        await asyncio.sleep(0)
    scene.leave()

    assert (await scene.end(), scene.left_s) == ("cancelled", 3.0)
