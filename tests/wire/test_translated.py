"""Translated exchanges over sockets: what is counted, charged, told and refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
import pytest_asyncio

from tests.support.acts import Answer, status
from tests.support.config import KEY, model
from tests.support.frames import chat, messages
from tests.support.gateway import CHAT, MESSAGES
from tests.support.notation import CBD, CBS, CBX, DONE, FIN, MD, MS, MX, R, T, event, json_answer
from tests.wire.desk import Desk, error_of, items, open_desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

ABROAD = {CHAT: "chat-abroad", MESSAGES: "messages-abroad"}
# The same numbers in both dialects: OpenAI's prompt has the cached tokens in it, Anthropic's has them beside it.
OPENAI_USAGE: dict[str, Any] = {
    "prompt_tokens": 2006,
    "completion_tokens": 300,
    "total_tokens": 2306,
    "prompt_tokens_details": {"cached_tokens": 1920},
    "completion_tokens_details": {"reasoning_tokens": 200},
}
ANTHROPIC_USAGE: dict[str, Any] = {
    "input_tokens": 86,
    "cache_read_input_tokens": 1920,
    "output_tokens": 300,
    "output_tokens_details": {"thinking_tokens": 200},
}
COUNTS = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens", "reasoning_tokens")

each_path = pytest.mark.parametrize("path", [CHAT, MESSAGES], ids=["chat", "messages"])
each_form = pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    # Cache writes at four times the price of other input: a sum without them is another one.
    dear = model("fake-anthropic/dear")
    dear["price"]["cache_write"] = "10.00"
    mixed = {
        "chat-mixed": model("fake-anthropic/mixed-a", "fake-openai/mixed-o"),
        "messages-mixed": model("fake-openai/mixed-o", "fake-anthropic/mixed-a"),
    }
    async with open_desk(models={"dear": dear, **mixed}) as desk:
        yield desk


def answer(path: str, stream: bool) -> Answer:
    """An answer with the usage above, of a provider that does not speak the dialect of *path*."""
    if not stream:
        if path == CHAT:
            return [json_answer("Hi", dialect="anthropic", usage=ANTHROPIC_USAGE)]
        return [json_answer("Hi", usage=OPENAI_USAGE)]
    if path == CHAT:
        start = MS(86, 1, cache_read_input_tokens=1920)
        return [start, CBS(0), CBD(0, "Hi"), CBX(0), MD("end_turn", ANTHROPIC_USAGE), MX]
    return [R(), T("Hi"), FIN("stop", OPENAI_USAGE), DONE]


def last(desk_items: list[Any], path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Usage and extension of a stream."""
    if path == CHAT:
        return desk_items[-3]["usage"], desk_items[-2]["_anoman"]
    return desk_items[-2]["usage"], desk_items[-2]["_anoman"]


@each_form
@each_path
async def test_use_07_counts_and_cost(desk: Desk, path: str, stream: bool) -> None:
    """86 x 2.50 + 1920 x 1.25 + 300 x 10 per million: every count is the provider's, in the client's words, once."""
    reply = await desk.ask(answer(path, stream), path=path, model=ABROAD[path], stream=stream)
    receipt = await desk.receipt(reply)

    usage, extension = last(items(reply), path) if stream else (reply.json["usage"], reply.json["_anoman"])
    if path == CHAT:
        assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (2006, 300, 2306)
        assert usage["prompt_tokens_details"]["cached_tokens"] == 1920
        assert usage["completion_tokens_details"]["reasoning_tokens"] == 200
    else:
        assert usage == ANTHROPIC_USAGE
    assert tuple(receipt[name] for name in COUNTS) == (2006, 1920, 0, 300, 200)
    assert extension["cost_usd"] == receipt["cost_usd"] == "0.005615"
    assert extension["cache"] == {"hit": True, "type": "provider"}
    assert extension["usage_basis"] == receipt["usage_basis"] == "provider_final"


@each_form
async def test_use_07_cache_writes(desk: Desk, stream: bool) -> None:
    """100 x 2.50 + 50 x 10 + 2000 x 1.25 + 30 x 10 per million: what was written to the cache has its own price."""
    counts = {"input_tokens": 100, "cache_creation_input_tokens": 50, "cache_read_input_tokens": 2000}
    start = MS(100, 1, cache_creation_input_tokens=50, cache_read_input_tokens=2000)
    said = [start, CBS(0), CBD(0, "Hi"), CBX(0), MD("end_turn", 30), MX]
    whole = [json_answer("Hi", dialect="anthropic", usage={**counts, "output_tokens": 30})]

    reply = await desk.ask(said if stream else whole, model="dear", stream=stream)
    receipt = await desk.receipt(reply)

    assert tuple(receipt[name] for name in COUNTS) == (2150, 2000, 50, 30, 0)
    assert Decimal(receipt["cost_usd"]) == Decimal("0.00355")


@each_path
async def test_use_01_estimated_where_it_never_comes(desk: Desk, path: str) -> None:
    """A provider that does not count is counted by us, and the answer says so."""
    silent = _start(), CBS(0), CBD(0, "Once "), CBD(0, "upon"), CBX(0), MD("end_turn", {}), MX
    script = silent if path == CHAT else (R(), T("Once "), T("upon"), FIN(), DONE)

    reply = await desk.ask(script, path=path, model=ABROAD[path])
    receipt = await desk.receipt(reply)

    assert last(items(reply), path)[1]["usage_basis"] == receipt["usage_basis"] == "estimated"
    assert (receipt["prompt_tokens"], receipt["completion_tokens"]) == (5, 2)


ABSURD: dict[str, list[dict[str, Any]]] = {
    CHAT: [
        {"input_tokens": -5, "output_tokens": -1},
        {"input_tokens": "7", "output_tokens": "1", "cache_read_input_tokens": []},
        {"input_tokens": 10**30, "output_tokens": {"x": 1}, "y": 10**30},
    ],
    MESSAGES: [
        {"prompt_tokens": -5, "completion_tokens": -1},
        {"prompt_tokens": 1.5, "completion_tokens": True, "prompt_tokens_details": "x"},
        {"prompt_tokens": 10**30, "completion_tokens": {"x": 1}, "y": 10**30},
    ],
}


@each_form
@pytest.mark.parametrize(("path", "said"), [(path, said) for path, odd in ABSURD.items() for said in odd])
async def test_use_15_absurd_counts(desk: Desk, path: str, said: dict[str, Any], stream: bool) -> None:
    """Counts that cannot be are replaced by ours, and noted: nobody is billed for them, and nothing breaks."""
    if not stream:
        script: Answer = [json_answer("a", dialect="anthropic" if path == CHAT else "openai", usage=said)]
    elif path == CHAT:
        script = [_start(), CBS(0), CBD(0, "a"), CBX(0), MD("end_turn", said), MX]
    else:
        script = [R(), T("a"), FIN("stop", said), DONE]

    reply = await desk.ask(script, path=path, model=ABROAD[path], stream=stream)
    receipt = await desk.receipt(reply)

    assert reply.status == 200
    assert (receipt["prompt_tokens"], receipt["completion_tokens"], receipt["usage_basis"]) == (5, 1, "estimated")
    assert receipt["note"] == "usage_odd"
    assert 0 < Decimal(receipt["cost_usd"]) < 1


def _start() -> bytes:
    """A start that says nothing of tokens."""
    return event("message_start", {"type": "message_start", "message": {"id": "msg_1", "type": "message"}})


ODD: dict[str, dict[str, Any]] = {
    CHAT: {"seed": 1, "logit_bias": {"1": 2}, "stop": ["a"], "user": "u", "invented": 1},
    MESSAGES: {"top_k": 5, "stop_sequences": ["a"], "metadata": {"user_id": "u"}, "invented": 1},
}
TRANSLATED = {CHAT: {"max_tokens", "stop", "user"}, MESSAGES: {"stop_sequences", "metadata.user_id"}}
DROPPED = {CHAT: {"seed", "logit_bias", "invented"}, MESSAGES: {"top_k", "invented"}}


@each_form
@each_path
async def test_parameters_are_accounted_for(desk: Desk, path: str, stream: bool) -> None:
    """What the provider was told otherwise, or not at all, is in the answer by the caller's name for it."""
    reply = await desk.ask(answer(path, stream), path=path, model=ABROAD[path], stream=stream, **ODD[path])

    extension = last(items(reply), path)[1] if stream else reply.json["_anoman"]
    assert set(extension["params"]["translated"]) == TRANSLATED[path]
    assert set(extension["params"]["dropped"]) == DROPPED[path]
    sent = desk.provider.requests[-1].json
    assert sent["stop_sequences" if path == CHAT else "stop"] == ["a"]
    assert not DROPPED[path] & set(sent)


@each_form
@each_path
async def test_strict_parameters(desk: Desk, path: str, stream: bool) -> None:
    """With `x-anoman-strict-params: 1` what would be dropped is a 400 that names it, and no provider is asked."""
    before = len(desk.provider.requests)
    client = desk.gateway.client(KEY, x_anoman_strict_params="1")
    body = chat if path == CHAT else messages

    reply = await client.request("POST", path, body(ABROAD[path], stream=stream, **ODD[path]))

    error = error_of(reply)
    assert (reply.status, error["code"]) == (400, "invalid_request")
    assert all(name in error["message"] for name in DROPPED[path])
    if path == CHAT:
        assert error["param"] in DROPPED[path]
    assert len(desk.provider.requests) == before


@each_path
async def test_strict_parameters_that_all_arrive(desk: Desk, path: str) -> None:
    """What only takes another form is no offence, and the native lane drops nothing."""
    kept = {name: value for name, value in ODD[path].items() if name not in DROPPED[path]}
    native = "m" if path == CHAT else "claude"
    desk.provider.script(ABROAD[path], answer(path, stream=False))
    desk.provider.script(native, [json_answer("Hi", dialect="openai" if path == CHAT else "anthropic")])
    client = desk.gateway.client(KEY, x_anoman_strict_params="1")
    body = chat if path == CHAT else messages

    translated = await client.request("POST", path, body(ABROAD[path], stream=False, **kept))
    passed = await client.request("POST", path, body(native, stream=False, **ODD[path]))

    assert (translated.status, passed.status) == (200, 200)
    assert passed.json["_anoman"]["params"] == {"translated": [], "dropped": []}


@each_path
async def test_strict_parameters_choose_the_route(desk: Desk, path: str) -> None:
    """A model that has a native route too is answered by that one, though it comes second."""
    native = "mixed-o" if path == CHAT else "mixed-a"
    desk.provider.script(native, [json_answer("native", dialect="openai" if path == CHAT else "anthropic")])
    client = desk.gateway.client(KEY, x_anoman_strict_params="1")
    name, body = ("chat-mixed", chat) if path == CHAT else ("messages-mixed", messages)

    reply = await client.request("POST", path, body(name, stream=False, **ODD[path]))
    receipt = await desk.receipt(reply)

    assert reply.status == 200
    assert receipt["attempts"] == [f"fake-{'openai' if path == CHAT else 'anthropic'}/{native}:ok"]
    assert reply.json["_anoman"]["params"] == {"translated": [], "dropped": []}


@each_form
@pytest.mark.parametrize(
    ("place", "value"),
    [("n", 2), ("logprobs", True), ("response_format", {"type": "json_schema", "json_schema": {"name": "x"}})],
)
async def test_what_no_answer_may_ignore(desk: Desk, place: str, value: Any, stream: bool) -> None:
    """Several answers, log probabilities and JSON without a schema are refused where only Anthropic could answer."""
    before = len(desk.provider.requests)

    reply = await desk.ask(model="chat-abroad", stream=stream, **{place: value})
    receipt = await desk.receipt(reply)

    error = error_of(reply)
    assert (reply.status, error["code"], error["param"]) == (400, "invalid_request", place)
    assert (receipt["outcome"], receipt["attempts"], float(receipt["cost_usd"])) == ("rejected", [], 0)
    assert len(desk.provider.requests) == before


async def test_two_answers_from_the_route_that_can(desk: Desk) -> None:
    """`n: 2` is answered by the one route that can, and the other is not asked."""
    choices = [
        {"index": index, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"} for index in (0, 1)
    ]
    desk.provider.script("mixed-o", [json_answer("", choices=choices)])

    reply = await desk.ask(model="chat-mixed", stream=False, n=2)

    assert len(reply.json["choices"]) == 2
    assert (await desk.receipt(reply))["attempts"] == ["fake-openai/mixed-o:ok"]


@each_form
async def test_a_conversation_kept_by_the_provider(desk: Desk, stream: bool) -> None:
    """It is refused in the words that make the SDKs send the whole of it."""
    reply = await desk.ask(
        path=MESSAGES, model="messages-abroad", stream=stream, thread={"type": "create"}, previous_message_id="msg_1"
    )

    details = error_of(reply)["details"]
    assert reply.status == 400
    assert details == {
        "error_code": "thread_unsupported_request",
        "unsupported": ["thread", "previous_message_id"],
    }


LEAKY = "max_tokens: 9 > 8, see https://api.example.com/v1 for sk-ant-api03-abcdefghijklmnop at 10.1.2.3"
CLEANED = "max_tokens: 9 > 8, see [removed] for [removed] at [removed]"


@each_form
@each_path
async def test_a_providers_400(desk: Desk, path: str, stream: bool) -> None:
    """Its message reaches the caller in the caller's envelope, without addresses and keys; nobody is asked again."""
    error = {"type": "invalid_request_error", "message": LEAKY}
    body = {"type": "error", "error": error} if path == CHAT else {"error": {**error, "param": "max_tokens"}}
    before = len(desk.provider.requests)

    reply = await desk.ask([status(400, (), body)], path=path, model=ABROAD[path], stream=stream)
    receipt = await desk.receipt(reply)

    said = error_of(reply)
    assert (reply.status, said["code"], said["message"]) == (400, "invalid_request", CLEANED)
    assert set(reply.json) == ({"error"} if path == CHAT else {"type", "error", "request_id"})
    assert (receipt["outcome"], receipt["status"], float(receipt["cost_usd"])) == ("rejected", 400, 0)
    assert len(desk.provider.requests) == before + 1


@each_path
async def test_only_the_providers_own_headers(desk: Desk, path: str) -> None:
    """Headers of the client's dialect stay behind; Anthropic is told the version that still knows `temperature`."""
    desk.provider.script(ABROAD[path], answer(path, stream=False))
    client = desk.gateway.client(KEY, anthropic_beta="a-2026-01-01", anthropic_version="2026-01-01", openai_beta="b=1")
    body = chat if path == CHAT else messages

    await client.request("POST", path, body(ABROAD[path], stream=False))

    sent = desk.provider.requests[-1].headers
    assert sent.get("anthropic-version") == ("2023-06-01" if path == CHAT else None)
    assert (sent.get("anthropic-beta"), sent.get("openai-beta")) == (None, None)
