"""What clients that read nothing cost us while the provider floods (H6)."""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos.scenes import OPENAI, Book, heap_bytes, quiet, serving, stuck, until
from tests.support.acts import repeat
from tests.support.client import Stream
from tests.support.config import standard
from tests.support.gateway import Gateway
from tests.support.provider import FakeProvider

pytestmark = [pytest.mark.alone]

STALL_S = 60  # nobody is let go while the crowd gathers; that they are is tested in test_slow_clients.py
READY_S = 20.0  # for a crowd to be served; 2 to 4 s on a free machine
# The first crowd pays for what does not depend on how many there are: pools, caches, half-used pages.
FIRST, CROWD = 20, 60

KIB = 1024
# The buffers of one stuck reader. Written out, not imported: who makes one larger shall hear of it here.
READ_AHEAD = 2 * 16 * KIB  # unread body, at twice `UpstreamLimits.read_buffer_bytes` reading pauses
RECEIVED = 16 * KIB  # the receive that passed that line, `connection.RECEIVE_BYTES`; the parser keeps the rest of it
# Two writes of a read's size, `answer.READ_BYTES`: one of which the kernel took a part, which leaves less than the
# high-water mark of `ServerLimits.write_buffer_bytes`, and the one that then crossed the mark.
WRITTEN = 2 * 16 * KIB
KEPT = 32 * KIB  # text to be counted, `tokens.MAX_KEPT_CHARS`
STREAM = 44 * KIB  # goal of the bench for a stream that is silent: two connections, a task, a request, a parser each
# An eighth for object heads, the one event by which each line above is overstepped, and pages that are not full:
# measured are 4 to 9 % between what is allocated and what the process has grown by.
SLACK = 9 / 8
BOUND = (READ_AHEAD + RECEIVED + WRITTEN + KEPT + STREAM) * SLACK


async def warm_up(gateway: Gateway, provider: FakeProvider) -> None:
    """Streams that are read to their end, thirty at a time, so that nothing is done for the first time later."""
    provider.script("m", OPENAI.whole(*["x" * 2000] * 100))

    async def one() -> None:
        stream = await gateway.client().open("POST", OPENAI.path, OPENAI.ask("m"))
        await stream.reply()
        await stream.dispose()

    await asyncio.gather(*(one() for _ in range(30)))
    await gateway.settled(30, READY_S)


async def crowd(gateway: Gateway, provider: FakeProvider, count: int) -> list[Stream]:
    """*count* more stuck readers, for each of whom the provider's bytes go nowhere any more."""
    wanted, before = len(provider.requests) + count, heap_bytes(gateway)
    streams = [await stuck(gateway, OPENAI) for _ in range(count)]
    await until(lambda: len(provider.requests) == wanted, READY_S)
    sent = -1
    while sent != (sent := sum(len(seen.body_sent) for seen in provider.requests)):
        assert heap_bytes(gateway) - before < 4 * BOUND * count  # else it might never stand still
        await asyncio.sleep(0.3)
    return streams


@pytest.mark.parametrize("chars", [20, 2000])
async def test_h6_many_stuck_readers(chars: int) -> None:
    """A stuck reader costs no more than its buffers, and a crowd of them leaves nothing behind when it goes."""
    times = {"write_stall_s": STALL_S, "idle_s": 5, "first_token_s": 20}
    async with FakeProvider() as provider, serving(standard(provider.base_url, stream=times)) as gateway:
        await warm_up(gateway, provider)
        provider.script("m", [OPENAI.start, repeat(OPENAI.piece("x" * chars) * (2000 // chars))])
        book = Book(gateway)

        streams = await crowd(gateway, provider, FIRST)
        before = heap_bytes(gateway)
        streams += await crowd(gateway, provider, CROWD)
        each = (heap_bytes(gateway) - before) / CROWD
        for stream in streams:
            await stream.dispose()
        rows = await book.settled(FIRST + CROWD, READY_S)
        await quiet(gateway, provider, READY_S)
        print("memory per stuck reader, KiB:", round(each / KIB), "of", round(BOUND / KIB))

        assert {row["outcome"] for row in rows} == {"cancelled"}
        assert each < BOUND
        await until(lambda: gateway.sockets(provider.port) == 0)
