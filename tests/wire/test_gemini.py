"""A provider that speaks Gemini's own dialect, behind the real process, for clients of either endpoint."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.acts import repeat, status
from tests.support.config import GEMINI_SECRET, gemini_provider, model, standard
from tests.support.frames import blocks, named
from tests.support.gateway import CHAT, MESSAGES, STRICT, Gateway
from tests.support.notation import DONE, ERRF, GC, GT, GU, HANG, RST
from tests.support.provider import FakeProvider
from tests.wire.desk import Desk, error_of, events, items, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = "gemini-3.6-flash"
PROMISE_S = 0.05  # contract, 6: a client's close reaches the upstream within 50 ms
STARTED = [GT("Once ", tokens=(100, 1, 30)), GT("upon", tokens=(100, 2, 30))]
FINISHED = [GC(finish="STOP", tokens=(100, 2, 30))]
WHOLE = {
    "candidates": [{"content": {"parts": [{"text": "Once upon"}], "role": "model"}, "finishReason": "STOP"}],
    "usageMetadata": GU(100, 2, 30),
}
COUNTS = ("outcome", "prompt_tokens", "completion_tokens", "reasoning_tokens", "usage_basis")

each_path = pytest.mark.parametrize("path", [CHAT, MESSAGES], ids=["chat", "messages"])


@contextlib.asynccontextmanager
async def open_gemini(**overrides: Any) -> AsyncIterator[Desk]:
    async with FakeProvider() as provider:
        config = standard(
            provider.base_url,
            providers={"fake-gemini": gemini_provider(provider.base_url)},
            models={MODEL: model(f"fake-gemini/{MODEL}")},
            **overrides,
        )
        async with Gateway(config, flags=STRICT) as gateway:
            yield Desk(provider, gateway)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    # A fault on a pooled connection may be the connection's own, and would be made up for first: they go quickly.
    async with open_gemini(upstream={"pool_idle_s": 0.01}) as desk:
        yield desk


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@each_path
async def test_an_answer(desk: Desk, path: str, stream: bool) -> None:
    """The method and the key are Google's, nothing of the client's headers is there, and thinking is on the bill."""
    script: Any = [*STARTED, *FINISHED] if stream else [status(200, (), WHOLE)]

    reply = await desk.ask(script, path=path, model=MODEL, stream=stream)
    receipt = await desk.receipt(reply)

    seen = desk.provider.requests[-1]
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    assert seen.target == f"/v1beta/models/{MODEL}:{method}"
    sent = {name.lower(): value for name, value in seen.headers}
    assert sent["x-goog-api-key"] == GEMINI_SECRET
    assert not {"authorization", "x-api-key", "anthropic-version"} & set(sent)
    assert "model" not in seen.json
    if stream:
        assert text_of(items(reply)) == "Once upon"
    else:
        message = reply.json["choices"][0]["message"]["content"] if path == CHAT else reply.json["content"][0]["text"]
        assert message == "Once upon"
    assert tuple(receipt[name] for name in COUNTS) == ("completed", 100, 32, 30, "provider_final")


@each_path
async def test_death_after_content(desk: Desk, path: str) -> None:
    """The words so far, the documented error frame of the client's dialect, a clean end, and what was counted."""
    reply = await desk.ask([*STARTED, RST], path=path, model=MODEL)
    receipt = await desk.receipt(reply)

    frames = blocks(reply.body)
    assert text_of(items(reply)) == "Once upon"
    if path == CHAT:
        assert frames[-2:] == [ERRF(32).strip(), DONE.strip()]
    else:
        assert events(reply)[-1] == "error"
        assert named(frames)[-1][1]["error"]["_anoman"] == {"failure_class": "upstream_error", "completion_tokens": 32}
    assert (receipt["outcome"], receipt["completion_tokens"], receipt["reasoning_tokens"]) == ("interrupted", 32, 30)


@pytest.mark.parametrize("n", ["two", 5])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_member_that_anthropic_has_not(desk: Desk, n: object, stream: bool) -> None:
    """`n` means nothing in Anthropic's dialect: it is dropped, whatever it is, and one answer is waited for."""
    script = [*STARTED, *FINISHED, HANG] if stream else [status(200, (), WHOLE)]

    reply = await desk.ask(script, path=MESSAGES, model=MODEL, stream=stream, n=n)
    receipt = await desk.receipt(reply)

    assert (reply.status, receipt["outcome"]) == (200, "completed")


@each_path
async def test_an_end_without_a_finish(desk: Desk, path: str) -> None:
    """A body that ends properly without a finish reason was cut all the same."""
    reply = await desk.ask(STARTED, path=path, model=MODEL)
    receipt = await desk.receipt(reply)

    assert (receipt["outcome"], receipt["failure_class"]) == ("interrupted", "upstream_truncated")


FAULTS = {
    "a reset": [RST],
    "an error in the stream": [b'data: {"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}\r\n\r\n'],
    "a call that is none": [GC(finish="MALFORMED_FUNCTION_CALL")],
    "no event stream": [status(200, (), [WHOLE])],
    "overload": [status(503, (), {"error": {"code": 503, "message": "m", "status": "UNAVAILABLE"}})],
}


@pytest.mark.parametrize("fault", FAULTS)
@each_path
async def test_a_second_attempt(desk: Desk, path: str, fault: str) -> None:
    """What fails before the first word is asked for once more, and the client hears nothing of it."""
    reply = await desk.ask(FAULTS[fault], [*STARTED, *FINISHED], path=path, model=MODEL)
    receipt = await desk.receipt(reply)

    assert text_of(items(reply)) == "Once upon"
    assert receipt["attempts"] == [f"fake-gemini/{MODEL}:failed", f"fake-gemini/{MODEL}:ok"]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@each_path
async def test_errors(desk: Desk, path: str, stream: bool) -> None:
    """A prompt that is too long is the caller's 400, a wrong key is ours and asked with once, and stays with us."""
    too_long = "The input token count (9) exceeds the maximum number of tokens allowed (8)."
    invalid = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    bodies = [
        {"error": {"code": 400, "message": too_long, "status": "INVALID_ARGUMENT"}},
        {"error": {"code": 400, "message": f"API key not valid: {GEMINI_SECRET}", "details": [invalid]}},
    ]

    replies = [await desk.ask([status(400, (), [b])], path=path, model=MODEL, stream=stream) for b in bodies]
    receipts = [await desk.receipt(reply) for reply in replies]

    assert [(reply.status, error_of(reply)["code"]) for reply in replies] == [
        (400, "context_length_exceeded"),
        (503, "provider_unavailable"),
    ]
    assert error_of(replies[0])["message"].endswith(too_long)
    assert replies[1].headers.get("x-should-retry") == "false"
    assert [len(receipt["attempts"]) for receipt in receipts] == [1, 1]
    assert b"API key" not in replies[1].body


@each_path
async def test_what_cannot_be_said(desk: Desk, path: str) -> None:
    """A call that must not be half understood is refused in the client's envelope before anybody is asked."""
    before = len(desk.provider.requests)
    orphan = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}
    fields: dict[str, Any] = {"cached_content": "cachedContents/x"} if path == CHAT else {"messages": [orphan]}

    reply = await desk.ask(path=path, model=MODEL, **fields)

    assert (reply.status, error_of(reply)["code"]) == (400, "invalid_request")
    assert len(desk.provider.requests) == before


@pytest.mark.alone
@pytest.mark.parametrize("flows", [True, False], ids=["flowing", "stalled"])
@each_path
async def test_leaving(desk: Desk, path: str, flows: bool) -> None:
    """The upstream is closed within 50 ms; the receipt has the prompt, the tokens that were there and the thinking."""
    async with desk.stream([*STARTED, repeat(STARTED[-1]) if flows else HANG], path=path, model=MODEL) as stream:
        async for frame in stream.frames():
            if b"upon" in frame:
                break
        seen = desk.provider.requests[-1]
        left_s = stream.rst()
        closed = await seen.gone()
        receipt = await desk.receipt(stream)

    assert closed.when_s - left_s <= PROMISE_S
    assert (receipt["outcome"], receipt["prompt_tokens"], receipt["reasoning_tokens"]) == ("cancelled", 100, 30)
    assert receipt["completion_tokens"] >= 32


@each_path
async def test_an_end_that_does_not_come(desk: Desk, path: str) -> None:
    """There is no terminator in this dialect: where the body does not end either, the finish reason is enough."""
    reply = await desk.ask([*STARTED, *FINISHED, HANG], path=path, model=MODEL)
    receipt = await desk.receipt(reply)

    assert text_of(items(reply)) == "Once upon"
    assert (receipt["outcome"], receipt["completion_tokens"]) == ("completed", 32)


@each_path
async def test_connections_are_kept(path: str) -> None:
    """A stream that has ended leaves its connection to the next request."""
    async with open_gemini() as desk:
        desk.provider.script(MODEL, [*STARTED, *FINISHED])
        for _ in range(3):
            reply = await desk.ask(path=path, model=MODEL)
            await desk.receipt(reply)

        assert desk.provider.connections == 1
