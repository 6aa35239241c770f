"""A provider's moderation as a guard: what it is asked, and what becomes of the call by what it says or fails to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.accounts import Key, Tier
from gateway.core.call import Call, CallOptions, UpstreamRequest
from gateway.core.catalog import Provider
from gateway.core.errors import STALE, Failure, GatewayError
from gateway.core.exchange import Exchange
from gateway.core.guarding import CallTerms, GuardName, GuardTerms, Rules, Verdict
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.guards.moderation import MAX_TEXTS
from gateway.pipeline.moderating import Moderation
from gateway.pipeline.scanning import Means, Memory, Scanner
from gateway.pipeline.stages.guard import Guard, GuardWatch
from gateway.pipeline.turns import Turns
from tests.support.guards import Now, Words
from tests.support.scripted_provider import EOF, NEVER, Play, ScriptedAsking, ScriptedUpstream, fail, status
from tests.support.virtual_time import START_S
from tests.unit.pipeline.scene import ONE, catalog, elapsed_s, route

NIK = "3171234567890123"
BLOCK, MONITOR, REDACT = GuardTerms("block"), GuardTerms("monitor"), GuardTerms("redact")
PROVIDER = Provider(
    "judge", "openai_chat", "https://judge.test/v1", "cloud_direct", "US", ONE, secret=("Authorization", "Bearer sk-1")
)
FINE = {"violence": 0.02}
FLAGGED = {"violence": 0.9}


class Upstream(ScriptedUpstream):
    """One that keeps what it was asked."""

    def __init__(self, *plays: Play) -> None:
        super().__init__(*plays)
        self.requests: list[UpstreamRequest] = []

    def ask(self, request: UpstreamRequest, on_sent: Callable[[], None]) -> ScriptedAsking:
        self.requests.append(request)
        return super().ask(request, on_sent)

    @property
    def texts(self) -> list[list[str]]:
        """The texts of each request."""
        return [json.loads(request.body)["input"] for request in self.requests]


def judged(*scores: dict[str, float], head_s: float = 0.0) -> Play:
    """An answer with *scores* for each text; from 0.5 on they are flagged."""
    results = [
        {"categories": {name: score >= 0.5 for name, score in one.items()}, "category_scores": one} for one in scores
    ]
    return status(200, json.dumps({"results": results}).encode(), EOF, head_s=head_s)


class House:
    """A stage with a guard of ours in front of the provider's."""

    def __init__(self, *plays: Play, provider: Provider | None = PROVIDER) -> None:
        self.upstream = Upstream(*plays)
        self.told: list[tuple[str, str, str]] = []
        engine = Words("pii", nik=(r"\b\d{16}\b", 1.0))
        scanner = Scanner({"pii": engine}, Memory(b"salt"), Means(Turns(Now()), lambda: 0.0))
        watch = GuardWatch(lambda name, seconds: None, lambda *said: self.told.append(said))
        stage = Guard(scanner, watch, lambda: 0.0)
        self.stage = stage.advised(Moderation(provider, "omni", self.upstream) if provider is not None else None)
        self.key = Key("key_1", "acme", Tier("pro"))

    async def pass_through(self, call: Call, **terms: GuardTerms) -> Exchange:
        guards: dict[GuardName, GuardTerms] = terms  # type: ignore[assignment]
        key = replace(self.key, rules=Rules(guards, calls=self.key.rules.calls))
        self.last = Exchange("req_1", "trace_1", "e", call, key, START_S)
        await self.stage.admit(self.last)
        return self.last

    async def refusal(self, call: Call, **terms: GuardTerms) -> GatewayError:
        with pytest.raises(GatewayError) as caught:
            await self.pass_through(call, **terms)
        return caught.value


def chat(*contents: str) -> Call:
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": one} for one in contents]}
    return CLIENT_DIALECTS["openai_chat"].read_call(json.dumps(body).encode(), CallOptions(), ())


async def test_what_it_is_asked() -> None:
    """All texts of the call, of one model, with the provider's own credential."""
    house = House(judged(FINE, FINE))

    passed = await house.pass_through(chat("one", "two"), moderation=BLOCK)

    [request] = house.upstream.requests
    assert (request.url, dict(request.headers)["Authorization"]) == ("https://judge.test/v1/moderations", "Bearer sk-1")
    assert json.loads(request.body) == {"model": "omni", "input": ["one", "two"]}
    assert passed.verdicts == {"moderation": Verdict("pass", 0.02)}
    assert house.upstream.unclosed == []


async def test_it_gets_what_would_leave() -> None:
    """Personal data is replaced before, so it does not go to yet another provider."""
    house = House(judged(FINE))

    passed = await house.pass_through(chat(f"I am {NIK}"), pii=REDACT, moderation=BLOCK)

    assert house.upstream.texts == [["I am [NIK_1]"]]
    assert list(passed.verdicts) == ["pii", "moderation"]


async def test_a_call_that_is_refused_already() -> None:
    """It is not asked about: nothing of it leaves."""
    house = House()

    error = await house.refusal(chat(NIK), pii=BLOCK, moderation=BLOCK)

    assert (error.kind.code, house.upstream.requests) == ("pii_blocked", [])


async def test_what_is_flagged_is_refused() -> None:
    """As what our own guard finds is, with the kind and the place."""
    house = House(judged(FINE, FLAGGED))

    error = await house.refusal(chat("one", "two"), moderation=BLOCK)

    assert (error.kind.status, error.kind.code, error.param) == (403, "content_violation", "messages[1].content")
    assert "(violence)" in error.message
    assert house.last.verdicts["moderation"] == Verdict("block", 0.9, {"violence": 1}, "messages[1].content")


async def test_monitor_only_tells() -> None:
    """The call goes on."""
    passed = await House(judged(FLAGGED)).pass_through(chat("one"), moderation=MONITOR)

    assert passed.verdicts["moderation"].status == "flag"


async def test_threshold_and_kinds_are_the_policys() -> None:
    """They are of our kinds, and of the provider's scores."""
    scores = {"sexual/minors": 0.3, "violence": 0.9}
    minors = frozenset({"minors"})

    low = await House(judged(scores)).pass_through(chat("x"), moderation=GuardTerms("monitor", 0.2, minors))
    high = await House(judged(scores)).pass_through(chat("x"), moderation=GuardTerms("monitor", 0.4, minors))

    assert [low.verdicts["moderation"].findings, high.verdicts["moderation"].findings] == [{"minors": 1}, {}]


async def test_a_chat_pays_for_its_new_turn() -> None:
    """What was judged is remembered, and not what failed."""
    house = House(judged(FINE), judged(FLAGGED))

    await house.pass_through(chat("one"), moderation=MONITOR)
    await house.pass_through(chat("one", "two"), moderation=MONITOR)
    passed = await house.pass_through(chat("one", "two"), moderation=MONITOR)

    assert house.upstream.texts == [["one"], ["two"]]
    assert passed.verdicts["moderation"].findings == {"violence": 1}


async def test_many_texts_are_several_requests() -> None:
    """One after the other, and all of them count."""
    texts = [f"text {number}" for number in range(MAX_TEXTS + 1)]
    house = House(judged(*[FINE] * MAX_TEXTS), judged(FLAGGED))

    error = await house.refusal(chat(*texts), moderation=BLOCK)

    assert [len(one) for one in house.upstream.texts] == [MAX_TEXTS, 1]
    assert error.param == f"messages[{MAX_TEXTS}].content"


FAILURES = {
    "status_429": status(429, b"{}", EOF),
    "malformed": status(200, b'{"results":[]}', EOF),
    "connect": fail(Failure("upstream_error", "connect")),
    "late": judged(FINE, head_s=NEVER),
    "reset": status(200, b'{"res', Failure("upstream_error", "reset")),
}


@pytest.mark.parametrize("reason", FAILURES)
async def test_without_a_judgement_nothing_passes(reason: str) -> None:
    """Where it could have refused, it does: 503, and the connection is not kept."""
    house = House(FAILURES[reason])

    error = await house.refusal(chat("one"), moderation=BLOCK)

    assert (error.kind.status, error.kind.code) == (503, "guards_unavailable")
    assert house.told == [("req_1", "moderation", reason)]
    assert house.upstream.unclosed == []


@pytest.mark.parametrize("reason", FAILURES)
async def test_without_a_judgement_monitor_goes_on(reason: str) -> None:
    """And says that it has none."""
    house = House(FAILURES[reason], judged(FINE))

    passed = await house.pass_through(chat("one"), moderation=MONITOR)
    again = await house.pass_through(chat("one"), moderation=MONITOR)

    assert [passed.verdicts["moderation"].status, again.verdicts["moderation"].status] == ["error", "pass"]


async def test_its_deadline_is_the_policys() -> None:
    """All requests of a call have it together."""
    house = House(judged(*[FINE] * MAX_TEXTS, head_s=0.2), judged(FINE, head_s=0.2))
    before_s = elapsed_s()

    await house.refusal(chat(*["x"] * MAX_TEXTS, "y"), moderation=GuardTerms("block", deadline_s=0.3))

    assert elapsed_s() - before_s == pytest.approx(0.3)
    assert house.told[0][2] == "late"


async def test_a_connection_that_had_died_at_rest() -> None:
    """That says nothing of the provider: it is asked once more, over a new one."""
    house = House(fail(Failure("upstream_error", STALE, counts=False)), judged(FINE))

    passed = await house.pass_through(chat("one"), moderation=BLOCK)

    assert (passed.verdicts["moderation"].status, house.upstream.fresh) == ("pass", [False, True])


async def test_a_client_that_leaves() -> None:
    """The request is dropped at once."""
    house = House(judged(FINE, head_s=NEVER))
    waiting = asyncio.create_task(house.pass_through(chat("one"), moderation=BLOCK))
    await asyncio.sleep(0.1)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert house.upstream.unclosed == []


async def test_nobody_to_ask() -> None:
    """A policy of the database may still want what the file does not have any more."""
    house = House(provider=None)

    error = await house.refusal(chat("one"), moderation=BLOCK)

    assert (error.kind.code, house.told[0][2]) == ("guards_unavailable", "absent")


@pytest.mark.parametrize(
    "away",
    [
        {"residency": "sg_only"},
        {"rules": Rules({}, calls=CallTerms(regions=frozenset({"ID", "SG"})))},
    ],
    ids=["key", "policy"],
)
async def test_residency(away: dict[str, Any]) -> None:
    """What has to stay in a region does not go to a provider elsewhere to be judged."""
    house = House()
    house.key = replace(house.key, **away)

    error = await house.refusal(chat("one"), moderation=BLOCK)

    assert (error.kind.code, house.told[0][2], house.upstream.requests) == ("guards_unavailable", "residency", [])


async def test_residency_of_the_model() -> None:
    """Nor what is said to a model that has to stay in one."""
    moderation = Moderation(PROVIDER, "omni", Upstream())
    passing = Exchange("req_1", "trace_1", "e", chat("one"), House().key, START_S)
    model = catalog(route("a")).models["m"]
    may_read = []
    for residency in ("any", "id_only"):
        passing.model = replace(model, residency=residency)
        may_read.append(moderation.may_read(passing))

    assert may_read == [True, False]
