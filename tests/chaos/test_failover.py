"""Second attempts: when, where, how many and how late; and routes that are left alone for a while (A10, A20)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

import pytest
import pytest_asyncio

from tests.chaos.scenes import OPENAI, SIDES, Book, Side, ends_well, interruption, refusal, serving, until
from tests.support.acts import Answer, fin, pause_ms, reset, status
from tests.support.client import Reply
from tests.support.config import Config, anthropic_provider, model, openai_provider, standard
from tests.support.frames import text_of
from tests.support.gateway import Gateway
from tests.support.notation import HANG, json_answer
from tests.support.provider import FakeProvider
from tests.support.stage import Seen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("failover")]

each_side = pytest.mark.parametrize("side", SIDES, ids=lambda side: side.name)
each_form = pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "json"])

RETRY_BASE_S, COMMIT_S, CONNECT_S = 0.01, 1.5, 1.0  # a busy machine must not get to the commit between attempts


@dataclass(slots=True)
class Place:
    gateway: Gateway
    provider: FakeProvider

    async def ask(self, side: Side, model: str, **more: Any) -> tuple[Reply, list[Seen]]:
        """The answer, and the requests that it took."""
        before = len(self.provider.requests)
        reply = await self.gateway.client().request("POST", side.path, side.ask(model, **more))
        return reply, self.provider.requests[before:]


def config(provider: FakeProvider, **upstream: float) -> Config:
    """
    The standard one, with the second route of the fallback models at a host of its own, "NAME-2".

    Nor do connections outlast a test: a fault on a pooled one may be the connection's own, and is made up for first.
    """
    times = {"first_token_s": 4, "commit_after_s": COMMIT_S, "non_stream_s": 4}
    elsewhere = provider.base_url.replace("127.0.0.1", "localhost")
    return standard(
        provider.base_url,
        stream=times,
        upstream={"connect_s": CONNECT_S, "pool_idle_s": 0.01, **upstream},
        providers={
            "fake-openai-2": openai_provider(elsewhere),
            "fake-anthropic-2": anthropic_provider(elsewhere),
        },
        models={
            "fallback": model("fake-openai/first", "fake-openai-2/second"),
            "claude-fallback": model("fake-anthropic/first-claude", "fake-anthropic-2/second-claude"),
        },
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    async with FakeProvider() as provider, serving(config(provider)) as gateway:
        yield Place(gateway, provider)


@pytest_asyncio.fixture(loop_scope="module")
async def book(place: Place) -> Book:
    return Book(place.gateway)


def good(side: Side, *, is_stream: bool) -> Answer:
    return side.whole("second") if is_stream else [json_answer("second", dialect=side.dialect)]


def whole(side: Side, reply: Reply, *, is_stream: bool) -> bool:
    if is_stream:
        return ends_well(side, frames_of(reply))
    return reply.status == 200 and "_anoman" in reply.json


def frames_of(reply: Reply) -> list[bytes]:
    return [frame for frame in reply.body.split(b"\n\n") if frame]


def error(code: int, **headers: str) -> Answer:
    pairs = {name.replace("_", "-"): value for name, value in headers.items()}
    return [status(code, pairs, {"error": {"message": "no"}})]


def models(seen: list[Seen]) -> list[str]:
    return [each.json["model"] for each in seen]


FAULTS: dict[str, Answer] = {
    "reset": [reset()],
    "closed": [fin()],
    "500": error(500),
    "429": error(429),
    "401": error(401),
    "302": error(302, Location="/elsewhere"),
    "no answer of ours": [status(200, {"Content-Type": "application/json"}, {"error": {"message": "no"}})],
}


@each_side
@each_form
@pytest.mark.parametrize("fault", FAULTS)
async def test_fallback(place: Place, book: Book, fault: str, is_stream: bool, side: Side) -> None:
    """Whatever the first route does before its first good frame, the second is asked once and its answer is the one."""
    place.provider.script(side.first, FAULTS[fault])
    place.provider.script(side.second, good(side, is_stream=is_stream))

    reply, seen = await place.ask(side, side.fallback, stream=is_stream)
    (row,) = await book.settled(1)

    name = f"fake-{side.dialect}"
    assert whole(side, reply, is_stream=is_stream)
    assert models(seen) == [side.first, side.second]
    assert (row["outcome"], row["provider_model"]) == ("completed", side.second)
    assert row["attempts"] == [f"{name}/{side.first}:failed", f"{name}-2/{side.second}:ok"]
    assert row["failure_class"] is None


@each_side
async def test_mid_13_no_second_beginning(place: Place, book: Book, side: Side) -> None:
    """MID-13: after the first good frame there is no fallback: nothing is told twice."""
    place.provider.script(side.first, [side.start, side.piece("Hello "), pause_ms(30), reset()])
    place.provider.script(side.second, side.whole("Hello again"))

    reply, seen = await place.ask(side, side.fallback)
    (row,) = await book.settled(1)

    assert models(seen) == [side.first]
    assert text_of(frames_of(reply)) == "Hello "
    assert interruption(side, frames_of(reply))["failure_class"] == "upstream_error"
    assert row["outcome"] == "interrupted"


@each_side
async def test_no_fallback_after_an_early_commit(place: Place, book: Book, side: Side) -> None:
    """Once the 200 is out, because the first token is late, neither another attempt nor a fallback is made."""
    place.provider.script(side.first, [pause_ms(COMMIT_S * 1500), *error(500)])
    place.provider.script(side.second, side.whole("second"))

    reply, seen = await place.ask(side, side.fallback)
    (row,) = await book.settled(1)

    assert models(seen) == [side.first]
    assert reply.status == 200
    assert interruption(side, frames_of(reply)) == {"failure_class": "upstream_error", "completion_tokens": 0}
    assert (row["outcome"], float(row["cost_usd"])) == ("interrupted", 0)


@each_side
@each_form
async def test_no_storm(place: Place, book: Book, is_stream: bool, side: Side) -> None:
    """Two dead routes are asked twice each and no more."""
    for name in (side.first, side.second):
        place.provider.script(name, error(503))

    reply, seen = await place.ask(side, side.fallback, stream=is_stream)
    (row,) = await book.settled(1)

    assert (reply.status, refusal(side, reply)) == (503, "provider_unavailable")
    assert models(seen)[:2] == [side.first, side.second]
    assert sorted(models(seen)) == sorted([side.first, side.second] * 2)
    assert len(row["attempts"]) == 4


@each_side
@pytest.mark.parametrize("code", [400, 413, 422])
async def test_the_callers_fault_is_told_at_once(place: Place, book: Book, code: int, side: Side) -> None:
    """No other route could do better with a request that is wrong."""
    place.provider.script(side.first, error(code))

    reply, seen = await place.ask(side, side.fallback)
    await book.settled(1)

    assert reply.status in (400, 413)
    assert models(seen) == [side.first]


WAITS = {
    "seconds": ({"Retry-After": "0.3"}, 0.3),
    "milliseconds": ({"Retry-After-Ms": "250"}, 0.25),
    "both": ({"Retry-After": "30", "Retry-After-Ms": "200"}, 0.2),
    "none": ({}, RETRY_BASE_S),
}


@each_side
@each_form
@pytest.mark.parametrize("wait", WAITS)
async def test_a10_retry_after(place: Place, book: Book, wait: str, is_stream: bool, side: Side) -> None:
    """A10: the second attempt comes when the provider said, not before and not much later."""
    headers, wait_s = WAITS[wait]
    place.provider.script(side.model, [status(429, headers, {})], good(side, is_stream=is_stream))

    reply, (one, two) = await place.ask(side, side.model, stream=is_stream)
    (row,) = await book.settled(1)

    assert whole(side, reply, is_stream=is_stream)
    assert wait_s <= two.received_s - one.received_s < wait_s + 0.25
    assert [attempt.rpartition(":")[2] for attempt in row["attempts"]] == ["failed", "ok"]


@each_side
@pytest.mark.parametrize("kind", ["seconds", "date"])
async def test_mid_21_a_wait_that_is_too_long(place: Place, book: Book, kind: str, side: Side) -> None:
    """MID-21: a wait longer than we have patience for is handed to the caller, who is not told to be over a limit."""
    after = "30" if kind == "seconds" else formatdate(time.time() + 30, usegmt=True)
    place.provider.script(side.model, error(429, Retry_After=after))

    reply, seen = await place.ask(side, side.model)
    await book.settled(1)

    assert (reply.status, refusal(side, reply), len(seen)) == (503, "provider_unavailable", 1)
    assert 28 <= int(reply.headers.get("retry-after") or 0) <= 30


@each_side
async def test_a_wait_that_is_too_long_leaves_the_other_route(place: Place, book: Book, side: Side) -> None:
    """With a second route nobody waits."""
    place.provider.script(side.first, error(429, Retry_After="30"))
    place.provider.script(side.second, side.whole("second"))

    reply, seen = await place.ask(side, side.fallback)
    await book.settled(1)

    assert ends_well(side, frames_of(reply))
    assert seen[1].received_s - seen[0].received_s < 0.2


@each_side
@each_form
async def test_mid_16_a_pooled_connection_that_was_dead(place: Place, book: Book, is_stream: bool, side: Side) -> None:
    """MID-16: an idle connection that the provider closes just when it is used again costs an attempt, no error."""
    place.provider.script(side.model, good(side, is_stream=is_stream), [fin()], good(side, is_stream=is_stream))

    first, _ = await place.ask(side, side.model, stream=is_stream)
    second, seen = await place.ask(side, side.model, stream=is_stream)
    rows = await book.settled(2)

    assert whole(side, first, is_stream=is_stream)
    assert whole(side, second, is_stream=is_stream)
    assert len(seen) == 2
    assert rows[0]["cost_usd"] == rows[1]["cost_usd"] > "0"  # an attempt that gave nothing costs nothing


@each_side
async def test_leaving_during_the_second_attempt(place: Place, book: Book, side: Side) -> None:
    """A client that leaves while the fallback is under way is cancelled there."""
    place.provider.script(side.first, error(500))
    place.provider.script(side.second, [HANG])
    before = len(place.provider.requests)
    stream = await place.gateway.client().open("POST", side.path, side.ask(side.fallback))
    await until(lambda: len(place.provider.requests) == before + 2)

    stream.close()
    await place.provider.requests[-1].gone(0.5)
    (row,) = await book.settled(1)
    await stream.dispose()

    assert (row["outcome"], row["provider_model"]) == ("cancelled", side.second)
    assert [attempt.rpartition(":")[2] for attempt in row["attempts"]] == ["failed", "cancelled"]
    assert len(place.provider.requests) == before + 2


# -- routes that are left alone --

OPEN_S, OPEN_MAX_S, FAILURES = 0.5, 1.0, 8


async def outage(place: Place, book: Book, requests: int = 30) -> list[Reply]:
    """One request after the other at a provider that is down."""
    place.provider.script("m", error(500))
    replies = [(await place.ask(OPENAI, "m", stream=False))[0] for _ in range(requests)]
    await book.settled(requests)
    return replies


def events(book: Book) -> list[str]:
    return [line["event"] for line in book.lines if line["event"].startswith("route.")]


@pytest_asyncio.fixture(loop_scope="module")
async def fragile() -> AsyncIterator[Place]:
    """A gateway with a breaker that opens, rests and comes back thirty times as fast as the real one."""
    async with FakeProvider() as provider:
        rules = {"breaker_failures": FAILURES, "breaker_open_s": OPEN_S, "breaker_open_max_s": OPEN_MAX_S}
        async with serving(config(provider, **rules)) as gateway:
            yield Place(gateway, provider)


async def test_a20_outage_and_recovery(fragile: Place) -> None:
    """A20: a dead route is left alone after as many failures as set, and is back one rest after it has recovered."""
    book, provider = Book(fragile.gateway), fragile.provider

    replies = await outage(fragile, book)
    asked = len(provider.requests)
    provider.script("m", [json_answer("ok")])
    back_s = time.monotonic()
    while (await fragile.ask(OPENAI, "m", stream=False))[0].status != 200:  # noqa: ASYNC110 - as a caller would
        await asyncio.sleep(0.05)
    took_s = time.monotonic() - back_s

    assert asked == FAILURES
    assert {reply.status for reply in replies} == {503}
    assert took_s < OPEN_MAX_S + 0.5
    await until(lambda: events(book) == ["route.opened", "route.closed"])


async def test_a20_probes(fragile: Place) -> None:
    """A route that still fails sees one request per rest, however many ask; a client that leaves frees the probe."""
    book, provider, client = Book(fragile.gateway), fragile.provider, fragile.gateway.client()
    await outage(fragile, book)
    before = len(provider.requests)
    provider.script("m", [HANG], [pause_ms(100), json_answer("ok")])
    await asyncio.sleep(OPEN_S)

    payload = OPENAI.ask("m", stream=False)
    probe = await client.open("POST", OPENAI.path, payload)
    await until(lambda: len(provider.requests) == before + 1)
    meanwhile = await asyncio.gather(*(client.request("POST", OPENAI.path, payload) for _ in range(20)))
    during = len(provider.requests) - before
    probe.close()
    await provider.requests[-1].gone(0.5)
    crowd = await asyncio.gather(*(client.request("POST", OPENAI.path, payload) for _ in range(20)))
    served = len(provider.requests) - before
    await probe.dispose()

    assert {reply.status for reply in meanwhile} == {503}
    assert during == 1
    assert sorted(reply.status for reply in crowd) == [200] + [503] * 19
    assert served == 2
    await until(lambda: events(book) == ["route.opened", "route.closed"])


async def test_a_fallback_serves_an_outage(fragile: Place) -> None:
    """While the first route rests the second serves everybody, and nobody waits for the first."""
    book, provider = Book(fragile.gateway), fragile.provider
    provider.script("first", [reset()])
    provider.script("second", OPENAI.whole("second"))

    replies = [(await fragile.ask(OPENAI, "fallback"))[0] for _ in range(30)]
    await book.settled(30)

    assert all(ends_well(OPENAI, frames_of(reply)) for reply in replies)
    assert models(provider.requests).count("first") == FAILURES
    assert models(provider.requests).count("second") == 30


@pytest.mark.parametrize("code", [400, 429])
async def test_what_is_no_sign_of_ill_health(fragile: Place, code: int) -> None:
    """The caller's mistakes and our rate limit there open no breaker."""
    book = Book(fragile.gateway)
    fragile.provider.script("m", error(code, Retry_After="30"))

    for _ in range(3 * FAILURES):
        await fragile.ask(OPENAI, "m", stream=False)
    await book.settled(3 * FAILURES)

    assert len(fragile.provider.requests) == 3 * FAILURES
    assert events(book) == []


async def test_a10_retry_budget() -> None:
    """A10: an outage costs a provider a tenth of the requests on top, and three."""
    async with FakeProvider() as provider:
        provider.script("m", error(500))
        async with serving(config(provider, retry_budget_percent=10)) as gateway:
            client, book = gateway.client(), Book(gateway)
            for _ in range(4):
                payload = OPENAI.ask("m", stream=False)
                await asyncio.gather(*(client.request("POST", OPENAI.path, payload) for _ in range(25)))
            await book.settled(100)

    assert 100 < len(provider.requests) <= 113
