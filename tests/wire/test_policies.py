"""What policies let calls ask for, before the running gateway: refused in plain HTTP, and no provider hears of it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.core.records import CLI, KeyDraft
from gateway.settings import FileTerms
from gateway.storage.account_rules import SqlRules
from gateway.storage.accounts import SqlAccounts
from gateway.storage.database import Database
from gateway.storage.migrations import upgrade
from tests.support.acts import status
from tests.support.client import Reply
from tests.support.config import KEY, Config, anthropic_provider, model, openai_provider, standard
from tests.support.frames import blocks, chat, messages, parsed
from tests.support.gateway import CHAT, MESSAGES, PLAIN, Gateway
from tests.support.notation import DONE, FIN, R, T, U
from tests.support.panels import RUN, by_panel, run_of
from tests.support.provider import FakeProvider

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("policies")]

COUNT = f"{MESSAGES}/count_tokens"
WITHIN_S = 5.0  # issue 5, as revoked keys of issue 4
WHOLE = [R(), T("Hi"), FIN(), U(3, 1), DONE]
POLICIES: dict[str, Config] = {
    "named": {"models": ["all", "cl*"]},
    "budget": {"classes": ["budget"]},
    "at-home": {"regions": ["ID"]},
    "short": {"max_tokens": 50},
    "brief": {"max_prompt_chars": 20},
}
LONG = "a prompt of more than twenty characters"


def key_of(policy: str) -> str:
    return f"{KEY}-{policy}"


def config(base_url: str) -> Config:
    return standard(
        base_url,
        providers={
            **{name: openai_provider(base_url, region=name.upper()) for name in ("us", "id")},
            "claude-us": anthropic_provider(base_url, region="US"),
        },
        models={
            "all": model("us/in-us", "id/in-id"),
            "abroad": model("us/in-us"),
            "claude": model("claude-us/claude"),
            "tiny": model("us/in-us", **{"class": "budget"}),
        },
        policies={name: {"calls": terms} for name, terms in POLICIES.items()},
        keys={key_of(name): {"tenant": "t", "tier": "enterprise", "policy": name} for name in POLICIES},
    )


class Place:
    def __init__(self, gateway: Gateway, provider: FakeProvider) -> None:
        self.gateway, self.provider = gateway, provider

    async def ask(self, policy: str, path: str, body: Any) -> Reply:
        self.provider.requests.clear()
        return await self.gateway.client(key_of(policy)).request("POST", path, body)

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The bodies that providers got of the call that was last asked."""
        return [seen.json for seen in self.provider.requests]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    async with FakeProvider() as provider, Gateway(config(provider.base_url), flags=PLAIN) as gateway:
        for name in ("in-us", "in-id"):
            provider.script(name, WHOLE)
        yield Place(gateway, provider)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("policy", "name", "fields", "param"),
    [
        ("named", "abroad", {}, "model"),
        ("budget", "all", {}, "model"),
        ("at-home", "abroad", {}, "model"),
        ("short", "all", {"max_tokens": 51}, "max_tokens"),
        ("brief", "all", {"prompt": LONG}, "messages"),
    ],
)
async def test_denied(
    place: Place, policy: str, name: str, fields: dict[str, Any], param: str, stream: bool
) -> None:  # fmt: skip
    """In both dialects, on streams and not: a plain 403 that names the member, with no retry, and nothing is asked."""
    prompt = {"messages": [{"role": "user", "content": fields.get("prompt", "Hi")}]}
    limit = {"max_tokens": fields.get("max_tokens", 5)}
    replies = [
        await place.ask(policy, path, {**body, **prompt, **limit})
        for path, body in ((CHAT, chat(name, stream=stream)), (MESSAGES, messages(name, stream=stream)))
    ]
    line = await place.gateway.line(lambda line: line.get("request_id") == replies[-1].headers.get("x-request-id"))

    for reply in replies:
        assert (reply.status, reply.json["error"]["code"]) == (403, "policy_denied")
        assert reply.headers.get("content-type").startswith("application/json")
        assert reply.headers.get("x-should-retry") == "false"
    assert replies[0].json["error"]["param"] == param
    assert replies[1].json["error"]["type"] == "permission_error"
    assert (line["outcome"], line["attempts"], line["cost_usd"]) == ("rejected", [], "0.000000")
    assert line["guards"] == ["policy: block"]
    assert place.sent == []


async def test_counting_is_under_the_same_rules(place: Place) -> None:
    """What may not be asked may not be counted either; the length of an answer means nothing there."""
    counted = {"messages": [{"role": "user", "content": "Hi"}]}
    long = {"messages": [{"role": "user", "content": LONG}]}

    denied = [
        await place.ask(policy, COUNT, {**body, "model": name})
        for policy, name, body in (("named", "abroad", counted), ("at-home", "claude", counted), ("brief", "all", long))
    ]
    fine = await place.ask("short", COUNT, {**counted, "model": "all"})

    assert [(reply.status, reply.json["error"]["details"]["error_code"]) for reply in denied] == [
        (403, "policy_denied")
    ] * 3
    assert fine.status == 200


async def test_panels_are_judged_one_by_one(place: Place) -> None:
    """A panel whose model the policy forbids has its error; the other goes on."""
    reply = await place.ask("named", RUN, run_of("all", "tiny"))

    panels = by_panel(parsed(blocks(reply.body)))
    (error,) = [item["error"] for item in panels["b"]]
    assert (reply.status, error["code"]) == (200, "policy_denied")
    assert not any("error" in item for item in panels["a"])
    assert len(place.sent) == 1


async def test_models(place: Place) -> None:
    """The list has what the policy lets the key call, and where that is computed."""
    listed = {}
    for policy in POLICIES:
        reply = await place.gateway.client(key_of(policy)).request("GET", "/v1/models")
        listed[policy] = {entry["id"]: entry["_anoman"]["residency"] for entry in reply.json["data"]}
    one = await place.gateway.client(key_of("at-home")).request("GET", "/v1/models/abroad")

    assert set(listed["named"]) == {"all", *[name for name in listed["short"] if name.startswith("cl")]}
    assert set(listed["budget"]) == {"tiny"}
    assert listed["at-home"] == {"all": ["ID"]}
    assert (one.status, one.json["error"]["code"]) == (400, "model_not_found")


async def test_regions_fail_closed(place: Place) -> None:
    """The first route is passed over, and when the only one within the regions is down no other is asked."""
    place.provider.script("in-id", WHOLE, [status(500, {}, {})], [status(500, {}, {})], [status(500, {}, {})])

    reply = await place.ask("at-home", CHAT, chat("all", stream=True))
    asked = [body["model"] for body in place.sent]
    down = await place.ask("at-home", CHAT, chat("all"))
    place.provider.script("in-id", WHOLE)

    assert (reply.status, asked) == (200, ["in-id"])
    assert b'"provider_region":"ID"' in reply.body
    assert b'"policy":{"status":"pass"}' in reply.body
    assert (down.status, {body["model"] for body in place.sent}) == (503, {"in-id"})


async def test_the_longest_answer_is_sent_along(place: Place) -> None:
    """A call that does not say how long its answer may be is sent with what the policy allows; others as they are."""
    silent = await place.ask("short", CHAT, {**chat("all", stream=True), "max_tokens": None})
    sent = [place.sent]
    said = await place.ask("short", CHAT, {**chat("all", stream=True), "max_completion_tokens": 7})
    sent.append(place.sent)

    assert (silent.status, said.status) == (200, 200)
    assert [(body.get("max_tokens"), body.get("max_completion_tokens")) for (body,) in sent] == [(None, 50), (None, 7)]


# -- policies of the database --


@asynccontextmanager
async def elsewhere(url: str) -> AsyncIterator[tuple[SqlAccounts, SqlRules]]:
    """What another process does to accounts and policies."""
    await asyncio.to_thread(upgrade, url)
    database = Database(url)
    terms = FileTerms({})

    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    try:
        yield (
            SqlAccounts(database, lambda: terms, chance=os.urandom, now_ms=now_ms),
            SqlRules(database, lambda: terms, now_ms=now_ms),
        )
    finally:
        await database.close()


async def test_a_change_holds_everywhere_within_five_seconds(tmp_path: Path) -> None:
    """A policy that another process changes, and one that a tenant is put under, hold in every gateway in time; what
    the key's own policy would allow does not matter."""
    url = f"sqlite:///{tmp_path}/gateway.db"
    async with FakeProvider() as provider, elsewhere(url) as (accounts, rules):
        provider.script("m", WHOLE)
        await accounts.create_tenant(CLI, "acme", {"name": "acme", "tier": "enterprise", "budgets": ()})
        await rules.put_policy(CLI, "acme", "own", {"calls": {"max_tokens": 500}})
        made = await accounts.create_key(CLI, KeyDraft("acme", "k", policy="own"))
        settings = standard(provider.base_url, storage={"database_url": url})
        async with Gateway(settings) as one, Gateway(settings) as two:
            clients = [gateway.client(made.text) for gateway in (one, two)]

            async def longest() -> list[int]:
                """The longest answers that both gateways let the key ask for, of some."""
                found = []
                for client in clients:
                    replies = [await client.request("POST", CHAT, chat("m", max_tokens=n)) for n in (50, 100, 500)]
                    found.append(max((n for n, r in zip((50, 100, 500), replies, strict=True) if r.status == 200)))
                return found

            async def took_s(wanted: int) -> float:
                began_s = time.monotonic()
                async with asyncio.timeout(30):
                    while await longest() != [wanted] * 2:  # noqa: ASYNC110 - only the gateways know
                        await asyncio.sleep(0.05)
                return time.monotonic() - began_s

            first = await longest()
            await rules.put_policy(CLI, "acme", "own", {"calls": {"max_tokens": 100}})
            changed_s = await took_s(100)
            await rules.put_policy(CLI, None, "house", {"calls": {"max_tokens": 50}})
            await accounts.update_tenant(CLI, "acme", {"policy": "house"})
            tenant_s = await took_s(50)

    assert first == [500, 500]
    assert max(changed_s, tenant_s) <= WITHIN_S
