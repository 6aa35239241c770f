"""A probe of a half-open breaker is told of, or given back, however its exchange ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.core.errors import SHUTDOWN, STALE, Failure
from gateway.pipeline.services import Deadlines
from gateway.policy.breaker import BreakerRules
from tests.support.notation import T
from tests.support.scripted_provider import EOF, JSON, NEVER, Play, fail, status, tell
from tests.unit.pipeline.plays import GOOD, STREAM_AND_JSON, WHOLE
from tests.unit.pipeline.scene import Scene, at, virtual_loop

FRAGILE = BreakerRules(failures=1, open_s=5.0)
BROKEN = Failure("upstream_error", "reset", retryable=False)

Act = Callable[[Scene], None]


def leave(scene: Scene) -> None:
    scene.leave()


def interrupt(scene: Scene) -> None:
    scene.interrupt(SHUTDOWN)


async def probing(play: Play, stream: bool, act: Act | None = None) -> Scene:
    """An exchange whose one attempt is the probe of a half-open breaker; *act* happens a second after its start."""
    scene = Scene(play, stream=stream, breaker=FRAGILE)
    scene.breaks("a")
    await at(5.0)
    assert scene.breaker("a").state(virtual_loop().time()) == "half_open"
    scene.begin()
    scene.start()
    if act is not None:
        await at(6.0)
        act(scene)
    await scene.end()
    return scene


def may_probe(scene: Scene) -> bool:
    """Whether the next call may be the probe: the slot is free."""
    return scene.breaker("a").admit(virtual_loop().time()) is not None


@pytest.mark.parametrize(
    ("play", "stream"),
    [
        pytest.param(GOOD, True, id="stream"),
        pytest.param(WHOLE, False, id="json"),
        pytest.param(status(429, EOF, retry_after="60"), True, id="rate limit"),
        pytest.param(status(400, EOF), False, id="caller's mistake"),
    ],
)
async def test_an_answer_closes_the_breaker(play: Play, stream: bool) -> None:
    """The route answered: whether the caller likes the answer is another matter."""
    scene = await probing(play, stream)

    assert scene.breaker("a").state(virtual_loop().time()) == "closed"


@STREAM_AND_JSON
@pytest.mark.parametrize(
    "play",
    [
        pytest.param(fail(BROKEN), id="asking"),
        pytest.param(status(500, EOF), id="status"),
        pytest.param(Play((BROKEN,), headers=JSON), id="body"),
        pytest.param(tell(head_s=NEVER), id="deadline while asking"),
        pytest.param(tell(), id="deadline while reading"),
        pytest.param(status(500, head_s=58.0), id="deadline while reading what failed"),
    ],
)
async def test_a_failure_opens_it_again(play: Play, stream: bool) -> None:
    """For twice as long, whatever fails: the request, the answer, or the deadline of either."""
    scene = await probing(play, stream)

    now_s, breaker = virtual_loop().time(), scene.breaker("a")
    assert (breaker.state(now_s + 9.75), breaker.state(now_s + 10.0)) == ("open", "half_open")


@STREAM_AND_JSON
@pytest.mark.parametrize("act", [leave, interrupt])
@pytest.mark.parametrize(
    "play",
    [
        pytest.param(tell(head_s=NEVER), id="asking"),
        pytest.param(tell(b": hello\n\n"), id="reading"),
        pytest.param(status(500, b"oh"), id="reading what failed"),
    ],
)
async def test_an_end_that_tells_nothing_gives_the_probe_back(play: Play, act: Act, stream: bool) -> None:
    """A client that leaves, or a gateway that does, is no evidence for or against the route."""
    scene = await probing(play, stream, act)

    assert (scene.breaker("a").state(virtual_loop().time()), may_probe(scene)) == ("half_open", True)


@STREAM_AND_JSON
@pytest.mark.parametrize("act", [leave, interrupt])
async def test_an_end_while_waiting_for_the_next_attempt(act: Act, stream: bool) -> None:
    """The breaker has said yes to an attempt that does not take place: the slot is free again."""
    busy, refused = status(500, EOF, retry_after="5"), status(401, EOF, head_s=2.0)
    rules = BreakerRules(failures=2, open_s=1.0)
    scene = Scene(busy, refused, stream=stream, routes=("a", "b"), breaker=rules)
    scene.start()
    await at(1.0)
    scene.breaks("a")  # by the failures of others; half open again at second 2
    await at(3.0)
    assert not may_probe(scene)

    act(scene)
    await scene.end()

    assert (scene.asked, may_probe(scene)) == ([(0.0, "a"), (0.0, "b")], True)


async def test_a_probe_that_breaks_after_it_had_begun_well() -> None:
    """Its success was premature: with the calls it vouched for counted, the breaker opens."""
    scene = await probing(tell(T("Hi"), 1.0, BROKEN), stream=True)

    assert scene.breaker("a").state(virtual_loop().time()) == "open"


async def test_a_client_that_leaves_a_flowing_stream() -> None:
    """The route has proved itself with the first good frame."""
    scene = await probing(tell(T("Hi")), stream=True, act=leave)

    assert scene.breaker("a").state(virtual_loop().time()) == "closed"


async def test_the_deadline_is_no_shutdown() -> None:
    """What we waited for in vain counts against the route as often as it happens."""
    deadlines = Deadlines(non_stream_s=3.0)
    scene = Scene(tell(head_s=NEVER), stream=False, deadlines=deadlines, breaker=FRAGILE)

    await scene.end()

    assert (scene.failures, scene.breaker("a").state(virtual_loop().time())) == ([("a", "non_stream")], "open")


@STREAM_AND_JSON
async def test_a_dead_connection_says_nothing_of_its_provider(stream: bool) -> None:
    """The same route is asked again at once, over a new connection; its breaker has not heard of it."""
    stale = Failure("upstream_error", STALE, counts=False)
    scene = Scene(fail(stale), GOOD if stream else WHOLE, routes=("a", "b"), stream=stream, breaker=FRAGILE)

    outcome = await scene.end()

    assert (outcome, scene.asked) == ("completed", [(0.0, "a"), (0.0, "a")])
    assert scene.upstream.fresh == [False, True]
    assert scene.breaker("a").state(virtual_loop().time()) == "closed"
