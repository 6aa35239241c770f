"""What a receipt says of the request and its answer besides the figures: their names and their time."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.support.notation import R, T
from tests.support.scripted_provider import Play, status, tell
from tests.unit.pipeline.plays import GOOD, RESET, STREAM_AND_JSON, WHOLE
from tests.unit.pipeline.scene import EPOCH_S, Scene, at


@STREAM_AND_JSON
async def test_of_a_whole_answer(stream: bool) -> None:
    """The name that the client knows the answer by, whether it was a stream, and when the request came."""
    scene = Scene(GOOD if stream else WHOLE, stream=stream)
    await at(2.5)
    scene.begin()

    await scene.end()

    receipt = scene.receipt
    assert (receipt.response_id, receipt.stream) == ("c1", stream)
    assert receipt.started_ms == int(EPOCH_S * 1000) + 2500


@pytest.mark.parametrize(
    ("play", "name"),
    [
        pytest.param(tell(R(), T("Hi"), 1.0, RESET), "c1", id="broken"),
        pytest.param(status(400), None, id="refused"),
    ],
)
async def test_of_an_answer_that_is_not_whole(play: Play, name: str | None) -> None:
    """As far as the client has heard of an answer it has a name."""
    scene = Scene(play)

    await scene.end()

    assert scene.receipt.response_id == name


async def test_of_an_answer_that_is_left() -> None:
    """A client that goes has heard the name before."""
    scene = Scene(tell(R(), T("Hi"), 5.0, T("!")))
    scene.start()
    await at(1.0)

    scene.leave()
    await scene.end()

    assert (scene.receipt.outcome, scene.receipt.response_id) == ("cancelled", "c1")


async def test_metadata_of_the_call() -> None:
    """The caller's own words on the call are its receipt's, whatever became of it."""
    scene = Scene(GOOD)
    scene.exchange.call = structs.replace(scene.exchange.call, metadata={"team": "x"})

    await scene.end()

    assert scene.receipt.metadata == {"team": "x"}
