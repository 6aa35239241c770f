"""Scans in real threads: others are served meanwhile, and nothing goes on that nobody waits for."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from gateway.core.call import Call, CallOptions
from gateway.core.guarding import Check, Finding, GuardTerms, Text
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.pipeline.scanning import INLINE_BYTES, Means, Memory, ScanFailed, Scanner
from gateway.pipeline.turns import AT_ONCE, Turns
from tests.support.guards import Words

LONG_S = 20.0  # none of the tests takes as long
TERMS = GuardTerms("block", deadline_s=10 * LONG_S)


class Slow(Words):
    """An engine that reads until it is told to stop, by the test or by its time."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.over, self.go = threading.Event(), threading.Event(), threading.Event()

    def scan(self, text: Text, check: Check) -> Sequence[Finding]:
        self.began.set()
        try:
            while not self.go.wait(0.001):
                check()
            return []
        finally:
            self.over.set()


@pytest.fixture
async def threads() -> AsyncIterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def scanner(engine: Slow, threads: ThreadPoolExecutor | Turns) -> Scanner:
    turns = threads if isinstance(threads, Turns) else Turns(threads)
    return Scanner({"pii": engine}, Memory(b"salt"), Means(turns, time.monotonic))


def long_call(letter: str = "x") -> Call:
    body = {"model": "m", "messages": [{"role": "user", "content": letter * INLINE_BYTES}]}
    return CLIENT_DIALECTS["openai_chat"].read_call(json.dumps(body).encode(), CallOptions(), ())


async def test_others_go_on(threads: ThreadPoolExecutor) -> None:
    """The loop runs while a long text is read."""
    engine = Slow()
    scan = scanner(engine, threads)

    reading = asyncio.ensure_future(scan.look("pii", scan.read(long_call(), "acme"), TERMS))
    await asyncio.to_thread(engine.began.wait, LONG_S)
    is_done = reading.done()
    engine.go.set()

    assert (is_done, (await reading).verdict.status) == (False, "pass")


async def test_a_client_that_leaves(threads: ThreadPoolExecutor) -> None:
    """Its scan ends at its next look, long before its deadline."""
    engine = Slow()
    scan = scanner(engine, threads)
    reading = asyncio.ensure_future(scan.look("pii", scan.read(long_call(), "acme"), TERMS))
    await asyncio.to_thread(engine.began.wait, LONG_S)

    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    assert await asyncio.to_thread(engine.over.wait, LONG_S)


async def test_waiting_is_bounded(threads: ThreadPoolExecutor) -> None:
    """A scan that finds all threads taken waits as long as it may take, and then is late and not begun any more."""
    busy, waiting, turns = Slow(), Slow(), Turns(threads, 1)
    first, second = scanner(busy, turns), scanner(waiting, turns)
    reading = asyncio.ensure_future(first.look("pii", first.read(long_call(), "acme"), TERMS))
    await asyncio.to_thread(busy.began.wait, LONG_S)

    with pytest.raises(ScanFailed) as caught:
        await second.look("pii", second.read(long_call(), "other"), GuardTerms("block", deadline_s=0.02))
    busy.go.set()
    await reading

    assert caught.value.reason == "late"
    assert not waiting.began.is_set()


async def test_waiting_is_no_time_of_the_scan(threads: ThreadPoolExecutor) -> None:
    """Its deadline begins with its turn, however late that comes."""
    clock, turns, go = [0.0], Turns(threads, 1), threading.Event()
    scan = Scanner({"pii": Words()}, Memory(b"salt"), Means(turns, lambda: clock[0]))
    busy = asyncio.ensure_future(turns.run("other", lambda: go.wait(LONG_S), None, None))
    reading = asyncio.ensure_future(scan.look("pii", scan.read(long_call(), "acme"), TERMS))
    await asyncio.sleep(0)

    clock[0] = 2 * TERMS.deadline_s
    go.set()

    assert (await reading).verdict.status == "pass"
    await busy


async def test_one_tenant_leaves_threads_to_others() -> None:
    """However many long texts a tenant has read, another one's is read at once."""
    hog, other = Slow(), Slow()
    with ThreadPoolExecutor(AT_ONCE) as executor:
        turns = Turns(executor)
        big, small = scanner(hog, turns), scanner(other, turns)
        many = [
            asyncio.ensure_future(big.look("pii", big.read(long_call(letter), "big"), TERMS)) for letter in "abcdefgh"
        ]
        await asyncio.to_thread(hog.began.wait, LONG_S)

        other.go.set()
        judged = await small.look("pii", small.read(long_call(), "small"), TERMS)
        still = [one.done() for one in many]
        hog.go.set()
        await asyncio.gather(*many)

    assert (judged.verdict.status, any(still)) == ("pass", False)


async def test_turns_go_round() -> None:
    """Who came later has its turn before the second of one who waits with many; who leaves has none."""
    done: list[str] = []
    with ThreadPoolExecutor(1) as executor:
        turns, go = Turns(executor, 1), threading.Event()
        first = asyncio.ensure_future(turns.run("x", lambda: go.wait(LONG_S), None, None))
        rest = {
            name: asyncio.ensure_future(turns.run(name[0], partial(done.append, name), None, None))
            for name in ("a1", "a2", "a0", "a3", "b1")
        }
        await asyncio.sleep(0)
        rest.pop("a0").cancel()
        go.set()
        await asyncio.gather(first, *rest.values())
        again = await turns.run("x", lambda: "free", LONG_S, None)

    assert (done, again) == (["a1", "b1", "a2", "a3"], "free")

