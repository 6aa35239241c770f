"""The stages themselves, with the stores of a single process behind them."""

from __future__ import annotations

import pytest

from gateway.core.accounts import Key, Tier
from gateway.core.catalog import Catalog
from gateway.core.errors import Failure, GatewayError
from gateway.core.exchange import Exchange, Limits
from gateway.pipeline.services import Clock
from gateway.pipeline.stages.admit import AdmissionRules, Admit, Refuse
from gateway.pipeline.stages.choose import Choose
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
    assert error.message == "Too many requests this minute for this key; its limit is 2 per minute."


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
        assert busy.message == "Too many requests of this key are running at once; its limit is 1 at once."

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
