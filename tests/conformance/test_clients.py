"""Every client is given the same answers and the same faults, and must come out of them alike."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from tests.conformance.conftest import MODELS, Stand
from tests.conformance.counting import counting
from tests.conformance.node_clients import NODE_CLIENTS
from tests.conformance.outcome import Client
from tests.conformance.python_clients import PYTHON_CLIENTS
from tests.support.acts import pause_ms, repeat, status
from tests.support.config import CANARY, KEY_FEW, KEY_ONE
from tests.support.frames import chat
from tests.support.gateway import CHAT
from tests.support.notation import (
    CBD,
    CBJ,
    CBS,
    CBX,
    DONE,
    FIN,
    HANG,
    MD,
    MS,
    MX,
    RST,
    TC,
    R,
    T,
    U,
    json_answer,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIENTS = [*PYTHON_CLIENTS, *NODE_CLIENTS]
WHOLE = [client for client in CLIENTS if "helper" not in client.name]  # the helpers only stream
PIECES = ["Halo ", "北🦀é", " dan\u2028\u0085 ", "se", "lesai…"]  # line separators of Unicode are no ends of SSE lines
TEXT = "".join(PIECES)
ARGUMENTS = {"city": "Jakarta", "units": "celsius"}
EXTENSION = {"guardrails", "routing", "cache", "cost_usd", "weighted_tokens", "burst", "billing", "usage_basis"}

each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
each_core_client = pytest.mark.parametrize(
    "client", [client for client in WHOLE if "async" not in client.name], ids=lambda client: client.name
)
each_whole_client = pytest.mark.parametrize("client", WHOLE, ids=lambda client: client.name)


def opening(client: Client) -> list[bytes]:
    return [R()] if client.dialect == "openai" else [MS(7), CBS(0)]


def piece(client: Client, text: str) -> bytes:
    return T(text) if client.dialect == "openai" else CBD(0, text)


def ending(client: Client) -> list[bytes]:
    return [FIN(), U(7, 4), DONE] if client.dialect == "openai" else [CBX(0), MD("end_turn", 4), MX]


def told(client: Client) -> list[Any]:
    return [*opening(client), *(piece(client, text) for text in PIECES), *ending(client)]


def tool_call(client: Client) -> list[bytes]:
    halves = ['{"city": "Jakarta", ', '"units": "celsius"}']
    if client.dialect == "openai":
        pieces = [TC(0, name="get_weather"), *(TC(0, half) for half in halves)]
        return [R(), *pieces, FIN("tool_calls"), U(7, 4), DONE]
    block = [CBS(0, "tool_use", name="get_weather"), *(CBJ(0, half) for half in halves), CBX(0)]
    return [MS(7), *block, MD("tool_use", 4), MX]


def tool_answer(client: Client) -> Any:
    if client.dialect == "anthropic":
        block = {"type": "tool_use", "id": "toolu_0", "name": "get_weather", "input": ARGUMENTS}
        return json_answer("", (7, 4), dialect="anthropic", finish="tool_use", content=[block])
    call = {"index": 0, "id": "call_0", "type": "function"}
    call["function"] = {"name": "get_weather", "arguments": json.dumps(ARGUMENTS)}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return json_answer("", (7, 4), choices=[{"index": 0, "message": message, "finish_reason": "tool_calls"}])


def script(stand: Stand, client: Client, *answers: Any) -> None:
    stand.provider.script(MODELS[client.dialect], *answers)


@each_client
async def test_stream(stand: Stand, client: Client) -> None:
    """Text, end and usage arrive whole, once, with the gateway's block where it can be seen."""
    script(stand, client, told(client))

    outcome = await stand.ask(client)

    assert (outcome.errors, outcome.text, outcome.finish) == ([], TEXT, client.finish[0])
    assert outcome.usage == (7, 4)
    if client.counts_usages:
        assert outcome.usages == 1
    if client.shows_extension:
        assert set(outcome.extension or ()) >= EXTENSION


@each_whole_client
async def test_json(stand: Stand, client: Client) -> None:
    """The same without streaming."""
    script(stand, client, [json_answer(TEXT, (7, 4), dialect=client.dialect)])

    outcome = await stand.ask(client, stream=False)

    assert (outcome.errors, outcome.text, outcome.finish) == ([], TEXT, client.finish[0])
    assert outcome.usage == (7, 4)
    if client.shows_extension:
        assert set(outcome.extension or ()) >= EXTENSION


@each_client
async def test_without_extension(stand: Stand, client: Client) -> None:
    """With the strip header nothing of ours is in the body, and all else is as before."""
    script(stand, client, told(client))

    outcome = await stand.ask(client, headers={"x-anoman-strip-extension": "1"})

    assert (outcome.errors, outcome.text, outcome.usage) == ([], TEXT, (7, 4))
    assert outcome.extension is None


@each_client
async def test_tool_call_in_a_stream(stand: Stand, client: Client) -> None:
    """The call is put together from its pieces."""
    script(stand, client, tool_call(client))

    outcome = await stand.ask(client, wants="tool")

    assert (outcome.errors, outcome.finish) == ([], client.finish[1])
    name, arguments = outcome.tool or ("", "{}")
    assert (name, json.loads(arguments)) == ("get_weather", ARGUMENTS)


@each_whole_client
async def test_tool_call_in_json(stand: Stand, client: Client) -> None:
    """The same without streaming."""
    script(stand, client, [tool_answer(client)])

    outcome = await stand.ask(client, wants="tool", stream=False)

    assert (outcome.errors, outcome.finish) == ([], client.finish[1])
    name, arguments = outcome.tool or ("", "{}")
    assert (name, json.loads(arguments)) == ("get_weather", ARGUMENTS)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize(
    "client", [client for client in WHOLE if client.dialect == "openai"], ids=lambda client: client.name
)
async def test_json_mode(stand: Stand, client: Client, stream: bool) -> None:
    """`response_format` reaches the provider, and the JSON text comes back unharmed."""
    text = '{"kota": "Jakarta", "emoji": "🦀"}'
    script(stand, client, [R(), T(text), FIN(), U(7, 4), DONE] if stream else [json_answer(text, (7, 4))])
    before = len(stand.provider.requests)

    outcome = await stand.ask(client, wants="json", stream=stream)

    assert (outcome.errors, outcome.text) == ([], text)
    assert stand.provider.requests[before].json["response_format"] == {"type": "json_object"}


@each_client
async def test_silence(stand: Stand, client: Client) -> None:
    """Pings before the first token and between two tokens are seen by nobody."""
    first, *rest = [piece(client, text) for text in PIECES]
    script(stand, client, [pause_ms(650), *opening(client), first, pause_ms(350), *rest, *ending(client)])

    outcome = await stand.ask(client)

    assert (outcome.errors, outcome.text, outcome.usage) == ([], TEXT, (7, 4))


@each_client
async def test_interruption(stand: Stand, client: Client) -> None:
    """A stream that breaks raises, after the text that was there, and nobody asks a second time."""
    script(stand, client, [*opening(client), piece(client, PIECES[0]), piece(client, PIECES[1]), RST])
    before = len(stand.provider.requests)

    outcome = await stand.ask(client, retries=None)

    assert len(stand.provider.requests) - before == 1
    assert client.errors["interrupted"] in outcome.errors
    assert outcome.text == PIECES[0] + PIECES[1]
    if client.shows_code:
        assert outcome.code == "stream_interrupted"


@each_client
async def test_cancel(stand: Stand, client: Client) -> None:
    """Leaving the way the client offers closes the provider's connection, and the receipt says so."""
    script(stand, client, [*opening(client), repeat(piece(client, "a "), pause_ms(5))])
    before = len(stand.provider.requests)

    outcome = await stand.ask(client, leave_after=3)

    assert (outcome.errors, outcome.left) == ([], True)
    assert outcome.text.startswith("a a a ")
    await stand.provider.requests[before].gone(within_s=2)
    while (line := (await stand.gateway.settled())[0])["routing_mode"] != "streaming_cancelled":
        pass
    assert line["outcome"] == "cancelled"
    assert line["completion_tokens"] > 0


@each_client
async def test_unauthorized(stand: Stand, client: Client) -> None:
    """A wrong key is the client's authentication error, and is not tried again."""
    async with counting(stand.gateway.port) as counter:
        wrong = f"anm-sk-{CANARY}-wrong"
        outcome = await stand.ask(client, base_url=counter.base_url, key=wrong, retries=None)

    assert counter.requests == 1
    assert outcome.status == 401
    assert client.errors["unauthorized"] in outcome.errors
    if client.shows_code:
        assert outcome.code == "invalid_api_key"


@each_client
async def test_invalid(stand: Stand, client: Client) -> None:
    """A model that does not exist is the client's bad request, and is not tried again."""
    async with counting(stand.gateway.port) as counter:
        outcome = await stand.ask(client, base_url=counter.base_url, model="nobody", retries=None)

    assert counter.requests == 1
    assert outcome.status == 400
    assert client.errors["invalid"] in outcome.errors
    if client.shows_code:
        assert outcome.code == "model_not_found"


@each_client
async def test_limited(stand: Stand, client: Client) -> None:
    """A key that has used up its limit is the client's rate limit error."""
    script(stand, client, told(client))
    for _ in range(3):
        await stand.gateway.client(KEY_FEW).request("POST", CHAT, chat("nobody"))

    outcome = await stand.ask(client, key=KEY_FEW)

    assert outcome.status == 429
    assert client.errors["limited"] in outcome.errors
    if client.shows_code:
        assert outcome.code == "rate_limit_exceeded"


@each_client
async def test_unavailable(stand: Stand, client: Client) -> None:
    """A provider that fails is the client's server error; the gateway alone has tried again."""
    script(stand, client, [status(500, (), {"error": {"message": "no"}})])
    before = len(stand.provider.requests)

    outcome = await stand.ask(client)

    assert outcome.status == 503
    assert client.errors["unavailable"] in outcome.errors
    if client.shows_code:
        assert outcome.code == "provider_unavailable"
    assert len(stand.provider.requests) - before == 2


@each_core_client
async def test_second_try(stand: Stand, client: Client) -> None:
    """After a 503 the client waits as long as it is told and gets its answer."""
    failing = [status(500, (), {"error": {"message": "no"}})]
    script(stand, client, failing, failing, told(client))
    started_s = time.monotonic()

    async with counting(stand.gateway.port) as counter:
        outcome = await stand.ask(client, base_url=counter.base_url, retries=2)

    assert (outcome.errors, outcome.text) == ([], TEXT)
    assert counter.requests == 2
    assert time.monotonic() - started_s >= 1


@each_core_client
async def test_answer_that_takes_too_long(stand: Stand, client: Client) -> None:
    """The limit for JSON answers is not met a second time by clients that obey `x-should-retry`."""
    script(stand, client, [HANG])

    async with counting(stand.gateway.port) as counter:
        outcome = await stand.ask(client, base_url=counter.base_url, stream=False, retries=1)

    assert outcome.status in (504, None)  # the AI SDK wraps the last of several errors
    assert counter.requests == (1 if client.obeys_should_retry else 2)


@pytest.mark.parametrize("client", [PYTHON_CLIENTS[0], NODE_CLIENTS[0]], ids=lambda client: client.name)
async def test_busy_key(stand: Stand, client: Client) -> None:
    """A request beyond the key's cap is answered when a running one has ended, without the caller noticing."""
    script(stand, client, [R(), T("first"), HANG], told(client))
    first = await stand.gateway.client(KEY_ONE).open("POST", CHAT, chat("m"))
    assert await first.head() is not None

    async with counting(stand.gateway.port) as counter:
        second = asyncio.ensure_future(stand.ask(client, base_url=counter.base_url, key=KEY_ONE, retries=2))
        await counter.first_answer.wait()
        await first.dispose()
        outcome = await second

    assert (outcome.errors, outcome.text) == ([], TEXT)
    assert counter.requests == 2
