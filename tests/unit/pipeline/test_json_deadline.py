"""A request without streaming has one deadline for everything."""

from __future__ import annotations

import json

import pytest

from gateway.core.errors import GatewayError
from gateway.core.exchange import Answer
from gateway.pipeline.services import Deadlines
from gateway.pipeline.watch import Watch
from tests.support.scripted_provider import EOF, JSON, NEVER, Play, fail, status
from tests.unit.pipeline.plays import COMPLETION, CONNECT, WHOLE
from tests.unit.pipeline.scene import Scene, virtual_loop

DRIP = tuple(step for byte in COMPLETION for step in (1.0, bytes([byte])))


async def test_a_whole_answer() -> None:
    """One body, its receipt in it, settled once; nothing goes through the sink."""
    scene = Scene(Play((40.0, COMPLETION[:99], 50.0, COMPLETION[99:], EOF), headers=JSON, head_s=9.75), stream=False)

    answer = await scene.start()
    outcome = await scene.end()

    assert isinstance(answer, Answer)
    assert (outcome, answer.status, scene.receipt.total_ms, scene.heard) == ("completed", 200, 99_750.0, [])
    body = json.loads(answer.body)
    assert (body["choices"][0]["message"]["content"], body["_anoman"]["weighted_tokens"]) == ("Hi", 4)
    assert dict(answer.headers)["x-request-id"] == "req_1"


@pytest.mark.parametrize(
    "play",
    [
        pytest.param(Play(head_s=NEVER), id="no head"),
        pytest.param(Play((), headers=JSON, head_s=60.0), id="no body"),
        pytest.param(Play(DRIP, headers=JSON), id="a byte a second"),
        pytest.param(status(500, *(1.0, b"o") * 60, head_s=98.0), id="an error's body"),
    ],
)
async def test_the_deadline(play: Play) -> None:
    """At non_stream_s it is a 504 that SDKs do not repeat, whatever had come; no further attempt follows."""
    scene = Scene(play, stream=False, routes=("a", "b"))

    with pytest.raises(GatewayError) as caught:
        await scene.start()
    outcome = await scene.end()

    assert (outcome, caught.value.kind.code, caught.value.kind.retry) == ("failed", "gateway_timeout", "never")
    assert (scene.receipt.total_ms, scene.asked) == (100_000.0, [(0.0, "a")])
    assert (scene.failures, scene.attempts) == ([("a", "non_stream")], [("a", "failed")])
    assert scene.receipt.usage.total_tokens == 0


async def test_one_deadline_for_all_attempts() -> None:
    """Attempts share it, and it is kept by a single timer that is armed once."""
    scene = Scene(fail(CONNECT, 40.0), fail(CONNECT, 40.0), Play(head_s=NEVER), stream=False, routes=("a", "b"))
    scene.start()
    watches: list[Watch] = []
    virtual_loop().call_later(1.0, lambda: watches.extend(scene.running))

    await scene.end()

    assert (scene.asked, scene.receipt.total_ms) == ([(0.0, "a"), (40.0, "b"), (80.0, "a")], 100_000.0)
    assert [virtual_loop().timers_of(watch) for watch in watches] == [[100.0]]


async def test_the_first_token_deadline_is_for_streams() -> None:
    """A long answer without streaming may take its time up to its own limit."""
    deadlines = Deadlines(first_token_s=1.0, idle_s=1.0, commit_after_s=1.0, heartbeat_s=1.0)
    scene = Scene(Play(WHOLE.body, headers=JSON, head_s=99.0), stream=False, deadlines=deadlines)

    assert (await scene.end(), scene.receipt.ttfb_ms, scene.heard) == ("completed", 99_000.0, [])
