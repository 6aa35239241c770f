"""A running gateway and what it keeps: calls come back as traces, receipts and sums, bodies where that is allowed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Client
from tests.support.config import OPENAI_SECRET, standard
from tests.support.frames import chat, messages
from tests.support.gateway import CHAT, MESSAGES, Gateway
from tests.support.notation import DONE, EOF_OK, FIN, HANG, R, T, U, json_answer
from tests.support.provider import FakeProvider

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 30  # for a row to be there: a second does, but for a busy machine
PROMPT = "canary-of-the-prompt-5d1c"
ANSWER = "canary-of-the-answer-77ab"


def command(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A subcommand over the database at *url*."""
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        cwd=Path(url.removeprefix("sqlite:///")).parent,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "GATEWAY_STORAGE_DATABASE_URL": url},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database with a tenant."""
    found = f"sqlite:///{tmp_path}/gateway.db"
    done = command(found, "tenants", "create", "acme")
    assert done.returncode == 0, done.stderr
    return found


def key(url: str, *options: str) -> str:
    """The secret of a new key of the tenant."""
    done = command(url, "keys", "create", "--tenant", "acme", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def eventually(client: Client, path: str) -> Any:
    """What *path* answers once it is there."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            reply = await client.request("GET", f"/anoman/v1/{path}")
            if reply.status == 200:
                return reply.json
            await asyncio.sleep(0.1)


def served(url: str, provider: FakeProvider) -> Gateway:
    return Gateway(standard(provider.base_url, storage={"database_url": url}))


async def test_a_call_and_its_books(url: str) -> None:
    """What a call was comes back as a trace, a receipt to its own key, sums and a session; and the books agree."""
    inference, reader = key(url), key(url, "--admin", "read")
    async with FakeProvider() as provider, served(url, provider) as gateway:
        provider.script("m", [R(), T("Hello"), FIN(), U(11, 7), DONE, EOF_OK])
        caller = gateway.client(inference, anoman_session_id="s/1", anoman_agent_id="a")
        desk = gateway.client(reader)
        reply = await caller.request("POST", CHAT, chat("m", user="ani", metadata={"team": "x"}))
        (settled,) = await gateway.settled(1)
        request_id = settled["request_id"]

        trace = await eventually(desk, f"traces/{request_id}")
        receipt = await eventually(gateway.client(inference), f"receipts/{request_id}")
        usage = await eventually(desk, "usage?by=user,session")
        session = await eventually(desk, "sessions/s%2F1")
        found = await eventually(desk, "traces?user=ani&session=s%2F1&routing_mode=streaming&response_id=c1")
        to_others = await gateway.client(key(url)).request("GET", f"/anoman/v1/receipts/{request_id}")
    agree = command(url, "ledger", "verify")

    same = ("request_id", "trace_id", "tenant", "key_id", "model", "provider", "outcome", "cost_usd", "usage_basis")
    assert reply.status == 200
    assert {name: trace[name] for name in same} == {name: settled[name] for name in same}
    assert (trace["response_id"], trace["stream"], trace["metadata"]) == ("c1", True, {"team": "x"})
    assert trace["bodies"] is None
    assert (trace["user"], trace["session_id"], trace["agent_id"]) == ("ani", "s/1", "a")
    assert [entry["kind"] for entry in trace["ledger"]] == ["charge"]
    assert receipt["cost_usd"] == usage["total"]["cost_usd"] == session["session"]["cost_usd"] == settled["cost_usd"]
    assert usage["data"] == [{"user": "ani", "session": "s/1", **usage["total"]}]
    assert [[row["request_id"] for row in page["data"]] for page in (found, session)] == [[request_id]] * 2
    assert to_others.status == 404
    assert (agree.returncode, agree.stdout) == (
        0, "missing/extra/mismatch = 0/0/0; no counters in Redis looked at.\n",
    )  # fmt: skip


async def test_bodies(url: str) -> None:
    """Of a key that allows it, request and answer are kept, without what looks like a key; not with `store` false."""
    open_key, reader = key(url, "--log-bodies"), key(url, "--admin", "read")
    async with FakeProvider() as provider, served(url, provider) as gateway:
        provider.script("m", [R(), T("Hel"), T("lo "), T("sk-abcdefghijklmnop"), FIN(), U(3, 1), DONE, EOF_OK])
        provider.script("claude", [json_answer("Hi there", dialect="anthropic")])
        caller, desk = gateway.client(open_key), gateway.client(reader)
        await caller.request("POST", CHAT, chat("m", f"tell {PROMPT} {OPENAI_SECRET}"))
        await caller.request("POST", MESSAGES, messages("claude", PROMPT, stream=False))
        await caller.request("POST", CHAT, chat("m", "not this one", store=False))
        settled = await gateway.settled(3)

        told = [await with_bodies(desk, line["request_id"]) for line in settled[:2]]
        not_kept = await eventually(desk, f"traces/{settled[2]['request_id']}")

    assert told[0]["response"] == "Hello ***"
    assert told[1]["response"] == "Hi there"
    asked = [json.loads(bodies["request"])["messages"][0]["content"] for bodies in told]
    assert asked == [f"tell {PROMPT} ***", PROMPT]
    assert not_kept["bodies"] is None


async def with_bodies(desk: Client, request_id: str) -> Any:
    """The bodies of the trace, once they are there: they come by another way."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            bodies = (await eventually(desk, f"traces/{request_id}"))["bodies"]
            if bodies is not None:
                return bodies
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("is_forbidden", [False, True], ids=["no leave", "the policy forbids it"])
async def test_e22_nothing_else_holds_a_body(url: str, tmp_path: Path, is_forbidden: bool) -> None:
    """Without leave, or where the tenant's policy forbids what the key allows, no word of a prompt or an answer is in
    the database or the journal: whole, cut or refused."""
    inference, reader = key(url, *(["--log-bodies"] if is_forbidden else [])), key(url, "--admin", "read")
    if is_forbidden:
        (tmp_path / "dark.json").write_text('{"calls": {"log_bodies": false}}')
        for words in ("policies put dark dark.json", "tenants update acme --policy dark"):
            assert command(url, *words.split()).returncode == 0
    async with FakeProvider() as provider, served(url, provider) as gateway:
        provider.script("m", [R(), T(ANSWER), FIN(), U(3, 1), DONE, EOF_OK])
        provider.script("first", [R(), T(ANSWER), HANG])
        provider.script("claude", [json_answer(ANSWER, dialect="anthropic")])
        caller = gateway.client(inference)
        await caller.request("POST", CHAT, chat("m", PROMPT))
        await caller.request("POST", MESSAGES, messages("claude", PROMPT, stream=False))
        await caller.request("POST", CHAT, chat("nowhere", PROMPT))
        async with caller.stream(CHAT, chat("fallback", PROMPT)) as stream:
            async for frame in stream.frames():
                if ANSWER.encode() in frame:
                    break
            stream.rst()
        lines = await gateway.settled(4)
        for line in lines:
            await eventually(gateway.client(reader), f"traces/{line['request_id']}")

    assert holding(tmp_path, lines[0]["request_id"]) != []  # so it would be found
    assert holding(tmp_path, PROMPT) == []
    assert holding(tmp_path, ANSWER) == []


def holding(folder: Path, word: str) -> list[Path]:
    """The files in *folder*, database and journal among them, that have *word* in them."""
    return [path for path in folder.rglob("*") if path.is_file() and word.encode() in path.read_bytes()]
