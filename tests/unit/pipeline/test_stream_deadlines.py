"""Every deadline of a stream, told as conversations: what the provider does and when, and what the client hears."""

from __future__ import annotations

import pytest

from gateway.core.call import CallOptions
from gateway.core.errors import GatewayError
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.pipeline.services import Deadlines
from gateway.pipeline.watch import Watch
from tests.support.notation import CBD, CBS, CBX, DONE, FIN, MD, MS, MX, PING, R, T, U
from tests.support.scripted_provider import NEVER, Play, tell
from tests.unit.pipeline.scene import Scene, at, virtual_loop

NO_HEARTBEATS = Deadlines(heartbeat_s=10_000.0)
LAST = (FIN(), U(3, 1), DONE)
IN_JSON = CLIENT_DIALECTS["openai_chat"].read_call(
    b'{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}],"response_format":{"type":"json_object"}}',
    CallOptions(),
    (),
)


async def test_the_first_token_deadline_before_the_commit() -> None:
    """With nothing said by first_token_s the request fails with a plain 504, and the connection is dropped at once."""
    scene = Scene(tell(head_s=NEVER), deadlines=Deadlines(commit_after_s=61.0))

    with pytest.raises(GatewayError) as caught:
        await scene.start()
    outcome = await scene.end()

    assert (outcome, scene.heard, caught.value.kind.code) == ("failed", [], "provider_timeout")
    assert (scene.receipt.total_ms, scene.failures) == (60_000.0, [("a", "first_token")])
    assert scene.left_s == 60.0


async def test_the_first_token_deadline_after_the_commit() -> None:
    """The commit does not move it, nor do heartbeats: the client gets the error frame at first_token_s."""
    scene = Scene(tell(R(), head_s=1.0))

    outcome = await scene.end()

    assert scene.heard == [
        (20.0, "200"), (20.0, "ping"), (35.0, "ping"), (50.0, "ping"),
        (60.0, "error upstream_timeout"), (60.0, "[DONE]"), (60.0, "end"),
    ]  # fmt: skip
    assert (outcome, scene.receipt.failure_reason) == ("interrupted", "first_token")


async def test_events_without_a_token_do_not_move_the_first_token_deadline() -> None:
    """Comments and role chunks are no token."""
    scene = Scene(tell(R(), *(30.0, b": still here\n\n") * 4), deadlines=NO_HEARTBEATS)

    await scene.end()

    assert scene.heard == [
        (20.0, "200"), (20.0, "ping"), (60.0, "error upstream_timeout"), (60.0, "[DONE]"), (60.0, "end")
    ]  # fmt: skip


async def test_words_held_back_are_a_first_token() -> None:
    """While words come that wait for a tool's call they are waited for, silence among them as long as any."""
    words = (CBD(0, "No"), 50.0, CBD(0, ", "), 50.0, CBD(0, "no."))
    play = tell(MS(3), CBS(0), *words, 89.0, CBX(0), MD("end_turn", 3), MX)
    scene = Scene(play, dialect="anthropic_messages", deadlines=NO_HEARTBEATS)
    scene.exchange.call = IN_JSON

    outcome = await scene.end()

    assert scene.heard[:2] == [(20.0, "200"), (20.0, "ping")]
    assert (outcome, scene.receipt.total_ms, scene.receipt.usage.completion_tokens) == ("completed", 189_000.0, 3)


async def test_silence_behind_words_held_back_ends() -> None:
    """Pings do not move the answer on."""
    play = tell(MS(3), CBS(0), CBD(0, "No"), 50.0, CBD(0, ", "), *(60.0, PING) * 3)
    scene = Scene(play, dialect="anthropic_messages", deadlines=NO_HEARTBEATS)
    scene.exchange.call = IN_JSON

    outcome = await scene.end()

    assert (outcome, scene.receipt.total_ms) == ("interrupted", 140_000.0)


async def test_the_commit_comes_with_the_first_token() -> None:
    """A token before commit_after_s opens the stream, and what was held back goes out with it."""
    scene = Scene(tell(R(), 19.75, T("Hi"), 0.25, *LAST))

    outcome = await scene.end()

    assert scene.heard[:3] == [(19.75, "200"), (19.75, "role"), (19.75, "Hi")]
    assert scene.heard[3:] == [(20.0, word) for word in ("finish", "metadata", "[DONE]", "end")]
    assert (outcome, scene.receipt.ttfb_ms, scene.receipt.ttft_ms) == ("completed", 19_750.0, 19_750.0)


@pytest.mark.parametrize(
    "play",
    [
        pytest.param(tell(T("Hi"), *LAST, head_s=30.0), id="no head"),
        pytest.param(tell(30.0, T("Hi"), *LAST), id="head"),
    ],
)
async def test_commit_after_s_opens_a_silent_stream(play: Play) -> None:
    """Whether or not the provider's head is here, the client gets its 200 and a heartbeat at commit_after_s."""
    scene = Scene(play)

    outcome = await scene.end()

    assert scene.heard[:4] == [(20.0, "200"), (20.0, "ping"), (30.0, "role"), (30.0, "Hi")]
    assert (outcome, scene.receipt.ttfb_ms, scene.receipt.ttft_ms) == ("completed", 20_000.0, 30_000.0)


async def test_the_idle_deadline_counts_from_the_last_progress() -> None:
    """Each token buys idle_s more; comments buy nothing."""
    silent = (60.0, b": still here\n\n", 60.0, b": still here\n\n")
    scene = Scene(tell(T("Hi"), 89.75, T("Ho"), *silent), deadlines=NO_HEARTBEATS)

    outcome = await scene.end()

    assert scene.heard[3:] == [
        (89.75, "Ho"), (179.75, "error upstream_timeout"), (179.75, "[DONE]"), (179.75, "end")
    ]  # fmt: skip
    assert (outcome, scene.receipt.failure_reason) == ("interrupted", "idle")


async def test_heartbeats_keep_their_distance_to_frames() -> None:
    """One comes heartbeat_s after the last thing that was written, be it a frame or a heartbeat."""
    scene = Scene(tell(T("a"), 10.0, T("b"), 40.0, T("c"), 14.75, *LAST))

    await scene.end()

    assert scene.heard[3:7] == [(10.0, "b"), (25.0, "ping"), (40.0, "ping"), (50.0, "c")]
    assert {second for second, _ in scene.heard[7:]} == {64.75}


async def test_a_frame_in_the_turn_of_a_heartbeat_is_not_lost() -> None:
    """The wake-up cuts the read short, and the next one finds what had just come."""
    scene = Scene(tell(T("a"), 15.0, T("b"), 15.0, T("c"), 1.0, *LAST))

    outcome = await scene.end()

    assert [word for _, word in scene.heard if word in "abc"] == ["a", "b", "c"]
    assert (outcome, scene.receipt.usage_basis) == ("completed", "provider_final")


async def test_no_heartbeat_while_the_client_does_not_read() -> None:
    """To a client that is behind nothing is written, however long it takes; after that heartbeats go on."""
    deadlines = Deadlines(idle_s=1000.0, write_stall_s=300.0)
    scene = Scene(tell(T("a"), 1.0, T("b"), 499.0, *LAST), deadlines=deadlines)
    scene.start()
    await at(0.5)
    scene.sink.stop_reading()
    await at(200.0)
    scene.sink.read_on()

    outcome = await scene.end()

    pings = [second for second, word in scene.heard if word == "ping"]
    assert (outcome, scene.heard[3]) == ("completed", (1.0, "b"))
    assert min(pings) >= 200.0
    assert len(pings) > 10


async def test_the_write_stall_deadline() -> None:
    """A client that takes nothing for write_stall_s is dropped without a clean end, and that is its own leaving."""
    scene = Scene(tell(T("a"), 1.0, T("b"), 2.0, *LAST))
    scene.start()
    await at(0.5)
    scene.sink.stop_reading()

    outcome = await scene.end()

    assert scene.heard[3:] == [(1.0, "b"), (31.0, "abort")]
    assert (outcome, scene.attempts, scene.failures) == ("cancelled", [("a", "cancelled")], [])


async def test_a_stall_deadline_that_is_the_nearest() -> None:
    """It is kept although the timer was armed for something later when the client fell behind."""
    scene = Scene(tell(T("a"), 1.0, T("b")), deadlines=Deadlines(write_stall_s=2.0))
    scene.start()
    await at(0.5)
    scene.sink.stop_reading()

    assert (await scene.end(), scene.heard[3:]) == ("cancelled", [(1.0, "b"), (3.0, "abort")])


async def test_each_stall_has_its_own_deadline() -> None:
    """A client that catches up just in time has the whole of write_stall_s again."""
    scene = Scene(tell(T("a"), 1.0, T("b"), 30.25, T("c")))
    scene.start()
    await at(0.5)
    scene.sink.stop_reading()
    await at(30.75)
    scene.sink.read_on()
    await at(31.125)
    scene.sink.stop_reading()

    await scene.end()

    assert [said for said in scene.heard[3:] if said[1] != "ping"] == [(1.0, "b"), (31.25, "c"), (61.25, "abort")]


async def test_a_stalled_client_does_not_make_its_provider_idle() -> None:
    """Silence counts from the moment on which the client reads again: nobody listened before."""
    deadlines = Deadlines(idle_s=20.0, heartbeat_s=1000.0)
    scene = Scene(tell(T("a"), 1.0, T("b")), deadlines=deadlines)
    scene.start()
    await at(0.5)
    scene.sink.stop_reading()
    await at(30.0)
    scene.sink.read_on()

    await scene.end()

    assert scene.heard[3:5] == [(1.0, "b"), (50.0, "error upstream_timeout")]


async def test_one_timer_for_all_deadlines() -> None:
    """Frames move deadlines without arming anything: a timer fires about once per heartbeat_s."""
    scene = Scene(tell(*(T("a"), 1.0) * 600, *LAST))
    watches: list[Watch] = []
    scene.start()
    virtual_loop().call_later(1.0, lambda: watches.extend(scene.running))

    await scene.end()

    (armed,) = [virtual_loop().timers_of(watch) for watch in watches]
    assert armed[:4] == [20.0, 15.0, 29.0, 43.0]  # commit, first heartbeat, then 15 s after the last frame
    assert len(armed) < 600 / 14 + 3
