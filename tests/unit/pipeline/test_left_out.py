"""Routes that cannot say what a call asks for."""

from __future__ import annotations

from gateway.core.call import CallOptions
from gateway.core.catalog import Model, Provider, Route
from gateway.core.money import Price
from gateway.dialects.registry import DIALECTS
from gateway.pipeline.opening import Opening
from gateway.pipeline.stream_watch import StreamWatch
from tests.support.scripted_client import ScriptedSink
from tests.unit.pipeline.plays import GOOD
from tests.unit.pipeline.scene import ONE, Scene

TWO_CHOICES = b'{"model":"m","stream":true,"n":2,"messages":[{"role":"user","content":"Hello there"}]}'


async def test_a_refusal_keeps_nothing_of_the_call() -> None:
    """It is kept for as long as the exchange lasts, and the call may be megabytes in many pieces."""
    scene = Scene(GOOD)
    route = Route(Provider("c", "anthropic_messages", "https://c.test", "cloud_direct", "US", ONE), "m")
    exchange, price = scene.exchange, Price(1, 1, 1, 1)
    exchange.call = DIALECTS["openai_chat"].read_call(TWO_CHOICES, CallOptions(), ())
    exchange.model, exchange.candidates = Model("m", "mid", ONE, price, (route,), context_window=9), (route,)
    opening = Opening(exchange, StreamWatch(scene.services, exchange, ScriptedSink()))

    assert not opening._prepare(route)

    refusal = opening._refusals[route.id]
    assert (refusal.param, refusal.__traceback__, refusal.__context__) == ("n", None, None)
