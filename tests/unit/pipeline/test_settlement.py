"""An exchange is settled once, its stages newest first."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.core.errors import RATE_LIMIT_EXCEEDED, SHUTDOWN, GatewayError
from gateway.core.exchange import Answer, Exchange, Outcome
from gateway.core.receipt import Receipt
from gateway.pipeline.settlement import Settlement
from tests.support.notation import T
from tests.support.receipts_kept import MemoryLedger
from tests.support.scripted_provider import EOF, JSON, NEVER, Play, fail, tell
from tests.unit.pipeline.plays import COMPLETION, GOOD, RESET, STREAM_AND_JSON
from tests.unit.pipeline.scene import Scene, at

Diary = list[str]


class Noted:
    """A stage that writes down what happens to it; *verdict* is what it says to an exchange, None lets it pass."""

    def __init__(self, diary: Diary, name: str, verdict: Answer | Exception | None = None) -> None:
        self._diary, self._name, self._verdict = diary, name, verdict

    async def admit(self, exchange: Exchange) -> Answer | None:
        self._diary.append(f"admit {self._name}")
        if isinstance(self._verdict, Exception):
            raise self._verdict
        return self._verdict

    def settle(self, exchange: Exchange, receipt: Receipt) -> None:
        self._diary.append(f"settle {self._name} {receipt.outcome}")


@pytest.mark.parametrize("first", ["completed", "cancelled", "interrupted", "rejected", "failed"])
async def test_the_first_word_counts(first: Outcome) -> None:
    """Every later settlement changes nothing and gets the same receipt; every ledger and stage is told once."""
    scene, diary = Scene(), Diary()
    ledgers = MemoryLedger(), MemoryLedger()
    settlement = Settlement(scene.exchange, replace(scene.services, ledgers=ledgers))
    settlement.admitted(Noted(diary, "one"))
    settlement.admitted(Noted(diary, "two"))

    receipt = settlement.settle(first)
    await at(5.0)
    later = settlement.settle("completed"), settlement.settle("cancelled")

    assert (receipt.outcome, receipt.total_ms) == (first, 0.0)
    assert [again is receipt for again in later] == [True, True]
    assert [ledger.receipts for ledger in ledgers] == [(receipt,), (receipt,)]
    assert diary == [f"settle two {first}", f"settle one {first}"]


async def test_a_stage_that_settles_again() -> None:
    """A stage may cause what settles the exchange once more: it is in the books by then."""
    scene, diary = Scene(), Diary()
    settlement = Settlement(scene.exchange, scene.services)

    class Echo(Noted):
        def settle(self, exchange: Exchange, receipt: Receipt) -> None:
            assert settlement.settle("failed") is receipt
            super().settle(exchange, receipt)

    settlement.admitted(Echo(diary, "echo"))

    receipt = settlement.settle("completed")

    assert (diary, scene.receipt) == (["settle echo completed"], receipt)


@pytest.mark.parametrize(
    ("play", "outcome"),
    [
        pytest.param(GOOD, "completed", id="completed"),
        pytest.param(tell(T("Hi"), RESET), "interrupted", id="interrupted"),
        pytest.param(fail(replace(SHUTDOWN)), "failed", id="failed"),
    ],
)
async def test_stages_are_settled_in_reverse(play: Play, outcome: Outcome) -> None:
    """Each that let the exchange pass, whatever became of it."""
    diary = Diary()
    scene = Scene(play, before=(Noted(diary, "one"), Noted(diary, "two")))

    assert await scene.end() == outcome
    assert diary == ["admit one", "admit two", f"settle two {outcome}", f"settle one {outcome}"]


async def test_a_stage_that_refuses() -> None:
    """It holds nothing, so it is not settled; those before it are, and those behind it are never asked."""
    diary = Diary()
    refuse = Noted(diary, "two", GatewayError(RATE_LIMIT_EXCEEDED))
    scene = Scene(before=(Noted(diary, "one"), refuse, Noted(diary, "three")))

    with pytest.raises(GatewayError):
        await scene.start()
    outcome = await scene.end()

    assert (outcome, scene.receipt.status, scene.receipt.error_code) == ("rejected", 429, "rate_limit_exceeded")
    assert diary == ["admit one", "admit two", "settle one rejected"]


async def test_a_stage_that_answers() -> None:
    """It is settled with the others, and no provider is asked."""
    diary, answer = Diary(), Answer(203, b"from elsewhere")
    scene = Scene(before=(Noted(diary, "one"), Noted(diary, "two", answer), Noted(diary, "three")))

    given = await scene.start()
    outcome = await scene.end()

    assert (given, outcome, scene.receipt.status, scene.asked) == (answer, "completed", 203, [])
    assert diary == ["admit one", "admit two", "settle two completed", "settle one completed"]


async def test_a_stage_that_breaks() -> None:
    """A bug of ours is settled as a failure before it goes on its way."""
    diary = Diary()
    scene = Scene(before=(Noted(diary, "one"), Noted(diary, "two", ZeroDivisionError())))
    task = scene.start()
    await asyncio.wait([task])

    assert isinstance(task.exception(), ZeroDivisionError)
    assert (scene.receipt.outcome, scene.receipt.error_code) == ("failed", "internal_error")
    assert diary == ["admit one", "admit two", "settle one failed"]


async def test_settled_before_the_terminator() -> None:
    """The client may close on the terminator: by then the exchange is in the books."""
    heard: list[str] = []

    class Listening(Noted):
        def settle(self, exchange: Exchange, receipt: Receipt) -> None:
            heard.extend(word for _, word in scene.heard)

    scene = Scene(GOOD, before=(Listening(Diary(), "one"),))

    await scene.end()

    assert heard == ["200", "role", "Hi"]
    assert [word for _, word in scene.heard][3:] == ["finish", "metadata", "[DONE]", "end"]


@STREAM_AND_JSON
async def test_the_provider_is_left_before_the_books_are_made(stream: bool) -> None:
    """However long a stage takes to settle, the provider does not go on working meanwhile."""
    unclosed: list[int] = []

    class Watching(Noted):
        def settle(self, exchange: Exchange, receipt: Receipt) -> None:
            unclosed.append(len(scene.upstream.unclosed))

    scene = Scene(tell(T("Hi")), stream=stream, before=(Watching(Diary(), "one"),))
    task = scene.start()
    await at(3.0)
    task.cancel()

    assert (await scene.end(), unclosed) == ("cancelled", [0])


async def test_a_client_that_leaves_while_a_stage_thinks() -> None:
    """Only the stages that had let it pass are settled."""
    diary = Diary()

    class Slow(Noted):
        async def admit(self, exchange: Exchange) -> Answer | None:
            await asyncio.sleep(9.0)
            return await super().admit(exchange)

    scene = Scene(Play(head_s=NEVER), before=(Noted(diary, "one"), Slow(diary, "slow")))
    scene.start()
    await at(3.0)
    scene.leave()

    assert (await scene.end(), diary) == ("cancelled", ["admit one", "settle one cancelled"])


class Noting:
    """A stage that has found something."""

    async def admit(self, exchange: Exchange) -> None:
        exchange.note = "fetch:status"

    def settle(self, exchange: Exchange, receipt: Receipt) -> None:
        pass


@pytest.mark.parametrize(("play", "stream"), [(GOOD, True), (Play((COMPLETION, EOF), headers=JSON), False)])
async def test_a_stages_note_is_kept(play: Play, stream: bool) -> None:
    """What a stage noted is in the receipt of an answer of which there is nothing to be noted."""
    scene = Scene(play, stream=stream, before=(Noting(),))

    outcome = await scene.end()

    assert (outcome, scene.receipt.note) == ("completed", "fetch:status")
