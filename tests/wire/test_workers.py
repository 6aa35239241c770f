"""Several worker processes behind gunicorn's master: spreading, drain, reload, replacement, metrics (H7, PRX-11)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import proc
from tests.support.acts import pause_ms, repeat
from tests.support.client import Stream
from tests.support.config import Config, model, standard, toml
from tests.support.gateway import CHAT, MESSAGES, PLAIN, STRICT, Gateway, Metrics, UncleanExitError
from tests.support.notation import CBD, CBS, DONE, EOF_OK, FIN, HANG, MS, R, T, U
from tests.support.provider import FakeProvider, refusing_port

BOOT_S = 30.0  # two workers import nothing, but share two cores with whatever else runs
GROUP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def chat(model: str = "m") -> dict[str, Any]:
    return {"model": model, "stream": True, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}


async def until(true: Callable[[], bool], within_s: float = 10.0) -> None:
    """Wait for something that only the kernel's tables tell."""
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110 - nothing to await
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def serving(config: Config, tmp_path: Path, flags: tuple[str, ...] = STRICT) -> AsyncIterator[Gateway]:
    """Two workers that both serve. Leaving checks that nothing of theirs is left in the temporary folder either."""
    async with Gateway(config, workers=2, flags=flags, env={"TMPDIR": str(tmp_path)}) as gateway:
        await gateway.logged("server.started", 2, BOOT_S)
        yield gateway
    if gateway.expected_exit == 0:
        assert os.listdir(tmp_path) == []


def workers(gateway: Gateway) -> list[int]:
    return [pid for pid in gateway.pids if pid != gateway.pid]


def load(gateway: Gateway) -> dict[int, int]:
    """Clients' connections of each worker."""
    return {pid: proc.established([pid], local_port=gateway.port) for pid in workers(gateway)}


async def spread(gateway: Gateway, target: str = CHAT, payload: dict[str, Any] | None = None) -> list[Stream]:
    """Open streams until both workers have two or more; all of them have begun."""
    streams: list[Stream] = []
    while len(streams) < 200 and min(load(gateway).values()) < 2:
        streams.append(await gateway.client().open("POST", target, payload or chat()))
        await streams[-1].head()
    return streams


async def dispose(streams: list[Stream]) -> None:
    for stream in streams:
        await stream.dispose()


def config_file(gateway: Gateway) -> Path:
    """The file that the kit wrote."""
    return Path(os.readlink(f"/proc/{gateway.pid}/cwd")) / "gateway.toml"


async def models(gateway: Gateway) -> set[str]:
    reply = await gateway.client().request("GET", "/v1/models")
    return {entry["id"] for entry in reply.json["data"]}


async def test_both_workers_serve(tmp_path: Path) -> None:
    """Connections are spread over the workers; the master holds none of them."""
    async with FakeProvider() as provider, serving(standard(provider.base_url), tmp_path) as gateway:
        provider.script("m", [R(), T("a"), HANG])
        streams = await spread(gateway)

        held = load(gateway)
        own = proc.established([gateway.pid], local_port=gateway.port)

        assert len(held) == 2
        assert sum(held.values()) == len(streams)
        assert min(held.values()) >= 2
        assert own == 0
        await dispose(streams)


async def test_prx_11_sigterm_to_the_group(tmp_path: Path) -> None:
    """SIGTERM to all processes: short streams finish, endless ones end with error frame and terminator, exit 0."""
    config = standard("", server={"accept_s": 0.1, "drain_s": 1.5, "exit_s": 8})
    async with FakeProvider() as provider, serving(_at(provider, config), tmp_path) as gateway:
        provider.script("m", [R(), repeat(T("a"), pause_ms(20))])
        provider.script("claude", [MS(3), CBS(0), repeat(CBD(0, "a"), pause_ms(20))])
        provider.script("first", [R(), T("b"), pause_ms(700), FIN(), U(7, 1), DONE, EOF_OK])
        openai = await spread(gateway)
        anthropic = [await gateway.client().open("POST", MESSAGES, chat("claude")) for _ in range(4)]
        short = [await gateway.client().open("POST", CHAT, chat("fallback")) for _ in range(4)]
        for stream in anthropic + short:
            await stream.head()

        os.killpg(gateway.pid, signal.SIGTERM)
        told_s = time.monotonic()
        cut = await asyncio.gather(*(stream.all_frames(8) for stream in openai + anthropic))
        cut_s = time.monotonic() - told_s
        whole = await asyncio.gather(*(stream.all_frames(8) for stream in short))
        code = await gateway.exit_code(8)
        exit_s = time.monotonic() - told_s
        receipts = await gateway.settled(len(openai + anthropic + short))

        assert code == 0
        assert 1.4 < cut_s < 5
        assert exit_s < 8
        for frames in cut[: len(openai)]:
            assert json.loads(frames[-2][6:])["error"]["code"] == "stream_interrupted"
            assert frames[-1] == b"data: [DONE]"
        for frames in cut[len(openai) :]:
            assert frames[-1].startswith(b"event: error\n")
        assert all(stream.ended_properly and stream.rest == b"" for stream in openai + anthropic + short)
        assert all(frames[-1] == b"data: [DONE]" and b"error" not in b"".join(frames) for frames in whole)
        assert sorted({receipt["outcome"] for receipt in receipts}) == ["completed", "interrupted"]
        await dispose(openai + anthropic + short)


@pytest.mark.parametrize("to", ["master", "group"])
async def test_h7_further_signals(to: str, tmp_path: Path) -> None:
    """Signals of every kind, all through the drain and until the end, change nothing: the stream is whole, exit 0."""
    config = standard("", server={"accept_s": 0.1, "drain_s": 4, "exit_s": 10})
    send = os.killpg if to == "group" else os.kill
    async with FakeProvider() as provider, serving(_at(provider, config), tmp_path) as gateway:
        provider.script("m", [R(), T("a"), pause_ms(1200), T("b"), FIN(), U(7, 2), DONE, EOF_OK])
        streams = [await gateway.client().open("POST", CHAT, chat()) for _ in range(8)]
        for stream in streams:
            await stream.head()

        send(gateway.pid, signal.SIGTERM)
        reading = asyncio.gather(*(stream.all_frames(8) for stream in streams))
        leaving = asyncio.ensure_future(gateway.exit_code(10))
        while not leaving.done():
            for number in GROUP_SIGNALS:
                with contextlib.suppress(ProcessLookupError):
                    send(gateway.pid, number)
            await asyncio.sleep(0.005)  # a dense rain of signals is the point

        assert leaving.result() == 0
        assert all(frames[-1] == b"data: [DONE]" and b"error" not in b"".join(frames) for frames in await reading)
        assert {receipt["outcome"] for receipt in await gateway.settled(8)} == {"completed"}
        # No worker was ended by a signal, late as it may have come.
        assert [line for line in gateway.log if line.get("logger") == "gunicorn"] == []
        await dispose(streams)


async def test_exit_s_is_kept(tmp_path: Path) -> None:
    """A worker that does not react at all is killed in time; the service still ends with 0 and says why."""
    config = standard("http://127.0.0.1:9", server={"accept_s": 0, "drain_s": 0.5, "exit_s": 5})
    async with serving(config, tmp_path) as gateway:
        os.kill(workers(gateway)[0], signal.SIGSTOP)

        told_s = gateway.terminate()
        code = await gateway.exit_code(10)

        assert code == 0
        assert 4.4 < time.monotonic() - told_s < 8  # 5, and what a busy machine adds
        await gateway.line(lambda line: line.get("message") == "1 workers did not end in time and are killed.")


async def test_exit_beside_a_lock(tmp_path: Path) -> None:
    """A database that somebody keeps locked, with rows that wait for it, makes no worker miss its time."""
    config = standard("http://127.0.0.1:9", server={"accept_s": 0, "drain_s": 0.5, "exit_s": 6})
    async with serving(config, tmp_path) as gateway:
        database = config_file(gateway).with_name("gateway.db")
        with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for _ in range(4):
                await gateway.client().request("POST", CHAT, chat())
            await asyncio.sleep(1)  # in the middle of a wait for the other's end

            gateway.terminate()
            code = await gateway.exit_code(10)

        assert code == 0
        assert len(await gateway.logged("server.stopped", 2)) == 2
        assert [line for line in gateway.log if line.get("logger") == "gunicorn"] == []  # none was killed


async def test_sighup_reloads_every_worker(tmp_path: Path) -> None:
    """SIGHUP to the master: the same workers serve the new file, and so does one that is started later."""
    config = standard("http://127.0.0.1:9")
    async with serving(config, tmp_path) as gateway:
        before = workers(gateway)
        config["models"]["new"] = model("fake-openai/new")
        config_file(gateway).write_text(toml(config))

        gateway.signal(signal.SIGHUP)
        await gateway.logged("settings.reloaded", 2)

        assert workers(gateway) == before
        assert all([{"m", "new"} <= await models(gateway) for _ in range(8)])

        for pid in before:
            os.kill(pid, signal.SIGKILL)
        started = await gateway.logged("server.started", 2, BOOT_S)

        assert [line["models"] for line in started] == [7, 7]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[stream]\nidle_s = 'x'\n", "stream.idle_s"),
        ("x = " + "1" * 5000, "cannot be read: Exceeds the limit"),
        ("x = " + "[" * 5000, "is nested too deeply"),
    ],
    ids=["a wrong type", "an endless number", "deep nesting"],
)
async def test_sighup_with_a_bad_file(text: str, problem: str, tmp_path: Path) -> None:
    """A bad file is told and changes nothing, for the workers there are as for those that replace them."""
    async with serving(standard("http://127.0.0.1:9"), tmp_path) as gateway:
        before = workers(gateway)
        config_file(gateway).write_text(text)

        gateway.signal(signal.SIGHUP)
        refused = await gateway.logged("settings.refused", 2)
        os.kill(before[0], signal.SIGKILL)
        (started,) = await gateway.logged("server.started", 1, BOOT_S)

        assert all(problem in line["problems"][0] for line in refused)
        assert started["models"] == 6
        assert before[1] in workers(gateway)
        assert "m" in await models(gateway)


# The real command, in which settings can be read once and every further time meets a bug.
READS_ONCE = """
import gateway.__main__ as entry
import gateway.commands.configured as configured
load, calls = configured.load, []

def once(*args, **more):
    calls.append(1)
    if len(calls) > 1:
        raise KeyError("a bug of ours")
    return load(*args, **more)

entry.load = configured.load = once
entry.main()
"""


@pytest.mark.parametrize("number", [1, 2])
async def test_sighup_meets_a_bug(number: int) -> None:
    """An exception that nobody expected at a reload is logged by each process, and all of them serve on as before."""
    config, command = standard("http://127.0.0.1:9"), ("-c", READS_ONCE, "serve")
    async with Gateway(config, workers=number, flags=PLAIN, command=command) as gateway:
        await gateway.logged("server.started", number, BOOT_S)
        before = set(gateway.pids)

        gateway.signal(signal.SIGHUP)
        told = await gateway.logged("internal.error", len(before))

        assert {line["exception"][0]["message"] for line in told} == {"'a bug of ours'"}
        assert "m" in await models(gateway)
        assert set(gateway.pids) == before


async def test_killed_worker_is_replaced(tmp_path: Path) -> None:
    """SIGKILL of a worker breaks its streams alone; another takes its place, and the gauges forget what it had open."""
    async with FakeProvider() as provider, serving(standard(provider.base_url), tmp_path) as gateway:
        provider.script("m", [R(), repeat(T("a"), pause_ms(20))])
        streams = await spread(gateway)
        held = load(gateway)
        victim, survivor = held
        before = await gateway.metrics()

        os.kill(victim, signal.SIGKILL)
        await gateway.logged("server.started", 1, BOOT_S)
        await until(lambda: sum(stream.closed.done() for stream in streams) == held[victim])
        after = await gateway.metrics()

        assert before.value("gateway_open_streams") == len(streams)
        assert after.value("gateway_open_streams") == held[survivor]
        assert len(workers(gateway)) == 2
        assert survivor in workers(gateway)
        assert victim not in workers(gateway)
        told = await gateway.line(lambda line: str(victim) in line.get("message", ""))
        assert (told["level"], told["logger"]) == ("error", "gunicorn")
        await dispose(streams)


async def test_metrics_are_summed(tmp_path: Path) -> None:
    """Whichever worker answers `/metrics`, it answers for both a second later, those included that have ended."""
    async with FakeProvider() as provider, serving(standard(provider.base_url), tmp_path) as gateway:
        provider.script("m", [R(), T("a"), FIN(), U(7, 1), pause_ms(300), DONE, EOF_OK])
        streams = await spread(gateway)
        await asyncio.gather(*(stream.all_frames() for stream in streams))
        await gateway.settled(len(streams))
        ended, _ = workers(gateway)

        await asyncio.sleep(1.5)  # the hand-over happens once a second, and nothing tells of it
        running = [await gateway.metrics() for _ in range(8)]
        more = await gateway.client().request("POST", CHAT, chat())
        for pid in workers(gateway):
            os.kill(pid, signal.SIGTERM)
        await gateway.logged("server.started", 2, BOOT_S)
        replaced = [await gateway.metrics() for _ in range(8)]

        assert more.status == 200
        assert ended not in workers(gateway)
        assert {_completed(m) for m in running} == {len(streams)}
        assert {_completed(m) for m in replaced} == {len(streams) + 1}
        assert {m.value("gateway_ttfb_seconds_count") for m in replaced} == {len(streams) + 1}
        assert {m.value("gateway_open_streams") for m in running + replaced} == {0}
        await dispose(streams)


async def test_workers_follow_their_master(tmp_path: Path) -> None:
    """Workers whose master was killed drain and go by themselves."""
    config = standard("", server={"accept_s": 0, "drain_s": 1})
    async with FakeProvider() as provider, serving(_at(provider, config), tmp_path) as gateway:
        provider.script("m", [R(), repeat(T("a"), pause_ms(20))])
        gateway.expected_exit = -signal.SIGKILL
        async with gateway.client().stream(CHAT, chat()) as stream:
            gateway.signal(signal.SIGKILL)
            frames = await stream.all_frames(8)
        await until(lambda: not proc.group_alive(gateway.pid))

        assert frames[-1] == b"data: [DONE]"
        assert len(await gateway.logged("server.stopped", 2)) == 2


# Starts the real command with a worker that fails where {place} says.
BROKEN = """
import gateway.app, gateway.__main__

def fail(*args, **more):
    raise OSError("no more {place}")

gateway.app.{place} = fail
gateway.__main__.main()
"""


@pytest.mark.parametrize("place", ["App.__init__", "warm_up"])
async def test_a_worker_that_cannot_start(place: str, tmp_path: Path) -> None:
    """The master gives up at once instead of trying for ever: exit code 3, and log lines that tell why."""
    command = ("-c", BROKEN.format(place=place), "serve")
    gateway = Gateway(
        standard("http://127.0.0.1:9"), workers=2, flags=PLAIN, command=command, env={"TMPDIR": str(tmp_path)}
    )

    with pytest.raises(UncleanExitError, match="exited with 3 before it was ready"):
        async with gateway:
            pass

    assert gateway.stderr == ""
    errors = [line for line in gateway.log if line["event"] == "internal.error"]
    assert 1 <= len(errors) <= 2
    assert errors[0]["exception"][0]["message"] == f"no more {place}"
    assert "Reason: Worker failed to boot." in [line.get("message") for line in gateway.log]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("variable", "value"), [("WEB_CONCURRENCY", "2"), ("GATEWAY_SERVER_WORKERS", "2")])
async def test_workers_from_the_environment(variable: str, value: str) -> None:
    """The number of workers is a setting like others, and the platform's variable counts."""
    async with Gateway(standard("http://127.0.0.1:9"), env={variable: value}) as gateway:
        await gateway.logged("server.started", 2, BOOT_S)

        assert len(workers(gateway)) == 2


async def test_empty_web_concurrency() -> None:
    """An empty variable counts as not set, also for gunicorn."""
    async with Gateway(standard("http://127.0.0.1:9"), workers=2, env={"WEB_CONCURRENCY": ""}) as gateway:
        await gateway.logged("server.started", 2, BOOT_S)

        assert len(workers(gateway)) == 2


async def test_port_in_use() -> None:
    """An address that somebody else has is one clear line and exit code 1."""
    async with refusing_port() as port:
        gateway = Gateway(standard("http://127.0.0.1:9"), workers=2, port=port)

        with pytest.raises(UncleanExitError, match="exited with 1 before it was ready"):
            async with gateway:
                pass

    problem = f"Cannot listen on 127.0.0.1, port {port}: Address already in use."
    assert gateway.stderr == f"{problem} Choose another port with --port.\n"


def _completed(metrics: Metrics) -> float:
    return metrics.value("gateway_requests_total", endpoint="chat_completions", outcome="completed")


def _at(provider: FakeProvider, config: Config) -> Config:
    """*config* with its providers at *provider*."""
    return config | {"providers": standard(provider.base_url)["providers"]}
