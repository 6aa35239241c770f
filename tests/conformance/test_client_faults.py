"""Every client is given the same faults, and its users must catch what they know."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.conformance.conftest import Stand
from tests.conformance.counting import counting
from tests.conformance.node_clients import NODE_CLIENTS
from tests.conformance.outcome import Client
from tests.conformance.python_clients import PYTHON_CLIENTS
from tests.conformance.scripts import (
    PIECES,
    TEXT,
    each_client,
    each_core_client,
    opening,
    piece,
    script,
    told,
)
from tests.support.acts import pause_ms, repeat, status
from tests.support.config import CANARY, KEY_FEW, KEY_ONE
from tests.support.frames import chat
from tests.support.gateway import CHAT
from tests.support.notation import HANG, RST, R, T

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("conformance-client-faults")]


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
