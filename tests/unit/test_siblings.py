"""Workers that ask each other, over the sockets that they are forked with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway import siblings
from gateway.siblings import Channel, Siblings, open_channels


@pytest_asyncio.fixture
async def channels() -> AsyncIterator[tuple[Channel, ...]]:
    opened = open_channels(3)
    yield opened
    for channel in opened:
        channel.close()


@pytest_asyncio.fixture
async def workers(channels: tuple[Channel, ...]) -> AsyncIterator[list[Siblings]]:
    """Three that answer with their slot and the question."""
    made = [Siblings(slot, channels) for slot in range(3)]
    for worker in made:
        worker.listen(lambda question, slot=worker.slot: b"%d:%b" % (slot, question))  # type: ignore[misc]
    yield made
    for worker in made:
        worker.close()


async def test_everybody_asks_everybody(workers: list[Siblings]) -> None:
    """Each question comes to the worker in that slot, oneself included, and its answer to whoever asked it."""
    asked = [(worker, slot, b"%d to %d" % (worker.slot, slot)) for worker in workers for slot in range(3)]

    answers = await asyncio.gather(*(worker.ask(slot, question) for worker, slot, question in asked))

    assert answers == [b"%d:%b" % (slot, question) for _, slot, question in asked]


@pytest.mark.parametrize("slot", [3, -1, 99999])
async def test_no_such_slot(workers: list[Siblings], slot: int) -> None:
    """A slot that there is none of is known without asking, and so is any where there is one process only."""
    for asking in (workers[0], Siblings()):
        with pytest.raises(LookupError):
            await asking.ask(slot, b"?")


async def test_a_worker_that_does_not_answer(channels: tuple[Channel, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs is given up, however full its inbox is; the answers that come later go nowhere."""
    monkeypatch.setattr(siblings, "ANSWER_S", 0.05)
    asking, hanging = Siblings(0, channels), Siblings(1, channels)
    asking.listen(lambda question: b"")

    heard = asyncio.Event()

    def answer_late(question: bytes) -> bytes:
        heard.set()
        return b"late " + question

    silences = await asyncio.gather(*(asking.ask(1, b"?") for _ in range(1000)), return_exceptions=True)
    hanging.listen(answer_late)
    await heard.wait()
    monkeypatch.setattr(siblings, "ANSWER_S", 5)
    answer = await asking.ask(1, b"!")

    assert {type(silence) for silence in silences} == {TimeoutError}
    assert answer == b"late !"
    asking.close()
    hanging.close()


async def test_a_worker_that_takes_over(channels: tuple[Channel, ...]) -> None:
    """The next worker in a slot answers what its forerunner has not, and takes no answer that was for that one."""
    first, other = Siblings(0, channels), Siblings(1, channels)
    first.listen(lambda question: b"first")
    unanswered = asyncio.ensure_future(first.ask(1, b"?"))
    await asyncio.sleep(0)
    first.close()
    second = Siblings(0, channels)
    second.listen(lambda question: b"second")
    other.listen(lambda question: b"other")

    answers = await asyncio.gather(other.ask(0, b"?"), *(second.ask(1, b"?") for _ in range(20)))

    assert answers == [b"second", *[b"other"] * 20]
    assert not unanswered.done()
    unanswered.cancel()
    second.close()
    other.close()
