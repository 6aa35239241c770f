"""`count_tokens` over sockets, as agents and SDKs ask for it."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
import pytest_asyncio

from tests.support.acts import status
from tests.support.config import ANTHROPIC_SECRET, KEY, KEY_FEW, KEY_ONE
from tests.support.frames import messages as message_body
from tests.support.gateway import CHAT, MESSAGES
from tests.support.notation import CBD, CBS, CBX, HANG, MD, MS, MX
from tests.wire import claude_code
from tests.wire.desk import Desk, error_of, open_desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

COUNT = f"{MESSAGES}/count_tokens"
COUNTED = [status(200, (), {"input_tokens": 14})]
HI = [{"role": "user", "content": "Hello there"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with open_desk() as desk:
        yield desk


def body(model: str, **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": HI, **fields}


async def test_tr_30_native(desk: Desk) -> None:
    """A count goes on as it came but for the model's name and our credential; its answer comes back unbilled."""
    desk.provider.script("first-claude", COUNTED)
    tools = [{"name": "now", "input_schema": {"type": "object"}}]
    headers = {"anthropic_beta": "token-counting-2024-11-01", "anthropic_version": "2024"}
    client = desk.gateway.client(None, x_api_key=KEY, **headers)

    sent = body("claude-fallback", tools=tools, system="Be brief.", thinking={"type": "adaptive"}, odd=[1.50])
    reply = await client.request("POST", f"{COUNT}?beta=true", sent)
    receipt = await desk.receipt(reply)

    seen = desk.provider.requests[-1]
    assert (reply.status, reply.json) == (200, {"input_tokens": 14, "_anoman": {"usage_basis": "provider_final"}})
    assert (seen.target, seen.json) == ("/v1/messages/count_tokens", {**sent, "model": "first-claude"})
    assert seen.headers.get("x-api-key") == ANTHROPIC_SECRET
    assert seen.headers.get("anthropic-beta") == "token-counting-2024-11-01"
    assert reply.headers.get("x-anoman-region") == "ID"
    assert (receipt["endpoint"], receipt["outcome"], receipt["cost_usd"]) == ("count_tokens", "completed", "0.000000")
    assert (receipt["prompt_tokens"], receipt["weighted_tokens"]) == (0, 0)


async def test_tr_30_a_missing_route_harms_nothing(desk: Desk) -> None:
    """A provider that cannot count answers as before, however often it was asked to count."""
    desk.provider.script("claude", [status(404, (), {"type": "error", "error": {"message": "no such path"}})])
    client = desk.gateway.client()

    counts = [await client.request("POST", COUNT, body("claude")) for _ in range(30)]
    desk.provider.script("claude", [MS(2), CBS(0), CBD(0, "Hi"), CBX(0), MD("end_turn", 1), MX])
    answer = await client.request("POST", MESSAGES, message_body("claude"))

    assert {reply.status for reply in counts} == {200}
    assert {reply.json["_anoman"]["usage_basis"] for reply in counts} == {"estimated"}
    assert answer.status == 200
    assert b"message_stop" in answer.body


async def test_estimated_for_another_dialect(desk: Desk) -> None:
    """Claude Code's 48 kB for a model of OpenAI's dialect: nobody is asked, and the estimate is of the right size."""
    before = len(desk.provider.requests)
    sent = claude_code.body("messages-abroad", claude_code.first_turn())
    for name in ("max_tokens", "stream", "metadata"):
        del sent[name]

    reply = await desk.gateway.client().request("POST", f"{COUNT}?beta=true", sent)

    assert len(desk.provider.requests) == before
    assert reply.json["_anoman"] == {"usage_basis": "estimated"}
    assert 7_000 < reply.json["input_tokens"] < 14_000  # 48 kB at some 4 to 6 bytes


async def test_a_long_picture(desk: Desk) -> None:
    """It goes to the provider as it came, and counts by its size where there is none that counts."""
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 1024, 1024) + b"\x08\x02\0\0\0" + bytes(300_000)
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png).decode()}
    turn = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    desk.provider.script("claude", COUNTED)

    native = await desk.gateway.client().request("POST", COUNT, body("claude", messages=turn))
    ours = await desk.gateway.client().request("POST", COUNT, body("messages-abroad", messages=turn))

    assert (native.json["input_tokens"], desk.provider.requests[-1].json["messages"]) == (14, turn)
    assert ours.json["input_tokens"] == 842  # 765 tokens and a tenth


async def test_a_burst_is_outside_of_the_limits(desk: Desk) -> None:
    """Agents send 25 counts at once: a key of three requests a minute, or of one at a time, gets them all."""
    for key in (KEY_FEW, KEY_ONE):
        client = desk.gateway.client(key)
        counts = (client.request("POST", COUNT, body("messages-abroad")) for _ in range(25))
        replies = await asyncio.gather(*counts)
        assert {reply.status for reply in replies} == {200}
        assert {reply.headers.get("x-anoman-rate-limit-rpm") for reply in replies} == {None}


async def test_leaving_closes_the_provider(desk: Desk) -> None:
    """A client that goes while its prompt is counted takes the provider's connection with it."""
    desk.provider.script("claude", [HANG])
    stream = await desk.gateway.client().open("POST", COUNT, body("claude"))
    seen = await desk.provider.next_request()
    while seen.json != body("claude"):
        seen = await desk.provider.next_request()

    await stream.dispose()

    await seen.gone(within_s=1.0)
    receipt = await desk.receipt_where(lambda line: line["outcome"] == "cancelled")
    assert (receipt["endpoint"], receipt["prompt_tokens"]) == ("count_tokens", 0)


def asked(content: bytes = b'"a"', more: bytes = b"", model: bytes = b"claude") -> bytes:
    """A body by its bytes, so that it can be one that no library would write."""
    return b'{"model":"%b","messages":[{"role":"user","content":%b}]%b}' % (model, content, more)


BAD: list[tuple[str, bytes, int, str]] = [
    ("no JSON", b"{", 400, "invalid_request"),
    ("a list", b"[]", 400, "invalid_request"),
    ("no messages", b'{"model":"claude"}', 400, "invalid_request"),
    ("none", b'{"model":"claude","messages":[]}', 400, "invalid_request"),
    ("no role", b'{"model":"claude","messages":[{}]}', 400, "invalid_request"),
    ("tools no list", asked(more=b',"tools":{}'), 400, "invalid_request"),
    ("twice", asked(more=b',"model":"m"'), 400, "invalid_request"),
    ("deep", asked(b"[" * 999 + b"]" * 999), 400, "invalid_request"),
    ("unknown model", asked(model=b"nobody"), 400, "model_not_found"),
    ("long", asked(b'"%b"' % (b"a" * 5_000_000)), 413, "request_too_large"),
]


@pytest.mark.parametrize(("sent", "code", "error"), [pytest.param(*row[1:], id=row[0]) for row in BAD])
async def test_bad_bodies(desk: Desk, sent: bytes, code: int, error: str) -> None:
    """What is wrong with a count is said in Anthropic's envelope, before anybody is asked."""
    before = len(desk.provider.requests)

    reply = await desk.gateway.client().request("POST", COUNT, sent)

    assert (reply.status, error_of(reply)["code"], reply.json["type"]) == (code, error, "error")
    assert len(desk.provider.requests) == before


async def test_keys_and_methods(desk: Desk) -> None:
    """No key is a 401 that asks for no retry; another method is a 405; OpenAI's side has no such path."""
    nobody = await desk.gateway.client("anm-sk-nobody").request("POST", COUNT, body("claude"))
    looking = await desk.gateway.client().request("GET", COUNT)
    elsewhere = await desk.gateway.client().request("POST", f"{CHAT}/count_tokens", body("claude"))

    assert (nobody.status, nobody.headers.get("x-should-retry")) == (401, "false")
    assert (looking.status, looking.headers.get("allow")) == (405, "POST")
    assert elsewhere.status == 404


async def test_the_extension_can_be_left_out(desk: Desk) -> None:
    """With the strip header the answer is Anthropic's own, an estimate too."""
    client = desk.gateway.client(x_anoman_strip_extension="1")

    reply = await client.request("POST", COUNT, body("messages-abroad"))

    assert list(reply.json) == ["input_tokens"]
    assert reply.headers.get("x-anoman-cost-usd") == "0.000000"


async def test_the_sdk_counts(desk: Desk) -> None:
    """Anthropic's library reads both a provider's count and ours."""
    desk.provider.script("claude", COUNTED)
    url, models = f"http://127.0.0.1:{desk.gateway.port}/anthropic", ("claude", "messages-abroad")
    async with anthropic.AsyncAnthropic(base_url=url, api_key=KEY) as client:
        messages: Any = HI
        counts = [await client.messages.count_tokens(model=model, messages=messages) for model in models]

    assert [count.input_tokens for count in counts] == [14, 7]
    assert json.loads(counts[1].to_json())["_anoman"] == {"usage_basis": "estimated"}
