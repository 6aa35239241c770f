"""An answer that breaks and is gone on with: the deadlines, the books and the breakers of both attempts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.core.catalog import Drain
from gateway.core.errors import INVALID_REQUEST, SHUTDOWN, Failure
from gateway.core.usage import Usage
from gateway.pipeline.services import Deadlines
from tests.support.notation import DONE, FIN, R, T, U, chunk
from tests.support.scripted_provider import EOF, NEVER, Play, fail, status, tell
from tests.unit.admissions import admission
from tests.unit.pipeline.plays import RESET
from tests.unit.pipeline.scene import Scene, at

BROKEN = tell(R(), T("Hi"), 1.0, RESET)
REST = tell(R(), T(" there"), FIN(), U(5, 7), DONE)
OTHER = tell(*(chunk({"content": " there"}, id="c2"), chunk({}, finish="stop", id="c2"), U(5, 7), DONE))
OBJECTED = Failure("upstream_error", "status_400", INVALID_REQUEST, retryable=False)


def continued(*plays: Play, **more: Any) -> Scene:
    more.setdefault("routes", ("a", "b", "c")[: len(plays)])
    return Scene(*plays, on_interrupt="continue", model="mistral-large", **more)


async def test_the_books() -> None:
    """One receipt: the caller's prompt once and the text of both, each part as it was counted, the first one failed."""
    scene = continued(BROKEN, OTHER)

    outcome = await scene.end()

    (_, _, first), (_, _, second) = scene.receipt.parts
    assert (outcome, scene.attempts) == ("completed", [("a", "failed"), ("b", "ok")])
    assert scene.failures == [("a", "reset")]
    assert (first.completion_tokens, second) == (1, Usage(5, 7))
    assert scene.receipt.usage == Usage(first.prompt_tokens, 8)
    assert (scene.receipt.usage_basis, scene.receipt.failure_class) == ("estimated", None)
    assert scene.receipt.weighted_tokens == scene.receipt.usage.total_tokens
    assert scene.receipt.response_id == "c1"  # the first's, as the client was told
    assert scene.breaker("a").state(0) == "closed"


@pytest.mark.parametrize(
    "play",
    [
        pytest.param(BROKEN, id="reset"),
        pytest.param(tell(R(), T("Hi"), EOF), id="truncated"),
        pytest.param(tell(R(), T("Hi"), NEVER), id="silent"),
        pytest.param(tell(R(), T("Hi"), b"data: {\n\n"), id="malformed"),
        pytest.param(tell(R(), T("Hi"), b'data: {"error":{"message":"no"}}\n\n'), id="error event"),
        pytest.param(tell(R(), T("Hi"), T("no")[:30], RESET), id="half a frame"),
    ],
)
async def test_however_it_breaks(play: Play) -> None:
    """Every way in which a provider fails is taken up, and half a frame of the first is not heard."""
    scene = continued(play, REST)

    await scene.end()

    said = [word for _, word in scene.heard if word != "ping"]
    assert said == ["200", "role", "Hi", " there", "finish", "metadata", "[DONE]", "end"]
    assert (scene.receipt.outcome, len(scene.receipt.parts)) == ("completed", 2)


@pytest.mark.parametrize("failure", [SHUTDOWN, OBJECTED])
async def test_what_another_provider_does_not_mend(failure: Failure) -> None:
    """The gateway's own leaving, and a provider that objects to what was asked or answered, end the stream."""
    scene = continued(tell(R(), T("Hi"), 1.0, failure), REST)

    assert (await scene.end(), len(scene.asked), scene.receipt.parts) == ("interrupted", 1, ())


async def test_the_wait_for_the_second() -> None:
    """It may take as long as a first token, with heartbeats meanwhile; then the first's failure is what is told."""
    scene = continued(BROKEN, tell(head_s=NEVER), deadlines=Deadlines(first_token_s=40.0, heartbeat_s=15.0))

    outcome = await scene.end()

    assert (outcome, scene.receipt.failure_reason, scene.receipt.total_ms) == ("interrupted", "reset", 41_000.0)
    assert [second for second, word in scene.heard if "ping" in word] == [15.0, 30.0]
    assert scene.attempts == [("a", "failed"), ("b", "failed")]
    assert (scene.receipt.provider, scene.receipt.parts) == ("a", ())


async def test_a_third_where_the_second_does_not_speak() -> None:
    """Until another one has spoken, every route that can is asked."""
    scene = continued(BROKEN, fail(RESET), REST)

    await scene.end()

    assert scene.attempts == [("a", "failed"), ("b", "failed"), ("c", "ok")]
    assert [name for name, _, _ in scene.receipt.parts] == ["a", "c"]


async def test_one_continuation_and_no_more() -> None:
    """The second part that breaks is the end, with what both had said."""
    scene = continued(BROKEN, tell(R(), T(" there"), 1.0, RESET), REST)

    assert (await scene.end(), len(scene.asked)) == ("interrupted", 2)
    assert scene.receipt.usage.completion_tokens == 2


async def test_a_route_that_rests() -> None:
    """A route whose breaker is open is not asked to go on."""
    scene = continued(BROKEN, REST, routes=("a", "b", "c"))
    scene.board.of("b/mistral-large")[0]._until_s = 10**9  # it opened

    await scene.end()

    assert [host for _, host in scene.asked] == ["a", "c"]


@pytest.mark.parametrize("when_s", [1.5, 3.5])
async def test_leaving_meanwhile(when_s: float) -> None:
    """While the second is asked, and while it speaks: it is left in that moment, and what was heard is counted."""
    scene = continued(BROKEN, tell(1.0, R(), T(" there"), NEVER))
    scene.start()
    await at(when_s)
    scene.leave()
    left_s = scene.left_s

    outcome = await scene.end()

    assert (outcome, left_s, scene.attempts[-1]) == ("cancelled", when_s, ("b", "cancelled"))
    assert scene.receipt.usage.completion_tokens == (1 if when_s < 2 else 2)
    assert scene.receipt.provider == ("a" if when_s < 2 else "b")


@pytest.mark.parametrize(("when_s", "on_cancel"), [(1.5, "abort"), (3.5, "drain")])
async def test_reading_on(when_s: float, on_cancel: str) -> None:
    """A provider that goes on with an answer is read on like any other, once it speaks; both parts are counted."""
    second = tell(1.0, R(), T(" there"), 5.0, FIN(), U(5, 7), DONE)
    scene = continued(BROKEN, second, drain=Drain(30.0, 100))
    scene.start()
    await at(when_s)
    scene.leave()

    outcome = await scene.end()

    assert (outcome, scene.receipt.on_cancel) == ("cancelled", on_cancel)
    assert scene.receipt.usage.completion_tokens == (8 if on_cancel == "drain" else 1)


async def test_shutdown_while_the_second_is_asked() -> None:
    """It is the gateway's leaving that the client is told of."""
    scene = continued(BROKEN, tell(head_s=NEVER))
    scene.start()
    await at(2.0)
    scene.interrupt(SHUTDOWN)

    assert (await scene.end(), scene.receipt.failure_class) == ("interrupted", "gateway_shutdown")


@pytest.mark.parametrize(
    ("second", "left_s", "cost"),
    [
        pytest.param(fail(RESET), None, [("b", "failed", 0)] * 2, id="breaks, twice"),
        pytest.param(status(400, EOF), None, [("b", "failed", None)], id="refuses"),
        pytest.param(Play(head_s=NEVER), 1.5, [("b", "cancelled", 0)], id="is left"),
        pytest.param(Play(head_s=NEVER, sent_s=NEVER), 1.5, [], id="is not reached"),
    ],
)
async def test_costs_where_nobody_goes_on(
    second: Play, left_s: float | None, cost: list[tuple[str, str, int | None]]
) -> None:  # fmt: skip
    """What came of the answer is a cost of the first; who was asked for the rest has at most read the prompt."""
    scene = continued(BROKEN, second, second, routes=("a", "b"))
    scene.exchange.admission = admission("req_1")
    scene.start()
    if left_s is not None:
        await at(left_s)
        scene.leave()

    await scene.end()

    assert scene.receipt.booking is not None
    told = [
        (sent.provider, sent.result, sent.usage.completion_tokens if sent.usage.prompt_tokens else None)
        for sent in scene.receipt.booking.sent
    ]
    assert [("a", "failed", 1), *cost] == told


async def test_usage_that_is_late() -> None:
    """The end of the second part needs no more than that of any stream: its grace, and our own count."""
    scene = continued(BROKEN, tell(R(), T(" there"), FIN(), NEVER))

    assert (await scene.end(), scene.receipt.note) == ("completed", "usage_late")
    assert scene.receipt.usage.completion_tokens == 2


async def test_a_refusal_of_the_second() -> None:
    """A provider that does not take the call after all changes nothing of what is told."""
    scene = continued(BROKEN, status(400, EOF))

    assert (await scene.end(), scene.receipt.failure_reason, scene.receipt.status) == ("interrupted", "reset", 200)


async def test_reasoning_is_not_gone_on_with() -> None:
    """What was heard besides text ends with the error frame."""
    scene = continued(tell(R(), chunk({"reasoning_content": "hm"}), T("Hi"), 1.0, RESET), REST)

    assert (await scene.end(), len(scene.asked)) == ("interrupted", 1)


async def test_two_at_once_do_not_mix() -> None:
    """Each stream has a seam of its own."""
    one, two = continued(BROKEN, REST), continued(BROKEN, REST)

    await asyncio.gather(one.end(alone=False), two.end(alone=False))

    assert one.heard == two.heard
    assert one.receipt.usage == two.receipt.usage
