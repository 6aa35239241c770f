"""From candidates to the first good frame: who is asked, when, and who is not."""

from __future__ import annotations

import pytest

from gateway.core.errors import FIRST_TOKEN_TIMEOUT, Failure, GatewayError
from gateway.pipeline.services import Deadlines
from tests.support.notation import R, T
from tests.support.scripted_provider import EOF, JSON, NEVER, Play, fail, status, tell
from tests.unit.pipeline.plays import CONNECT, GOOD, RESET
from tests.unit.pipeline.scene import Scene

UNCOMMITTED = Deadlines(commit_after_s=1000.0)


async def error_of(scene: Scene) -> GatewayError:
    """The plain HTTP error that the exchange ends in."""
    with pytest.raises(GatewayError) as caught:
        await scene.start()
    await scene.end()
    return caught.value


async def test_the_first_candidate_that_answers_well() -> None:
    """The others are not asked."""
    scene = Scene(GOOD, routes=("a", "b"))

    outcome = await scene.end()

    assert (outcome, scene.asked, scene.attempts) == ("completed", [(0.0, "a")], [("a", "ok")])


async def test_candidates_are_asked_in_order_and_at_once() -> None:
    """One fails, the next is asked in the same instant; the client hears nothing of it."""
    scene = Scene(fail(CONNECT), status(500, b"oh", EOF), fail(RESET, after_s=2.0), GOOD, routes=("a", "b", "c", "d"))

    outcome = await scene.end()

    assert scene.asked == [(0.0, "a"), (0.0, "b"), (0.0, "c"), (2.0, "d")]
    assert scene.failures == [("a", "connect"), ("b", "status_500"), ("c", "reset")]
    assert (outcome, scene.receipt.provider) == ("completed", "d")
    assert scene.attempts == [("a", "failed"), ("b", "failed"), ("c", "failed"), ("d", "ok")]
    assert [word for _, word in scene.heard] == ["200", "role", "Hi", "finish", "metadata", "[DONE]", "end"]


async def test_one_extra_attempt_for_each_route() -> None:
    """When all have failed each is asked once more, at a distance, and never a third time."""
    scene = Scene(*[status(500, b"oh", EOF)] * 4, routes=("a", "b"))

    error = await error_of(scene)

    assert scene.asked == [(0.0, "a"), (0.0, "b"), (0.25, "a"), (0.25, "b")]
    assert (error.kind.status, scene.receipt.outcome, scene.receipt.failure_reason) == (503, "failed", "status_500")


@pytest.mark.parametrize("codes", [(401, 500, 500), (500, 401, 500), (500, 500, 500, 401)])
async def test_a_wrongly_set_up_route_does_not_speak_for_the_others(codes: tuple[int, ...]) -> None:
    """Where one of the routes may recover, the client is not told that a retry is in vain."""
    scene = Scene(*[status(code, b"oh", EOF) for code in codes], routes=("a", "b"))

    error = await error_of(scene)

    assert (error.kind.code, error.kind.retry) == ("provider_unavailable", "default")


@pytest.mark.parametrize("failure", [CONNECT, RESET], ids=lambda failure: failure.reason)
async def test_a_dead_connection_is_replaced_at_once(failure: Failure) -> None:
    """Waiting would not make it better."""
    scene = Scene(fail(failure), GOOD)

    assert (await scene.end(), scene.asked) == ("completed", [(0.0, "a"), (0.0, "a")])


async def test_retry_after_is_honoured() -> None:
    """A provider that names its wait is asked again exactly then, while a quicker one goes first."""
    busy = status(429, EOF, retry_after="3"), status(503, EOF, retry_after="2")
    scene = Scene(*busy, fail(CONNECT), GOOD, routes=("a", "b"))

    assert (await scene.end(), scene.asked) == ("completed", [(0.0, "a"), (0.0, "b"), (2.0, "b"), (3.0, "a")])


async def test_retry_after_counts_from_the_refusal() -> None:
    """What other routes took meanwhile is part of the wait."""
    scene = Scene(status(429, EOF, retry_after="4"), status(401, EOF, head_s=1.5), GOOD, routes=("a", "b"))

    assert (await scene.end(), scene.asked) == ("completed", [(0.0, "a"), (0.0, "b"), (4.0, "a")])


async def test_a_long_retry_after_is_for_the_client() -> None:
    """One of more than retry_wait_max_s is not waited here but handed on."""
    scene = Scene(status(429, EOF, retry_after="5.5"))

    error = await error_of(scene)

    assert (scene.asked, error.kind.status, error.retry_after_s) == ([(0.0, "a")], 503, 5.5)
    assert scene.receipt.total_ms == 0.0


async def test_no_wait_beyond_the_total_deadline() -> None:
    """An attempt that could only start at or after it is not waited for: the client is told at once."""
    deadlines = Deadlines(first_token_s=6.0)
    scene = Scene(status(429, EOF, head_s=2.0, retry_after="4"), deadlines=deadlines)

    error = await error_of(scene)

    assert (len(scene.asked), error.retry_after_s, scene.receipt.total_ms) == (1, 4.0, 2_000.0)


async def test_one_deadline_for_all_attempts() -> None:
    """The second route has what the first has left, not first_token_s of its own."""
    scene = Scene(status(500, EOF, head_s=40.0), tell(head_s=NEVER), routes=("a", "b", "c"), deadlines=UNCOMMITTED)

    error = await error_of(scene)

    assert (scene.asked, scene.receipt.total_ms) == ([(0.0, "a"), (40.0, "b")], 60_000.0)
    assert (error.kind, scene.receipt.failure_reason) == (FIRST_TOKEN_TIMEOUT.error, "first_token")


async def test_nothing_is_tried_after_a_callers_mistake() -> None:
    """No other route could do better with it."""
    scene = Scene(status(400, b'{"error":{"message":"no such voice"}}', EOF), routes=("a", "b"))

    error = await error_of(scene)

    assert (scene.asked, error.kind.status, error.message) == ([(0.0, "a")], 400, "no such voice")
    assert scene.receipt.outcome == "rejected"


async def test_a_refused_credential_is_the_routes_own_fault() -> None:
    """The next route is asked, and this one not again."""
    scene = Scene(status(401, EOF), status(500, EOF), status(500, EOF), routes=("a", "b"))

    await error_of(scene)

    assert scene.asked == [(0.0, "a"), (0.0, "b"), (0.25, "b")]


@pytest.mark.parametrize(
    "play",
    [
        pytest.param(Play((b'{"error":{"message":"busy"}}', EOF), headers=JSON), id="an error object for a stream"),
        pytest.param(tell(EOF), id="an empty stream"),
        pytest.param(tell(R(), EOF), id="a stream that ends before a token"),
        pytest.param(tell(R(), RESET), id="a stream that breaks before a token"),
        pytest.param(tell(b"data: {nonsense\n\n"), id="nonsense"),
    ],
)
async def test_a_bad_beginning_is_a_failed_attempt(play: Play) -> None:
    """Until the first good frame nothing was said, so another route may still be asked."""
    scene = Scene(play, GOOD, routes=("a", "b"))

    outcome = await scene.end()

    assert (outcome, scene.attempts) == ("completed", [("a", "failed"), ("b", "ok")])
    assert [word for _, word in scene.heard][:3] == ["200", "role", "Hi"]


@pytest.mark.parametrize(
    "play",
    [
        pytest.param(tell(RESET, head_s=30.0), id="before the first token"),
        pytest.param(fail(RESET, after_s=30.0), id="before the head"),
        pytest.param(status(500, EOF, head_s=30.0), id="by status"),
    ],
)
async def test_nothing_after_the_commit(play: Play) -> None:
    """Once the 200 is out a failure is a frame: neither is another route asked, nor the same one again."""
    scene = Scene(play, routes=("a", "b"))

    outcome = await scene.end()

    assert (outcome, scene.asked) == ("interrupted", [(0.0, "a")])
    assert scene.heard[2:] == [(30.0, "error upstream_error"), (30.0, "[DONE]"), (30.0, "end")]


async def test_nothing_after_the_first_good_frame() -> None:
    """A stream that breaks is told as broken; the attempt that had begun well has failed after all."""
    scene = Scene(tell(T("Hi"), 1.0, RESET), routes=("a", "b"))

    outcome = await scene.end()

    assert (outcome, scene.asked, scene.attempts) == ("interrupted", [(0.0, "a")], [("a", "failed")])
    assert scene.heard[3:] == [(1.0, "error upstream_error"), (1.0, "[DONE]"), (1.0, "end")]


async def test_no_route_is_open() -> None:
    """With every breaker open nobody is asked, and the client may come again."""
    scene = Scene(routes=("a", "b"))
    scene.breaks("a")
    scene.breaks("b")

    error = await error_of(scene)

    assert (scene.asked, error.kind.code, scene.receipt.failure_reason) == ([], "provider_unavailable", "breaker_open")
