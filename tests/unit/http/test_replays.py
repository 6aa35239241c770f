"""A repeat of a named call leaves nothing behind in the limits."""

from __future__ import annotations

from typing import Any

from gateway.core.accounts import Burst, Key, Tier
from gateway.core.exchange import Answer, Exchange
from gateway.core.ports import Claim, Kept
from gateway.http.recording import Room
from gateway.http.replays import Repeater
from gateway.storage.memory import MemoryCounters
from tests.unit.pipeline.scene import call


class Store:
    """Has the answer to every call."""

    async def claim(self, claim: Claim) -> Kept:
        return Kept("req_first", Answer(200, b"{}"))


async def test_repeats_hold_no_place() -> None:
    """However many there are, no place of the key's is taken for longer, nor any memory."""
    counters = MemoryCounters(lambda: 1_700_000_000.0)
    store: Any = Store()
    repeater = Repeater(store, counters, Room(1, 1), lambda request_id, key: None)
    key = Key("key_1", "acme", Tier("t", rpm=100, inflight=1, burst=Burst(1, 1)))
    nobody: Any = None
    sizes = []

    for number in range(3):
        request_id = f"req_{number}"
        exchange = Exchange(request_id, "trace", "chat_completions", call(stream=False), key, 0.0)
        await repeater.answer(nobody, exchange, Claim("acme", b"n", b"c", request_id), nobody, nobody)
        sizes.append(len(counters))

    assert sizes == sizes[:1] * 3
    assert exchange.limits.rpm_remaining == 97
