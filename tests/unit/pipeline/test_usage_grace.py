"""An answer that is complete waits a moment for its usage."""

from __future__ import annotations

import pytest

from gateway.pipeline.services import Deadlines
from tests.support.notation import DONE, FIN, T, U
from tests.support.scripted_provider import EOF, Step, tell
from tests.unit.pipeline.plays import RESET
from tests.unit.pipeline.scene import Scene, at


@pytest.mark.parametrize(
    "rest", [pytest.param((), id="no usage"), pytest.param((5.0, U(3, 1), DONE), id="usage, too late")]
)
async def test_the_usage_grace(rest: tuple[float | bytes, ...]) -> None:
    """A finished answer waits usage_grace_s for its usage, then ends well with an estimate."""
    scene = Scene(tell(T("Hi"), 1.0, FIN(), *rest))

    outcome = await scene.end()

    assert scene.heard[3:] == [(3.0, word) for word in ("finish", "metadata", "[DONE]", "end")]
    assert (outcome, scene.receipt.usage_basis, scene.receipt.note) == ("completed", "estimated", "usage_late")


async def test_the_usage_grace_of_an_answer_that_comes_at_once() -> None:
    """It counts from the first good frame when that brings the finish too."""
    scene = Scene(tell(1.0, T("Hi") + FIN()))

    outcome = await scene.end()

    assert scene.heard[-1] == (3.0, "end")
    assert (outcome, scene.receipt.note) == ("completed", "usage_late")


async def test_the_usage_grace_waits_for_a_slow_client() -> None:
    """The time in which the client was behind is not taken from the provider's grace."""
    scene = Scene(tell(T("Hi"), 1.0, T("Ho") + FIN(), 11.0, U(3, 1) + DONE, EOF))
    scene.start()
    await at(0.5)
    scene.sink.stop_reading()
    await at(11.0)
    scene.sink.read_on()

    outcome = await scene.end()

    assert (outcome, scene.receipt.usage_basis, scene.heard[-1]) == ("completed", "provider_final", (12.0, "end"))


@pytest.mark.parametrize(
    ("last", "note"),
    [
        pytest.param(EOF, None, id="the end"),
        pytest.param(RESET, "after_finish:reset", id="a broken connection"),
        pytest.param(b"data: {nonsense\n\n", "after_finish:malformed", id="nonsense"),
    ],
)
async def test_whatever_follows_a_finish(last: Step, note: str | None) -> None:
    """It ends the waiting, and cannot turn the answer into a failure."""
    scene = Scene(tell(T("Hi"), FIN(), 1.0, last))

    outcome = await scene.end()

    assert (outcome, scene.receipt.note, scene.receipt.usage_basis) == ("completed", note, "estimated")
    assert scene.heard[3:] == [(1.0, word) for word in ("finish", "metadata", "[DONE]", "end")]


async def test_a_finish_that_is_said_again_and_again() -> None:
    """The grace counts from the first: a provider cannot prolong it by repeating itself."""
    scene = Scene(tell(T("Hi"), *(FIN(), 0.75) * 8))

    assert (await scene.end(), scene.heard[-1], scene.receipt.note) == ("completed", (2.0, "end"), "usage_late")


async def test_heartbeats_during_a_long_grace() -> None:
    """They go on while the usage is awaited."""
    scene = Scene(tell(T("Hi"), FIN()), deadlines=Deadlines(usage_grace_s=40.0))

    await scene.end()

    assert scene.heard[3:6] == [(15.0, "ping"), (30.0, "ping"), (40.0, "finish")]
