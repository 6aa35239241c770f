"""The stages themselves, with the stores of a single process behind them."""

from __future__ import annotations

import json

import pytest

from gateway.core.accounts import Key, Tier
from gateway.core.booking import Admission
from gateway.core.call import CallOptions
from gateway.core.catalog import Catalog
from gateway.core.errors import Failure, GatewayError
from gateway.core.exchange import NOWHERE, Exchange, Limits, Place
from gateway.core.receipt import Receipt, Tariff
from gateway.dialects.prompt_tokens import prompt_tokens
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.pipeline.services import Clock
from gateway.pipeline.stages.admit import AdmissionRules, Admit, Refuse
from gateway.pipeline.stages.choose import Choose
from gateway.pipeline.stages.record import COUNTED_BYTES, Record
from gateway.providers.families import family_of
from gateway.storage.memory import MemoryCounters
from tests.support.notation import T
from tests.support.scripted_provider import NEVER, Play, fail, tell
from tests.support.virtual_time import START_S
from tests.unit.pipeline.plays import GOOD, RESET
from tests.unit.pipeline.scene import EPOCH_S, MODES, Scene, at, call, catalog, route, virtual_loop

CLOCK = Clock(lambda: virtual_loop().time(), lambda: EPOCH_S, lambda: 0.0)
RULES = AdmissionRules(MODES)
FEW = Key("key_few", "acme", Tier("few", rpm=2))
ONE = Key("key_one", "acme", Tier("one", inflight=1))
COUNTED = Key("key_counted", "acme", Tier("counted", tpm=100_000))
CHEAP = Key("key_cheap", "acme", Tier("cheap", classes=frozenset({"budget"})))


def counters() -> MemoryCounters:
    return MemoryCounters(virtual_loop().time)


def exchange(key: Key, request_id: str = "req_2") -> Exchange:
    return Exchange(request_id, "trace_2", "chat_completions", call(stream=True), key, START_S)


async def refusal(stage: Admit | Choose, of: Exchange) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        await stage.admit(of)
    return caught.value


async def test_admission_tells_where_the_key_stands() -> None:
    """Admitted or refused, the limits are known; a refusal says when the key may come again."""
    admit, exchanges = Admit(counters(), CLOCK, RULES), [exchange(FEW, name) for name in "abc"]

    first = await admit.admit(exchanges[0])
    await at(15.0)
    await admit.admit(exchanges[1])
    error = await refusal(admit, exchanges[2])

    assert first is None
    assert [each.limits for each in exchanges] == [Limits(2, 1), Limits(2, 0), Limits(2, 0)]
    assert (error.kind.code, error.retry_after_s) == ("rate_limit_exceeded", 45.0)
    assert error.message == "Too many requests this minute for this key; its limit is 2 per minute; try again in 45 s."


class Kept:
    """A journal in memory."""

    def __init__(self) -> None:
        self.admissions: list[Admission] = []

    async def admit(self, admission: Admission) -> Place:
        self.admissions.append(admission)
        return NOWHERE

    def record(self, receipt: Receipt) -> None:
        """Nothing is asked of it here."""


async def recorded(key: Key, words: int) -> tuple[int, int]:
    """The prompt's tokens as the journal has them, and as they are counted."""
    said, journal = {"model": "m", "messages": [{"role": "user", "content": "tea " * words}]}, Kept()
    tariff = Tariff(MODES, bill_interrupted=True, region="id")
    asked = CLIENT_DIALECTS["openai_chat"].read_call(json.dumps(said).encode(), CallOptions(), ())
    one = Exchange("req_2", "trace_2", "chat_completions", asked, key, START_S)
    for stage in (Choose(catalog(route("a"))), Admit(counters(), CLOCK, RULES), Record(journal, tariff, CLOCK)):
        await stage.admit(one)
    (admission,) = journal.admissions
    return admission.prompt_tokens, prompt_tokens(asked, family_of(route("a").model, "m"))


@pytest.mark.parametrize(("key", "words"), [(FEW, 100), (COUNTED, 100), (COUNTED, COUNTED_BYTES // 3)])
async def test_the_journal_has_the_prompt(key: Key, words: int) -> None:
    """An admission is recorded with the count of its prompt, and with that of a long one where its key needed it."""
    kept, counted = await recorded(key, words)

    assert kept == pytest.approx(counted, rel=1e-3)  # a long one is counted in pieces
    assert kept > words


async def test_the_journal_has_a_long_prompt_by_its_bytes() -> None:
    """Nobody counts a long prompt for the record alone: it stands there too low, never too high."""
    kept, counted = await recorded(FEW, COUNTED_BYTES // 3)

    assert 0 < kept < counted


@pytest.mark.parametrize(
    "play",
    [
        pytest.param(GOOD, id="completed"),
        pytest.param(fail(Failure("upstream_error", "status_418", retryable=False)), id="failed"),
        pytest.param(tell(T("Hi"), 1.0, RESET), id="interrupted"),
        pytest.param(Play(head_s=NEVER), id="cancelled"),
    ],
)
async def test_the_slot_is_given_back(play: Play) -> None:
    """It is taken while the exchange runs, and free however it ends."""
    store = counters()
    admit = Admit(store, CLOCK, RULES)
    scene = Scene(play, before=(admit,))
    scene.exchange.key = ONE
    scene.start()
    await at(0.5)
    if play.head_s == NEVER:
        busy = await refusal(admit, exchange(ONE))
        scene.leave()
        assert busy.kind.code == "inflight_cap"
        assert busy.message.endswith("running at once; its limit is 1 at once; try again in 1 s.")

    await scene.end()

    assert await admit.admit(exchange(ONE)) is None


async def test_the_slot_of_a_misspelt_model() -> None:
    """That there is no such model is told behind the limits, and what admission took is given back."""
    admit = Admit(counters(), CLOCK, RULES)
    scene = Scene(before=(Choose(Catalog({}, {})), admit, Refuse()))
    scene.exchange.key = ONE

    with pytest.raises(GatewayError):
        await scene.start()
    outcome = await scene.end()

    assert (outcome, scene.receipt.error_code) == ("rejected", "model_not_found")
    assert await admit.admit(exchange(ONE)) is None


async def test_choosing() -> None:
    """The model and its routes in fallback order are noted; there is nothing to answer."""
    routes, chosen = (route("a"), route("b")), exchange(FEW)

    answer = await Choose(catalog(*routes)).admit(chosen)

    assert (answer, chosen.candidates) == (None, routes)
    assert chosen.model is not None
    assert chosen.model.slug == "m"


async def test_choosing_what_the_tier_has_not() -> None:
    """It reads as if there were no such model, and nothing is noted."""
    chosen = exchange(CHEAP)

    await Choose(catalog(route("a"))).admit(chosen)

    error = chosen.refusal
    assert error is not None
    assert (error.kind.code, error.param) == ("model_not_found", "model")
    assert (chosen.model, chosen.candidates) == (None, ())
