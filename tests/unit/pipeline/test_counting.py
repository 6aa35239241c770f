"""A prompt that is only counted: deadlines, failures and departures, in virtual time."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.accounts import Key, Tier
from gateway.core.call import Call, CallOptions
from gateway.core.catalog import Catalog, DialectName, Drain, Model, Provider, Route
from gateway.core.errors import SHUTDOWN, GatewayError
from gateway.core.exchange import Answer, Exchange
from gateway.core.held import Part
from gateway.core.money import Price
from gateway.dialects.registry import DIALECTS
from gateway.pipeline.run import Pipeline
from gateway.pipeline.services import Clock
from gateway.pipeline.stages.admit import COUNTING, AdmissionRules, Admit
from gateway.pipeline.stages.choose import Choose
from gateway.pipeline.stages.pictures import CheckPictures, PictureWorks
from gateway.policy.breaker import BreakerRules
from gateway.policy.pictures import PictureRules
from gateway.storage.memory import MemoryCounters
from tests.support.pictures import gif, image, jpeg, linked, png
from tests.support.scripted_provider import EOF, JSON, NEVER, Play, fail, status
from tests.support.virtual_time import START_S
from tests.unit.pipeline.plays import RESET
from tests.unit.pipeline.scene import EPOCH_S, MODES, ONE, Scene, at, virtual_loop
from tests.unit.receipts import receipt

CLOCK = Clock(lambda: virtual_loop().time(), lambda: EPOCH_S, lambda: 0.0)
RULES = AdmissionRules(MODES)
COUNTED = Play((b'{"input_tokens":14,"context_management":{"original_input_tokens":20}}', EOF), headers=JSON)
BODY = b'{"model":"m","messages":[{"role":"user","content":"Hello there"}],"tools":[]}'
MODEL = Model("m", "mid", ONE, Price(10**6, 10**6, 10**6, 10**6), (), context_window=1000)
SERVES: dict[str, DialectName] = {"a": "anthropic_messages", "b": "anthropic_messages", "o": "openai_chat"}


def call(body: bytes = BODY) -> Call:
    counting = DIALECTS["anthropic_messages"].counting
    assert counting is not None
    return counting.read_call(body, CallOptions(), ())


def route(name: str, drain: Drain | None = None) -> Route:
    dialect: DialectName = SERVES[name]
    return Route(Provider(name, dialect, f"https://{name}.test", "cloud_direct", "US", ONE, drain=drain), "m")


def scene(
    *plays: Play, routes: str = "a", breaker: BreakerRules | None = None, drain: Drain | None = None
) -> Scene:  # fmt: skip
    """A count of the prompt by *routes*, one letter each."""
    out = Scene(*plays, breaker=breaker, routes=tuple(routes))
    ways = tuple(route(name, drain) for name in routes)
    out._pipeline = Pipeline((Choose(Catalog({"m": replace(MODEL, routes=ways)}, MODES)),), out.services, out.running)
    out.exchange.call, out.exchange.endpoint = call(), "count_tokens"
    return out


async def answer_of(play: Scene) -> dict[str, Any]:
    answer = await play.start()
    assert isinstance(answer, Answer)
    assert answer.status == 200
    await play.end()
    told: dict[str, Any] = json.loads(answer.body)
    return told


async def test_tr_30_the_provider_counts() -> None:
    """Its number and whatever it says besides are the answer; nothing is charged, whatever the price is."""
    told = scene(COUNTED)

    answer = await answer_of(told)

    assert answer == {
        "input_tokens": 14,
        "context_management": {"original_input_tokens": 20},
        "_anoman": {"usage_basis": "provider_final"},
    }
    receipt = told.receipt
    assert (receipt.outcome, receipt.usage.total_tokens, receipt.usage_basis) == ("completed", 0, "none")
    assert (receipt.cost_nano_usd, receipt.weighted_tokens, receipt.provider) == (0, 0, "a")


async def test_a_model_of_another_dialect_is_estimated() -> None:
    """Nobody is asked, and the answer says whose number it is: eleven tenths of our own count, rounded up."""
    told = scene(routes="o")

    answer = await answer_of(told)

    assert answer == {"input_tokens": 7, "_anoman": {"usage_basis": "estimated"}}  # 2 tokens and 4 of the message
    assert (told.asked, told.receipt.provider, told.receipt.attempts) == ([], None, ())


@pytest.mark.parametrize(
    ("plays", "asked"),
    [
        pytest.param((status(404, b"{}", EOF),), "a", id="no such path"),
        pytest.param((status(401, b"{}", EOF),), "a", id="credential"),
        pytest.param((status(500, EOF), status(529, EOF)), "aa", id="ill"),
        pytest.param((fail(RESET), fail(RESET)), "aa", id="reset"),
        pytest.param((Play((b'{"input_tokens":-1}', EOF), headers=JSON),) * 2, "aa", id="no count"),
        pytest.param((Play((b'{"type":"error","error":{}}', EOF), headers=JSON),) * 2, "aa", id="error in a 200"),
        pytest.param((Play((b"[" * 2000, EOF), headers=JSON),) * 2, "aa", id="no answer"),
    ],
)
async def test_tr_30_a_provider_that_fails_is_no_failure(plays: tuple[Play, ...], asked: str) -> None:
    """It is tried as often as for an answer; then the client gets an estimate instead of an error."""
    told = scene(*plays)

    answer = await answer_of(told)

    assert answer["_anoman"] == {"usage_basis": "estimated"}
    assert "".join(name for _, name in told.asked) == asked
    assert [result for _, result in told.attempts] == ["failed"] * len(asked)
    assert told.receipt.outcome == "completed"


async def test_the_next_route_counts() -> None:
    """As for an answer, other routes of the dialect come before the second try of the first."""
    told = scene(status(503, EOF), COUNTED, routes="aob")

    answer = await answer_of(told)

    assert (answer["input_tokens"], told.attempts) == (14, [("a", "failed"), ("b", "ok")])


async def test_a_silent_provider_is_not_waited_for() -> None:
    """After ten seconds the estimate is the answer, and the connection is dropped."""
    told = scene(Play(head_s=NEVER))

    answer = await answer_of(told)

    assert answer["_anoman"] == {"usage_basis": "estimated"}
    assert (told.left_s, told.failures) == (10.0, [("a", "non_stream")])


async def test_the_callers_mistake_is_told() -> None:
    """What the provider finds wrong with the call is an error, cleaned, and no estimate."""
    body = b'{"type":"error","error":{"type":"invalid_request_error","message":"messages.0: too odd"}}'
    told = scene(status(400, body, EOF))

    with pytest.raises(GatewayError) as caught:
        await told.start()
    await told.end()

    assert (caught.value.kind.code, caught.value.message) == ("invalid_request", "messages.0: too odd")
    assert told.receipt.outcome == "rejected"


@pytest.mark.parametrize("head_s", [0.0, NEVER], ids=["body", "head"])
async def test_leaving_costs_nothing(head_s: float) -> None:
    """The connection is dropped at once, and the prompt that the provider has is not charged: it was not answered."""
    told = scene(Play(headers=JSON, head_s=head_s))
    told.start()
    await at(3.0)
    told.leave()

    outcome = await told.end()

    assert (outcome, told.left_s) == ("cancelled", 3.0)
    assert (told.receipt.usage.total_tokens, told.receipt.cost_nano_usd) == (0, 0)


async def test_a_count_is_not_read_on() -> None:
    """Where answers are read on for the books, a count is not: it has no place in them."""
    told = scene(Play(headers=JSON), drain=Drain(max_s=30.0, max_tokens=100))
    told.start()
    await at(3.0)

    told.sink.leave()
    left_at_once_s = told.left_s
    told.leave()
    outcome = await told.end()

    assert (left_at_once_s, outcome, told.receipt.on_cancel) == (3.0, "cancelled", "abort")


class Idle:
    """Both ports of pictures, neither of which may be used."""

    async def fetch(self, url: str, *, max_bytes: int, timeout_s: float) -> tuple[str, bytes]:
        raise AssertionError("fetched")

    async def still(self, animation: Part, *, max_pixels: int) -> bytes | None:
        raise AssertionError("converted")


def seeing(*plays: Play, fetches: bool, parts: list[Any]) -> Scene:
    """A count of *parts*, for a model that takes pictures."""
    out = Scene(*plays)
    provider = replace(route("a").provider, fetches_images=fetches)
    model = replace(MODEL, routes=(Route(provider, "m"),), input=("text", "image"))
    works = PictureWorks(Idle(), Idle(), PictureRules())
    stages = (Choose(Catalog({"m": model}, MODES)), CheckPictures(works))
    out._pipeline = Pipeline(stages, out.services, out.running)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": parts}]}).encode()
    out.exchange.call, out.exchange.endpoint = call(body), "count_tokens"
    return out


@pytest.mark.parametrize("part", [linked("https://x.test/a.png"), image(gif(), "image/gif")], ids=["url", "gif"])
async def test_a_count_is_no_work_on_pictures(part: Any) -> None:
    """Nothing is fetched or converted for it, so what would have to be is estimated, and its provider is not asked."""
    told = seeing(fetches=False, parts=[part, image(png())])

    answer = await answer_of(told)

    assert answer["_anoman"] == {"usage_basis": "estimated"}
    assert (answer["input_tokens"] > 5, told.asked) == (True, [])


async def test_a_provider_that_fetches_counts_by_the_url() -> None:
    """It is asked with the URL as it came, and with a wrong claim put right."""
    told = seeing(COUNTED, fetches=True, parts=[linked("https://x.test/a.png"), image(jpeg(), "image/png")])

    answer = await answer_of(told)
    sent = bytes(told.exchange.call.fields["messages"])

    assert answer["input_tokens"] == 14
    assert json.loads(sent)[0]["content"] == [linked("https://x.test/a.png"), image(jpeg(), "image/jpeg")]


async def test_a_count_refuses_bad_pictures() -> None:
    """What an answer would be refused for, a count is: its client learns it sooner."""
    told = seeing(fetches=True, parts=[image(b"none")])

    with pytest.raises(GatewayError) as caught:
        await told.start()
    await told.end()

    assert caught.value.param == "messages[0].content[0].source.data"


async def test_shutdown_is_answered() -> None:
    """A count under way when the process leaves gets its estimate."""
    told = scene(Play(head_s=NEVER))
    started = told.start()
    await at(1.0)
    told.interrupt(SHUTDOWN)

    answer = await started

    assert isinstance(answer, Answer)
    assert b"estimated" in answer.body
    await told.end()


async def test_tr_30_answers_have_a_breaker_of_their_own() -> None:
    """However often counting fails, the route's breaker for answers stays closed, and its own opens."""
    rules = BreakerRules(failures=2)
    told = scene(status(500, EOF), status(500, EOF), breaker=rules)
    await answer_of(told)

    now_s = virtual_loop().time()
    assert told.board.of("a/m")[0].state(now_s) == "closed"
    assert told.board.of("a/m#count")[0].state(now_s) == "open"


async def test_counts_take_no_places_of_answers() -> None:
    """A key of one request a minute, one at once, counts as often as agents do; its limit is left as it was."""
    store = MemoryCounters(virtual_loop().time)
    admit, key = Admit(store, CLOCK, RULES), Key("key_1", "acme", Tier("tiny", rpm=1, inflight=1))

    def exchange(number: int) -> Exchange:
        return Exchange(f"req_{number}", "trace", "count_tokens", call(), key, START_S)

    burst = [exchange(number) for number in range(25)]
    for each in burst:
        await admit.admit(each)
    answer = exchange(99)
    answer.call = DIALECTS["openai_chat"].read_call(BODY, CallOptions(), ())
    await admit.admit(answer)

    assert {each.limits.rpm for each in burst} == {None}
    assert (answer.limits.rpm, answer.limits.rpm_remaining) == (1, 0)


async def test_counts_have_limits_of_their_own() -> None:
    """A flood of counts is refused like any other, and what was held is given back."""
    store = MemoryCounters(virtual_loop().time)
    admit, key = Admit(store, CLOCK, RULES), Key("key_1", "acme", Tier("enterprise"))
    held = [Exchange(f"req_{number}", "t", "count_tokens", call(), key, START_S) for number in range(33)]
    assert COUNTING.inflight == 32
    for each in held[:32]:
        await admit.admit(each)

    with pytest.raises(GatewayError) as caught:
        await admit.admit(held[32])
    admit.settle(held[0], receipt())

    assert (caught.value.kind.code, caught.value.message[-29:]) == ("inflight_cap", "32 at once; try again in 1 s.")
    assert await admit.admit(held[32]) is None
