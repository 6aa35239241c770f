"""The kit counts right and its provider speaks what real clients read. Nothing here looks at a clock."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import anthropic
import openai
import pytest

from . import candidates, frames
from .cancelling import KINDS, Leaving, cancel_for
from .client import ABROAD, API_KEY, MODELS, Channel, DialectName, FrameCounter, request
from .frames import Script
from .holding import Crowd
from .load import Load, Plan
from .report import Report
from .runner import Record
from .upstream import Provider

DIALECTS: tuple[DialectName, ...] = ("openai", "anthropic")


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    """A fake provider on a free port."""
    provider = await Provider.start()
    yield provider
    provider.close()


async def until(load: Load, unit: Literal["requests", "streams", "failed"], count: int) -> None:
    """Let a load run until it has *count* of *unit*."""
    async with asyncio.timeout(20):
        while getattr(load.tally, unit) < count:  # noqa: ASYNC110 - the load has no event, it must stay light
            await asyncio.sleep(0.005)


async def test_openai_sdk_reads_the_provider(provider: Provider) -> None:
    """Role, content, finish and usage chunks come in the documented order, in the documented number."""
    async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{provider.port}/v1", api_key=API_KEY) as client:
        stream = await client.chat.completions.create(
            model=MODELS["openai"],
            messages=[{"role": "user", "content": Script(events=3).marker()}],
            stream=True,
            stream_options={"include_usage": True},
        )

        chunks = [chunk async for chunk in stream]

    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert [delta.role for delta in deltas] == ["assistant", None, None, None, None]
    assert sum(1 for delta in deltas if frames.STAMP.search((delta.content or "").encode())) == 3
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 250


async def test_anthropic_sdk_reads_the_provider(provider: Provider) -> None:
    """The SDK's own accumulation accepts the events and ends with all text and the usage."""
    async with anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{provider.port}", api_key=API_KEY) as client:
        asked = client.messages.stream(
            model=MODELS["anthropic"],
            max_tokens=100,
            messages=[{"role": "user", "content": Script(events=3).marker()}],
        )
        async with asked as stream:
            message = await stream.get_final_message()

    block = message.content[0]
    assert block.type == "text"
    assert len(frames.STAMP.findall(block.text.encode())) == 3
    assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 40)


async def test_json_answers_carry_usage(provider: Provider) -> None:
    """Without `stream` both dialects answer JSON of the size the script asks for."""
    ask = Script(size=300).marker()
    async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{provider.port}/v1", api_key=API_KEY) as client:
        completion = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": ask}])
    async with anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{provider.port}", api_key=API_KEY) as other:
        message = await other.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": ask}])

    assert completion.choices[0].message.content == "x" * 300
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, message.usage.input_tokens) == (210, 210)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("interval_ms", [0, 1, 20])
async def test_load_counts_every_frame(provider: Provider, dialect: DialectName, interval_ms: int) -> None:
    """A stream counts when all its content frames and the terminator came; every frame is counted and timed once."""
    plan = Plan(Script(events=7, interval_ms=interval_ms), 3, dialect, stream=True, timed=True)

    async with Load(provider.port, plan) as load:
        await until(load, "streams", 6)

    tally = load.tally
    assert tally.failed == 0
    assert 0 <= tally.frames - 7 * tally.streams < 3 * 7
    assert tally.frames == len(tally.delays)
    assert all(0 < delay < 20e9 for delay in tally.delays)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_load_counts_json(provider: Provider, dialect: DialectName) -> None:
    """Closed-loop users reuse their connection and count answers with status 200."""
    async with Load(provider.port, Plan(Script(), 2, dialect, timed=True)) as load:
        await until(load, "requests", 20)

    assert (0, load.tally.requests) == (load.tally.failed, len(load.tally.latencies))


class Scripted(asyncio.Protocol):
    """A server that answers anything with fixed bytes and closes."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer and close."""
        assert isinstance(self._transport, asyncio.Transport)
        self._transport.write(self._answer)
        self._transport.close()


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_FRAME = frames.openai_stream(32, usage=False).content(5)
_DONE = frames.chunk(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(_HEAD + _FRAME + _DONE + b"0\r\n\r\n", id="a frame short"),
        pytest.param(_HEAD + _FRAME * 2 + b"0\r\n\r\n", id="no terminator"),
        pytest.param(_HEAD + _FRAME * 2 + _DONE, id="cut off"),
        pytest.param(b"HTTP/1.1 503 Sorry\r\nContent-Length: 0\r\n\r\n", id="refused"),
    ],
)
async def test_load_counts_failures(answer: bytes) -> None:
    """A short, unterminated, broken or refused stream is a failure and never a stream."""
    server = await asyncio.get_running_loop().create_server(lambda: Scripted(answer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async with Load(port, Plan(Script(events=2), 1, stream=True)) as load:
        await until(load, "failed", 1)

    server.close()
    assert load.tally.streams == 0


class Notes:
    """A reply that remembers."""

    def __init__(self) -> None:
        self.counter = FrameCounter()
        self.body = b""
        self.status = 0

    def payload(self, data: bytes) -> None:
        """Remember a piece."""
        self.body += data
        self.counter.feed(data)

    def ended(self, status: int) -> None:
        """Remember the end."""
        self.status = status

    def lost(self) -> None:
        """Must not happen."""
        raise AssertionError("lost")


class Sink(asyncio.Transport):
    """A transport that swallows."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Swallow."""


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 10_000])
def test_pieces_do_not_matter(size: int) -> None:
    """However the bytes of an answer are cut, body, frames and status are the same."""
    recording = frames.openai_stream(32, usage=True)
    whole = _HEAD + recording.opening + recording.content(1) + recording.content(2) + recording.closing
    channel, notes = Channel(), Notes()
    channel.connection_made(Sink())
    channel.send(b"", notes)

    for at in range(0, len(whole), size):
        channel.data_received(whole[at : at + size])

    assert (notes.status, notes.counter.content, notes.counter.terminated) == (200, 2, True)
    assert notes.body.startswith(b"data: {")
    assert notes.body.endswith(b"}\n\ndata: [DONE]\n\n")
    assert b"\r\n" not in notes.body


@pytest.mark.parametrize("dialect", DIALECTS)
def test_request_has_a_kilobyte(dialect: DialectName) -> None:
    """The body is about 1 KB and its script survives."""
    script = Script(7, 100, 20, 5, 64)

    head, _, body = request(80, dialect, script, stream=True).partition(b"\r\n\r\n")

    assert 980 <= len(body) <= 1100
    assert f"Content-Length: {len(body)}".encode() in head
    assert (script, True) == (frames.script_of(body), frames.wants_stream(body))


LEAVING = Leaving(Script(events=1000, interval_ms=20), stream=True, after_frames=1, wait_s=(0.0, 0.01))
SILENT = Leaving(Script(first_ms=20_000), stream=False, after_frames=0, wait_s=(0.0, 0.01))


@pytest.mark.parametrize("leaving", [LEAVING, SILENT])
async def test_cancels_are_seen(provider: Provider, leaving: Leaving) -> None:
    """Every kind of close reaches the provider and is timed from the client's close."""
    cancels = await cancel_for(provider.port, provider, leaving, 0.3)

    assert (cancels.left_open, cancels.not_sent) == (0, 0)
    assert all(cancels.latencies[kind] for kind in KINDS)
    assert all(ns > 0 for values in cancels.latencies.values() for ns in values)


async def test_provider_may_close_before_its_clients(provider: Provider) -> None:
    """A stream that ends after the provider closed ends quietly."""
    errors: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["message"]))

    async with Load(provider.port, Plan(Script(events=1000, interval_ms=20), 1, stream=True, timed=True)) as load:
        while not load.tally.frames:  # noqa: ASYNC110 - see until()
            await asyncio.sleep(0.005)
        provider.close()

    assert errors == []


async def test_cancels_not_passed_on_are_left_open(provider: Provider) -> None:
    """A proxy that keeps its upstream connection after its client left is caught."""
    writers: list[asyncio.StreamWriter] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, upstream = await asyncio.open_connection("127.0.0.1", provider.port)
        writers.extend((upstream, writer))
        try:
            while data := await reader.read(65536):
                upstream.write(data)
        except ConnectionResetError:
            pass

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    cancels = await cancel_for(port, provider, SILENT, 0.1, linger_s=0.1)

    server.close()
    for writer in writers:
        writer.transport.abort()
    assert cancels.left_open > 0
    assert not any(cancels.latencies.values())


async def test_crowd_counts_open_streams(provider: Provider) -> None:
    """Silent streams are open once their first event is there."""
    crowd = Crowd(provider.port)

    await crowd.grow_to(20)

    await crowd.leave()
    assert (crowd.begun, crowd.lost) == (20, 0)


async def test_bare_proxy_relays(provider: Provider, tmp_path: Path) -> None:
    """The anchor to compare with relays whole streams of both dialects and costs CPU and memory we can read."""
    core = min(os.sched_getaffinity(0))
    running = await candidates.start(candidates.BASE, provider.port, core, tmp_path / "aiohttp")
    assert running.program is not None
    try:
        for dialect in DIALECTS:
            async with Load(running.port, Plan(Script(events=5), 2, dialect, stream=True)) as load:
                await until(load, "streams", 4)
            assert load.tally.failed == 0

        assert running.cpu_s() > 0
        assert running.program.pss_kb() > 1000
    finally:
        running.stop()


async def test_gateway_translates(provider: Provider, tmp_path: Path) -> None:
    """The gateway's two models abroad are answered whole, by the provider of the other dialect."""
    core = min(os.sched_getaffinity(0))
    running = await candidates.start(candidates.OURS, provider.port, core, tmp_path / "gateway")
    try:
        for dialect in DIALECTS:
            plan = Plan(Script(events=5), 2, dialect, stream=True, model=ABROAD[dialect])
            async with Load(running.port, plan) as load:
                await until(load, "streams", 4)
            assert load.tally.failed == 0
    finally:
        running.stop()


def record(candidate: str, round_: int, cpu_us: float) -> Record:
    """A CPU record of JSON requests."""
    return {"candidate": candidate, "kind": "cpu", "name": "json", "round": round_, "cpu_us": cpu_us, "failed": 0}


@pytest.mark.parametrize(("ours", "verdict"), [(140.0, "| x1.40 | <= x1.5 | met |"), (160.0, "**not met**")])
def test_report_compares_rounds_in_pairs(ours: float, verdict: str) -> None:
    """The ratio is the median of the rounds' own ratios, so that a slow round slows both sides."""
    records = [record("aiohttp", 0, 100), record("gateway", 0, ours)]
    records += [record("aiohttp", 1, 300), record("gateway", 1, ours * 3)]
    records += [record("aiohttp", 2, 200), record("gateway", 2, 1000)]

    table = Report(records, candidates.NAMES).markdown()

    assert verdict in table


def test_report_names_streams_left_open() -> None:
    """Speed does not excuse a connection left open."""
    us = {"openai fin": [900], "openai rst": [], "anthropic fin": [], "anthropic rst": []}
    cancel: Record = {"candidate": "gateway", "kind": "cancel", "name": "stalled", "round": 0, "us": us}

    table = Report([cancel | {"left_open": 1, "not_sent": 0}], candidates.NAMES).markdown()

    assert "**1 left open** | - | <= 3 / 20 / 50, none left open | **not met** |" in table


@pytest.mark.parametrize(("waited", "said"), [(0.3, True), (0.001, False)])
def test_report_says_when_the_machine_was_busy(waited: float, said: bool) -> None:
    """A reader is told that figures were taken while something else used the cores."""
    busy = record("nginx", 0, 30) | {"name": "paced_openai", "waited": waited}

    table = Report([busy], candidates.NAMES).markdown()

    assert ("The machine was busy" in table) is said
