"""`Idempotency-Key` over the wire: a call is done once, answered as often as it is sent, and billed once (B12)."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.storage.idempotency import LEASE_S
from tests.support.acts import head, no_answer, pause_ms, status, wait
from tests.support.client import Client, Reply
from tests.support.config import CANARY, KEY, KEY_FEW, KEY_ONE, openai_provider, standard
from tests.support.frames import chat, messages
from tests.support.gateway import CHAT, MESSAGES, Gateway
from tests.support.notation import CBD, CBS, CBX, DONE, FIN, FIN_CUT, HANG, MD, MS, MX, R, T, U, json_answer
from tests.support.panels import RUN, run_of
from tests.support.provider import FakeProvider
from tests.support.store import Store, new_store

pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAM = {CHAT: [R() + T("a") + FIN() + U(7, 1) + DONE], MESSAGES: [MS(7) + CBS(0) + CBD(0, "a") + CBX(0) + MD() + MX]}
BEGUN = {CHAT: R() + T("a"), MESSAGES: MS(7) + CBS(0) + CBD(0, "a")}
MODELS = {CHAT: "m", MESSAGES: "claude"}
BODIES = {CHAT: chat, MESSAGES: messages}
COUNT = "/anthropic/v1/messages/count_tokens"
_numbers = itertools.count()
KEY_MASKED = "anm-sk-masked"


def new_name() -> str:
    """A name that no other test uses; it has the canary, so that the kit sees it in no output."""
    return f"{CANARY}-{next(_numbers)}"


@dataclass
class Bench:
    """A gateway, its provider and its database, for the whole module."""

    provider: FakeProvider
    gateway: Gateway
    store: Store

    async def ask(self, name: str | None, path: str, body: Any, *, key: str = KEY, **headers: str) -> Reply:
        """The whole answer to *body*, which is sent under *name*."""
        named = {} if name is None else {"idempotency_key": name}
        return await self.gateway.client(key, **named, **headers).request("POST", path, body)

    def script(self, path: str, *answers: Any) -> int:
        """Have *path*'s model answered so; how many requests the provider has seen before."""
        self.provider.script(MODELS[path], *answers)
        return len(self.provider.requests)

    async def answered(self, name: str, path: str, body: Any, **headers: str) -> Reply:
        """The first answer to what is not running any more, as an SDK gets it that tries again."""
        async with asyncio.timeout(20):
            while True:
                reply = await self.ask(name, path, body, **headers)
                if reply.status != 409:
                    return reply
                await asyncio.sleep(0.02)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    store = await new_store(tmp_path_factory.mktemp("idempotency"))
    async with FakeProvider() as provider:
        config = standard(
            provider.base_url,
            storage=store.settings,
            idempotency={"max_answer_bytes": 20_000},
            stream={"first_token_s": 30, "idle_s": 30, "non_stream_s": 30},
            policies={
                "masked": {"guardrails": {"pii": {"mode": "block"}, "response_content": {"mode": "redact"}}},
            },
            keys={KEY_MASKED: {"tenant": "open", "tier": "enterprise", "policy": "masked"}},
        )
        async with Gateway(config) as gateway:
            yield Bench(provider, gateway, store)


def body_of(path: str, *, stream: bool, **more: Any) -> dict[str, Any]:
    return BODIES[path](MODELS[path], **{**more, "stream": stream})


def code(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.json["error"]["code"]


def is_replay(reply: Reply) -> bool:
    return reply.headers.get("x-anoman-idempotent-replay") == "true"


def lasting(reply: Reply) -> list[tuple[str, str]]:
    """The head, but for what belongs to the moment and to the replay."""
    moment = ("date", "x-anoman-rate", "x-anoman-idempotent-replay")
    return [(name.lower(), value) for name, value in reply.headers if not name.lower().startswith(moment)]


async def insist(client: Client, body: Any, pause_s: float = 0.02) -> Reply:
    """The answer in the end, as an SDK gets it: it tries again while the call runs, or the database is busy."""
    async with asyncio.timeout(60):
        while True:
            reply = await client.request("POST", CHAT, body)
            if reply.status not in (409, 503):
                return reply
            await asyncio.sleep(pause_s)


async def settled(bench: Bench, reply: Reply) -> dict[str, Any]:
    request_id = reply.headers.get("x-request-id")
    return await bench.gateway.line(
        lambda line: line["event"] == "exchange.settled" and line["request_id"] == request_id
    )


# -- the same answer again --


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
async def test_the_same_bytes(bench: Bench, path: str, stream: bool) -> None:
    """The same name and body get the same status, bytes and headers, metadata frame and terminator included; the
    provider is asked once, and one exchange is settled."""
    dialect: Any = "anthropic" if path == MESSAGES else "openai"
    before = bench.script(path, STREAM[path] if stream else [json_answer("a", dialect=dialect)])
    name, body = new_name(), body_of(path, stream=stream)

    first = await bench.ask(name, path, body)
    again = [await bench.answered(name, path, body) for _ in range(2)]

    assert (first.status, is_replay(first)) == (200, False)
    assert b"_anoman" in first.body
    assert [reply.body for reply in again] == [first.body] * 2
    assert [lasting(reply) for reply in again] == [lasting(first)] * 2
    assert [is_replay(reply) for reply in again] == [True] * 2
    assert all(reply.ended_properly for reply in again)
    assert len(bench.provider.requests) == before + 1
    await settled(bench, first)
    ids = [line["request_id"] for line in bench.gateway.log if line["event"] == "exchange.settled"]
    assert Counter(ids)[first.headers.get("x-request-id") or ""] == 1


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
async def test_a_run_of_panels(bench: Bench, stream: bool) -> None:
    """A run of the playground is one call: its panels are asked once each, and its answer is repeated as a whole."""
    before = bench.script(CHAT, STREAM[CHAT] if stream else [json_answer("a")])
    name, body = new_name(), run_of("m", "m", stream=stream)

    first = await bench.ask(name, RUN, body)
    again = await bench.answered(name, RUN, body)

    assert (first.status, again.status) == (200, 200)
    assert again.body == first.body
    assert lasting(again) == lasting(first)
    assert first.headers.get("x-anoman-run-id") == again.headers.get("x-anoman-run-id")
    assert len(bench.provider.requests) == before + 2


async def test_a_run_that_one_panel_spoils(bench: Bench) -> None:
    """A run of which a panel was not answered is not kept: it may be had as a whole."""
    name, body = new_name(), run_of("m", "fallback", stream=False)
    bench.script(CHAT, [json_answer("a")])
    bench.provider.script("first", [status(400, (), {"error": {"message": "no"}})], [json_answer("b")])

    first = await bench.ask(name, RUN, body)
    again = await bench.answered(name, RUN, body)

    assert ["error" in panel for panel in first.json["panels"].values()] == [False, True]
    assert ["completion" in panel for panel in again.json["panels"].values()] == [True, True]
    assert not is_replay(again)


async def test_a_long_stream(bench: Bench) -> None:
    """A stream of more than one piece is repeated byte by byte."""
    bench.script(CHAT, [R(), *(T(f"{number} " * 5) for number in range(60)), FIN(), U(7, 60), DONE])
    name, body = new_name(), body_of(CHAT, stream=True)

    first = await bench.ask(name, CHAT, body)
    again = await bench.answered(name, CHAT, body)

    assert len(first.body) > 10_000
    assert again.body == first.body


async def test_an_answer_that_is_too_long(bench: Bench) -> None:
    """One beyond `max_answer_bytes` is not repeated and not made again: 409, and no SDK tries once more."""
    for stream, answer in ((False, [json_answer("a" * 30_000)]), (True, [R(), T("a" * 30_000), FIN(), U(7, 1), DONE])):
        before = bench.script(CHAT, answer)
        name, body = new_name(), body_of(CHAT, stream=stream)

        first = await bench.ask(name, CHAT, body)
        async with asyncio.timeout(10):
            again = await bench.ask(name, CHAT, body)
            while again.json["error"]["code"] == "idempotency_in_progress":
                again = await bench.ask(name, CHAT, body)

        assert (first.status, *code(again)) == (200, 409, "idempotency_not_replayable")
        assert again.headers.get("x-should-retry") == "false"
        assert len(bench.provider.requests) == before + 1


# -- at every moment of the first one --


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize("moment", ["waiting", "headed", "streaming"])
async def test_while_it_runs(bench: Bench, path: str, moment: str) -> None:
    """While the first one waits for its provider or streams, another one is told so and may try again."""
    go = asyncio.Event()
    rest: list[Any] = [wait(go), *STREAM[path]]
    if moment == "headed":
        rest = [head(), *rest]
    elif moment == "streaming":
        rest = [BEGUN[path], wait(go), STREAM[path][0].removeprefix(BEGUN[path])]
    before = bench.script(path, rest)
    name, body = new_name(), body_of(path, stream=True)
    stream = await bench.gateway.client(idempotency_key=name).open("POST", path, body)
    await bench.provider.requests_seen(before + 1)

    second = await bench.ask(name, path, body)
    other = await bench.ask(name, path, body_of(path, stream=True, user="somebody"))
    go.set()
    first = await stream.reply()
    third = await bench.answered(name, path, body)
    await stream.dispose()

    assert code(second) == (409, "idempotency_in_progress")
    assert (second.headers.get("retry-after"), second.headers.get("x-should-retry")) == ("2", None)
    assert code(other) == (422, "idempotency_mismatch")
    assert first.status == 200
    assert (third.body, is_replay(third)) == (first.body, True)
    assert len(bench.provider.requests) == before + 1


async def test_twenty_at_once(bench: Bench) -> None:
    """Of twenty requests with one name one reaches the provider; in the end all have its answer."""
    before = bench.script(CHAT, [pause_ms(100), json_answer("a")])
    name, body = new_name(), body_of(CHAT, stream=False)

    at_once = await asyncio.gather(*(bench.ask(name, CHAT, body) for _ in range(20)))
    in_the_end = await asyncio.gather(*(bench.answered(name, CHAT, body) for _ in range(20)))

    assert Counter(reply.status for reply in at_once)[200] >= 1
    assert {reply.status for reply in at_once} <= {200, 409}
    assert {reply.body for reply in in_the_end} == {reply.body for reply in at_once if reply.status == 200}
    assert len(bench.provider.requests) == before + 1


# -- what is another call --


@pytest.mark.parametrize(
    ("path", "more", "headers"),
    [
        (CHAT, {"user": "somebody"}, {}),
        (CHAT, {}, {"x_anoman_strip_extension": "1"}),
        (MESSAGES, {}, {"anthropic_beta": "some-beta-2026-01-01"}),
    ],
    ids=["body", "option", "forwarded"],
)
async def test_another_call(bench: Bench, path: str, more: dict[str, Any], headers: dict[str, str]) -> None:
    """Another body, or another header that the answer depends on, makes it another call: 422, never to be retried."""
    before = bench.script(path, STREAM[path])
    name, body = new_name(), body_of(path, stream=True)
    await bench.ask(name, path, body)

    other = await bench.answered(name, path, body | more, **headers)

    assert code(other) == (422, "idempotency_mismatch")
    assert other.headers.get("x-should-retry") == "false"
    assert len(bench.provider.requests) == before + 1


async def test_another_endpoint(bench: Bench) -> None:
    """One body may mean a call of either endpoint: the same name at the other one is another call."""
    bench.script(CHAT, [json_answer("a")])
    name, body = new_name(), messages("m", stream=False)
    await bench.ask(name, CHAT, body)

    other = await bench.answered(name, MESSAGES, body)

    assert code(other) == (422, "idempotency_mismatch")
    assert other.json["type"] == "error"


async def test_another_policy(bench: Bench) -> None:
    """What one policy let through is nobody's answer who is under another one; the same policy's callers get it."""
    bench.script(CHAT, [json_answer("write to jane.doe@example.com")], [json_answer("write to jane.doe@example.com")])
    name, body = new_name(), body_of(CHAT, stream=False)
    plain = await bench.ask(name, CHAT, body)

    other = await bench.answered(name, CHAT, body, key=KEY_MASKED)
    own = new_name()
    masked = [await bench.answered(own, CHAT, body, key=KEY_MASKED) for _ in range(2)]

    assert b"jane.doe@example.com" in plain.body
    assert code(other) == (422, "idempotency_mismatch")
    assert [b"[EMAIL_1]" in reply.body for reply in masked] == [True, True]
    assert [is_replay(reply) for reply in masked] == [False, True]


async def test_another_tenant(bench: Bench) -> None:
    """Two tenants may use one name for one body: each has its own call, and neither gets the other's answer."""
    name, body = new_name(), body_of(CHAT, stream=False)
    bench.script(CHAT, [json_answer("secret of the first")], [json_answer("answer of the second")])

    first = await bench.ask(name, CHAT, body, key=KEY)
    second = await bench.ask(name, CHAT, body, key=KEY_ONE)
    again = [await bench.answered(name, CHAT, body, key=key) for key in (KEY, KEY_ONE)]

    assert b"secret of the first" in first.body
    assert b"answer of the second" in second.body
    assert [reply.body for reply in again] == [first.body, second.body]


@pytest.mark.parametrize(
    "names",
    [[""], ["a" * 256], ["caf\xe9"], ["tab\there"], ["one", "two"], ["one", "one"]],
    ids=["empty", "long", "no ASCII", "control", "two", "twice"],
)
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_what_is_no_name(bench: Bench, path: str, names: list[str]) -> None:
    """A header that is no name of 1 to 255 printable ASCII characters is refused, and nothing is done."""
    before = bench.script(path, STREAM[path])
    headers = [("idempotency-key", name) for name in names]

    reply = await bench.gateway.client().request("POST", path, body_of(path, stream=True), headers)

    assert code(reply) == (400, "invalid_request")
    assert (reply.json["error"].get("param") or "Idempotency-Key") == "Idempotency-Key"
    assert "Idempotency-Key" in reply.json["error"]["message"]
    assert len(bench.provider.requests) == before


@pytest.mark.parametrize("name", ["a", "~" * 255, "with blanks: and, signs"])
async def test_what_is_a_name(bench: Bench, name: str) -> None:
    """Anything printable is one."""
    bench.script(CHAT, [json_answer("a")])

    assert (await bench.ask(name, CHAT, body_of(CHAT, stream=False))).status == 200


async def test_counts_know_no_names(bench: Bench) -> None:
    """Counting tokens costs nothing and may be done again: the header is passed over."""
    before = bench.script(MESSAGES, [status(200, (), {"input_tokens": 9})])
    name, body = new_name(), body_of(MESSAGES, stream=False)

    counts = [await bench.ask(name, COUNT, body) for _ in range(2)]

    assert [reply.json["input_tokens"] for reply in counts] == [9, 9]
    assert len(bench.provider.requests) == before + 2


# -- what is not kept --


@pytest.mark.parametrize("answer", [[status(500)], [status(400, (), {"error": {"message": "no"}})]], ids=["5xx", "4xx"])
async def test_an_error_is_not_kept(bench: Bench, answer: Any) -> None:
    """A call that was refused or failed was not answered: at once the same name does it again."""
    name, body = new_name(), body_of(CHAT, stream=False)
    bench.script(CHAT, answer, answer, [json_answer("a")])
    if answer[0].code == 400:
        bench.script(CHAT, answer, [json_answer("a")])

    first = await bench.ask(name, CHAT, body)
    second = await bench.ask(name, CHAT, body)

    assert first.status >= 400
    assert (second.status, is_replay(second)) == (200, False)


async def test_a_limit_is_not_kept(bench: Bench) -> None:
    """A call that its key's limits refused is done when they allow it."""
    go = asyncio.Event()
    bench.script(CHAT, [wait(go), json_answer("a")])
    name, body = new_name(), body_of(CHAT, stream=False)
    blocking = asyncio.ensure_future(bench.ask(None, CHAT, body, key=KEY_ONE))
    await bench.provider.requests_seen(len(bench.provider.requests) + 1)

    refused = await bench.ask(name, CHAT, body, key=KEY_ONE)
    go.set()
    await blocking
    second = await bench.ask(name, CHAT, body, key=KEY_ONE)

    assert code(refused) == (429, "inflight_cap")
    assert second.status == 200


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a_broken_stream_is_not_kept(bench: Bench, path: str) -> None:
    """A stream that its provider broke off is billed for what came, and done anew when it is sent again."""
    before = bench.script(path, [BEGUN[path], pause_ms(20), FIN_CUT], STREAM[path])
    name, body = new_name(), body_of(path, stream=True)

    first = await bench.ask(name, path, body)
    second = await bench.answered(name, path, body)

    assert b"stream_interrupted" in first.body
    assert (second.status, is_replay(second)) == (200, False)
    assert b"stream_interrupted" not in second.body
    assert len(bench.provider.requests) == before + 2
    assert ((await settled(bench, first))["outcome"], (await settled(bench, second))["outcome"]) == (
        "interrupted",
        "completed",
    )


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize("begun", [True, False], ids=["streaming", "waiting"])
async def test_a_client_that_left(bench: Bench, path: str, begun: bool) -> None:
    """Who leaves and comes back with the same name has the call done anew; both exchanges are in the books."""
    before = bench.script(path, [BEGUN[path], HANG] if begun else [no_answer()], STREAM[path])
    name, body = new_name(), body_of(path, stream=True)
    stream = await bench.gateway.client(idempotency_key=name).open("POST", path, body)
    await bench.provider.requests_seen(before + 1)
    if begun:
        await anext(stream.frames())
    stream.rst()
    await bench.provider.requests[before].gone()
    await stream.dispose()

    again = await bench.answered(name, path, body)

    assert (again.status, is_replay(again)) == (200, False)
    assert len(bench.provider.requests) == before + 2


async def test_a_client_that_left_at_the_end(bench: Bench) -> None:
    """Whose call was complete when it left, so that it is billed as a whole, gets the whole answer when it is back."""
    before = bench.script(CHAT, [R() + T("a"), FIN(), HANG])
    name, body = new_name(), body_of(CHAT, stream=True)
    stream = await bench.gateway.client(idempotency_key=name).open("POST", CHAT, body)
    async for frame in stream.frames():
        if b'"a"' in frame:
            break
    await asyncio.sleep(0.1)  # the finish chunk is held back, so nothing tells that it is here
    stream.rst()
    await stream.dispose()

    again = await bench.answered(name, CHAT, body)

    assert is_replay(again)
    frames = again.body.split(b"\n\n")
    assert (b'"finish_reason":"stop"' in frames[2], frames[-2:]) == (True, [b"data: [DONE]", b""])
    assert len(bench.provider.requests) == before + 1
    assert (await settled(bench, again))["outcome"] == "completed"


# -- limits, stores, secrets --


async def test_repeats_count_as_requests(bench: Bench) -> None:
    """A repeat costs nothing, but counts against the requests per minute, and says how many are left."""
    bench.script(CHAT, [json_answer("a")])
    name, body = new_name(), body_of(CHAT, stream=False)

    replies = [await bench.ask(name, CHAT, body, key=KEY_FEW)]
    while len(replies) < 4:
        replies.append(await bench.ask(name, CHAT, body, key=KEY_FEW))

    assert [reply.status for reply in replies][::3] == [200, 429]
    assert [reply.headers.get("x-anoman-rate-remaining-rpm") for reply in replies] == ["2", "1", "0", "0"]


async def test_the_database_is_away(bench: Bench) -> None:
    """While it does not answer a call with a name is refused, for it cannot be said to be the first, and told where its
    key stands; others go on."""
    bench.script(CHAT, [json_answer("a")])
    name, body = new_name(), body_of(CHAT, stream=False)
    before = len(bench.provider.requests)
    lock = bench.store.lock()
    try:
        named, plain = await asyncio.gather(bench.ask(name, CHAT, body, key=KEY_FEW), bench.ask(None, CHAT, body))
    finally:
        lock.close()

    assert code(named) == (503, "idempotency_unavailable")
    assert named.headers.get("retry-after") == "1"
    assert named.headers.get("x-anoman-rate-limit-rpm") == "3"
    assert plain.status == 200
    assert len(bench.provider.requests) == before + 1
    async with asyncio.timeout(20):
        while (reply := await bench.ask(name, CHAT, body)).status != 200:
            pass
    assert not is_replay(reply)


async def test_names_are_kept_as_digests(bench: Bench) -> None:
    """Of the header only its SHA-256 is kept, and the log has neither (the kit looks for the canary in it)."""
    bench.script(CHAT, [json_answer("a")])
    name = new_name()
    await bench.ask(name, CHAT, body_of(CHAT, stream=False))

    rows = bench.store.sql("SELECT * FROM idempotency WHERE name = ?", hashlib.sha256(name.encode()).digest())

    assert len(rows) == 1
    assert name not in repr(bench.store.sql("SELECT * FROM idempotency"))
    assert name.encode() not in bench.store.path.read_bytes()


async def test_replays_are_logged(bench: Bench) -> None:
    """A replay is a line of its own with the first request's id, and no exchange; a refusal is told as ever."""
    bench.script(CHAT, [json_answer("a")])
    name, body = new_name(), body_of(CHAT, stream=False)
    first = await bench.ask(name, CHAT, body)
    await bench.answered(name, CHAT, body)
    await bench.ask(name, CHAT, body | {"user": "x"})

    replayed = await bench.gateway.line(
        lambda line: line["event"] == "request.replayed" and line["request_id"] == first.headers.get("x-request-id")
    )
    refused = await bench.gateway.line(lambda line: line.get("reason") == "idempotency_mismatch")

    assert replayed["tenant"] == "open"
    assert refused["status"] == 422


# -- other processes, and the end of one --


async def test_two_workers(tmp_path: Path) -> None:
    """Whichever worker a request comes to, there is one call and one answer."""
    store = await new_store(tmp_path)
    async with FakeProvider() as provider:
        config = standard(provider.base_url, storage=store.settings, stream={"non_stream_s": 30})
        async with Gateway(config, workers=2) as gateway:
            provider.script("m", [pause_ms(50), json_answer("a")])
            client = gateway.client(idempotency_key="same")

            replies = await asyncio.gather(*(insist(client, chat("m", stream=False)) for _ in range(40)))

    assert Counter(reply.status for reply in replies) == {200: 40}
    assert len({reply.body for reply in replies}) == 1
    assert len(provider.requests) == 1


async def test_an_error_frees_the_name_for_both_workers(tmp_path: Path) -> None:
    """Who has an error in hand may send the call again at once, whichever worker it comes to."""
    store = await new_store(tmp_path)
    async with FakeProvider() as provider:
        provider.script("m", [status(400, (), {"error": {"message": "no"}})])
        async with Gateway(standard(provider.base_url, storage=store.settings), workers=2) as gateway:
            client = gateway.client(idempotency_key="same")

            replies = [await client.request("POST", CHAT, chat("m", stream=False)) for _ in range(60)]

    assert Counter(reply.status for reply in replies) == {400: 60}
    assert len(provider.requests) == 60


async def test_a_restart(tmp_path: Path) -> None:
    """A service that was stopped and started again still has its answers; what it cut off is done anew."""
    store = await new_store(tmp_path)
    async with FakeProvider() as provider:
        provider.script("m", STREAM[CHAT])
        provider.script("first", [R() + T("a"), HANG], STREAM[CHAT])
        config = standard(provider.base_url, storage=store.settings, server={"accept_s": 0.1, "drain_s": 0.3})
        async with Gateway(config) as gateway:
            done = await gateway.client(idempotency_key="done").request("POST", CHAT, chat("m"))
            async with gateway.client(idempotency_key="cut").stream(CHAT, chat("fallback")) as stream:
                gateway.terminate()
                cut = await stream.all_frames()
                await gateway.exit_code()
        async with Gateway(config) as gateway:
            again = await gateway.client(idempotency_key="done").request("POST", CHAT, chat("m"))
            anew = await gateway.client(idempotency_key="cut").request("POST", CHAT, chat("fallback"))

    assert b"gateway_shutdown" in cut[-2]
    assert (again.body, is_replay(again)) == (done.body, True)
    assert (anew.status, is_replay(anew), len(provider.requests)) == (200, False, 3)


async def test_the_holder_is_killed(tmp_path: Path) -> None:
    """After SIGKILL the call runs on for a lease, whatever the database's clock says; then it is done anew."""
    store = await new_store(tmp_path)
    async with FakeProvider() as provider:
        provider.script("m", [R() + T("a"), HANG], STREAM[CHAT])
        config = standard(provider.base_url, storage=store.settings)
        async with Gateway(config) as gateway:
            gateway.expected_exit = -9
            async with gateway.client(idempotency_key="same").stream(CHAT, chat("m")):
                gateway.signal(9)
                await gateway.exit_code()
        async with Gateway(config) as gateway:
            client = gateway.client(idempotency_key="same")
            store.sql("UPDATE idempotency SET renewed_ms = renewed_ms - 3600000")
            begun_s, early = time.monotonic(), await client.request("POST", CHAT, chat("m"))
            late = await insist(client, chat("m"), pause_s=2.0)  # as `retry-after` says
            waited_s = time.monotonic() - begun_s

    assert code(early) == (409, "idempotency_in_progress")
    assert waited_s >= LEASE_S
    assert (late.status, is_replay(late), len(provider.requests)) == (200, False, 2)


async def test_an_answer_that_is_read_on(tmp_path: Path) -> None:
    """Where a provider is read on after its client has left, the call is running until that ends, then done anew."""
    store = await new_store(tmp_path)
    async with FakeProvider() as provider:
        go = asyncio.Event()
        provider.script("m", [R() + T("a"), wait(go), T("b") + FIN() + U(7, 2) + DONE], STREAM[CHAT])
        read_on = openai_provider(provider.base_url, on_cancel="drain")
        config = standard(provider.base_url, storage=store.settings, providers={"fake-openai": read_on})
        async with Gateway(config) as gateway:
            client = gateway.client(idempotency_key="same")
            async with client.stream(CHAT, chat("m")) as stream:
                await anext(stream.frames())
                stream.rst()
            meanwhile = await client.request("POST", CHAT, chat("m"))
            go.set()
            (first,) = await gateway.settled(1)
            anew = await insist(client, chat("m"))

    assert code(meanwhile) == (409, "idempotency_in_progress")
    assert (first["outcome"], first["completion_tokens"]) == ("cancelled", 2)
    assert (anew.status, is_replay(anew), len(provider.requests)) == (200, False, 2)
