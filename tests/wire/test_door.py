"""Where requests come from, and what becomes of addresses that send keys which are none (LIM-13)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway.core.credentials import make_secret
from gateway.policy.strangers import REFUSED_FROM, UNHEARD_FROM
from tests.support.client import Reply
from tests.support.config import CANARY, KEY, standard
from tests.support.frames import chat
from tests.support.gateway import CHAT, MESSAGES, Gateway
from tests.support.notation import json_answer
from tests.support.provider import FakeProvider

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRONG = f"anm-sk-{CANARY}-wrong"
MODELS = "/v1/models"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway() -> AsyncIterator[Gateway]:
    """One that takes loopback for its proxy."""
    async with FakeProvider() as provider:
        provider.script("m", [json_answer("a")])
        config = standard(provider.base_url, server={"trusted_proxies": "127.0.0.0/8, 10.0.0.0/8"})
        async with Gateway(config) as gateway:
            yield gateway


async def ask(gateway: Gateway, *hops: str, key: str = WRONG, path: str = MODELS) -> Reply:
    headers = [("x-forwarded-for", hop) for hop in hops]
    return await gateway.client(key).request("GET", path, headers=headers)


async def refused(gateway: Gateway, reply: Reply) -> dict[str, object]:
    request_id = reply.headers.get("x-request-id")
    return await gateway.line(lambda line: line["event"] == "request.refused" and line.get("request_id") == request_id)


async def test_lim_13_the_last_hop_that_is_no_proxy(gateway: Gateway) -> None:
    """LIM-13: the line of a refused request has the address that the proxies tell of, not what the client wrote."""
    line = await refused(gateway, await ask(gateway, "6.6.6.6, 1.2.3.1", "10.1.1.1"))

    assert (line["reason"], line["address"]) == ("invalid_api_key", "1.2.3.1")


@pytest.mark.parametrize(
    ("hops", "address"),
    [
        (["junk" * 2000], "127.0.0.1"),
        (["1.2.3.2, unknown"], "127.0.0.1"),
        (["1.2.3.2\xe9"], "127.0.0.1"),
        (["[2001:db8::2]:443"], "2001:db8::2"),
        ([], "127.0.0.1"),
    ],
)
async def test_lim_13_whatever_it_says(gateway: Gateway, hops: list[str], address: str) -> None:
    """LIM-13: junk of any kind is an ordinary refusal whose address is the last one known."""
    reply = await ask(gateway, *hops, path="/v1/nowhere")

    assert reply.status == 404
    assert (await refused(gateway, reply))["address"] == address


async def test_lim_13_an_untrusted_peer() -> None:
    """LIM-13: without trusted proxies the header is ignored."""
    async with Gateway(standard("http://127.0.0.1:1")) as gateway:
        line = await refused(gateway, await ask(gateway, "1.2.3.4"))

        assert line["address"] == "127.0.0.1"


async def test_lim_13_too_many_wrong_keys(gateway: Gateway) -> None:
    """LIM-13: after sixty wrong keys in a minute an address gets 429 and is told not to try again; no other address
    does, nor what comes from the same one with a good key, and no key at all is no guess."""
    home, other = "1.2.4.1", "1.2.4.2"

    replies = [await ask(gateway, home) for _ in range(REFUSED_FROM + 1)]
    missing = await gateway.client(None).request("GET", MODELS, headers={"x-forwarded-for": home})
    good = await ask(gateway, home, key=KEY)
    elsewhere = await ask(gateway, other)

    assert Counter(reply.status for reply in replies) == {401: REFUSED_FROM, 429: 1}
    last = replies[-1]
    assert last.json["error"]["code"] == "too_many_failures"
    assert 0 < int(last.headers.get("retry-after") or 0) <= 60
    assert last.headers.get("x-should-retry") == "false"
    assert (missing.status, good.status, elsewhere.status) == (401, 200, 401)


async def test_lim_13_spoofing_does_not_help(gateway: Gateway) -> None:
    """LIM-13: who writes other addresses into the header is counted by the one that the proxy adds."""
    replies = [await ask(gateway, f"9.9.{number}.1, 1.2.5.1") for number in range(REFUSED_FROM + 1)]
    victim = await ask(gateway, "9.9.1.1")

    assert (replies[-1].status, victim.status) == (429, 401)


async def test_lim_13_a_flood(gateway: Gateway) -> None:
    """LIM-13: beyond ten wrong keys a second nothing unknown is looked up for the address; good keys still pass."""
    home = "1.2.6.1"
    unseen = make_secret("anm-sk", bytes(32))  # well-formed, so that the database would be asked
    for _ in range(UNHEARD_FROM):
        await ask(gateway, home, path=MODELS)

    unheard = await ask(gateway, home, key=unseen)
    good = [await ask(gateway, home, key=KEY) for _ in range(3)]

    assert unheard.json["error"]["code"] == "too_many_failures"
    assert [reply.status for reply in good] == [200] * 3


async def test_lim_13_one_customer_has_many_addresses(gateway: Gateway) -> None:
    """LIM-13: addresses of one IPv6 network of a customer count together."""
    replies = [await ask(gateway, f"2001:db8:7:7::{number:x}") for number in range(REFUSED_FROM + 1)]

    assert replies[-1].status == 429


async def test_lim_13_proxies_that_nobody_named() -> None:
    """LIM-13: a private peer may be a router with all clients behind it: it is never refused for one of them."""
    async with Gateway(standard("http://127.0.0.1:1")) as gateway:
        replies = [await ask(gateway) for _ in range(REFUSED_FROM + 5)]

    assert {reply.status for reply in replies} == {401}


@pytest.mark.parametrize("path", [CHAT, MESSAGES, "/anoman/v1/usage"])
async def test_lim_13_every_door(gateway: Gateway, path: str) -> None:
    """LIM-13: calls and the admin API count like any other request with a key."""
    home = f"1.2.7.{len(path)}"
    method = "GET" if path.startswith("/anoman") else "POST"
    body = None if method == "GET" else chat("m")
    headers = {"x-forwarded-for": home}

    replies = [await gateway.client(WRONG).request(method, path, body, headers) for _ in range(REFUSED_FROM + 1)]

    assert Counter(reply.status for reply in replies) == {401: REFUSED_FROM, 429: 1}


async def test_addresses_are_in_no_record(gateway: Gateway) -> None:
    """The address of a call that was served is in no line of the log."""
    headers = {"x-forwarded-for": "1.2.8.1"}
    reply = await gateway.client(KEY).request("POST", CHAT, chat("m", stream=False), headers)
    await gateway.line(lambda line: line.get("request_id") == reply.headers.get("x-request-id"))

    assert reply.status == 200
    assert "1.2.8.1" not in repr(gateway.log)
