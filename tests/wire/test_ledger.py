"""What calls come to in the database, and what becomes of that when a process is killed."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.acts import Pause, status
from tests.support.client import Stream
from tests.support.config import standard
from tests.support.frames import chat
from tests.support.gateway import CHAT, Gateway
from tests.support.notation import DONE, FIN, HANG, R, T, U, json_answer
from tests.support.provider import FakeProvider
from tests.support.redis import Redis, server
from tests.support.rows import Ledger

KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with server() as running:
        yield running


@pytest.fixture(params=["spool", "redis-stream"])
def books(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    """Those of either kind of journal: what a call comes to does not depend on it."""
    if request.param == "spool":
        return Ledger(tmp_path)
    running: Redis = request.getfixturevalue("redis")
    return Ledger(tmp_path, running.url)


async def told(stream: Stream, words: bytes) -> None:
    """Wait until the client has been told *words*."""
    async with asyncio.timeout(10):
        async for frame in stream.frames():
            if words in frame:
                return
    raise AssertionError(f"the stream ended without {words!r}")


async def test_a_call_becomes_rows(books: Ledger) -> None:
    """A call has one charge, one cost for each provider that got it, one trace, and a part in its session."""
    async with FakeProvider() as provider, Gateway(standard(provider.base_url, **books.sections)) as gateway:
        provider.script("first", [status(500)])
        provider.script("second", [R(), T("Once "), T("upon"), FIN(), U(7, 2), DONE])

        reply = await gateway.client(anoman_session_id="s-1").request("POST", CHAT, chat("fallback"))
        (receipt,) = await gateway.settled()
        ledger, traces = await books.has("ledger", 3), await books.has("traces", 1)

    assert reply.status == 200
    assert [(row["kind"], row["attempt"], row["state"], row["provider_model"]) for row in ledger] == [
        ("charge", -1, "settled", "second"),
        ("cost", 0, "settled", "first"),
        ("cost", 1, "settled", "second"),
    ]
    assert [row["cost_nano_usd"] for row in ledger] == [37_500, 0, 37_500]
    assert [(row["prompt_tokens"], row["completion_tokens"]) for row in ledger] == [(7, 2), (0, 0), (7, 2)]
    assert receipt["cost_usd"] == "0.0000375"
    (trace,) = traces
    assert (trace["request_id"], trace["trace_id"]) == (receipt["request_id"], receipt["trace_id"])
    assert json.loads(trace["attempts"])[0] == {"provider": "fake-openai", "model": "first", "result": "failed"}
    (session,) = books.rows("sessions")
    assert (session["session_id"], session["requests"], session["cost_nano_usd"]) == ("s-1", 1, 37_500)


async def test_what_is_refused_costs_nothing(books: Ledger) -> None:
    """A call that no provider was asked for has a trace, and no row in the ledger; one that a provider refused is
    voided."""
    async with FakeProvider() as provider, Gateway(standard(provider.base_url, **books.sections)) as gateway:
        provider.script("m", [status(400, body={"error": {"message": "No."}})])

        await gateway.client().request("POST", CHAT, chat("unheard-of"))
        await gateway.client().request("POST", CHAT, chat("m"))
        traces, ledger = await books.has("traces", 2), await books.has("ledger", 2)

    assert [(trace["model"], trace["outcome"]) for trace in traces] == [("unheard-of", "rejected"), ("m", "rejected")]
    assert [(row["kind"], row["state"], row["cost_nano_usd"]) for row in ledger] == [
        ("charge", "voided", 0),
        ("cost", "settled", 0),
    ]


async def test_a_clean_exit_leaves_no_journal(books: Ledger) -> None:
    """What ended just before the exit is in the database after it, and nothing is left on the disk."""
    async with FakeProvider() as provider, Gateway(standard(provider.base_url, **books.sections)) as gateway:
        provider.script("m", [json_answer("Yes.", (5, 2))])

        await gateway.client().request("POST", CHAT, chat("m", stream=False))
        gateway.terminate()
        await gateway.exit_code()

    assert [row["kind"] for row in books.rows("ledger")] == ["charge", "cost"]
    assert books.journals == []


async def test_killed_in_a_stream(books: Ledger) -> None:
    """A stream whose process is killed is charged by the next one, its prompt and what had come, and to its session."""
    async with FakeProvider() as provider:
        provider.script("m", [R(), T("One "), T("two "), T("three"), HANG])
        config = standard(provider.base_url, stream={"idle_s": 20}, **books.sections)  # longer than we wait here
        async with (
            Gateway(config) as gateway,
            gateway.client(anoman_session_id="s-1").stream(CHAT, chat("m", user="u-1")) as stream,
        ):
            await told(stream, b"three")
            await books.has_progress()
            gateway.expected_exit = KILLED
            gateway.signal(signal.SIGKILL)
            await gateway.exit_code()
        async with Gateway(config) as gateway:
            (adopted,) = await gateway.logged("ledger.adopted", within_s=20)
            ledger = books.rows("ledger")

    assert (adopted["ended"], adopted["reconciled"]) == (0, 1)
    assert [(row["kind"], row["state"], row["basis"], row["outcome"]) for row in ledger] == [
        ("charge", "reconciled", "received", "interrupted"),
        ("cost", "reconciled", "received", "interrupted"),
    ]
    assert [(row["prompt_tokens"], row["completion_tokens"]) for row in ledger] == [(5, 3), (5, 3)]
    assert ledger[0]["cost_nano_usd"] == 5 * 2500 + 3 * 10_000
    assert [(row["failure_reason"], row["user"]) for row in books.rows("traces")] == [("crash", "u-1")]
    assert [(row["session_id"], row["cost_nano_usd"]) for row in books.rows("sessions")] == [("s-1", 42_500)]
    assert books.journals == []


async def test_a_process_that_stood_still(tmp_path: Path, redis: Redis) -> None:
    """Taken for dead with a call under way, it goes on with that, and what it says of it is what counts in the end."""
    books = Ledger(tmp_path, redis.url)
    async with FakeProvider() as provider:
        provider.script("m", [R(), T("One "), T("two"), Pause(4_000), T(" three"), FIN(), U(5, 9), DONE])
        config = standard(provider.base_url, stream={"idle_s": 60}, **books.sections)
        async with (
            Gateway(config) as gateway,
            gateway.client(anoman_session_id="s-1").stream(CHAT, chat("m", user="u-1")) as stream,
        ):
            await told(stream, b"two")
            await books.has_progress()
            gateway.signal(signal.SIGSTOP)
            try:
                names = redis.keys()
                redis.command("DEL", *[name for name in names if name.endswith(":lease")])  # as after 15 s
                async with Gateway(config) as other:
                    await other.logged("ledger.adopted", within_s=20)
            finally:
                gateway.signal(signal.SIGCONT)
            guess = books.rows("ledger", "kind = 'charge'")
            await told(stream, b"[DONE]")
            await books.until("ledger", lambda rows: any(row["kind"] == "correction" for row in rows))

    ledger = books.rows("ledger", "kind IN ('charge', 'correction')")
    assert [(row["state"], row["completion_tokens"]) for row in guess] == [("reconciled", 2)]
    assert [(row["kind"], row["state"], row["completion_tokens"]) for row in ledger] == [
        ("charge", "reconciled", 2),
        ("correction", "settled", 7),
    ]
    costs = books.rows("ledger", "kind IN ('cost', 'cost_correction')")
    assert [(row["kind"], row["completion_tokens"]) for row in costs] == [("cost", 2), ("cost_correction", 7)]
    assert [(row["outcome"], row["completion_tokens"]) for row in books.rows("traces")] == [("completed", 9)]
    totals = [(row["requests"], row["failed"], row["completion_tokens"]) for row in books.rows("sessions")]
    assert totals == [(1, 0, 9)]
    names = redis.keys()
    assert [name for name in names if name.startswith("anoman:")] == []


async def test_what_was_spent_before_a_kill_is_spent(tmp_path: Path) -> None:
    """Counters of the process are loaded from the ledger: it has what a killed one left behind before anybody calls."""
    books = Ledger(tmp_path)
    async with FakeProvider() as provider:
        provider.script("m", [R(), T("One"), HANG])
        config = standard(provider.base_url, **books.sections)
        async with Gateway(config) as gateway, gateway.client().stream(CHAT, chat("m")) as stream:
            await told(stream, b"One")
            gateway.expected_exit = KILLED
            gateway.signal(signal.SIGKILL)
            await gateway.exit_code()
        async with Gateway(config) as gateway:
            await gateway.logged("ledger.adopted", within_s=20)
            await gateway.logged("server.started", within_s=20)
            events = [line["event"] for line in gateway.log]

    assert events.index("ledger.adopted") < events.index("server.started")
