"""Runs of several panels whose clients leave, stall or cancel, on both servers (contract, 6 and 7)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from tests.chaos.scenes import PROMISE_S, RCVBUF, Book, quiet, serving, until
from tests.support import proc
from tests.support.acts import Answer, pause_ms, repeat
from tests.support.client import Reply, Stream
from tests.support.config import CANARY, KEY, standard
from tests.support.frames import blocks, parsed, text_of
from tests.support.gateway import Gateway
from tests.support.notation import CBD, CBS, CBX, DONE, FIN, HANG, MD, MS, MX, R, T, U
from tests.support.panels import RUN, by_panel, run_of
from tests.support.provider import FakeProvider
from tests.support.stage import Seen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.alone]

SERVERS = {"plain": 1, "gunicorn": 2}
WAYS: dict[str, Callable[[Stream], float]] = {"fin": Stream.close, "rst": Stream.rst, "half": Stream.half_close}
KEY_THREE = f"anm-sk-{CANARY}-three"
"""Three requests at once in each worker: one run."""
SEED = 3
DRAIN_S, EXIT_S = 1.2, 6.0

each_way = pytest.mark.parametrize("way", WAYS)

# Two that speak OpenAI's dialect, one that is translated: the models of panels "a", "b" and "c".
MODELS = ("m", "messages-abroad", "chat-abroad")
FLOWING: dict[str, Answer] = {
    "m": [R(), repeat(T(" word"), pause_ms(5))],
    "messages-abroad": [R(), repeat(T(" word"), pause_ms(5))],
    "chat-abroad": [MS(7), CBS(0), repeat(CBD(0, " word"), pause_ms(5))],
}
WHOLE: dict[str, Answer] = {
    "m": [R(), T("ok"), FIN(), U(7, 1), DONE],
    "messages-abroad": [R(), T("ok"), FIN(), U(7, 1), DONE],
    "chat-abroad": [MS(7), CBS(0), CBD(0, "ok"), CBX(0), MD(usage=1), MX],
}


@dataclass(slots=True)
class House:
    """A gateway and its provider."""

    gateway: Gateway
    workers: int
    provider: FakeProvider
    streams: list[Stream] = field(default_factory=list)

    async def run(self, answers: dict[str, Answer], **more: Any) -> tuple[Stream, dict[str, Seen]]:
        """A run of the three models that the provider has been asked for; the requests by the panel."""
        for model, answer in answers.items():
            self.provider.script(model, answer)
        before = len(self.provider.requests)
        stream = await self.gateway.client(KEY_THREE).open("POST", RUN, run_of(*MODELS, **more))
        self.streams.append(stream)
        await until(lambda: len(self.provider.requests) == before + 3)
        by_model = {seen.json["model"]: seen for seen in self.provider.requests[before:]}
        return stream, {panel: by_model[model] for panel, model in zip("abc", MODELS, strict=True)}

    async def cancel(self, stream: Stream, panel: str, key: str = KEY_THREE) -> Reply:
        """Cancel *panel* by a connection of its own, which any worker may get."""
        run_id = stream.headers.get("x-anoman-run-id")
        return await self.gateway.client(key).request("DELETE", f"{RUN}/{run_id}/panels/{panel}")

    async def places_are_free(self) -> bool:
        """Whether that key can have three at once again, whichever worker answers."""
        for model, answer in WHOLE.items():
            self.provider.script(model, answer)
        client, book = self.gateway.client(KEY_THREE), Book(self.gateway)
        replies = [await client.request("POST", RUN, run_of(*MODELS)) for _ in range(2 * self.workers - 1)]
        await book.settled(3 * len(replies))
        said = [by_panel(parsed(blocks(reply.body))) for reply in replies]
        return all("error" not in item for panels in said for frames in panels.values() for item in frames)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=SERVERS)
async def house(request: pytest.FixtureRequest) -> AsyncIterator[House]:
    workers = SERVERS[request.param]
    async with FakeProvider() as provider:
        config = standard(
            provider.base_url,
            stream={"commit_after_s": 0.4, "heartbeat_s": 0.1, "first_token_s": 5, "idle_s": 1, "non_stream_s": 5},
            tiers={"three": {"inflight": 3 * workers}},
            keys={KEY_THREE: {"tenant": "three", "tier": "three"}},
        )
        async with serving(config, workers) as gateway:
            yield House(gateway, workers, provider)


@pytest_asyncio.fixture(loop_scope="module")
async def book(house: House) -> AsyncIterator[Book]:
    """The receipts of this test, which must leave no line that asks a person to look."""
    book = Book(house.gateway)
    yield book
    for stream in house.streams:
        await stream.dispose()
    house.streams.clear()
    assert book.errors == []


async def read(stream: Stream, enough: Callable[[list[bytes]], bool]) -> list[bytes]:
    """Frames of *stream* until they are *enough*, or its end."""
    got: list[bytes] = []
    async for frame in stream.frames():
        got.append(frame)
        if enough(got):
            break
    return got


def heard_of(panels: str) -> Callable[[list[bytes]], bool]:
    """Whether there is text of each of *panels* (ids of one letter)."""
    marks = [b'"panel":"%b"}' % panel.encode() for panel in panels]
    return lambda frames: all(any(f.endswith(mark) and b'"content":" word"' in f for f in frames) for mark in marks)


# -- phases: each brings a run as far as its name says --

Phase = Callable[[House], Awaitable[tuple[Stream, dict[str, Seen]]]]


async def unanswered(house: House) -> tuple[Stream, dict[str, Seen]]:
    return await house.run({model: [HANG] for model in MODELS})


async def after_an_early_commit(house: House) -> tuple[Stream, dict[str, Seen]]:
    stream, seen = await unanswered(house)
    await read(stream, lambda frames: len(frames) == 2)  # heartbeats
    return stream, seen


async def flowing(house: House) -> tuple[Stream, dict[str, Seen]]:
    stream, seen = await house.run(FLOWING)
    await read(stream, heard_of("abc"))
    return stream, seen


async def one_flows_one_stalls_one_waits(house: House) -> tuple[Stream, dict[str, Seen]]:
    stalls = [MS(7), CBS(0), CBD(0, " word"), HANG]
    stream, seen = await house.run(FLOWING | {"messages-abroad": [HANG], "chat-abroad": stalls})
    await read(stream, heard_of("ac"))
    return stream, seen


async def without_streaming(house: House) -> tuple[Stream, dict[str, Seen]]:
    return await house.run({model: [HANG] for model in MODELS}, stream=False)


PHASES: tuple[Phase, ...] = (
    unanswered,
    after_an_early_commit,
    flowing,
    one_flows_one_stalls_one_waits,
    without_streaming,
)


@each_way
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
async def test_leaving(house: House, book: Book, phase: Phase, way: str) -> None:
    """A client that leaves cancels every panel: each provider is closed within 50 ms, each has its one receipt."""
    stream, seen = await phase(house)

    left_s = WAYS[way](stream)
    closed = [await request.gone() for request in seen.values()]
    rows = await book.settled(3)

    assert max(end.when_s for end in closed) - left_s <= PROMISE_S
    assert {(row["outcome"], row["routing_mode"]) for row in rows} == {("cancelled", "streaming_cancelled")}
    assert all(row["prompt_tokens"] > 0 and 0 <= row["cancel_ms"] < 50 for row in rows)
    assert len({row["request_id"] for row in rows}) == 3
    assert await house.places_are_free()


@pytest.mark.parametrize("panel", ["a", "b", "c"])
async def test_cancel_one(house: House, book: Book, panel: str) -> None:
    """Whichever worker gets the request, the panel's provider is closed within 50 ms, and the others flow on."""
    for number in range(4 * house.workers):  # so that each way between the workers is taken
        stream, seen = await flowing(house)

        asked_s = time.monotonic()
        reply = await house.cancel(stream, panel)
        closed = await seen[panel].gone()
        rest = "abc".replace(panel, "")
        frames = await read(stream, lambda got: any(b"panel_cancelled" in frame for frame in got))
        frames += await read(stream, heard_of(rest))
        open_still = [not seen[other].closed.done() for other in rest]
        stream.close()
        rows = await book.settled(3 * number + 3)

        assert reply.status == 200
        assert closed.when_s - asked_s <= PROMISE_S
        assert open_still == [True, True]
        said = next(index for index, frame in enumerate(frames) if b"panel_cancelled" in frame)
        mark = b'"panel":"%b"}' % panel.encode()
        assert [frame for frame in frames[said + 1 :] if frame.endswith(mark)] == []
        assert {row["outcome"] for row in rows} == {"cancelled"}
    assert await house.places_are_free()


async def test_cancelling_every_panel_of_a_silent_run(house: House, book: Book) -> None:
    """Panels that have said nothing yet can be cancelled once the head is out; with the last one the stream ends."""
    stream, seen = await after_an_early_commit(house)

    replies = [await house.cancel(stream, panel) for panel in "abc"]
    frames = [frame for frame in await stream.all_frames() if frame != b": ping"]
    rows = await book.settled(3)

    assert [reply.status for reply in replies] == [200, 200, 200]
    assert [item["panel"] for item in parsed(f + b"\n\n" for f in frames[:-1])] == ["a", "b", "c"]
    assert (frames[-1], stream.ended_properly) == (b"data: [DONE]", True)
    assert all(request.closed.done() for request in seen.values())
    assert {row["outcome"] for row in rows} == {"cancelled"}


async def test_only_its_own_key(house: House, book: Book) -> None:
    """Another key cannot cancel a panel, from whichever worker it asks."""
    stream, seen = await flowing(house)

    strangers = [await house.cancel(stream, "a", KEY) for _ in range(4 * house.workers)]
    open_still = [not request.closed.done() for request in seen.values()]
    stream.close()
    await book.settled(3)

    assert {reply.status for reply in strangers} == {404}
    assert open_still == [True] * 3


async def test_everybody_cancels_at_once(house: House, book: Book) -> None:
    """However many cancel a panel in the moment in which the client leaves, each panel is settled once."""
    dice = random.Random(SEED)
    for _ in range(10):
        stream, seen = await flowing(house)
        asking = [asyncio.ensure_future(house.cancel(stream, dice.choice("abc"))) for _ in range(6)]
        await asyncio.sleep(dice.uniform(0, 0.01))
        dice.choice(list(WAYS.values()))(stream)
        replies = await asyncio.gather(*asking)
        for request in seen.values():
            await request.gone(1)

        assert {reply.status for reply in replies} <= {200, 404}
    rows = await book.settled(30)
    assert {row["outcome"] for row in rows} == {"cancelled"}
    assert await house.places_are_free()


async def test_one_panel_stalls(house: House, book: Book) -> None:
    """A panel whose provider falls silent ends alone, by its own deadline; the others have long been through."""
    stalls = {"messages-abroad": [R(), T("a"), HANG]}
    stream, _ = await house.run(WHOLE | stalls)

    frames = await stream.all_frames()
    rows = await book.settled(3)

    said = by_panel(parsed(f + b"\n\n" for f in frames))
    assert said["b"][-1]["error"]["_anoman"] == {"failure_class": "upstream_timeout", "completion_tokens": 1}
    assert frames.index(next(f for f in frames if b'"error"' in f)) == len(frames) - 2
    assert b": ping" in frames  # the whole run was silent meanwhile
    assert sorted(row["outcome"] for row in rows) == ["completed", "completed", "interrupted"]


async def test_slow_reader(house: House, book: Book) -> None:
    """A client that reads slowly gets every frame of every panel whole, and meanwhile the providers wait."""
    words = [f"{number:04}" + "x" * 8000 for number in range(1500)]
    answer = [R(), *map(T, words), FIN(), U(7, 1500), DONE]
    for model in ("m", "messages-abroad"):
        house.provider.script(model, answer)
    client = house.gateway.client(KEY_THREE)
    stream = await client.open("POST", RUN, run_of("m", "messages-abroad"), rcvbuf=RCVBUF)
    house.streams.append(stream)
    stream.peer.pause()
    await asyncio.sleep(0.5)  # until nothing moves any more
    waiting = [len(seen.body_sent) for seen in house.provider.requests[-2:]]
    stream.peer.resume()

    frames = await stream.all_frames()
    rows = await book.settled(2)

    assert max(waiting) < sum(map(len, words))
    said = by_panel(parsed(f + b"\n\n" for f in frames if f != b": ping"))
    for panel in "ab":
        assert "".join(item["choices"][0]["delta"].get("content") or "" for item in said[panel]) == "".join(words)
    assert {row["outcome"] for row in rows} == {"completed"}


async def test_cancel_one_of_a_slow_reader(house: House, book: Book) -> None:
    """A panel is cancelled within 50 ms though its client reads nothing; it hears of it when it reads on."""
    flood = {"m": [R(), repeat(T("x" * 2000))], "messages-abroad": [R(), repeat(T("x" * 2000))]}
    for model, answer in flood.items():
        house.provider.script(model, answer)
    before = len(house.provider.requests)
    client = house.gateway.client(KEY_THREE)
    stream = await client.open("POST", RUN, run_of("m", "messages-abroad"), rcvbuf=RCVBUF)
    house.streams.append(stream)
    await stream.head()
    stream.peer.pause()
    await asyncio.sleep(0.3)  # until nothing moves any more
    (seen,) = [seen for seen in house.provider.requests[before:] if seen.json["model"] == "m"]

    asked_s = time.monotonic()
    reply = await house.cancel(stream, "a")
    closed = await seen.gone()
    stream.peer.resume()
    frames = await read(stream, lambda got: b"panel_cancelled" in got[-1])
    stream.close()
    rows = await book.settled(2)

    assert (reply.status, closed.when_s - asked_s <= PROMISE_S) == (200, True)
    assert frames[-1].endswith(b'"panel":"a"}')
    assert {row["outcome"] for row in rows} == {"cancelled"}


async def test_stuck_reader(house: House, book: Book) -> None:
    """A client that takes nothing for the write-stall time is dropped with all its panels, without a clean end."""
    flood = [R(), repeat(T("x" * 2000))]
    for model in ("m", "messages-abroad"):
        house.provider.script(model, flood)
    before = len(house.provider.requests)
    client = house.gateway.client(KEY_THREE)
    stream = await client.open("POST", RUN, run_of("m", "messages-abroad"), rcvbuf=RCVBUF)
    house.streams.append(stream)
    stream.peer.pause()
    await until(lambda: len(house.provider.requests) == before + 2)

    for seen in house.provider.requests[before:]:
        await seen.gone(4)  # the deadline is 1.5 s
    rows = await book.settled(2)
    stream.peer.resume()
    with contextlib.suppress(ConnectionError):
        await stream.reply()

    assert not stream.ended_properly
    assert {row["outcome"] for row in rows} == {"cancelled"}
    assert await house.places_are_free()


async def test_nothing_is_left(house: House, book: Book) -> None:
    """Runs of every kind, left and cancelled at any moment, leave no socket, no open stream, no place and no file."""
    dice, gateway = random.Random(SEED), house.gateway
    stalls: dict[str, Answer] = {model: [HANG] for model in MODELS}
    await house.places_are_free()
    await until(lambda: gateway.client_sockets() == 0)
    files = gateway.open_files()
    for number in range(60):
        is_stream = number % 5 != 0
        stream, _ = await house.run(dice.choice((FLOWING, WHOLE, stalls)) if is_stream else stalls, stream=is_stream)
        await asyncio.sleep(dice.uniform(0, 0.02))
        if number % 3 == 0 and is_stream:
            await stream.head()
            await house.cancel(stream, dice.choice("abc"))
        dice.choice(list(WAYS.values()))(stream)
        await stream.dispose()
    await until(lambda: len(book.receipts) == 180 + 3 * (2 * house.workers - 1))

    await quiet(gateway, house.provider)
    await until(lambda: gateway.open_files() <= files + 3)  # pooled connections to the provider
    assert await house.places_are_free()


# -- one server each --


@pytest.mark.parametrize("workers", SERVERS.values(), ids=SERVERS)
async def test_sigterm(workers: int) -> None:
    """Each panel that is not through gets its shutdown frame, the run its terminator; all are settled, exit 0."""
    times = dict.fromkeys(("first_token_s", "idle_s", "commit_after_s", "non_stream_s", "write_stall_s"), 60)
    server = {"accept_s": 0.3, "drain_s": DRAIN_S, "exit_s": EXIT_S}
    async with FakeProvider() as provider:
        config = standard(provider.base_url, stream=times, server=server)
        async with serving(config, workers) as gateway:
            house, book = House(gateway, workers, provider), Book(gateway)
            provider.script("m", [R(), T("ok"), pause_ms(600), FIN(), U(7, 1), DONE])
            provider.script("messages-abroad", [HANG])
            provider.script("chat-abroad", [MS(7), CBS(0), repeat(CBD(0, " word"), pause_ms(20))])
            stream = await gateway.client().open("POST", RUN, run_of(*MODELS))
            await read(stream, heard_of("c"))

            gateway.terminate()
            frames = await stream.all_frames(EXIT_S)
            code = await gateway.exit_code(EXIT_S)
            rows = await book.settled(3)
            await stream.dispose()

            said = by_panel(parsed(f + b"\n\n" for f in frames))
            assert (code, stream.ended_properly) == (0, True)
            assert next(iter(said["a"][-1])) == "_anoman"
            assert said["b"][-1]["error"]["code"] == "shutting_down"
            assert said["b"][-1]["error"]["_anoman"]["status"] == 503
            assert said["c"][-1]["error"]["_anoman"]["failure_class"] == "gateway_shutdown"
            assert sorted(row["outcome"] for row in rows) == ["completed", "failed", "interrupted"]
            assert all(request.closed.done() for request in provider.requests)
            assert house.streams == []


async def test_a_worker_that_hangs_or_dies() -> None:
    """A cancel whose worker hangs is a 503; when that worker is killed, its run is gone and the next cancel a 404."""
    async with FakeProvider() as provider, serving(standard(provider.base_url), 2) as gateway:
        gateway.expected_exit = 0
        house = House(gateway, 2, provider)
        provider.script("m", [R(), T("a"), HANG])
        stream = await gateway.client(KEY).open("POST", RUN, run_of("m", "m"))
        await stream.head()
        (worker,) = [
            pid for pid in gateway.pids if pid != gateway.pid and proc.established([pid], local_port=gateway.port)
        ]

        os.kill(worker, signal.SIGSTOP)
        hanging = await house.cancel(stream, "a", KEY)
        os.kill(worker, signal.SIGKILL)
        await gateway.logged("server.started", 1, 30)
        dead = await house.cancel(stream, "a", KEY)
        reply_of_another = await gateway.client(KEY).request("POST", RUN, run_of("nobody", "nobody"))
        await stream.dispose()

        assert (hanging.status, hanging.json["error"]["code"]) == (503, "overloaded")
        assert hanging.headers.get("retry-after") == "1"
        assert (dead.status, dead.json["error"]["code"]) == (404, "not_found")
        assert text_of(blocks(reply_of_another.body)) == ""
        for request in provider.requests:
            await request.gone(1)
