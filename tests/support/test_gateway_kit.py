"""The subprocess part of the kit, tried on a stand-in that misbehaves on demand."""

from __future__ import annotations

import asyncio
import json
import signal
import tomllib
from pathlib import Path

import pytest

from tests.support.config import CANARY, KEY, merged, model, standard, toml
from tests.support.gateway import PLAIN, Gateway, UncleanExitError
from tests.support.provider import FakeProvider

# Serves every path with 200, does what the configuration's [stub] says, and leaves on SIGTERM with its `exit`.
STUB = r"""
import argparse, asyncio, json, os, signal, subprocess, sys, tomllib

parser = argparse.ArgumentParser()
for name in ("config", "host", "port", "workers"):
    parser.add_argument("--" + name)
options = parser.parse_args()
with open(options.config, "rb") as file:
    stub = tomllib.load(file)["stub"]

async def serve(reader, writer):
    try:
        line = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return writer.close()
    body = b"b_total{l=\"x\"} 2.0\n" * line.startswith(b"GET /metrics") or stub["body"].encode()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()
    if line.startswith(b"GET / "):
        for text in stub["stdout"]:
            print(text, flush=True)
    writer.close()

async def main():
    if stub["stderr"]:
        print(stub["stderr"], file=sys.stderr, flush=True)
    if stub["child"]:
        subprocess.Popen(["sleep", "60"])
    done = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
    if stub["connect"]:
        keep = await asyncio.open_connection("127.0.0.1", stub["connect"])
    if stub["serves"]:
        await asyncio.start_server(serve, options.host, int(options.port))
        await done.wait()
    os._exit(stub["exit"])

asyncio.run(main())
"""
BEHAVED = {"body": "", "stdout": [], "stderr": "", "exit": 0, "child": False, "connect": 0, "serves": True}


def settled(request_id: str) -> str:
    return json.dumps({"event": "exchange.settled", "request_id": request_id})


def stub(**behaviour: object) -> Gateway:
    return Gateway({"stub": {**BEHAVED, **behaviour}}, command=("-c", STUB), flags=PLAIN)


async def one_request(gateway: Gateway) -> Gateway:
    async with gateway:
        await gateway.client().request("GET", "/")
    return gateway


async def test_a_clean_run() -> None:
    """Log lines are handed out once, in order; metrics are read; a clean exit raises nothing."""
    async with stub(stdout=['{"event": "other"}', settled("a"), settled("b")]) as gateway:
        await gateway.client().request("GET", "/")
        first = await gateway.settled(1)
        second = await gateway.settled(1)
        metrics = await gateway.metrics()

        with pytest.raises(TimeoutError):
            await gateway.logged("never", within_s=0.05)

    assert [line["request_id"] for line in first + second] == ["a", "b"]
    assert (metrics.value("b_total", l="x"), metrics.value("b_total", l="y")) == (2.0, 0)


@pytest.mark.parametrize(
    ("behaviour", "complaint"),
    [
        ({"stderr": "Traceback (most recent call last)"}, "standard error: Traceback"),
        ({"stdout": ["not json"]}, "standard output is no JSON: 'not json"),
        ({"stdout": [settled("a"), settled("a")]}, "settled 2 times: a"),
        ({"stdout": [f'{{"key": "{KEY}"}}']}, "a credential is in the log"),
        ({"stderr": CANARY}, "a credential is in the log"),
        ({"body": f"Incorrect API key {KEY}"}, "a credential was sent to a client"),
        ({"exit": 3}, "exit code 3 instead of 0"),
        ({"child": True}, "left processes behind"),
    ],
)
async def test_what_makes_a_run_unclean(behaviour: dict[str, object], complaint: str) -> None:
    """Each of the things that must never happen fails the test that ran the gateway."""
    with pytest.raises(UncleanExitError, match=complaint):
        await one_request(stub(**behaviour))


async def test_slow_callbacks_are_the_machines_fault() -> None:
    """Lines of asyncio's debug mode about slow callbacks do not fail a test."""
    gateway = await one_request(stub(stderr="Executing <Handle f() created at a.py:1> took 0.123 seconds"))

    assert "took 0.123 seconds" in gateway.stderr


async def test_expected_ends_are_clean() -> None:
    """A test that kills the process says so, and may allow a pattern on standard error."""
    gateway = stub(stderr="known 1")
    gateway.expected_exit, gateway.stderr_may = -signal.SIGKILL, r"known \d"

    async with gateway:
        gateway.signal(signal.SIGKILL)
        code = await gateway.exit_code(5)

    assert code == -signal.SIGKILL


async def test_an_early_death_is_told() -> None:
    """A gateway that ends before it is ready is an error with its standard error in it."""
    with pytest.raises(UncleanExitError, match="exited with 3 before it was ready") as caught:
        await one_request(stub(serves=False, exit=3, stderr="port taken"))

    assert "port taken" in "\n".join(caught.value.__notes__)


async def test_a_failing_test_is_not_hidden() -> None:
    """The error of the test body wins over that of the exit, which is added as a note."""

    async def fails() -> None:
        async with stub(exit=3):
            raise KeyError("the test's own")

    with pytest.raises(KeyError, match="the test's own") as caught:
        await fails()

    assert "exit code 3 instead of 0" in caught.value.__notes__[0]


async def test_sockets_and_files_are_counted() -> None:
    """An established connection to a provider counts until the provider drops it; the others are told apart."""
    async with FakeProvider() as provider, stub(connect=provider.port) as gateway:
        before, files = gateway.sockets(provider.port), gateway.open_files()
        client = await gateway.client().connect()
        await asyncio.sleep(0.05)  # accepted when the stand-in's loop comes round
        clients, more_files = gateway.client_sockets(), gateway.open_files()
        await client.dispose()
        await provider.stop()

        after = gateway.sockets(provider.port)

    assert (before, clients, after) == (1, 1, 0)
    assert more_files == files + 1


async def test_environment_does_not_reach_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that would change the gateway stay outside; those the test gives go in."""
    monkeypatch.setenv("PORT", "1")
    monkeypatch.setenv("GATEWAY_SERVER_PORT", "1")

    async with Gateway({"stub": BEHAVED}, command=("-c", STUB), flags=PLAIN, env={"GIVEN": "1"}) as gateway:
        environ = await asyncio.to_thread(Path(f"/proc/{gateway.pid}/environ").read_bytes)
    names = {pair.partition(b"=")[0] for pair in environ.split(b"\0")}

    assert b"GIVEN" in names
    assert not names & {b"PORT", b"GATEWAY_SERVER_PORT"}


def test_toml_is_read_back_the_same() -> None:
    """What the writer writes is what a reader reads, with odd names and deep tables."""
    config = standard("http://127.0.0.1:1", models={'a."b" é': model("p/m/n", tools=False)})

    assert tomllib.loads(toml(config)) == config


def test_overrides_are_merged_table_by_table() -> None:
    """An override changes what it names and nothing beside it, and never the original."""
    base = {"stream": {"idle_s": 1, "heartbeat_s": 2}, "tiers": {}}

    out = merged(base, {"stream": {"idle_s": 3}, "new": {"a": 1}})

    assert out == {"stream": {"idle_s": 3, "heartbeat_s": 2}, "tiers": {}, "new": {"a": 1}}
    assert base["stream"] == {"idle_s": 1, "heartbeat_s": 2}


def test_credentials_hold_the_canary() -> None:
    """Every key and every provider's secret can be recognised."""
    config = standard("http://127.0.0.1:1")

    credentials = [*config["keys"], *(provider["api_key"] for provider in config["providers"].values())]

    assert all(CANARY in credential for credential in credentials)
