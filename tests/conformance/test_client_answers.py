"""Every client is given the same answers, and must come out of them alike."""

from __future__ import annotations

import json

import pytest

from tests.conformance.conftest import Stand
from tests.conformance.outcome import Client
from tests.conformance.scripts import (
    ARGUMENTS,
    PIECES,
    TEXT,
    WHOLE,
    each_client,
    each_whole_client,
    ending,
    opening,
    piece,
    script,
    told,
    tool_answer,
    tool_call,
)
from tests.support.acts import pause_ms
from tests.support.notation import DONE, FIN, R, T, U, json_answer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("conformance-client-answers")]

EXTENSION = {"guardrails", "routing", "cache", "cost_usd", "weighted_tokens", "burst", "billing", "usage_basis"}


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
