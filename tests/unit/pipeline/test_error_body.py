"""The body of an error answer is read as far as it helps, and no further."""

from __future__ import annotations

import pytest

from gateway.dialects.failures import MAX_ERROR_BYTES
from gateway.pipeline.services import Deadlines
from tests.support.scripted_provider import EOF, Step, status
from tests.unit.pipeline.plays import RESET, STREAM_AND_JSON
from tests.unit.pipeline.scene import Scene, at

PIECE = b"x" * (MAX_ERROR_BYTES // 4)


@STREAM_AND_JSON
@pytest.mark.parametrize(
    ("body", "ended_s"),
    [
        pytest.param((b"oh", 1.0, b" no", EOF), 1.0, id="to its end"),
        pytest.param((b"oh", 1.0, RESET), 1.0, id="until it breaks off"),
        pytest.param((b"oh",), 5.0, id="no longer than five seconds"),
        pytest.param((1.0, b"o") * 100, 5.0, id="a drop at a time"),
        pytest.param(((*[PIECE] * 4, 1.0, PIECE)), 0.0, id="no longer than any message"),
    ],
)
async def test_how_far_it_is_read(body: tuple[Step, ...], ended_s: float, stream: bool) -> None:
    """The status alone is enough to go by; the connection is dropped then and there."""
    scene = Scene(status(418, *body), stream=stream)

    outcome = await scene.end()

    assert (outcome, scene.failures) == ("failed", [("a", "status_418")])
    assert scene.left_s == ended_s


@pytest.mark.parametrize(
    ("stream", "deadlines"),
    [
        pytest.param(True, Deadlines(first_token_s=3.0), id="stream"),
        pytest.param(False, Deadlines(non_stream_s=3.0), id="json"),
    ],
)
async def test_the_total_deadline_is_nearer(stream: bool, deadlines: Deadlines) -> None:
    """It ends the reading, and what has expired is then the request."""
    scene = Scene(status(500, b"oh"), stream=stream, deadlines=deadlines)

    await scene.end()

    assert (scene.receipt.error_code, scene.receipt.total_ms) == (
        "provider_timeout" if stream else "gateway_timeout",
        3_000.0,
    )


async def test_the_commit_while_it_is_read() -> None:
    """The client has its 200 at commit_after_s; the failure that was being read becomes a frame."""
    scene = Scene(status(500, b"oh", head_s=18.0), routes=("a", "b"))

    outcome = await scene.end()

    assert (outcome, scene.asked, scene.failures) == ("interrupted", [(0.0, "a")], [("a", "status_500")])
    assert [said for said in scene.heard if said[1] != "ping"] == [
        (20.0, "200"), (23.0, "error upstream_error"), (23.0, "[DONE]"), (23.0, "end")
    ]  # fmt: skip


@STREAM_AND_JSON
async def test_the_client_leaves_while_it_is_read(stream: bool) -> None:
    """Its connection is dropped in the same instant."""
    scene = Scene(status(500, b"oh"), stream=stream)
    scene.start()
    await at(2.0)
    scene.leave()

    outcome = await scene.end()

    assert (outcome, scene.attempts, scene.failures) == ("cancelled", [("a", "cancelled")], [])
    assert scene.left_s == 2.0


@STREAM_AND_JSON
async def test_the_client_leaves_in_the_turn_in_which_it_took_too_long(stream: bool) -> None:
    """Whichever comes first, the client's leaving is what remains."""
    scene = Scene(status(500, b"oh"), stream=stream)
    task = scene.start()
    task.get_loop().call_at(scene.exchange.started_s + 5, scene.leave)

    assert (await scene.end(), task.cancelled(), len(scene.asked)) == ("cancelled", True, 1)
