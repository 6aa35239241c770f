"""A client that leaves, in every phase of its request, on both servers: the provider is told within 50 ms (H1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.chaos.scenes import ALL_SIDES, PROMISE_S, Book, Side, serving, until
from tests.chaos.upstream.raw_peer import RawPeer
from tests.support.acts import Answer, head, pause_ms, repeat, stall, status
from tests.support.client import Stream
from tests.support.config import KEY_ONE, anthropic_provider, model, openai_provider, standard
from tests.support.frames import content, parsed
from tests.support.gateway import Gateway
from tests.support.notation import HANG, json_answer
from tests.support.provider import FakeProvider, silent_port
from tests.support.stage import Seen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.alone]

SERVERS = {"plain": 1, "gunicorn": 2}
WAYS: dict[str, Callable[[Stream], float]] = {"fin": Stream.close, "rst": Stream.rst, "half": Stream.half_close}
BIG_BYTES = 5 << 20

each_way = pytest.mark.parametrize("way", WAYS)
each_side = pytest.mark.parametrize("side", ALL_SIDES, ids=lambda side: side.name)


@dataclass(slots=True)
class House:
    """A gateway and every kind of provider.

    Attributes:
        silent: A port where connecting hangs; the models "silent" and "silent-claude" are there.
        deaf: Takes connections and reads nothing; the models "deaf" and "deaf-claude" are there.
    """

    gateway: Gateway
    workers: int
    provider: FakeProvider
    silent: int
    deaf: RawPeer
    streams: list[Stream] = field(default_factory=list)

    async def open(self, side: Side, payload: dict[str, Any]) -> Stream:
        """A request of the key that may have one at once."""
        self.streams.append(await self.gateway.client(KEY_ONE).open("POST", side.path, payload))
        return self.streams[-1]

    async def ask(self, side: Side, *answers: Answer, **more: Any) -> tuple[Stream, Seen]:
        """A request that the provider has."""
        self.provider.script(side.model, *answers)
        before = len(self.provider.requests)
        stream = await self.open(side, side.ask(side.model, **more))
        await until(lambda: len(self.provider.requests) > before)
        return stream, self.provider.requests[before]

    async def slot_is_free(self, side: Side) -> bool:
        """DIS-04: whether that key can ask again, whichever worker answers."""
        self.provider.script(side.model, [json_answer("ok", dialect=side.dialect)])
        client, payload = self.gateway.client(KEY_ONE), side.ask(side.model, stream=False)
        book = Book(self.gateway)
        replies = [await client.request("POST", side.path, payload) for _ in range(2 * self.workers - 1)]
        await book.settled(len(replies))
        return {reply.status for reply in replies} == {200}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=SERVERS)
async def house(request: pytest.FixtureRequest) -> AsyncIterator[House]:
    async with FakeProvider() as provider, silent_port() as silent, RawPeer() as deaf:
        config = standard(
            provider.base_url,
            server={"max_body_bytes": 2 * BIG_BYTES},
            stream={"commit_after_s": 0.4, "heartbeat_s": 0.1, "first_token_s": 5, "idle_s": 5, "non_stream_s": 5},
            upstream={"connect_s": 5},
        )
        for name, port in (("silent", silent), ("deaf", deaf.port)):
            config["providers"][name] = openai_provider(f"http://127.0.0.1:{port}")
            config["providers"][f"{name}-claude"] = anthropic_provider(f"http://127.0.0.1:{port}")
            config["models"][name] = model(f"{name}/m")
            config["models"][f"{name}-claude"] = model(f"{name}-claude/m")
        async with serving(config, SERVERS[request.param]) as gateway:
            yield House(gateway, SERVERS[request.param], provider, silent, deaf)


@pytest_asyncio.fixture(loop_scope="module")
async def book(house: House) -> AsyncIterator[Book]:
    """The receipts of this test, which must leave no line that asks a person to look."""
    book = Book(house.gateway)
    yield book
    for stream in house.streams:
        await stream.dispose()
    house.streams.clear()
    assert book.errors == []


# -- phases: each brings a request as far as its name says, and tells how many pieces of the answer the client has --

Phase = Callable[[House, Side], Awaitable[tuple[Stream, Seen, int]]]


async def _read(stream: Stream, frames: int) -> int:
    """Read that many *frames*; how many of them were pieces of the answer."""
    got: list[bytes] = []
    async for frame in stream.frames():
        got.append(frame)
        if len(got) == frames:
            break
    return sum(content(item) is not None for item in parsed(got))


async def before_headers(house: House, side: Side) -> tuple[Stream, Seen, int]:
    return *await house.ask(side, [HANG]), 0


async def before_the_first_token(house: House, side: Side) -> tuple[Stream, Seen, int]:
    stream, seen = await house.ask(side, [side.start, HANG])
    await until(lambda: bool(seen.body_sent))
    await asyncio.sleep(0.02)  # the gateway holds the start back, so nobody can see it arrive
    return stream, seen, 0


async def flowing(house: House, side: Side) -> tuple[Stream, Seen, int]:
    stream, seen = await house.ask(side, [side.start, repeat(side.piece(" word"), pause_ms(5))])
    return stream, seen, await _read(stream, 6)


async def stalled(house: House, side: Side) -> tuple[Stream, Seen, int]:
    stream, seen = await house.ask(side, [side.start, side.piece(" word"), side.piece(" more"), HANG])
    return stream, seen, await _read(stream, 3)


async def after_an_early_commit(house: House, side: Side) -> tuple[Stream, Seen, int]:
    stream, seen = await house.ask(side, [HANG])
    return stream, seen, await _read(stream, 2)  # heartbeats


async def json_before_headers(house: House, side: Side) -> tuple[Stream, Seen, int]:
    return *await house.ask(side, [HANG], stream=False), 0


async def json_mid_body(house: House, side: Side) -> tuple[Stream, Seen, int]:
    script = [head("application/json", framing=1000), b'{"id":"c1","choices":[', stall()]
    stream, seen = await house.ask(side, script, stream=False)
    await until(lambda: bool(seen.body_sent))
    await asyncio.sleep(0.02)  # on its way to the gateway
    return stream, seen, 0


PHASES: tuple[Phase, ...] = (
    before_headers,
    before_the_first_token,
    flowing,
    stalled,
    after_an_early_commit,
    json_before_headers,
    json_mid_body,
)


@each_way
@each_side
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
async def test_dis_01_02_04_leaving(house: House, book: Book, phase: Phase, side: Side, way: str) -> None:
    """The upstream is closed within 50 ms, one receipt says cancelled with its tokens, and the slot is free."""
    stream, seen, received = await phase(house, side)

    left_s = WAYS[way](stream)
    closed = await seen.gone()
    (row,) = await book.settled(1)

    assert closed.when_s - left_s <= PROMISE_S
    assert (row["outcome"], row["routing_mode"]) == ("cancelled", "streaming_cancelled")
    assert row["prompt_tokens"] > 0
    assert received <= row["completion_tokens"] <= side.counted(seen.content_events)
    assert row["usage_basis"] in ("received", "estimated")
    assert float(row["cost_usd"]) > 0
    assert 0 <= row["cancel_ms"] < 50
    assert row["attempts"] == [f"fake-{side.dialect}/{side.model}:cancelled"]
    assert await house.slot_is_free(side)


@each_way
@each_side
async def test_leaving_while_a_retry_waits(house: House, book: Book, side: Side, way: str) -> None:
    """A client that leaves while `Retry-After` is waited out is settled at once; the second attempt is never made."""
    busy = status(429, {"Retry-After": "0.3"}, {"error": {"message": "slow down"}})
    stream, seen = await house.ask(side, [busy], [HANG])
    await seen.played.wait()
    await until(lambda: "provider.failed" in [line["event"] for line in book.lines])

    WAYS[way](stream)
    (row,) = await book.settled(1, within_s=0.2)
    await asyncio.sleep(0.5)  # past the time the second attempt was due

    assert (row["outcome"], row["routing_mode"]) == ("cancelled", "streaming_cancelled")
    assert (row["prompt_tokens"], float(row["cost_usd"])) == (0, 0)  # the one provider asked has refused
    assert 0 <= row["cancel_ms"] < 50
    assert row["attempts"] == [f"fake-{side.dialect}/{side.model}:failed"]
    assert house.provider.requests[-1] is seen
    assert await house.slot_is_free(side)


@each_way
@each_side
async def test_leaving_while_uploading(house: House, book: Book, side: Side, way: str) -> None:
    """A body that breaks off never becomes an exchange: no receipt, no upstream request, no complaint."""
    before = len(house.provider.requests)
    client = house.gateway.client(KEY_ONE)
    stream = Stream(await client.connect(), "POST", client.watch)
    house.streams.append(stream)
    whole = client.request_bytes("POST", side.path, side.ask(side.model, "word " * 100_000))
    await stream.peer.send(whole[: len(whole) // 2])
    await until(lambda: house.gateway.client_sockets() == 1)

    WAYS[way](stream)
    await until(lambda: house.gateway.client_sockets() == 0, within_s=0.5)

    assert len(house.provider.requests) == before
    assert await house.slot_is_free(side)
    assert {row["outcome"] for row in book.receipts} == {"completed"}  # those of the line before


@each_way
@each_side
async def test_leaving_while_connecting(house: House, book: Book, side: Side, way: str) -> None:
    """A connection that is still being made is given up within 50 ms."""
    stream = await house.open(side, side.ask("silent" if side.dialect == "openai" else "silent-claude"))
    await until(lambda: connecting(house.silent) > FILLERS)

    WAYS[way](stream)
    await until(lambda: connecting(house.silent) == FILLERS, within_s=PROMISE_S)
    (row,) = await book.settled(1)

    assert (row["outcome"], row["routing_mode"]) == ("cancelled", "streaming_cancelled")
    assert (row["prompt_tokens"], row["completion_tokens"], row["cost_usd"]) == (0, 0, "0.000000")
    assert await house.slot_is_free(side)


@each_way
@each_side
async def test_leaving_a_provider_that_does_not_read(house: House, book: Book, side: Side, way: str) -> None:
    """5 MB that the provider does not take do not hold the close up: it is reset within 50 ms."""
    stream = await house.open(
        side, side.ask("deaf" if side.dialect == "openai" else "deaf-claude", "word " * (BIG_BYTES // 5))
    )
    conn = await house.deaf.accept()
    await asyncio.sleep(0.1)  # until the kernel's buffers between the two are full

    left_s = WAYS[way](stream)
    how, when_s = await conn.left()
    (row,) = await book.settled(1)

    assert how == "rst"
    assert when_s - left_s <= PROMISE_S
    assert (row["outcome"], row["routing_mode"]) == ("cancelled", "streaming_cancelled")
    assert row["prompt_tokens"] == 0  # it has not even got the whole request
    assert await house.slot_is_free(side)


FILLERS = 7  # connections of `silent_port` itself that hang in their handshake


def connecting(port: int) -> int:
    """Connections to *port* that wait for their handshake (state 02 in the kernel's table)."""
    return Path("/proc/net/tcp").read_bytes().count(b":%04X 02 " % port)  # as one piece: the table may be long
