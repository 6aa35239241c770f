"""A client that leaves a provider which is to be read on: what is counted is what the provider has."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.catalog import Drain
from gateway.core.errors import SHUTDOWN
from gateway.core.exchange import Exchange
from gateway.core.receipt import Receipt
from gateway.core.usage import NO_USAGE, Usage
from gateway.pipeline import drains
from gateway.pipeline.draining import DrainedStream
from gateway.pipeline.services import Deadlines
from tests.support.notation import DONE, FIN, R, T, U
from tests.support.scripted_provider import EOF, JSON, NEVER, Play, fail, status, tell
from tests.unit.pipeline.plays import COMPLETION, GOOD, RESET
from tests.unit.pipeline.scene import Scene, at, virtual_loop

DRAIN = Drain(max_s=30.0, max_tokens=100)
REST = (FIN(), U(3, 9), DONE)
FINAL = Usage(3, 9)


def drained(*plays: Play, stream: bool = True, drain: Drain = DRAIN, routes: tuple[str, ...] = ("a",)) -> Scene:
    scene = Scene(*plays, stream=stream, drain=drain, routes=routes)
    scene.start()
    return scene


async def left_at(second: float, scene: Scene) -> Scene:
    await at(second)
    scene.leave()
    await scene.end()
    return scene


@pytest.mark.parametrize(
    ("play", "stream", "usage"),
    [
        pytest.param(tell(R(), T("Hi"), 5.0, *REST, head_s=2.0), True, FINAL, id="asking"),
        pytest.param(tell(2.0, R(), T("Hi"), 5.0, *REST), True, FINAL, id="before the first token"),
        pytest.param(tell(R(), T("Hi"), 5.0, T(" there"), *REST), True, FINAL, id="flowing"),
        pytest.param(tell(R(), T("Hi"), 5.0, T(" there")[:20], 1.0, T(" there")[20:], *REST), True, FINAL, id="cut"),
        pytest.param(Play((COMPLETION, EOF), headers=JSON, head_s=2.0), False, Usage(3, 1), id="json, asking"),
        pytest.param(
            Play((COMPLETION[:40], 5.0, COMPLETION[40:], EOF), headers=JSON), False, Usage(3, 1), id="json, reading"
        ),
    ],
)
async def test_read_to_its_end(play: Play, stream: bool, usage: Usage) -> None:
    """In every phase the provider's own final count is in the one receipt, which says that the client left."""
    scene = await left_at(1.0, drained(play, stream=stream))

    receipt = scene.receipt
    assert (receipt.outcome, receipt.routing_mode, receipt.on_cancel) == ("cancelled", "streaming_cancelled", "drain")
    assert (receipt.usage, receipt.usage_basis, receipt.note) == (usage, "provider_final", "drain:end")
    assert (scene.attempts, receipt.cancel_ms) == ([("a", "cancelled")], None)
    assert receipt.cost_nano_usd == usage.total_tokens * 10**3
    assert receipt.response_id == "c1"


async def test_the_client_hears_nothing_more() -> None:
    """What is read on is nobody's."""
    scene = drained(tell(R(), T("Hi"), 5.0, T(" there"), *REST))
    await at(1.0)
    heard = [*scene.heard]

    await left_at(1.0, scene)

    assert scene.heard == heard


async def test_seconds_bound_it() -> None:
    """After `max_s` the provider is left, and what has come is counted as ever."""
    scene = await left_at(1.0, drained(tell(R(), T("Hi"), 5.0, T(" there"), NEVER)))

    assert (scene.left_s, scene.receipt.note) == (31.0, "drain:max_s")
    assert (scene.receipt.usage.completion_tokens, scene.receipt.usage_basis) == (2, "estimated")


async def test_usage_that_is_late() -> None:
    """A complete answer is waited for no longer than with a client: its usage has the same grace."""
    scene = await left_at(1.0, drained(tell(R(), T("Hi"), 5.0, FIN(), NEVER)))

    assert (scene.left_s, scene.receipt.note) == (7.0, "drain:usage_late")
    assert (scene.receipt.usage.completion_tokens, scene.receipt.usage_basis) == (1, "estimated")


async def test_tokens_bound_it() -> None:
    """The provider is left once `max_tokens` more have come than the client had."""
    flood = tell(R(), T("Hi"), 2.0, *(T(" word"), 0.01) * 1000)

    scene = await left_at(1.0, drained(flood, drain=Drain(30.0, 50)))

    assert scene.receipt.note == "drain:max_tokens"
    assert 50 <= scene.receipt.usage.completion_tokens <= 52
    assert scene.left_s is not None
    assert scene.left_s < 3.0


@pytest.mark.parametrize(
    ("play", "note", "usage"),
    [
        pytest.param(tell(R(), T("Hi"), 5.0, RESET), "drain:reset", Usage(9, 1), id="broken"),
        pytest.param(tell(R(), T("Hi"), 5.0, EOF), "drain:truncated", Usage(9, 1), id="truncated"),
        pytest.param(status(500, EOF, head_s=2.0), "drain:status_500", NO_USAGE, id="an error after all"),
        pytest.param(fail(RESET, 2.0), "drain:reset", Usage(9, 0), id="no answer"),
    ],
)
async def test_a_provider_that_fails_meanwhile(play: Play, note: str, usage: Usage) -> None:
    """What had come counts; an error in place of an answer costs nothing. Nothing is retried for nobody."""
    scene = await left_at(1.0, drained(play, GOOD, routes=("a", "b")))

    assert (scene.receipt.note, len(scene.asked)) == (note, 1)
    assert scene.receipt.usage.completion_tokens == usage.completion_tokens
    assert (scene.receipt.usage.prompt_tokens > 0) == (usage.prompt_tokens > 0)


@pytest.mark.parametrize(
    ("play", "when_s"),
    [
        pytest.param(Play(sent_s=5.0, head_s=NEVER), 1.0, id="still sending"),
        pytest.param(status(500, 2.0, EOF), 1.0, id="reading an error"),
    ],
)
async def test_what_is_not_read_on(play: Play, when_s: float) -> None:
    """A provider that has not got the request, or has answered with an error, is left as ever."""
    scene = await left_at(when_s, drained(play))

    assert (scene.left_s, scene.receipt.on_cancel, scene.receipt.cancel_ms) == (when_s, "abort", 0.0)


async def test_between_two_attempts() -> None:
    """While nobody is asked there is nothing to read on."""
    scene = await left_at(0.1, drained(status(503, EOF)))

    assert (scene.receipt.outcome, scene.receipt.on_cancel, scene.receipt.usage) == ("cancelled", "abort", NO_USAGE)


async def test_the_second_attempt_is_what_is_read_on() -> None:
    """What the first had begun to answer before it failed is of no account."""
    begun = tell(R(), 1.0, RESET)
    scene = await left_at(2.0, drained(begun, tell(R(), T("Hi"), 5.0, *REST, head_s=3.0), routes=("a", "b")))

    assert (scene.receipt.usage, scene.receipt.note) == (FINAL, "drain:end")
    assert scene.attempts == [("a", "failed"), ("b", "cancelled")]


async def test_an_answer_that_is_complete() -> None:
    """A client that leaves while only the usage is awaited had its answer: completed, as without drain."""
    scene = await left_at(1.0, drained(tell(R(), T("Hi"), FIN())))

    assert (scene.receipt.outcome, scene.receipt.on_cancel) == ("completed", None)


async def test_a_client_that_takes_nothing() -> None:
    """It is gone after the write stall, and its provider is read on like that of one that left."""
    scene = Scene(
        tell(R(), *(T("Hi"), 0.5) * 20, *REST), drain=DRAIN, deadlines=Deadlines(write_stall_s=2.0)
    )  # fmt: skip
    scene.sink.stop_reading()

    outcome = await scene.end()

    assert (outcome, scene.receipt.usage, scene.receipt.on_cancel) == ("cancelled", FINAL, "drain")
    assert scene.heard[-1][1] == "abort"


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_shutdown(turns: int) -> None:
    """It ends the reading at once, however young its task is: what has come is counted, and settled once."""
    scene = drained(tell(R(), T("Hi"), 5.0, *REST))
    await at(1.0)
    scene.leave()
    for _ in range(turns):
        await asyncio.sleep(0)
    closing = asyncio.ensure_future(scene.drains.close(0.0))

    await scene.end()
    await closing

    assert (scene.receipt.note or "abort", scene.left_s) in [("drain:shutdown", 1.0), ("abort", 1.0)]
    assert scene.receipt.usage.completion_tokens == 1


async def test_shutdown_waits_for_it() -> None:
    """Within the time that the process has the reading goes on to its end."""
    scene = drained(tell(R(), T("Hi"), 5.0, *REST))
    await at(1.0)
    scene.leave()
    await at(2.0)

    await scene.drains.close(10.0)

    assert scene.receipt.usage == FINAL
    await scene.end()


async def test_nothing_new_at_shutdown() -> None:
    """A client that leaves after the last readings were ended is an abort."""
    scene = drained(tell(R(), T("Hi"), 5.0, *REST))
    await scene.drains.close(0.0)

    await left_at(1.0, scene)

    assert (scene.left_s, scene.receipt.on_cancel) == (1.0, "abort")


async def test_there_is_room_for_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound of the process providers are left with their clients."""
    monkeypatch.setattr(drains, "MAX_DRAINS", 0)

    scene = await left_at(1.0, drained(tell(R(), T("Hi"), 5.0, *REST)))

    assert (scene.left_s, scene.receipt.on_cancel) == (1.0, "abort")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_deadline_that_comes_first(stream: bool) -> None:
    """A client seen to leave in the very turn in which a deadline cuts its call: nothing is left open."""
    scene = drained(tell(head_s=NEVER), stream=stream)
    await at(1.0)
    scene.sink.leave()
    scene.interrupt(SHUTDOWN)

    await scene.end()

    assert scene.receipt.outcome in ("failed", "interrupted")


async def test_the_load_lasts_as_long() -> None:
    """The attempt counts on its route until the reading ends; `Scene.end` sees that it is released."""
    scene = drained(tell(R(), T("Hi"), 5.0, *REST))
    await at(1.0)
    scene.leave()
    await at(3.0)

    assert scene.running_on("a") == 1
    await scene.end()


async def test_the_key_holds_its_place() -> None:
    """Nothing is given back before the reading ends, so that leaving is no way around a limit."""
    scene = drained(tell(R(), T("Hi"), 5.0, *REST))
    await at(1.0)
    scene.leave()
    await at(3.0)

    assert scene.receipts == []
    await scene.end()
    assert scene.receipt.total_ms == 5000.0


class Places:
    """A stage that counts what is given back."""

    given_back = 0

    async def admit(self, exchange: Exchange) -> None:
        return None

    def settle(self, exchange: Exchange, receipt: Receipt) -> None:
        self.given_back += 1


@pytest.mark.parametrize("turns", [1, 3], ids=["never began", "reading"])
async def test_a_count_that_fails(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of ours in measuring is reported, and costs neither the record nor the key's place."""

    def measure(self: DrainedStream) -> None:
        raise ZeroDivisionError

    stage = Places()
    scene = Scene(tell(R(), T("Hi"), NEVER), drain=DRAIN, before=(stage,))
    reported: list[dict[str, object]] = []
    virtual_loop().set_exception_handler(lambda _, context: reported.append(context))
    monkeypatch.setattr(DrainedStream, "_measure", measure)
    scene.start()
    await at(1.0)
    scene.leave()
    for _ in range(turns):
        await asyncio.sleep(0)

    await scene.drains.close(0.0)
    await asyncio.sleep(0)

    assert [(receipt.outcome, receipt.note) for receipt in scene.receipts] == [("cancelled", "drain:shutdown")]
    assert (stage.given_back, len(scene.crashes) + len(reported)) == (1, 1)
