"""Every client gets from a provider of the other dialect what it would get from one of its own."""

from __future__ import annotations

import json

import pytest

from tests.conformance.abroad import ask_abroad, asked_at, provider_of, script_abroad
from tests.conformance.conftest import Stand
from tests.conformance.outcome import TOOL, Client
from tests.conformance.scripts import (
    ARGUMENTS,
    CLIENTS,
    PIECES,
    TEXT,
    WHOLE,
    each_client,
    each_whole_client,
    ending,
    opening,
    piece,
    told,
    tool_answer,
    tool_call,
)
from tests.conformance.test_client_answers import EXTENSION
from tests.support.acts import pause_ms, repeat, status
from tests.support.notation import RST, json_answer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("conformance-translated-clients")]


@each_client
async def test_stream(stand: Stand, client: Client) -> None:
    """Text, end and usage arrive whole, once, with the gateway's block; the provider was asked in its own dialect."""
    provider = provider_of(client)
    script_abroad(stand, client, told(provider))
    before = len(stand.provider.requests)

    outcome = await ask_abroad(stand, client)

    assert (outcome.errors, outcome.text, outcome.finish) == ([], TEXT, client.finish[0])
    assert outcome.usage == (7, 4)
    if client.counts_usages:
        assert outcome.usages == 1
    if client.shows_extension:
        assert set(outcome.extension or ()) >= EXTENSION | {"params"}
    assert asked_at(stand.provider.requests[before]) == provider.dialect


@each_whole_client
async def test_json(stand: Stand, client: Client) -> None:
    """The same without streaming."""
    script_abroad(stand, client, [json_answer(TEXT, (7, 4), dialect=provider_of(client).dialect)])

    outcome = await ask_abroad(stand, client, stream=False)

    assert (outcome.errors, outcome.text, outcome.finish) == ([], TEXT, client.finish[0])
    assert outcome.usage == (7, 4)
    if client.shows_extension:
        assert set(outcome.extension or ()) >= EXTENSION | {"params"}


@each_client
async def test_without_extension(stand: Stand, client: Client) -> None:
    """With the strip header nothing of ours is in the body, and all else is as before."""
    script_abroad(stand, client, told(provider_of(client)))

    outcome = await ask_abroad(stand, client, headers={"x-anoman-strip-extension": "1"})

    assert (outcome.errors, outcome.text, outcome.usage) == ([], TEXT, (7, 4))
    assert outcome.extension is None


@pytest.mark.parametrize(
    ("client", "stream"),
    [(client, True) for client in CLIENTS] + [(client, False) for client in WHOLE],
    ids=[f"{client.name}-stream" for client in CLIENTS] + [f"{client.name}-json" for client in WHOLE],
)
async def test_tool_call(stand: Stand, client: Client, stream: bool) -> None:
    """The provider is given the tool in its own form, and its call comes back in the client's."""
    provider = provider_of(client)
    script_abroad(stand, client, tool_call(provider) if stream else [tool_answer(provider)])
    before = len(stand.provider.requests)

    outcome = await ask_abroad(stand, client, wants="tool", stream=stream)

    assert (outcome.errors, outcome.finish) == ([], client.finish[1])
    name, arguments = outcome.tool or ("", "{}")
    assert (name, json.loads(arguments)) == ("get_weather", ARGUMENTS)
    (tool,) = stand.provider.requests[before].json["tools"]
    schema = tool["input_schema"] if provider.dialect == "anthropic" else tool["function"]["parameters"]
    assert {name: schema[name] for name in TOOL} == TOOL


@each_client
async def test_interruption(stand: Stand, client: Client) -> None:
    """A stream that breaks raises what the client's users know, after the text that was there; nobody asks again."""
    provider = provider_of(client)
    broken = [*opening(provider), piece(provider, PIECES[0]), piece(provider, PIECES[1]), RST]
    script_abroad(stand, client, broken)
    before = len(stand.provider.requests)

    outcome = await ask_abroad(stand, client, retries=None)

    assert len(stand.provider.requests) - before == 1
    assert client.errors["interrupted"] in outcome.errors
    assert outcome.text == PIECES[0] + PIECES[1]
    if client.shows_code:
        assert outcome.code == "stream_interrupted"


@each_client
async def test_silence(stand: Stand, client: Client) -> None:
    """An early commit, and pings before the first token and between two tokens, are seen by nobody."""
    provider = provider_of(client)
    first, *rest = [piece(provider, text) for text in PIECES]
    answer = [pause_ms(650), *opening(provider), first, pause_ms(350), *rest, *ending(provider)]
    script_abroad(stand, client, answer)

    outcome = await ask_abroad(stand, client)

    assert (outcome.errors, outcome.text, outcome.usage) == ([], TEXT, (7, 4))


@each_client
async def test_cancel(stand: Stand, client: Client) -> None:
    """Leaving the way the client offers closes the provider's connection, and the receipt says so."""
    provider = provider_of(client)
    script_abroad(stand, client, [*opening(provider), repeat(piece(provider, "a "), pause_ms(5))])
    before = len(stand.provider.requests)

    outcome = await ask_abroad(stand, client, leave_after=3)

    assert (outcome.errors, outcome.left) == ([], True)
    assert outcome.text.startswith("a a a ")
    await stand.provider.requests[before].gone(within_s=2)
    while (line := (await stand.gateway.settled())[0])["routing_mode"] != "streaming_cancelled":
        pass
    assert line["outcome"] == "cancelled"
    assert line["completion_tokens"] > 0


@each_client
async def test_refused_by_the_provider(stand: Stand, client: Client) -> None:
    """The provider's 400 is the client's bad request, in the client's envelope."""
    script_abroad(stand, client, [status(400, (), {"error": {"type": "invalid_request_error", "message": "no such"}})])

    outcome = await ask_abroad(stand, client, retries=None)

    assert outcome.status == 400
    assert client.errors["invalid"] in outcome.errors
    if client.shows_code:
        assert outcome.code == "invalid_request"
