"""PRX-01 to PRX-21 of the case catalogue, over sockets: headers, sizes, slow ends and loose types."""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.acts import pause_ms, repeat
from tests.support.config import ANTHROPIC_SECRET, KEY, OPENAI_SECRET, standard
from tests.support.frames import blocks, chat, messages
from tests.support.gateway import CHAT, MESSAGES, PLAIN, Gateway
from tests.support.notation import CBD, CBS, CBX, DONE, FIN, MD, MS, MX, R, T, json_answer
from tests.support.pictures import data_url, image_url, png
from tests.support.provider import FakeProvider
from tests.support.stage import Act
from tests.wire.desk import BOTH, Desk, error_of, events, items, open_desk, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

WHOLE = {
    CHAT: R() + T("a") + FIN("stop", (7, 1)) + DONE,
    MESSAGES: MS(7) + CBS(0) + CBD(0, "a") + CBX(0) + MD("end_turn", 1) + MX,
}
IMAGE = image_url(data_url(png() + bytes(5_000_000)))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with open_desk() as desk:
        desk.provider.script("m", [WHOLE[CHAT]])
        desk.provider.script("claude", [WHOLE[MESSAGES]])
        yield desk


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def slow() -> AsyncIterator[Desk]:
    """A desk like the documents' platform, times divided by a hundred: commit 0.2, heartbeat 0.15, router 0.55 s."""
    times = {"commit_after_s": 0.2, "heartbeat_s": 0.15, "first_token_s": 5, "idle_s": 5, "write_stall_s": 20}
    async with open_desk(PLAIN, stream=times) as desk:
        yield desk


def rss_bytes(pid: int) -> int:
    """Resident memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


async def post(desk: Desk, path: str, body: Any = None, **headers: str) -> Any:
    payload = body if body is not None else chat("m") if path == CHAT else messages("claude")
    return await desk.gateway.client(None, **headers).request("POST", path, payload)


@pytest.mark.parametrize("path", BOTH)
async def test_prx_01_credentials_stay_here(desk: Desk, path: str) -> None:
    """The provider sees its own credential; none of the caller's, no cookie, no address, none of our headers."""
    secret = OPENAI_SECRET if path == CHAT else ANTHROPIC_SECRET
    headers = {
        "authorization": f"Bearer {KEY}",
        "x_api_key": KEY,
        "proxy_authorization": "Basic eA==",
        "cookie": "session=1",
        "anoman_session_id": "s1",
        "anoman_agent_id": "a1",
        "x_anoman_realtime": "1",
        "x_forwarded_for": "192.0.2.1",
        "forwarded": "for=192.0.2.1",
        "x_request_id": "theirs",
        "user_agent": "secret-agent/1",
        "x_custom": "custom",
    }

    reply = await post(desk, path, **headers)

    sent = desk.provider.requests[-1].headers
    text = repr(sent)
    credentials = [value for name, value in sent if name in ("authorization", "x-api-key")]
    assert reply.status == 200
    assert credentials == [f"Bearer {secret}" if path == CHAT else secret]
    inner = ("session", "anoman-agent", "x-anoman", "192.0.2.1", "Basic", "theirs", "secret-agent", "custom")
    assert [word for word in inner if word in text] == []


async def test_prx_01_what_may_pass(desk: Desk) -> None:
    """Of the caller's headers those that are part of the dialect pass, and only on their own endpoint."""
    headers = {"authorization": f"Bearer {KEY}", "anthropic_beta": "x-2026", "anthropic_version": "2023-06-01"}

    await post(desk, MESSAGES, **headers)
    native = desk.provider.requests[-1].headers
    await post(desk, CHAT, **headers)
    other = desk.provider.requests[-1].headers

    assert (native.get("anthropic-beta"), native.get("anthropic-version")) == ("x-2026", "2023-06-01")
    assert (other.get("anthropic-beta"), other.get("anthropic-version")) == (None, None)


@pytest.mark.parametrize("path", BOTH)
async def test_prx_02_hop_by_hop_headers(desk: Desk, path: str) -> None:
    """Hop-by-hop headers, and those that `Connection` names, end here; our own framing is our own."""
    headers = {"connection": "close, X-Foo", "x_foo": "1", "te": "trailers", "upgrade": "h2c", "keep_alive": "9"}

    await post(desk, path, authorization=f"Bearer {KEY}", **headers)

    seen = desk.provider.requests[-1]
    names = {name for name, _ in seen.headers}
    assert not names & {"x-foo", "te", "upgrade", "keep-alive", "transfer-encoding"}
    assert seen.headers.get("content-length") == str(len(seen.body))
    assert seen.headers.get("accept-encoding") == "identity"


@pytest.mark.parametrize("path", BOTH)
async def test_prx_05_proxies_are_told_not_to_buffer(desk: Desk, path: str) -> None:
    """The headers that keep proxies from buffering, caching and compressing."""
    reply = await post(desk, path, authorization=f"Bearer {KEY}", accept_encoding="gzip, br")

    assert reply.headers.get("x-accel-buffering") == "no"
    assert "no-cache" in (reply.headers.get("cache-control") or "")
    assert reply.headers.get("content-type") == "text/event-stream; charset=utf-8"
    assert reply.headers.get("content-encoding") is None
    assert reply.headers.get("transfer-encoding") == "chunked"


async def test_prx_06_large_images(desk: Desk) -> None:
    """A body of 6.7 MB with an image passes whole; one of 60 MB is a 413 in JSON."""
    body = chat("m", messages=[{"role": "user", "content": [{"type": "text", "text": "?"}, IMAGE]}])
    big = json.dumps(body).encode().replace(b"AAAA", b"A" * 36)

    accepted = await post(desk, CHAT, body, authorization=f"Bearer {KEY}")
    sent = desk.provider.requests[-1].json["messages"]
    refused = await post(desk, CHAT, big, authorization=f"Bearer {KEY}")

    assert accepted.status == 200
    assert sent == body["messages"]
    assert (refused.status, error_of(refused)["code"]) == (413, "request_too_large")


@pytest.mark.parametrize("path", BOTH)
async def test_prx_06_large_texts(desk: Desk, path: str) -> None:
    """Without an image the bound is lower, in either envelope; just below it a body passes."""
    content = "x" * (4 * 1024 * 1024)
    over = {**(chat("m") if path == CHAT else messages("claude")), "messages": [{"role": "user", "content": content}]}
    under = {**over, "messages": [{"role": "user", "content": content[:-1000]}]}

    refused = await post(desk, path, over, authorization=f"Bearer {KEY}")
    accepted = await post(desk, path, under, authorization=f"Bearer {KEY}")

    assert (refused.status, error_of(refused)["code"]) == (413, "request_too_large")
    assert accepted.status == 200


@pytest.mark.parametrize(
    ("key", "length", "status"), [("anm-sk-wrong", 6_000_000, 401), (KEY, 60_000_000, 413), (KEY, None, 100)]
)
async def test_prx_08_asked_before_the_upload(desk: Desk, key: str, length: int | None, status: int) -> None:
    """With `Expect: 100-continue` the caller and the size are judged before a byte of the body is sent."""
    body = json.dumps(chat("m")).encode()
    client = desk.gateway.client(key, expect="100-continue", content_length=str(length or len(body)))
    peer = await client.connect()
    await peer.send(client.request_bytes("POST", CHAT, None))

    head = await peer.receive()
    if status == 100:
        await peer.send(body)
        head += await peer.receive()
    await peer.dispose()

    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert (b"HTTP/1.1 200 OK" in head) == (status == 100)


async def test_prx_08_other_expectations(desk: Desk) -> None:
    """Any other expectation is a 417 in JSON."""
    reply = await post(desk, CHAT, authorization=f"Bearer {KEY}", expect="200-ok")

    assert (reply.status, error_of(reply)["code"]) == (417, "expectation_failed")


@pytest.mark.parametrize("path", BOTH)
async def test_prx_09_a_slow_thinker_on_a_platform(slow: Desk, path: str) -> None:
    """The platform's router gets its first byte and every further one in time; the text is whole."""
    start, rest = (R(), FIN() + DONE) if path == CHAT else (MS(7) + CBS(0), CBX(0) + MD() + MX)
    token = T("a") if path == CHAT else CBD(0, "a")
    script: list[Act | bytes] = [pause_ms(400), start + token, pause_ms(700), token, pause_ms(700), rest]
    times_s = [time.monotonic()]
    got = b""

    async with slow.stream(script, path=path) as stream:
        times_s.append(time.monotonic())
        async for piece in stream.pieces():
            times_s.append(time.monotonic())
            got += piece

    gaps_s = [after - before for before, after in pairwise(times_s)]
    assert gaps_s[0] < 0.35
    assert max(gaps_s) < 0.55
    assert got.count(b"ping") >= 6
    assert stream.ended_properly


async def test_prx_09_errors_after_the_early_commit(slow: Desk) -> None:
    """Once the 200 is out for lack of a first token, a failure is a frame, and nobody else is asked."""
    error = b'data: {"error":{"message":"late"}}\n\n'
    slow.provider.script("first", [pause_ms(400), error])
    slow.provider.script("second", [WHOLE[CHAT]])

    reply = await slow.ask(model="fallback")
    native = await slow.ask([pause_ms(400), b"event: error\n" + error], path=MESSAGES)

    assert items(reply)[-2]["error"]["_anoman"] == {"failure_class": "upstream_error", "completion_tokens": 0}
    assert items(reply)[-1] == "[DONE]"
    assert events(native)[-1] == "error"


async def test_prx_09_fast_failures_stay_plain(slow: Desk) -> None:
    """Before that, the same failure is plain HTTP."""
    reply = await slow.ask([pause_ms(50), b'data: {"error":{"message":"early"}}\n\n'])

    assert reply.status == 503


@pytest.mark.parametrize("path", BOTH)
async def test_prx_11_sigterm(path: str) -> None:
    """Newcomers get a 503, the short stream finishes, the endless one gets its frame; then a clean exit."""
    times = {"accept_s": 0.3, "drain_s": 1, "exit_s": 6}
    token, start = (T("b"), R() + T("a")) if path == CHAT else (CBD(0, "b"), MS(7) + CBS(0) + CBD(0, "a"))
    names = {CHAT: ("m", "first", "fallback"), MESSAGES: ("claude", "first-claude", "claude-fallback")}[path]
    make = chat if path == CHAT else messages
    async with FakeProvider() as provider, Gateway(standard(provider.base_url, server=times)) as gateway:
        provider.script(names[0], [start, repeat(token, pause_ms(20))])
        rest = FIN() + DONE if path == CHAT else CBX(0) + MD() + MX
        provider.script(names[1], [start, pause_ms(400), rest])
        client = gateway.client()
        async with client.stream(path, make(names[0])) as endless, client.stream(path, make(names[2])) as short:
            told_s = gateway.terminate()
            await gateway.logged("server.draining")
            late = await client.request("POST", path, make(names[0]))
            bodies = await asyncio.gather(endless.reply(), short.reply())
            code = await gateway.exit_code()
            took_s = time.monotonic() - told_s
        receipts = {line["outcome"]: line for line in await gateway.settled(2)}

    assert (late.status, late.json["error"]["code"]) == (503, "shutting_down")
    assert [body.ended_properly for body in bodies] == [True, True]
    assert b'"failure_class":"gateway_shutdown"' in bodies[0].body
    assert b'"message":"the gateway shut down while the answer ran"' in bodies[0].body
    assert b"stream_interrupted" not in bodies[1].body
    assert (set(receipts), code) == ({"completed", "interrupted"}, 0)
    assert took_s < 6


@pytest.mark.alone
async def test_prx_15_a_slow_reader_and_a_fast_provider(slow: Desk) -> None:
    """Sixty megabytes for a reader that takes its time: all of it arrives, and little of it is ever held."""
    token = T("x" * 60_000)
    script: list[Act | bytes] = [R(), repeat(token, times=1000), FIN(), DONE]
    await slow.ask([WHOLE[CHAT]])
    before = sum(map(rss_bytes, slow.gateway.pids))
    peak, size = before, 0

    slow.provider.script("m", script)
    async with slow.gateway.client().stream(CHAT, chat("m"), rcvbuf=65536) as stream:
        stream.peer.pause()
        for _ in range(20):
            await asyncio.sleep(0.05)  # the reader's own slowness
            peak = max(peak, sum(map(rss_bytes, slow.gateway.pids)))
        sent = len(slow.provider.requests[-1].body_sent)
        stream.peer.resume()
        async for piece in stream.pieces():
            size += len(piece)

    assert sent < 25_000_000  # the kernel's buffers of two connections can hold some 10 MB, which are not ours
    assert size > 1000 * 60_000
    assert stream.ended_properly
    assert peak - before < 16 * 1024 * 1024  # measured 8 MiB, of which the allocator keeps most for the next request


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize("accept", ["application/json", "*/*", "text/plain", ""])
async def test_prx_16_accept_does_not_decide(desk: Desk, path: str, accept: str) -> None:
    """SDKs ask for JSON on streams; the body's `stream` decides, both ways."""
    streamed = await post(desk, path, authorization=f"Bearer {KEY}", accept=accept)

    assert streamed.status == 200
    assert text_of(items(streamed)) == "a"


async def test_prx_16_json_for_an_event_stream_accept(desk: Desk) -> None:
    """The other way round too."""
    desk.provider.script("m", [json_answer("a")])
    body = chat("m", stream=False)

    reply = await post(desk, CHAT, body, authorization=f"Bearer {KEY}", accept="text/event-stream")
    desk.provider.script("m", [WHOLE[CHAT]])

    assert reply.headers.get("content-type") == "application/json"
    assert reply.json["choices"][0]["message"]["content"] == "a"


@pytest.mark.parametrize("path", BOTH)
async def test_prx_17_framing(desk: Desk, path: str) -> None:
    """POST answers 200 with LF framing: no CR, no `id:`, no `retry:`, one data line per event."""
    reply = await post(desk, path, authorization=f"Bearer {KEY}")

    assert reply.status == 200
    assert b"\r" not in reply.body
    for block in blocks(reply.body):
        fields = [line.partition(b":")[0] for line in block.split(b"\n")]
        assert fields == ([b"data"] if path == CHAT else [b"event", b"data"])


WRONG = ["anm-sk-wrong", "anm-sk-", KEY + "x", KEY[:-1], "x" * 5000, "sk-other", "é"]


@pytest.mark.parametrize("path", BOTH)
async def test_prx_19_wrong_keys_look_alike(desk: Desk, path: str) -> None:
    """Whatever is wrong with a key, the answer is the same, and nothing of it is in there."""
    clients = [desk.gateway.client(None)] + [desk.gateway.client(key) for key in WRONG[:-1]]

    replies = [await client.request("POST", path, chat("m")) for client in clients]

    bodies = {reply.body.replace((reply.headers.get("request-id") or "").encode(), b"") for reply in replies}
    assert {reply.status for reply in replies} == {401}
    assert len(bodies) == 1
    assert {reply.headers.get("x-should-retry") for reply in replies} == {"false"}
    assert b"anm-sk" not in bodies.pop()


@pytest.mark.alone
async def test_prx_19_wrong_keys_take_the_same_time(desk: Desk) -> None:
    """A key that is nearly right is refused no later than one that is not."""
    keys = ("anm-sk-wrong", KEY[:-1] + "x")
    clients = [desk.gateway.client(key) for key in keys]
    times_s: list[list[float]] = [[], []]
    for _ in range(100):
        for client, out in zip(clients, times_s, strict=True):
            started_s = time.perf_counter()
            await client.request("POST", CHAT, chat("m"))
            out.append(time.perf_counter() - started_s)

    medians = [statistics.median(out) for out in times_s]
    assert abs(medians[0] - medians[1]) < 0.25 * max(medians)


LOOSE: list[tuple[dict[str, Any], str | None]] = [
    ({"stream": "true"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": None}, "messages"),
    ({"model": ""}, "model"),
    ({"model": 7}, "model"),
    ({"temperature": "hot"}, "temperature"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 10**12}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"temperature": None}, None),
    ({"unknown": {"x": [1.50]}}, None),
]


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize(("fields", "param"), LOOSE, ids=[json.dumps(fields) for fields, _ in LOOSE])
async def test_prx_21_loose_types(desk: Desk, path: str, fields: dict[str, Any], param: str | None) -> None:
    """null is absent, a wrong type or an empty list is a 400 that names the field, and nothing is sent for it."""
    asked = len(desk.provider.requests)

    body = {**(chat("m") if path == CHAT else messages("claude")), **fields}

    reply = await post(desk, path, body, authorization=f"Bearer {KEY}")

    if param is None:
        assert reply.status == 200
        assert len(desk.provider.requests) == asked + 1
        return
    error = error_of(reply)
    assert (reply.status, error["code"]) == (400, "invalid_request")
    assert param in error["message"]
    assert error.get("param", param) == param
    assert len(desk.provider.requests) == asked
