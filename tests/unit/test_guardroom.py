"""Scans in real threads: others are served meanwhile, and nothing goes on that nobody waits for."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from gateway.core.call import Call, CallOptions
from gateway.core.guarding import Check, Finding, GuardTerms, Text
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.pipeline.scanning import INLINE_BYTES, Means, Memory, ScanFailed, Scanner
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


def scanner(engine: Slow, threads: ThreadPoolExecutor) -> Scanner:
    return Scanner({"pii": engine}, Memory(b"salt"), Means(threads, time.monotonic))


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


async def test_waiting_is_time_too(threads: ThreadPoolExecutor) -> None:
    """A scan that finds all threads taken is late when its deadline has passed, and is not begun any more."""
    busy, waiting = Slow(), Slow()
    first, second = scanner(busy, threads), scanner(waiting, threads)
    reading = asyncio.ensure_future(first.look("pii", first.read(long_call(), "acme"), TERMS))
    await asyncio.to_thread(busy.began.wait, LONG_S)

    with pytest.raises(ScanFailed) as caught:
        await second.look("pii", second.read(long_call(), "acme"), GuardTerms("block", deadline_s=0.02))
    busy.go.set()
    await reading

    assert caught.value.reason == "late"
    assert not waiting.began.is_set()
