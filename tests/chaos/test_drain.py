"""SIGTERM, with every kind of request under way, on both servers (H7, PRX-11, D8, G10)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time

import pytest

from tests.chaos.scenes import ANTHROPIC, OPENAI, SIDES, Book, Side, ends_well, interruption, refusal, serving, until
from tests.support.acts import pause_ms, repeat
from tests.support.client import Stream
from tests.support.config import Config, standard
from tests.support.gateway import PLAIN, Gateway
from tests.support.notation import HANG, json_answer
from tests.support.provider import FakeProvider

ACCEPT_S, DRAIN_S, EXIT_S = 0.3, 1.2, 6.0
SEED = 7

both_servers = pytest.mark.parametrize("workers", [1, 2], ids=["plain", "gunicorn"])


def config(provider: FakeProvider, **stream: float) -> Config:
    """The drain a twentieth as long as the real one; everything else longer than it."""
    times = {"first_token_s": 60, "idle_s": 60, "commit_after_s": 60, "non_stream_s": 60, "write_stall_s": 60}
    server = {"accept_s": ACCEPT_S, "drain_s": DRAIN_S, "exit_s": EXIT_S, "keepalive_s": 60, "body_s": 60}
    return standard(provider.base_url, stream=times | stream, server=server)


async def started(provider: FakeProvider, gateway: Gateway, side: Side, *, is_stream: bool = True) -> Stream:
    """A request that is at the provider."""
    before = len(provider.requests)
    stream = await gateway.client().open("POST", side.path, side.ask(side.model, stream=is_stream))
    await until(lambda: len(provider.requests) > before)
    return stream


async def leave(gateway: Gateway) -> asyncio.Task[tuple[int, float]]:
    """SIGTERM; the task gives the exit code and the seconds it took."""
    told_s = gateway.terminate()

    async def wait() -> tuple[int, float]:
        return await gateway.exit_code(EXIT_S + 5), time.monotonic() - told_s

    return asyncio.create_task(wait())


@both_servers
async def test_every_kind_of_request(workers: int) -> None:
    """Short ones finish; endless ones get the shutdown frame, uncommitted ones 503; all are settled; exit 0 in time."""
    async with FakeProvider() as provider, serving(config(provider), workers) as gateway:
        book, wanted, streams = Book(gateway), [], []
        for side in SIDES:
            for kind, script, is_stream in (
                ("short", [side.start, side.piece("a"), pause_ms(600), side.piece("b"), side.finish], True),
                ("short json", [pause_ms(600), json_answer("ok", dialect=side.dialect)], False),
                ("endless", [side.start, repeat(side.piece(" word"), pause_ms(20))], True),
                ("stalled", [side.start, side.piece("a"), HANG], True),
                ("held back", [side.start, HANG], True),
                ("unanswered", [HANG], True),
                ("unanswered json", [HANG], False),
            ):
                provider.script(side.model, script)
                streams.append(await started(provider, gateway, side, is_stream=is_stream))
                wanted.append((side, kind))
        await asyncio.sleep(0.1)  # the first frames of each are on their way

        told_s = time.monotonic()
        leaving = await leave(gateway)
        replies = await asyncio.gather(*(stream.reply(EXIT_S) for stream in streams))
        last_s = time.monotonic() - told_s
        code, took_s = await leaving
        rows = await book.settled(len(streams))

        assert (code, took_s < EXIT_S) == (0, True)
        assert DRAIN_S <= last_s < DRAIN_S + 1
        outcomes = []
        for (side, kind), reply in zip(wanted, replies, strict=True):
            assert reply.ended_properly
            frames = [frame for frame in reply.body.split(b"\n\n") if frame]
            if kind == "short":
                assert ends_well(side, frames)
            elif kind == "short json":
                assert (reply.status, "_anoman" in reply.json) == (200, True)
            elif kind in ("endless", "stalled"):
                assert interruption(side, frames)["failure_class"] == "gateway_shutdown"
            else:
                assert (reply.status, refusal(side, reply)) == (503, "shutting_down")
                assert int(reply.headers.get("retry-after") or 0) >= 1
            outcomes.append("completed" if kind.startswith("short") else kind)
        counts = {name: sum(row["outcome"] == name for row in rows) for name in ("completed", "interrupted", "failed")}
        assert counts == {"completed": 4, "interrupted": 4, "failed": 6}
        assert all(seen.closed.done() for seen in provider.requests)
        assert book.errors == []
        for stream in streams:
            await stream.dispose()


@both_servers
async def test_the_door_while_draining(workers: int) -> None:
    """/readyz says 503 at once, idle connections are closed, newcomers get 503 or no connection, old ones 503 too."""
    async with FakeProvider() as provider, serving(config(provider), workers) as gateway:
        provider.script("m", [OPENAI.start, repeat(OPENAI.piece("a"), pause_ms(20))])
        client = gateway.client()
        streams = [await started(provider, gateway, OPENAI) for _ in range(8)]  # enough that each worker has some
        idle, warm = await client.connect(), await client.connect()
        for peer in (idle, warm):
            assert (await (await client.ask(peer, "GET", "/healthz")).reply()).status == 200
        asked = len(provider.requests)

        leaving = await leave(gateway)
        await gateway.logged("server.draining", workers)
        ready = await client.request("GET", "/readyz")
        newcomer = await client.request("POST", OPENAI.path, OPENAI.ask("m"))
        kept = await (await client.ask(warm, "POST", ANTHROPIC.path, ANTHROPIC.ask("claude"))).reply()
        await idle.gone(ACCEPT_S + 0.5)
        await warm.gone(1)
        await asyncio.sleep(ACCEPT_S)
        with pytest.raises(ConnectionError):
            await client.request("GET", "/readyz")
        code, _ = await leaving

        assert ready.status == 503
        assert (newcomer.status, refusal(OPENAI, newcomer)) == (503, "shutting_down")
        assert (kept.status, refusal(ANTHROPIC, kept)) == (503, "shutting_down")
        assert kept.headers.get("connection") == "close"
        assert len(provider.requests) == asked
        assert code == 0
        for stream in streams:
            await stream.dispose()


async def test_h7_further_signals_change_nothing() -> None:
    """SIGTERM, SIGINT, SIGHUP and SIGQUIT all through the drain: the stream is whole, the exit is 0."""
    async with FakeProvider() as provider, serving(config(provider)) as gateway:
        script = [OPENAI.start, OPENAI.piece("a"), pause_ms(900), OPENAI.piece("b"), OPENAI.finish]
        provider.script("m", script)
        book, stream = Book(gateway), await started(provider, gateway, OPENAI)

        leaving = await leave(gateway)
        while not leaving.done():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(gateway.pid, number)  # the standard library's way reaps a child that has just ended
            await asyncio.sleep(0.005)  # a dense rain of signals is the point
        frames = await stream.all_frames()

        assert leaving.result()[0] == 0
        assert ends_well(OPENAI, frames)
        assert [row["outcome"] for row in await book.settled(1)] == ["completed"]
        assert [line["event"] for line in book.lines if line["event"].startswith("settings.")] == []
        await stream.dispose()


@both_servers
async def test_a_stuck_client_does_not_delay_the_exit(workers: int) -> None:
    """A client that reads nothing is cut without a clean end; it is settled, and the exit is in time."""
    async with FakeProvider() as provider, serving(config(provider), workers) as gateway:
        provider.script("m", [OPENAI.start, repeat(OPENAI.piece("x" * 4000))])
        book = Book(gateway)
        stream = await gateway.client().open("POST", OPENAI.path, OPENAI.ask("m"), rcvbuf=4096)
        stream.peer.pause()
        await until(lambda: bool(provider.requests))
        await until_still(provider)

        code, took_s = await (await leave(gateway))
        (row,) = await book.settled(1)
        stream.peer.resume()
        await stream.reply()

        assert (code, took_s < EXIT_S) == (0, True)
        assert row["outcome"] in ("interrupted", "cancelled")
        assert not stream.ended_properly
        await stream.dispose()


async def until_still(provider: FakeProvider) -> None:
    """Wait until the provider cannot send any more: every buffer on the way is full."""
    sent = -1
    while sent != (sent := len(provider.requests[0].body_sent)):  # noqa: ASYNC110 - that nothing happens is no event
        await asyncio.sleep(0.1)


async def test_upload_during_the_drain() -> None:
    """A request whose body is still coming when the door is closed is refused like a newcomer, not cut silently."""
    async with FakeProvider() as provider, serving(config(provider)) as gateway:
        provider.script("m", [OPENAI.start, repeat(OPENAI.piece("a"), pause_ms(20))])
        client = gateway.client()
        stream = Stream(await client.connect(), "POST", client.watch)
        whole = client.request_bytes("POST", OPENAI.path, OPENAI.ask("m", "word " * 1000))
        await stream.peer.send(whole[:-100])
        await until(lambda: gateway.client_sockets() == 1)
        other = await started(provider, gateway, OPENAI)

        leaving = await leave(gateway)
        reply = await stream.reply(ACCEPT_S + 0.5)
        code, _ = await leaving

        assert (reply.status, refusal(OPENAI, reply)) == (503, "shutting_down")
        assert len(provider.requests) == 1
        assert code == 0
        await stream.dispose()
        await other.dispose()


@both_servers
async def test_dis_08_clients_leave_while_draining(workers: int) -> None:
    """Clients that vanish around the cut, so that both cancel the same streams: one receipt each, nothing hangs."""
    dice = random.Random(SEED)
    async with FakeProvider() as provider, serving(config(provider), workers) as gateway:
        book, streams = Book(gateway), []
        for side in SIDES:
            provider.script(side.model, [side.start, repeat(side.piece(" word"), pause_ms(10))])
            streams += [await started(provider, gateway, side) for _ in range(30)]
            streams += [await started(provider, gateway, side, is_stream=False) for _ in range(5)]

        leaving = await leave(gateway)
        await asyncio.sleep(DRAIN_S - 0.05)
        dice.shuffle(streams)
        for stream in streams:
            dice.choice((Stream.close, Stream.rst))(stream)
            await asyncio.sleep(0.002)
        code, took_s = await leaving
        rows = await book.settled(len(streams))

        assert (code, took_s < EXIT_S) == (0, True)
        assert {row["outcome"] for row in rows} <= {"cancelled", "interrupted", "failed"}
        assert all(seen.closed.done() for seen in provider.requests)
        assert book.errors == []
        for stream in streams:
            await stream.dispose()


@pytest.mark.parametrize("batch", range(5))
async def test_g10_at_random_moments(batch: int) -> None:
    """SIGTERM at 20 random moments under load: every stream that had a head ends with its terminator."""
    await asyncio.gather(*(one_moment(4 * batch + number) for number in range(4)))


async def one_moment(number: int) -> None:
    dice = random.Random(SEED + number)
    async with FakeProvider() as provider:
        settings = config(provider, commit_after_s=0.1)
        settings["server"] |= {"accept_s": 0, "drain_s": 0.3}
        async with Gateway(settings, flags=PLAIN) as gateway:
            for side in SIDES:
                scripts = [
                    side.whole(*"abc"),
                    [side.start, repeat(side.piece(" word"), pause_ms(7))],
                    [side.start, side.piece("a"), pause_ms(150), side.finish],
                    [pause_ms(120), *side.whole("late")],
                ]
                provider.script(side.model, *(dice.choice(scripts) for _ in range(200)))
            lives = [asyncio.create_task(customer(gateway, SIDES[i % 2])) for i in range(12)]
            await asyncio.sleep(dice.uniform(0.02, 0.4))

            code, took_s = await (await leave(gateway))
            answers = [answer for life in lives for answer in await life]
            await gateway.line(lambda line: line["event"] == "server.stopped")
            settled = [line for line in gateway.log if line["event"] == "exchange.settled"]

            assert code == 0
            assert took_s < EXIT_S
            for side, stream, frames in answers:
                assert stream.ended_properly
                if not ends_well(side, frames):
                    assert interruption(side, frames)["failure_class"] == "gateway_shutdown"
            assert len([row for row in settled if row["status"] == 200]) == len(answers)


async def customer(gateway: Gateway, side: Side) -> list[tuple[Side, Stream, list[bytes]]]:
    """Asks again and again until it is refused; its answers that began."""
    answers = []
    while True:
        try:
            async with gateway.client().stream(side.path, side.ask(side.model)) as stream:
                if stream.status != 200:
                    assert stream.status == 503
                    return answers
                answers.append((side, stream, await stream.all_frames()))
        except ConnectionError:
            return answers


async def test_sigkill() -> None:
    """Killed outright, the gateway says nothing: its provider sees every connection end, its clients no clean end."""
    async with FakeProvider() as provider, serving(config(provider)) as gateway:
        gateway.expected_exit = -signal.SIGKILL
        provider.script("m", [OPENAI.start, repeat(OPENAI.piece("a"), pause_ms(10))])
        streams = [await started(provider, gateway, OPENAI) for _ in range(5)]
        for stream in streams:
            await anext(stream.frames())

        gateway.signal(signal.SIGKILL)
        await gateway.exit_code(2)
        await asyncio.gather(*(seen.gone(1) for seen in provider.requests))
        for stream in streams:
            await stream.all_frames()

        assert not any(stream.ended_properly for stream in streams)
        for stream in streams:
            await stream.dispose()
