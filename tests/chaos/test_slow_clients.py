"""Clients that read slowly, or not at all (B3, PRX-15); what those cost is in test_stuck_readers.py."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.chaos.scenes import ALL_SIDES, OPENAI, RCVBUF, Book, Side, ends_well, rss_bytes, serving, stuck, until
from tests.support.acts import repeat
from tests.support.config import standard
from tests.support.frames import text_of
from tests.support.gateway import Gateway
from tests.support.notation import json_answer
from tests.support.provider import FakeProvider
from tests.support.stage import Seen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.alone]

STALL_S, IDLE_S = 0.8, 0.5

Place = tuple[Gateway, FakeProvider]
each_side = pytest.mark.parametrize("side", ALL_SIDES, ids=lambda side: side.name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    async with FakeProvider() as provider:
        times = {"write_stall_s": STALL_S, "idle_s": IDLE_S, "first_token_s": 20, "non_stream_s": 20}
        config = standard(provider.base_url, stream=times, upstream={"pool_idle_s": 0.2})
        async with serving(config) as gateway:
            yield gateway, provider


async def full(seen: Seen) -> float:
    """Wait until the provider's bytes go nowhere any more; the monotonic second of the last that went."""
    sent, at_s = -1, 0.0
    while sent != (sent := len(seen.body_sent)):
        at_s = time.monotonic()
        await asyncio.sleep(0.15)
    return at_s


@each_side
async def test_stuck_reader(place: Place, side: Side) -> None:
    """A client that takes nothing for the write-stall time is dropped without a clean end, and counts as cancelled."""
    gateway, provider = place
    provider.script(side.model, [side.start, repeat(side.piece("x" * 2000))])
    book, before = Book(gateway), len(provider.requests)
    stream = await stuck(gateway, side)
    await until(lambda: len(provider.requests) > before)
    seen = provider.requests[before]
    still_s = await full(seen)

    closed = await seen.gone(STALL_S + 2)
    (row,) = await book.settled(1)
    stream.peer.resume()
    await stream.reply()
    await stream.dispose()

    assert closed.when_s - still_s < STALL_S + 0.5
    assert not stream.ended_properly
    assert (row["outcome"], row["routing_mode"]) == ("cancelled", "streaming_cancelled")
    assert row["completion_tokens"] > 0
    assert book.errors == []


@each_side
async def test_half_closed_stuck_reader(place: Place, side: Side) -> None:
    """A client that reads nothing and closes its sending side is let go no later than any other stuck one."""
    gateway, provider = place
    provider.script(side.model, [side.start, repeat(side.piece("x" * 2000))])
    book, before = Book(gateway), len(provider.requests)
    stream = await stuck(gateway, side)
    await until(lambda: len(provider.requests) > before)
    await full(provider.requests[before])

    left_s = stream.half_close()
    closed = await provider.requests[before].gone(STALL_S + 2)
    (row,) = await book.settled(1)
    await stream.dispose()
    print("half-closed and stuck, let go after, ms:", round((closed.when_s - left_s) * 1000, 1))

    assert closed.when_s - left_s < STALL_S + 0.5
    assert row["outcome"] == "cancelled"
    assert book.errors == []


async def test_stuck_reader_of_json(place: Place) -> None:
    """A JSON answer that nobody takes does not pin its connection either."""
    gateway, provider = place
    provider.script("m", [json_answer("x" * 8_000_000)])
    book = Book(gateway)
    stream = await gateway.client().open("POST", OPENAI.path, OPENAI.ask("m", stream=False), rcvbuf=RCVBUF)
    stream.peer.pause()
    (row,) = await book.settled(1)

    await until(lambda: gateway.client_sockets() == 0, STALL_S + 2)
    await stream.dispose()

    assert row["outcome"] == "completed"  # it was all there; that nobody took it is no fault of the provider
    assert book.errors == []


PIECE_CHARS, PIECES, SLICE_BYTES, EVERY_S = 4000, 1500, 32_768, 0.012  # 6 MB, read at 2.7 MB/s


@each_side
async def test_prx_15_slow_but_honest(place: Place, side: Side) -> None:
    """A reader slower than the provider gets every byte; the gateway holds little, and no deadline of ours counts."""
    gateway, provider = place
    provider.script(side.model, side.whole(*(f"{n:06d}" + "x" * (PIECE_CHARS - 6) for n in range(PIECES))))
    book, memory, peak = Book(gateway), rss_bytes(gateway), 0
    stream = await gateway.client().open("POST", side.path, side.ask(side.model), rcvbuf=SLICE_BYTES)
    frames, started_s = [], time.monotonic()

    async for frame in stream.frames():
        frames.append(frame)
        if len(frames) % 8 == 0:
            stream.peer.pause()
            peak = max(peak, rss_bytes(gateway))
            await asyncio.sleep(EVERY_S)
            stream.peer.resume()
    took_s = time.monotonic() - started_s
    (row,) = await book.settled(1)
    await stream.dispose()
    print("slow reader:", round(took_s, 1), "s; memory, KiB:", (peak - memory) // 1024)

    assert ends_well(side, frames)
    text = text_of(frames)
    assert [text[i : i + 6] for i in range(0, len(text), PIECE_CHARS)] == [f"{n:06d}" for n in range(PIECES)]
    assert row["outcome"] == "completed"
    assert took_s > 2 * IDLE_S
    assert peak - memory < 1_000_000  # the answer has six times as much; kept for the receipt is its text, folded


@each_side
async def test_a_big_frame_taken_slowly(place: Place, side: Side) -> None:
    """A client that takes bytes all the time is not stuck, however long one frame takes it."""
    gateway, provider = place
    provider.script(side.model, [side.start, side.piece("x" * 900_000), side.finish])
    book = Book(gateway)
    stream = await gateway.client().open("POST", side.path, side.ask(side.model), rcvbuf=RCVBUF)
    body, started_s = bytearray(), time.monotonic()

    async for piece in stream.pieces():
        body += piece
        stream.peer.pause()
        await asyncio.sleep(0.02 * len(piece) / 8192)
        stream.peer.resume()
    took_s = time.monotonic() - started_s
    (row,) = await book.settled(1)
    await stream.dispose()
    print("big frame:", round(took_s, 2), "s")

    assert ends_well(side, [frame for frame in bytes(body).split(b"\n\n") if frame])
    assert row["outcome"] == "completed"
