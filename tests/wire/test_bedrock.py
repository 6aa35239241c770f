"""Bedrock behind either endpoint, through the real process and a provider that checks signatures by itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support import bedrock
from tests.support.acts import Script, pause_ms, repeat, stall
from tests.support.bedrock import HEAD, START, argues, begins, closes, metadata, stop, text
from tests.support.client import Reply
from tests.support.config import CANARY, anthropic_provider, model, standard
from tests.support.eventstream import exception
from tests.support.frames import blocks, named
from tests.support.gateway import CHAT, MESSAGES, STRICT, Gateway
from tests.support.notation import CBD, CBS, CBX, ERRF, MD, MS, MX, RST
from tests.support.provider import ANY_MODEL, FakeProvider
from tests.wire.desk import Desk, error_of, events, items, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY_ID, SECRET, TOKEN = f"AKIA{CANARY.upper()}EX", f"{CANARY}/s3cret+", f"{CANARY}//t0ken=="
TEMPORARY = f"ASIA{CANARY.upper()}EX"
API_KEY = f"bedrock-api-key-{CANARY}"
SECRETS = {KEY_ID: SECRET, TEMPORARY: SECRET}
ENV = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "ap-southeast-3"}
CLAUDE = "anthropic.claude-sonnet-4-5-20250929-v1:0"
PROFILE = "arn:aws:bedrock:ap-southeast-1:123456789012:inference-profile/apac.anthropic.claude-sonnet-4-6"
PROMISE_S = 0.05  # contract, 6: a client's close reaches the upstream within 50 ms

each_path = pytest.mark.parametrize("path", [CHAT, MESSAGES], ids=["chat", "messages"])
each_form = pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])

GOOD: Script = [HEAD, START, text("Once "), text("upon"), closes(), stop(), metadata(40, 2, cacheReadInputTokens=60)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with FakeProvider() as provider:
        account = {"preset": "bedrock", "base_url": provider.base_url}
        temporary = {"aws_access_key_id": TEMPORARY, "aws_secret_access_key": SECRET, "aws_session_token": TOKEN}
        providers = {
            "jakarta": account,
            "singapore": {**account, "aws_region": "ap-southeast-1", **temporary},
            "keyed": {**account, "api_key": API_KEY},
            "wrong": {**account, "aws_access_key_id": KEY_ID, "aws_secret_access_key": f"{CANARY}-other"},
            "claude": anthropic_provider(provider.base_url),
        }
        models = {
            "claude-id": model(f"jakarta/{CLAUDE}", max_output_tokens=64_000),
            "claude-apac": model(f"singapore/{PROFILE}"),
            "claude-keyed": model(f"keyed/{CLAUDE}"),
            "claude-wrong": model(f"wrong/{CLAUDE}"),
            "claude-twice": model(f"jakarta/{CLAUDE}", "claude/second"),
        }
        async with Gateway(
            standard(provider.base_url, providers=providers, models=models), flags=STRICT, env=ENV
        ) as gateway:
            yield Desk(provider, gateway)


def plays(desk: Desk, *answers: Script, region: str = "ap-southeast-3") -> None:
    """Bedrock answers so, whatever the model, if it takes the signature."""
    desk.provider.script(ANY_MODEL, *(bedrock.signed(answer, SECRETS, region) for answer in answers))


async def ask(desk: Desk, path: str, slug: str = "claude-id", **fields: Any) -> Reply:
    return await desk.ask(path=path, model=slug, **fields)


def extension(reply: Reply) -> dict[str, Any]:
    """What the gateway says of the answer."""
    said = reply.json if reply.headers.get("content-type") == "application/json" else items(reply)[-2]
    found: dict[str, Any] = said["_anoman"]
    return found


@each_form
@each_path
async def test_an_answer(desk: Desk, path: str, stream: bool) -> None:
    """Asked by the model's path with a signature that AWS would take; answered in the client's dialect, metered."""
    whole = bedrock.converse([{"text": "Once upon"}], "end_turn", bedrock.usage(40, 2, cacheReadInputTokens=60))
    plays(desk, GOOD if stream else whole)

    reply = await ask(desk, path, stream=stream)
    receipt = await desk.receipt(reply)

    seen = desk.provider.requests[-1]
    quoted = CLAUDE.replace(":", "%3A")
    assert (seen.method, seen.target) == ("POST", f"/model/{quoted}/converse{'-stream' if stream else ''}")
    assert seen.headers.get("accept") == (bedrock.CONTENT_TYPE if stream else "application/json")
    assert seen.json["messages"] == [{"role": "user", "content": [{"text": "Hi"}]}]
    assert reply.status == 200
    if stream:
        said = items(reply)
        assert text_of(said) == "Once upon"
        assert (said[-1] == "[DONE]") if path == CHAT else (events(reply)[-1] == "message_stop")
    else:
        said = reply.json["choices"][0]["message"]["content"] if path == CHAT else reply.json["content"][0]["text"]
        assert said == "Once upon"
    assert extension(reply)["routing"]["provider_region"] == "ID"
    assert extension(reply)["routing"]["provider_type"] == "bedrock"
    counts = ("prompt_tokens", "cached_tokens", "completion_tokens", "usage_basis")
    assert tuple(receipt[name] for name in counts) == (100, 60, 2, "provider_final")
    assert (receipt["outcome"], receipt["provider"], receipt["provider_model"]) == ("completed", "jakarta", CLAUDE)


@each_path
async def test_tools(desk: Desk, path: str) -> None:
    """Two calls, each piece of their arguments as it came; the results go back as Converse wants them."""
    plays(
        desk,
        [
            HEAD, START, begins("tooluse_1", "f"), argues('{"a":'), argues("1}"), closes(),
            begins("tooluse_2", "f", 1), closes(1), stop("tool_use"), metadata(9, 9),
        ],
        GOOD,
    )  # fmt: skip
    schema: dict[str, Any] = {"type": "object"}
    if path == CHAT:
        tools: Any = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
        calls = [
            {"id": f"tooluse_{n}", "type": "function", "function": {"name": "f", "arguments": arguments}}
            for n, arguments in ((1, '{"a":1}'), (2, "{}"))
        ]
        turns: Any = [{"role": "assistant", "content": None, "tool_calls": calls}]
        turns += [{"role": "tool", "tool_call_id": f"tooluse_{n}", "content": "ok"} for n in (1, 2)]
    else:
        tools = [{"name": "f", "input_schema": schema}]
        uses = [
            {"type": "tool_use", "id": f"tooluse_{n}", "name": "f", "input": {"a": 1} if n == 1 else {}} for n in (1, 2)
        ]
        results = [{"type": "tool_result", "tool_use_id": f"tooluse_{n}", "content": "ok"} for n in (1, 2)]
        turns = [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]

    first = await ask(desk, path, tools=tools)
    history = [{"role": "user", "content": "Hi"}, *turns]
    second = await ask(desk, path, tools=tools, messages=history)

    said = json.dumps(items(first))
    assert said.count("tooluse_1") == said.count("tooluse_2") == 1
    assert ("tool_calls" if path == CHAT else "tool_use") in said
    sent = desk.provider.requests[-1].json
    assert [block["toolUse"]["input"] for block in sent["messages"][1]["content"]] == [{"a": 1}, {}]
    assert [block["toolResult"]["toolUseId"] for block in sent["messages"][2]["content"]] == ["tooluse_1", "tooluse_2"]
    assert sent["toolConfig"] == {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": schema}}}]}
    assert text_of(items(second)) == "Once upon"


@each_path
async def test_temporary_keys_and_a_profile(desk: Desk, path: str) -> None:
    """The token is sent and signed; an ARN is one segment of the path; a profile of an area is computed in the area."""
    plays(desk, GOOD, region="ap-southeast-1")

    reply = await ask(desk, path, "claude-apac")

    seen = desk.provider.requests[-1]
    assert text_of(items(reply)) == "Once upon"
    assert seen.headers.get("x-amz-security-token") == TOKEN
    assert seen.target.count("/") == 3
    assert seen.target.startswith("/model/arn%3Aaws%3Abedrock%3A")
    assert extension(reply)["routing"]["provider_region"] == "APAC"


@each_path
async def test_a_key_of_bedrocks_own(desk: Desk, path: str) -> None:
    """A bearer token, and no signature."""
    desk.provider.script(ANY_MODEL, GOOD)

    reply = await ask(desk, path, "claude-keyed")

    seen = desk.provider.requests[-1]
    assert text_of(items(reply)) == "Once upon"
    assert seen.headers.get("authorization") == f"Bearer {API_KEY}"
    assert seen.headers.get("x-amz-date") is None


@each_path
async def test_a_signature_that_is_refused(desk: Desk, path: str) -> None:
    """Our credential's fault: the caller is told not to try again, the log names the provider."""
    plays(desk, GOOD)

    reply = await ask(desk, path, "claude-wrong")

    assert (reply.status, error_of(reply)["code"]) == (503, "provider_unavailable")
    assert reply.headers.get("x-should-retry") == "false"
    (line,) = await desk.gateway.logged("provider.credential_refused")
    assert line["provider"] == "wrong"


# -- when it breaks --


@each_path
@pytest.mark.parametrize("end", ["reset", "half a message", "exception", "damage", "end"])
async def test_death_after_content(desk: Desk, path: str, end: str) -> None:
    """The words so far, the documented error frame of the client's dialect, a clean end, a receipt to match."""
    broken = bytearray(text("more"))
    broken[-5] ^= 1
    last: dict[str, list[Any]] = {
        "reset": [RST],
        "half a message": [text("more")[:-9], RST],
        "exception": [exception("modelStreamErrorException", {"message": f"key {KEY_ID} of {SECRET}"})],
        "damage": [bytes(broken), stall()],
        "end": [],
    }
    plays(desk, [HEAD, START, text("Once "), text("upon"), *last[end]])

    reply = await ask(desk, path)
    receipt = await desk.receipt(reply)

    assert text_of(items(reply)) == "Once upon"
    if path == CHAT and end != "end":
        assert blocks(reply.body)[-2] == ERRF(2).strip()
    if path == MESSAGES:
        name, error = named(blocks(reply.body))[-1]
        assert (name, error["error"]["code"]) == ("error", "stream_interrupted")
        assert reply.body.count(b"event: error") == 1
    assert (receipt["outcome"], receipt["completion_tokens"]) == ("interrupted", 2)
    assert receipt["failure_class"] == ("upstream_truncated" if end == "end" else "upstream_error")


@each_path
async def test_a_provider_that_is_busy(desk: Desk, path: str) -> None:
    """Throttled, as an answer or as the first message of a stream: the next route is asked."""
    claude: Script = [MS(7, 1), CBS(0), CBD(0, "Hello"), CBX(0), MD("end_turn", 1), MX]
    desk.provider.script("second", claude)
    busy: list[Script] = [
        bedrock.refusal(429, "ThrottlingException", "Too many requests"),
        [HEAD, exception("throttlingException", {"message": "Too many tokens"})],
        bedrock.refusal(424, "ModelErrorException", "The model failed"),
    ]
    for answer in busy:
        plays(desk, answer)

        reply = await ask(desk, path, "claude-twice")
        receipt = await desk.receipt(reply)

        assert text_of(items(reply)) == "Hello"
        order = [f"jakarta/{CLAUDE}", "claude/second"]
        routes = order if path == CHAT else order[::-1]
        assert receipt["attempts"] == (
            [f"{routes[0]}:failed", f"{routes[1]}:ok"] if path == CHAT else ["claude/second:ok"]
        )


@each_path
@pytest.mark.parametrize("inside", [False, True], ids=["answer", "stream"])
async def test_a_call_that_is_too_long(desk: Desk, path: str, inside: bool) -> None:
    """The caller's own fault in Bedrock's words, as an answer or as the first message of a stream, is a plain 400."""
    words = "Input is too long for requested model."
    refused = bedrock.refusal(400, "ValidationException", words)
    plays(desk, [HEAD, exception("validationException", {"message": words})] if inside else refused)

    reply = await ask(desk, path)

    assert (reply.status, error_of(reply)["code"]) == (400, "context_length_exceeded")
    # Claude Code shortens its history at these words; see test_failures.
    assert error_of(reply)["message"] == (words if path == CHAT else f"prompt is too long: {words}")


@each_path
async def test_words_inside_a_stream_are_cleaned(desk: Desk, path: str) -> None:
    """What an exception inside a stream says of our account reaches no client, like the words of an answer."""
    plays(desk, [HEAD, exception("validationException", {"message": f"no such x for {SECRET}"})])

    reply = await ask(desk, path)

    assert reply.status == 400
    assert "no such x" in error_of(reply)["message"]
    assert SECRET[:16] not in error_of(reply)["message"]


# -- leaving, staying --


@pytest.mark.alone
@pytest.mark.parametrize("flows", [True, False], ids=["flowing", "stalled"])
@each_path
async def test_leaving(desk: Desk, path: str, flows: bool) -> None:
    """The upstream is closed within 50 ms; the receipt has the tokens that were there."""
    rest: list[Any] = [repeat(text("upon"), pause_ms(5))] if flows else [stall()]
    plays(desk, [HEAD, START, text("Once "), text("upon"), *rest])

    async with desk.stream(path=path, model="claude-id") as stream:
        async for frame in stream.frames():
            if b"upon" in frame:
                break
        seen = desk.provider.requests[-1]
        left_s = stream.rst()
        closed = await seen.gone()
        receipt = await desk.receipt(stream)

    assert closed.when_s - left_s <= PROMISE_S
    assert (receipt["outcome"], receipt["routing_mode"]) == ("cancelled", "streaming_cancelled")
    assert receipt["completion_tokens"] >= 2


@each_form
async def test_the_connection_is_kept(desk: Desk, stream: bool) -> None:
    """One connection serves calls one after the other, streamed or whole."""
    whole = bedrock.converse([{"text": "Once upon"}], "end_turn", bedrock.usage(4, 2))
    plays(desk, GOOD if stream else whole)
    await desk.receipt(await ask(desk, CHAT, stream=stream))
    before = desk.provider.connections

    for _ in range(3):
        await desk.receipt(await ask(desk, CHAT, stream=stream))

    assert desk.provider.connections == before
