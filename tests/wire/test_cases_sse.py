"""SSE-01 to SSE-33 of the case catalogue, over sockets: what providers send, byte by byte, and what clients get."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.acts import head, pause_ms, status, wait
from tests.support.frames import blocks
from tests.support.gateway import CHAT, MESSAGES
from tests.support.notation import (
    AERR,
    CBD,
    CBS,
    CBX,
    DONE,
    EOF_OK,
    FIN,
    MD,
    MS,
    MX,
    R,
    T,
    U,
    chunk,
    crlf,
    data,
    event,
    json_answer,
)
from tests.support.stage import Act
from tests.wire.desk import BOTH, Desk, error_of, events, items, open_desk, sdk_loop, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLAIN_OPENAI = R() + T("a") + FIN("stop") + U(7, 1) + DONE
PLAIN_ANTHROPIC = MS(7) + CBS(0) + CBD(0, "a") + CBX(0) + MD("end_turn", 1) + MX
PLAIN = {CHAT: PLAIN_OPENAI, MESSAGES: PLAIN_ANTHROPIC}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with open_desk() as desk:
        yield desk


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def brisk() -> AsyncIterator[Desk]:
    """A desk whose heartbeats come often."""
    async with open_desk(stream={"heartbeat_s": 0.1, "commit_after_s": 0.2, "idle_s": 3}) as desk:
        yield desk


def openai(text: str) -> bytes:
    """A whole answer that says *text*."""
    return R() + T(text) + FIN("stop", (7, 1)) + DONE


def unstamped(body: bytes) -> bytes:
    """*body* without what differs from one request to the next."""
    return re.sub(rb'"(trace_id|overhead_ms)":("[^"]*"|[0-9.]+)', b'"":0', body)


def cut_at(stream: bytes, *marks: bytes) -> list[bytes | Act]:
    """*stream* in writes of their own, cut after the first byte of each occurrence of *marks*."""
    places = sorted(match.start() + 1 for mark in marks for match in re.finditer(re.escape(mark), stream))
    script: list[bytes | Act] = []
    for start, end in zip([0, *places], [*places, len(stream)], strict=True):
        script += [stream[start:end], pause_ms(10)]
    return script


@pytest.mark.parametrize("path", BOTH)
async def test_sse_01_crlf(desk: Desk, path: str) -> None:
    """CR LF line ends give the very bytes that LF gives."""
    plain = await desk.ask([PLAIN[path]], path=path)
    reply = await desk.ask([crlf(PLAIN[path])], path=path)
    bare_cr = await desk.ask([PLAIN[path].replace(b"\n", b"\r")], path=path)

    assert text_of(items(reply)) == "a"
    assert unstamped(reply.body) == unstamped(plain.body) == unstamped(bare_cr.body)


@pytest.mark.parametrize("path", BOTH)
async def test_sse_01_each_event_at_once(desk: Desk, path: str) -> None:
    """With CR LF an event is forwarded when it is whole, not with the next one or at the end."""
    seen = asyncio.Event()
    first, rest = (R() + T("a"), FIN() + DONE) if path == CHAT else (MS(7) + CBS(0) + CBD(0, "a"), CBX(0) + MD() + MX)

    async with desk.stream([crlf(first), wait(seen), crlf(rest)], path=path) as stream:
        frames = stream.frames()
        while b'"a"' not in await anext(frames):
            pass
        seen.set()
        await stream.all_frames()

    assert stream.ended_properly


@pytest.mark.parametrize("path", BOTH)
async def test_sse_04_characters_cut_by_reads(desk: Desk, path: str) -> None:
    """A character of several bytes that is cut by a read comes out whole."""
    stream = PLAIN[path].replace(b'"a"', '"北🦀é"'.encode())

    reply = await desk.ask(cut_at(stream, *(char.encode() for char in "北🦀é")), path=path)

    assert text_of(items(reply)) == "北🦀é"


async def test_sse_04_in_tool_arguments(desk: Desk) -> None:
    """The same inside tool arguments, which nobody may have to mend."""
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"q":"北🦀é"}'}}
    stream = R() + chunk({"tool_calls": [call]}) + FIN("tool_calls") + DONE

    reply = await desk.ask(cut_at(stream, *(char.encode() for char in "北🦀é")))

    assert items(reply)[1]["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] == '{"q":"北🦀é"}'


async def test_sse_04_bytes_that_are_no_utf8(desk: Desk) -> None:
    """Bytes that are no UTF-8 at all become replacement characters; the stream goes on."""
    reply = await desk.ask([R() + T("X").replace(b"X", b"a\xff\xc3b") + T("c") + FIN() + DONE])

    assert text_of(items(reply)) == "a\ufffd\ufffdbc"


@pytest.mark.parametrize("at", [1, 6, 20, 100])
async def test_sse_06_events_across_writes(desk: Desk, at: int) -> None:
    """Half an event after whole ones is kept for the next read: nothing lost, nothing twice."""
    second = T("b")

    reply = await desk.ask([R() + T("a") + second[:at], pause_ms(10), second[at:] + FIN() + DONE])

    assert text_of(items(reply)) == "ab"


@pytest.mark.parametrize("path", BOTH)
async def test_sse_07_no_space_after_the_colon(desk: Desk, path: str) -> None:
    """`data:{...}` is accepted, and written with one space."""
    tight = PLAIN[path].replace(b"data: ", b"data:").replace(b"event: ", b"event:")

    reply = await desk.ask([tight], path=path)

    assert text_of(items(reply)) == "a"
    assert b"data:{" not in reply.body
    assert reply.body.count(b"data: ") == reply.body.count(b"data:")


@pytest.mark.parametrize("path", BOTH)
async def test_sse_09_comments_while_queued(desk: Desk, path: str) -> None:
    """Comments are never data, no first token, and no tokens."""
    start = R() if path == CHAT else MS(7) + CBS(0)
    rest = T("a") + FIN() + DONE if path == CHAT else CBD(0, "a") + CBX(0) + MD("end_turn", {}) + MX
    waiting: list[bytes | Act] = [b": PROCESSING\n\n", pause_ms(20)] * 3

    reply = await desk.ask([*waiting, start, b": keep-alive\n\n", rest], path=path)
    receipt = await desk.receipt(reply)

    assert text_of(items(reply)) == "a"
    assert b"PROCESSING" not in reply.body
    assert receipt["completion_tokens"] == 1
    assert receipt["ttft_ms"] >= 60


@pytest.mark.parametrize("path", BOTH)
async def test_sse_10_heartbeats_between_tokens(brisk: Desk, path: str) -> None:
    """In a silence the client gets heartbeats, between whole frames and without any id."""
    first, rest = (R() + T("a"), T("b") + FIN() + DONE)
    if path == MESSAGES:
        first, rest = (MS(7) + CBS(0) + CBD(0, "a"), CBD(0, "b") + CBX(0) + MD() + MX)
    half = rest[:30]

    reply = await brisk.ask([first + half, pause_ms(500), rest[30:]], path=path)

    beat = b": ping" if path == CHAT else b'event: ping\ndata: {"type":"ping"}'
    assert blocks(reply.body).count(beat) >= 2
    assert text_of(items(reply)) == "ab"
    assert not re.search(rb"^(id|retry):", reply.body, re.MULTILINE)


@pytest.mark.parametrize("path", BOTH)
async def test_sse_10_no_heartbeat_without_silence(desk: Desk, path: str) -> None:
    """A stream that flows has no heartbeat in it."""
    reply = await desk.ask([PLAIN[path]], path=path)

    assert b"ping" not in reply.body


async def test_sse_11_control_blocks(desk: Desk) -> None:
    """`retry:`, an empty `data:` and `id:` are not forwarded."""
    script = [b"retry: 1000\n\n", R(), b"data:\n\n", b"data\n\n", T("a"), b"id: 5\n\n", b"event: x\n\n", FIN(), DONE]

    reply = await desk.ask(script)

    assert text_of(items(reply)) == "a"
    assert all(block.startswith(b"data: {") or block == b"data: [DONE]" for block in blocks(reply.body))


@pytest.mark.parametrize("ending", [
    b"data: [DONE]", b"data: [DONE]\n", b"data: [DONE]\r\n", b"data:[DONE]", b"data: [DO",
])  # fmt: skip
async def test_sse_12_terminator_without_line_end(desk: Desk, ending: bytes) -> None:
    """A terminator that is not finished, or not even whole, does not spoil a complete answer."""
    reply = await desk.ask([R(), T("a"), FIN("stop", (7, 1)), ending, EOF_OK])

    assert sdk_loop(reply)[0] == "a"
    assert items(reply)[-1] == "[DONE]"


async def test_sse_12_finish_without_line_end(desk: Desk) -> None:
    """The finish chunk itself may lack its line end: it holds the bill."""
    reply = await desk.ask([R(), T("a"), FIN("stop", (7, 1)).rstrip(b"\n"), EOF_OK])
    receipt = await desk.receipt(reply)

    assert sdk_loop(reply) == ("a", items(reply)[-3]["usage"])
    assert (receipt["outcome"], receipt["prompt_tokens"]) == ("completed", 7)


async def test_sse_12_message_stop_without_line_end(desk: Desk) -> None:
    """The same on the Anthropic endpoint."""
    reply = await desk.ask([PLAIN_ANTHROPIC.rstrip(b"\n"), EOF_OK], path=MESSAGES)

    assert events(reply)[-1] == "message_stop"


@pytest.mark.parametrize("path", BOTH)
async def test_sse_15_line_ends_of_other_standards(desk: Desk, path: str) -> None:
    """U+2028, U+0085, VT, FS and NEL inside JSON cut nothing, also where they are not escaped."""
    raw = "a\u2028b\u0085c\u000bd\x1ce\u2029"
    stream = PLAIN[path].replace(b'"a"', f'"{raw}"'.encode())

    reply = await desk.ask([stream], path=path)
    receipt = await desk.receipt(reply)

    assert text_of(items(reply)) == raw
    assert (receipt["prompt_tokens"], receipt["completion_tokens"], receipt["usage_basis"]) == (7, 1, "provider_final")


@pytest.mark.parametrize("path", BOTH)
async def test_sse_16_a_long_event(desk: Desk, path: str) -> None:
    """An event of 700,000 characters is delivered whole."""
    text = "é" + "x" * 700_000

    reply = await desk.ask([PLAIN[path].replace(b'"a"', f'"{text}"'.encode())], path=path)

    assert text_of(items(reply)) == text


@pytest.mark.parametrize("path", BOTH)
async def test_sse_16_an_endless_event(desk: Desk, path: str) -> None:
    """An event beyond the bound ends the stream with an error frame, not with memory."""
    before = R() + T("a") if path == CHAT else MS(7) + CBS(0) + CBD(0, "a")

    reply = await desk.ask([before, b"data: " + b"x" * 1_500_000, EOF_OK], path=path)

    assert text_of(items(reply)) == "a"
    assert b"stream_interrupted" in reply.body


async def test_sse_18_chunks_without_choices(desk: Desk) -> None:
    """Filter results before the first choice and usage after the last never reach a loop that indexes choices."""
    azure = data({"choices": [], "prompt_filter_results": [{"prompt_index": 0}], "model": "", "id": ""})

    reply = await desk.ask([azure, R(), T("a"), FIN("stop"), U(7, 1), DONE])

    assert sdk_loop(reply)[0] == "a"
    assert all(item["choices"] for item in items(reply)[:-1])


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_sse_21_encoded_events(desk: Desk, coding: str) -> None:
    """An encoded upstream is decoded event by event, and the client's stream says nothing of it."""
    packer = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
    seen = asyncio.Event()
    first = packer.compress(R() + T("a")) + packer.flush(zlib.Z_SYNC_FLUSH)
    second = packer.compress(T("b") + FIN() + DONE) + packer.flush()
    script: list[Act | bytes] = [head(headers={"Content-Encoding": coding}), first, wait(seen), second, EOF_OK]

    async with desk.stream(script) as stream:
        frames = stream.frames()
        while b'"a"' not in await anext(frames):
            pass
        seen.set()
        rest = await stream.all_frames()

    assert text_of([json.loads(frame[6:]) for frame in rest[:-1]]) == "b"
    assert stream.headers.get("content-encoding") is None


@pytest.mark.parametrize("path", BOTH)
async def test_sse_23_json_error_with_200(desk: Desk, path: str) -> None:
    """A JSON error under a 200 opens no stream and is no success."""
    reply = await desk.ask([status(200, (), {"error": {"message": "quota", "code": 429}})], path=path)
    receipt = await desk.receipt(reply)

    assert reply.status == 503
    assert error_of(reply)["code"] == "provider_unavailable"
    assert (receipt["outcome"], receipt["cost_usd"]) == ("failed", "0.000000")


async def test_sse_23_json_answer_to_a_stream(desk: Desk) -> None:
    """A provider that does not stream at all is no success either, and the fallback is asked."""
    desk.provider.script("first", [json_answer("a")])
    desk.provider.script("second", [openai("b")])

    reply = await desk.ask(model="fallback")

    assert text_of(items(reply)) == "b"


@pytest.mark.parametrize("path", BOTH)
async def test_sse_25_plain_errors_on_streams(desk: Desk, path: str) -> None:
    """A 400 on a stream request is a JSON 400 with a body, and keeps what the caller can use."""
    body = {"error": {"message": "too long", "code": "context_length_exceeded", "type": "invalid_request_error"}}

    reply = await desk.ask([status(400, (), body)], path=path)

    assert reply.status == 400
    assert error_of(reply)["code"] == "context_length_exceeded"
    assert error_of(reply)["message"] == ("too long" if path == CHAT else "prompt is too long: too long")


@pytest.mark.parametrize("code", [500, 502, 503, 529, 404, 418, 301])
async def test_sse_25_every_other_status(desk: Desk, code: int) -> None:
    """No other status of a provider becomes a stream, nor the client's own."""
    reply = await desk.ask([status(code, (), {"error": {"message": "internal host db-7.internal"}})])

    assert reply.status == 503
    assert b"db-7" not in reply.body


@pytest.mark.parametrize("path", BOTH)
async def test_sse_26_first_event_is_an_error(desk: Desk, path: str) -> None:
    """An error as the first event is an HTTP error: nothing had been committed."""
    first = data({"error": {"message": "m", "type": "overloaded", "code": None}})
    if path == MESSAGES:
        first = AERR("overloaded_error")

    reply = await desk.ask([b": x\n\n", first, EOF_OK], path=path)

    assert reply.status == 503
    assert error_of(reply)["code"] == "provider_unavailable"


@pytest.mark.parametrize("start", [b": x\n\n", R(), R() + chunk({"content": ""}), data({"choices": []})])
async def test_sse_26_fallback_before_the_first_content(desk: Desk, start: bytes) -> None:
    """Until content has come, another provider can answer, and the client sees that answer alone."""
    desk.provider.script("first", [start + data({"error": {"message": "m"}}), EOF_OK])
    desk.provider.script("second", [openai("b")])

    reply = await desk.ask(model="fallback")
    receipt = await desk.receipt(reply)

    assert text_of(items(reply)) == "b"
    assert sum("role" in item["choices"][0]["delta"] for item in items(reply)[:-1]) == 1
    assert receipt["provider_model"] == "second"
    assert receipt["attempts"] == ["fake-openai/first:failed", "fake-openai/second:ok"]


async def test_sse_26_the_sniff_is_bounded_in_time(brisk: Desk) -> None:
    """A provider that says nothing of use does not keep the client without a status for ever."""
    async with brisk.stream([R(), pause_ms(600), T("a") + FIN() + DONE]) as stream:
        frames = await stream.all_frames()

    assert frames[0] == b": ping"
    assert frames[-1] == b"data: [DONE]"


async def test_sse_28_lone_surrogates(desk: Desk) -> None:
    """Halves of a surrogate pair in two chunks never stop a stream or drop a chunk."""
    halves = [T("X").replace(b"X", half) for half in (rb"\ud83d", rb"\udf78")]

    reply = await desk.ask([R(), *halves, T("ok"), FIN(), DONE])

    assert len(text_of(items(reply))) == 4
    assert text_of(items(reply)).endswith("ok")


async def test_sse_28_without_streaming(desk: Desk) -> None:
    """Neither do they cost a JSON answer."""
    answer = json_answer("X")

    reply = await desk.ask([status(200, (), answer.body.replace(b'"X"', rb'"ok \ud83d"'))], stream=False)

    assert reply.status == 200
    assert reply.json["choices"][0]["message"]["content"] == "ok \ufffd"


async def test_sse_31_the_documents_loops(desk: Desk) -> None:
    """The documents' own loop ends normally, and the metadata is the frame before the terminator."""
    reply = await desk.ask([PLAIN_OPENAI])

    assert sdk_loop(reply)[0] == "a"
    assert next(iter(items(reply)[-2])) == "_anoman"
    assert items(reply)[-1] == "[DONE]"


async def test_sse_33_index_and_envelope(desk: Desk) -> None:
    """A missing index is 0; id, object, created and model are there and constant."""
    bare = data({"choices": [{"delta": {"content": "a"}}]})

    reply = await desk.ask([bare * 2 + data({"choices": [{"finish_reason": "stop"}]})])

    chunks = items(reply)[:-2]
    assert [choice["index"] for item in chunks for choice in item["choices"]] == [0, 0, 0, 0]
    assert len({(item["id"], item["object"], item["created"], item["model"]) for item in chunks}) == 1


async def test_events_that_nobody_knows(desk: Desk) -> None:
    """What a provider adds tomorrow passes today."""
    new = event("brand_new", {"type": "brand_new", "x": [1.50, None]})

    reply = await desk.ask([MS(7) + CBS(0) + CBD(0, "a") + new + CBX(0) + MD() + MX], path=MESSAGES)
    chat = await desk.ask([R() + chunk({"content": "a", "new": {"x": 1}}, None, None, service_tier="x") + FIN() + DONE])

    assert new in reply.body
    assert b'"new":{"x":1}' in chat.body
    assert b'"service_tier":"x"' in chat.body
