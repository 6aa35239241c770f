"""What runs on a route is counted while it runs, and its pace is learnt. `Scene.end` sees that no count is left."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.catalog import Strategy
from gateway.core.errors import SHUTDOWN, Failure
from tests.support.notation import DONE, FIN, R, T, U
from tests.support.scripted_provider import EOF, JSON, NEVER, Play, fail, status, tell
from tests.support.virtual_time import START_S
from tests.unit.pipeline.plays import COMPLETION, GOOD, HALF, RESET
from tests.unit.pipeline.scene import Scene, at, route

SLOW = tell(R(), T("Hi"), 2.0, FIN(), U(3, 1), DONE)


@pytest.mark.parametrize(
    ("play", "stream"),
    [
        pytest.param(tell(head_s=2.0), True, id="asking"),
        pytest.param(tell(R(), 2.0), True, id="before the first token"),
        pytest.param(SLOW, True, id="flowing"),
        pytest.param(HALF, False, id="json, reading"),
    ],
)
@pytest.mark.parametrize("how", ["goes on", "client leaves", "shutdown"])
async def test_counted_while_it_runs(play: Play, stream: bool, how: str) -> None:
    """In every phase one, and none once it is over in whatever way."""
    scene = Scene(play, stream=stream)
    scene.start()
    await at(1.0)
    counted = scene.running_on("a")
    if how == "client leaves":
        scene.leave()
    elif how == "shutdown":
        scene.interrupt(SHUTDOWN)

    await scene.end()

    assert (counted, scene.running_on("a")) == (1, 0)


async def test_a_slow_client_counts_nowhere() -> None:
    """Once the answer is complete nothing runs on the route, though the client has yet to take its last frames."""
    scene = Scene(SLOW)
    scene.start()
    await at(1.0)
    scene.sink.stop_reading()
    await at(3.0)
    counted, has_heard = scene.running_on("a"), [word for _, word in scene.heard]
    scene.sink.read_on()

    await scene.end()

    assert (counted, has_heard[-1] == "end") == (0, False)


async def test_the_next_attempt_counts_at_its_own_route() -> None:
    """After a fallback the first route is free again."""
    scene = Scene(fail(RESET, 1.0), SLOW, routes=("a", "b"))
    scene.start()
    await at(0.5)
    first = scene.running_on("a"), scene.running_on("b")
    await at(2.0)
    second = scene.running_on("a"), scene.running_on("b")

    await scene.end()

    assert (first, second) == ((1, 0), (0, 1))


async def test_what_is_learnt_of_streams_and_bodies() -> None:
    """The time to the first good frame of a stream, and to the end of a body, each for its kind."""
    streamed = Scene(tell(1.0, R(), 1.0, T("Hi"), 1.0, FIN(), U(3, 1), DONE))
    whole = Scene(Play((COMPLETION, 3.0, EOF), headers=JSON), stream=False)
    await asyncio.gather(streamed.end(), whole.end())

    paces = [scene.services.loads.of(route("a").id).paces for scene in (streamed, whole)]

    assert [(pace[True].answer_s, pace[False].answer_s) for pace in paces] == [(2.0, None), (None, 3.0)]


@pytest.mark.parametrize(
    ("play", "told_s"),
    [
        pytest.param(fail(RESET, 1.0), START_S + 1, id="reset"),
        pytest.param(status(429, EOF, head_s=1.0, retry_after="60"), START_S + 1, id="rate limit"),
        pytest.param(status(400, EOF, head_s=1.0), None, id="caller's mistake"),
        pytest.param(fail(Failure("upstream_error", "no_slot"), 1.0), None, id="no connection to be had"),
    ],
)
async def test_what_is_learnt_of_failures(play: Play, told_s: float | None) -> None:
    """That it failed, and when; the caller's mistake and our own limit say nothing of the route."""
    scene = Scene(play, tell(head_s=NEVER))
    scene.start()
    await at(1.1)

    pace = scene.services.loads.of(route("a").id).paces[True]

    assert (pace.answer_s, pace.told_s) == (None, told_s)
    await _let_go(scene)


async def _let_go(scene: Scene) -> None:
    """A second attempt may be under way."""
    scene.leave()
    await scene.end()


@pytest.mark.parametrize("strategy", ["least_loaded", "lowest_latency"])
async def test_two_requests_at_once_see_each_other(strategy: Strategy) -> None:
    """The look at the loads and the count of the attempt are one step: the second call goes to the other route."""
    one = Scene(SLOW, routes=("a", "b"), strategy=strategy)
    two = Scene(SLOW, routes=("a", "b"), strategy=strategy)
    two.share_loads(one)

    one.start()
    two.start()
    await at(1.0)

    assert (one.asked, two.asked) == ([(0.0, "a")], [(0.0, "b")])
    await asyncio.gather(one.end(), two.end())


async def test_a_strategy_gives_the_order_of_fallback_too() -> None:
    """After the first choice has failed the next in its order is asked, and the busiest last."""
    busy = Scene(tell(head_s=NEVER))
    busy.start()
    await at(1.0)
    scene = Scene(fail(RESET), GOOD, routes=("a", "b", "c"), strategy="least_loaded")
    scene.share_loads(busy)
    scene.begin()

    outcome = await scene.end(alone=False)

    assert (outcome, [host for _, host in scene.asked]) == ("completed", ["b", "c"])
    busy.leave()
    await busy.end()
