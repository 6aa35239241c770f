"""MID-01 to MID-22 of the case catalogue, over sockets: what becomes of a provider that fails, and when."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.acts import fin, head, pause_ms, repeat, reset, send_raw, stall, status
from tests.support.frames import blocks, chat
from tests.support.gateway import CHAT, MESSAGES
from tests.support.notation import (
    AERR,
    CBD,
    CBJ,
    CBS,
    CBX,
    DONE,
    EOF_OK,
    ERRF,
    FIN,
    FIN_CUT,
    HANG,
    MD,
    MS,
    MX,
    RST,
    TC,
    R,
    T,
    U,
    chunk,
    data,
    json_answer,
)
from tests.support.stage import Act
from tests.wire.desk import BOTH, Desk, error_of, events, items, open_desk, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPENAI_START = [R(), T("a"), T("b")]
ANTHROPIC_START = [MS(25, 1), CBS(0), CBD(0, "a"), CBD(0, "b")]
START: dict[str, list[bytes]] = {CHAT: OPENAI_START, MESSAGES: ANTHROPIC_START}
FINISH = {CHAT: FIN("stop", (7, 2)), MESSAGES: CBX(0) + MD("end_turn", 2) + MX}

READ = pause_ms(30)  # an end in the very segment of the head would take the head along: nothing was committed then
ENDS: dict[str, tuple[Act, str]] = {
    "EOF+": (EOF_OK, "upstream_truncated"),
    "FIN-": (FIN_CUT, "upstream_error"),
    "RST": (RST, "upstream_error"),
    "garbage": (send_raw(b"zz\r\n"), "upstream_error"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with open_desk() as desk:
        yield desk


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def brisk() -> AsyncIterator[Desk]:
    """A desk whose time limits are over soon."""
    times = {"first_token_s": 0.6, "idle_s": 0.4, "non_stream_s": 0.6, "commit_after_s": 5}
    async with open_desk(stream=times) as desk:
        yield desk


def interruption(body: bytes) -> dict[str, Any]:
    """The error frame that ends *body*, in either dialect; nothing but the terminator follows it."""
    frames = blocks(body)
    if frames[-1] == b"data: [DONE]":
        frames.pop()
    else:
        assert frames[-1].startswith(b"event: error\n")
    assert body.count(b'"stream_interrupted"') >= 1
    assert b'"_anoman":{"guardrails"' not in frames[-1]
    error: dict[str, Any] = json.loads(frames[-1].split(b"data: ", 1)[1])["error"]
    return error


async def test_mid_01_body_unfinished(desk: Desk) -> None:
    """A body that ends unfinished gives the documented frame, the terminator and a proper end."""
    reply = await desk.ask([*OPENAI_START, FIN_CUT])
    receipt = await desk.receipt(reply)

    assert text_of(items(reply)) == "ab"
    assert reply.body.endswith(ERRF(2) + DONE)
    assert (receipt["outcome"], receipt["routing_mode"]) == ("interrupted", "streaming_interrupted")
    assert (receipt["failure_class"], receipt["completion_tokens"]) == ("upstream_error", 2)


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize(("end", "failure_class"), ENDS.values(), ids=ENDS)
async def test_mid_01_every_end_before_the_finish(desk: Desk, path: str, end: Act, failure_class: str) -> None:
    """However the connection ends before the terminal marker: text, one error frame, terminator, one receipt."""
    reply = await desk.ask([*START[path], READ, end], path=path)
    receipt = await desk.receipt(reply)

    assert text_of(items(reply)) == "ab"
    assert interruption(reply.body)["_anoman"] == {"failure_class": failure_class, "completion_tokens": 2}
    assert (receipt["outcome"], receipt["failure_class"]) == ("interrupted", failure_class)


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize(("end", "failure_class"), ENDS.values(), ids=ENDS)
async def test_mid_01_every_end_after_the_finish(desk: Desk, path: str, end: Act, failure_class: str) -> None:
    """The same ends after the terminal marker spoil nothing."""
    reply = await desk.ask([*START[path], FINISH[path], READ, end], path=path)
    receipt = await desk.receipt(reply)

    assert text_of(items(reply)) == "ab"
    assert b"stream_interrupted" not in reply.body
    assert (receipt["outcome"], receipt["completion_tokens"]) == ("completed", 2)


async def test_mid_02_reset_after_content(desk: Desk) -> None:
    """A reset in mid-stream is the same to the client as any other end."""
    reply = await desk.ask([R(), T("a"), RST])

    assert reply.body.endswith(ERRF(1) + DONE)


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize(
    "script",
    [
        [reset()],
        [fin()],
        [send_raw(b"HTTP/1.1 200"), fin()],
        [send_raw(b"HTTP/1.1 200"), reset()],
        [head(), fin()],
        [head(), reset()],
        [send_raw(b"garbage\r\n\r\n"), fin()],
    ],
)
async def test_mid_02_end_before_an_answer(desk: Desk, path: str, script: list[Act]) -> None:
    """Before a byte of the answer it is a plain retryable error."""
    reply = await desk.ask(script, path=path)

    assert reply.status == 503
    assert error_of(reply)["code"] == "provider_unavailable"
    assert reply.headers.get("x-should-retry") is None


@pytest.mark.parametrize("path", BOTH)
async def test_mid_04_clean_end_without_finish(desk: Desk, path: str) -> None:
    """A clean end proves nothing: without the terminal marker it is an interruption."""
    reply = await desk.ask([*START[path], EOF_OK], path=path)

    assert interruption(reply.body)["_anoman"]["failure_class"] == "upstream_truncated"


async def test_mid_04_body_that_its_connection_ends(desk: Desk) -> None:
    """A body without length or chunks has no end of its own that could prove anything."""
    reply = await desk.ask([head(framing="eof"), *OPENAI_START, fin()])

    assert reply.body.endswith(ERRF(2, "upstream_truncated") + DONE)


async def test_mid_04_half_a_tool_call(desk: Desk) -> None:
    """A tool call that came by half is never completed by us."""
    chat_reply = await desk.ask([R(), TC(0, '{"a":', name="f"), EOF_OK])
    silent = await desk.ask([R(), TC(0, "", name="f"), EOF_OK])
    native = await desk.ask([MS(5), CBS(0, "tool_use"), CBJ(0, '{"a":'), EOF_OK], path=MESSAGES)

    assert chat_reply.body.count(b'"arguments"') == 1
    assert b'"{}"' not in silent.body
    assert events(native) == ["message_start", "content_block_start", "content_block_delta", "error"]


async def test_mid_05_terminator_without_finish(desk: Desk) -> None:
    """A terminator that a middlebox added proves nothing either."""
    reply = await desk.ask([R(), T("a"), DONE, EOF_OK])
    receipt = await desk.receipt(reply)

    assert reply.body.endswith(ERRF(1, "upstream_truncated") + DONE)
    assert receipt["outcome"] == "interrupted"


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "engine queue full at 10.0.0.3", "code": 503}},
        {"error": "engine queue full at 10.0.0.3"},
        {"error": {"message": "10.0.0.3"}, "choices": [{"index": 0, "delta": {"content": "x"}}]},
        {"error": True},
    ],
)
async def test_mid_06_error_in_band(desk: Desk, error: dict[str, Any]) -> None:
    """An error object after content is the end, in our words."""
    reply = await desk.ask([R(), T("a"), data(error), DONE])

    assert text_of(items(reply)) == "a"
    assert reply.body.endswith(ERRF(1) + DONE)
    assert b"10.0.0.3" not in reply.body


async def test_mid_06_error_that_is_null(desk: Desk) -> None:
    """A harmless `"error":null` is none, and stays out of the client's sight."""
    reply = await desk.ask([R(), chunk({"content": "a"}, error=None), FIN("stop", None), DONE])

    assert text_of(items(reply)) == "a"
    assert b'"error"' not in reply.body


async def test_mid_07_anthropic_error_event(desk: Desk) -> None:
    """An error event inside a 200 ends the answer; the prompt's tokens are known."""
    reply = await desk.ask([*ANTHROPIC_START, AERR("overloaded_error", "secret words"), EOF_OK], path=MESSAGES)
    receipt = await desk.receipt(reply)

    assert events(reply)[-1] == "error"
    assert b"secret" not in reply.body
    assert (receipt["outcome"], receipt["prompt_tokens"], receipt["completion_tokens"]) == ("interrupted", 25, 2)


async def test_mid_08_the_endpoints_own_error(desk: Desk) -> None:
    """On the Anthropic endpoint a failure is a named event that SDKs raise on; nothing follows, nothing is unnamed."""
    reply = await desk.ask([*ANTHROPIC_START, RST], path=MESSAGES)

    last = json.loads(blocks(reply.body)[-1].split(b"data: ")[1])
    assert list(last) == ["type", "error", "request_id"]
    assert (last["type"], last["error"]["type"]) == ("error", "api_error")
    assert last["request_id"] == reply.headers.get("request-id")
    assert None not in events(reply)
    assert b"[DONE]" not in reply.body


@pytest.mark.parametrize("path", BOTH)
async def test_mid_10_silence_after_content(brisk: Desk, path: str) -> None:
    """After the idle limit: error frame with the timeout's class, upstream closed."""
    stream = await brisk.send([*START[path], HANG], path=path)
    reply = await stream.reply()
    await stream.dispose()
    receipt = await brisk.receipt(reply)
    await brisk.provider.all_gone()

    assert interruption(reply.body)["_anoman"] == {"failure_class": "upstream_timeout", "completion_tokens": 2}
    assert receipt["failure_reason"] == "idle"


async def test_mid_10_comments_are_no_progress(brisk: Desk) -> None:
    """A provider that only keeps the line warm is idle all the same."""
    reply = await brisk.ask([R(), T("a"), repeat(b": keep-alive\n\n", chunk({}), pause_ms(50))])

    assert interruption(reply.body)["_anoman"]["failure_class"] == "upstream_timeout"


@pytest.mark.parametrize("path", BOTH)
async def test_mid_10_silence_before_content(brisk: Desk, path: str) -> None:
    """Before the first content it is a plain 504 at the first-token limit, whatever small talk there was."""
    start = repeat(b": x\n\n", pause_ms(50))

    reply = await brisk.ask([start], path=path)
    await brisk.provider.all_gone()

    assert reply.status == 504
    assert error_of(reply)["code"] == "provider_timeout"


@pytest.mark.parametrize("path", BOTH)
async def test_mid_12_a_long_slow_stream(brisk: Desk, path: str) -> None:
    """No limit counts the whole body: a stream that outlives every one of them by far goes on."""
    token = T("x") if path == CHAT else CBD(0, "x")

    reply = await brisk.ask([*START[path], repeat(pause_ms(100), token, times=20), FINISH[path]], path=path)

    assert text_of(items(reply)) == "ab" + "x" * 20


@pytest.mark.parametrize("path", BOTH)
async def test_mid_13_no_second_call_after_content(desk: Desk, path: str) -> None:
    """Once text is out no other provider is asked, so nothing is said twice."""
    names = ("first", "second", "fallback") if path == CHAT else ("first-claude", "second-claude", "claude-fallback")
    desk.provider.script(names[0], [*START[path], RST])
    desk.provider.script(names[1], [*START[path], FINISH[path], DONE])
    asked = len(desk.provider.requests)

    reply = await desk.ask(path=path, model=names[2])

    assert text_of(items(reply)) == "ab"
    assert interruption(reply.body)["_anoman"]["completion_tokens"] == 2
    assert len(desk.provider.requests) == asked + 1


async def test_mid_15_attempts_and_retries_are_told(brisk: Desk) -> None:
    """What the provider may have billed says "do not retry"; the receipt names every attempt."""
    whole = await brisk.ask([stall()], stream=False)
    receipt = await brisk.receipt(whole)
    refused = await brisk.ask([reset()])

    assert (whole.status, whole.headers.get("x-should-retry")) == (504, "false")
    assert receipt["attempts"] == ["fake-openai/m:failed"]
    assert (refused.status, refused.headers.get("x-should-retry")) == (503, None)
    assert refused.headers.get("retry-after") is not None


@pytest.mark.parametrize("end", [fin(), reset()])
async def test_mid_16_kept_connection_dies(desk: Desk, end: Act) -> None:
    """A kept connection that the provider closes on the next request costs the client nothing; it is billed once."""
    first = await desk.ask([json_answer("a")], [end], [json_answer("b")], stream=False)
    asked = len(desk.provider.requests)
    second = await desk.ask(stream=False)
    receipt = await desk.receipt(second)

    assert first.status == 200
    assert second.json["choices"][0]["message"]["content"] == "b"
    assert len(desk.provider.requests) == asked + 2
    assert receipt["prompt_tokens"] == 7


LEAKY = "Incorrect API key provided: sk-proj-abc***xyz (org-77) at https://10.1.2.3"


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize("code", [400, 401, 403, 404, 413, 422, 429, 500, 503])
async def test_mid_19_provider_words_stay_inside(desk: Desk, path: str, code: int) -> None:
    """Keys, organisations and addresses in a provider's error reach no client, whatever the status."""
    body = {"error": {"message": LEAKY, "code": "sk-proj-code", "param": "sk-proj-param", "type": "org-77"}}

    reply = await desk.ask([status(code, {"x-organization": "org-77", "x-request-id": "req_theirs"}, body)], path=path)

    shown = reply.body + repr(reply.headers).encode()
    assert not [secret for secret in (b"sk-proj", b"org-77", b"10.1.2.3", b"req_theirs") if secret in shown]
    assert error_of(reply)["message"]


async def test_mid_19_the_log_has_the_words(desk: Desk) -> None:
    """The full text is in the server's log, for those who have to mend it."""
    await desk.ask([status(500, (), {"error": {"message": LEAKY + " once"}})])

    told = await desk.gateway.line(lambda line: "10.1.2.3 once" in line.get("detail", ""))
    assert told["event"] == "provider.failed"


@pytest.mark.parametrize("code", [401, 402, 403])
async def test_mid_20_our_own_credential(desk: Desk, code: int) -> None:
    """A provider that refuses us is not the caller's fault: no 401 or 403, no retries, an alarm; the key works on."""
    before = await desk.gateway.metrics()

    reply = await desk.ask([status(code, (), {"error": {"message": "bad key"}})])
    good = await desk.ask([json_answer("a")], stream=False)

    after = await desk.gateway.metrics()
    counters = {s.name for s in after.samples if "credential" in s.name}
    assert (reply.status, good.status) == (503, 200)
    assert (reply.headers.get("x-should-retry"), reply.headers.get("retry-after")) == ("false", "1")
    assert any(after.value(name) == before.value(name) + 1 for name in counters)


@pytest.mark.parametrize("path", BOTH)
async def test_mid_21_the_providers_rate_limit(desk: Desk, path: str) -> None:
    """A provider's 429 says that the provider is at its limit, with its own pause, and not that the caller is."""
    answer = status(429, {"Retry-After": "30", "x-ratelimit-remaining-requests": "0"}, {"error": {"message": "slow"}})

    reply = await desk.ask([answer], path=path)

    assert (reply.status, error_of(reply)["code"]) == (503, "provider_unavailable")
    assert reply.headers.get("retry-after") == "30"
    assert reply.headers.get("x-ratelimit-remaining-requests") is None
    assert reply.headers.get("x-anoman-rate-remaining-rpm") not in (None, "0")


async def test_mid_21_a_pause_beyond_a_minute(desk: Desk) -> None:
    """A pause that no SDK would keep comes with the word not to retry."""
    reply = await desk.ask([status(429, {"Retry-After": "600"}, {"error": {"message": "slow"}})])

    assert (reply.status, reply.headers.get("retry-after")) == (503, "600")
    assert reply.headers.get("x-should-retry") == "false"


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize("script", [[stall()], [head("application/json", framing=100), b"{", stall()]])
async def test_mid_22_without_streaming(brisk: Desk, path: str, script: list[Act | bytes]) -> None:
    """A JSON answer that is not there at the limit is a 504, and the upstream is closed."""
    started_s = time.monotonic()

    reply = await brisk.ask(script, path=path, stream=False)
    took_s = time.monotonic() - started_s
    await brisk.provider.all_gone()

    assert (reply.status, error_of(reply)["code"]) == (504, "gateway_timeout")
    assert took_s < 3


async def test_mid_22_drips_do_not_help(brisk: Desk) -> None:
    """The limit is one for everything: a body that drips is late all the same."""
    script: list[Act | bytes] = [head("application/json", framing=10_000), repeat(b" ", pause_ms(50))]

    reply = await brisk.ask(script, stream=False)

    assert reply.status == 504


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"{", b"[]", b"null", b"{}", b'{"choices":[]}', b'{"error":{"message":"x"}}', b"\xff\xfe{}"],
)
async def test_json_answers_that_are_none(desk: Desk, path: str, body: bytes) -> None:
    """A 200 whose body is no answer is the provider's failure, never ours."""
    reply = await desk.ask([status(200, (), body)], path=path, stream=False)

    assert (reply.status, error_of(reply)["code"]) == (503, "provider_unavailable")


async def test_a_late_usage_is_waited_for_shortly(desk: Desk) -> None:
    """After the finish the usage is waited for, but not for ever; then the answer ends with our own count."""
    reply = await desk.ask([R(), T("a"), FIN("stop"), pause_ms(100), U(7, 1), DONE])
    never = await desk.ask([R(), T("a"), FIN("stop"), HANG])
    receipt = await desk.receipt(never)

    assert items(reply)[-3]["usage"]["prompt_tokens"] == 7
    assert items(never)[-1] == "[DONE]"
    assert (receipt["outcome"], receipt["usage_basis"]) == ("completed", "estimated")


async def test_many_ends_at_once(desk: Desk) -> None:
    """Failures of neighbours do not touch a stream."""
    start: list[Act | bytes] = [R(), T("a"), READ]
    broken = [[*start, end] for end, _ in ENDS.values()] * 3
    desk.provider.script("m", *broken, [R() + T("ok") + FIN() + DONE])
    clients = [desk.gateway.client() for _ in range(13)]

    replies = await asyncio.gather(*(client.request("POST", CHAT, chat("m")) for client in clients))

    told = [text_of(items(reply)) for reply in replies]
    assert set(told) == {"a", "ok"}  # a busy machine reads an end together with its head: then it was asked again
