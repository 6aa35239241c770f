"""The stage that chooses: where contexts differ, a long prompt is counted while others are served."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from random import Random

import pytest
from msgspec import structs

from gateway.core.call import CallOptions
from gateway.core.catalog import Catalog, Model, Route
from gateway.core.guarding import CallTerms, Rules, Verdict
from gateway.core.held import mark_of
from gateway.core.money import Price
from gateway.dialects.families import ANY_FAMILY
from gateway.dialects.prompt_tokens import prompt_tokens, prompt_tokens_steps
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.dialects.tokens import MAX_COUNTED_CHARS
from gateway.http.intake import set_aside
from gateway.pipeline.stages.choose import Choose
from tests.unit.pipeline.scene import MODES, ONE, Scene, route, turns_during

LONG = Route(route("l").provider, "long", context_window=10_000_000)
NOISE = "".join(Random(7).choices("abcdefghijklmnopqrstuvwxyz 0123456789", k=MAX_COUNTED_CHARS))


def model(*routes: Route) -> Catalog:
    return Catalog({"m": Model("m", "mid", ONE, Price(1, 1, 1, 1), routes, context_window=1000)}, MODES)


def scene(text: str) -> Scene:
    """An exchange that asks for *text*."""
    out = Scene()
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    out.exchange.call = CLIENT_DIALECTS["openai_chat"].read_call(body, CallOptions(), ())
    return out


@pytest.mark.parametrize(
    ("text", "routes", "turns", "taken"),
    [
        pytest.param(NOISE, (route("s"), LONG), 16, "l", id="long"),
        pytest.param("word " * 600, (route("s"), LONG), 0, "sl", id="a piece"),
        pytest.param("Hi", (route("s"), LONG), 0, "sl", id="short"),
        pytest.param(NOISE, (route("s"), route("b")), 0, "sb", id="one context"),
    ],
)
async def test_a_long_prompt_is_counted_in_pieces(
    text: str, routes: tuple[Route, ...], turns: int, taken: str
) -> None:  # fmt: skip
    """Behind every 8,192 characters the loop has a turn, and nothing is counted where it does not matter."""
    exchange, seen = scene(text).exchange, 0
    task = asyncio.ensure_future(Choose(model(*routes)).admit(exchange))
    await asyncio.sleep(0)
    while not task.done():
        await asyncio.sleep(0)
        seen += 1

    assert seen == turns
    assert "".join(one.provider.name for one in exchange.candidates) == taken


@pytest.mark.parametrize("bytes_", [300, 300_000], ids=["short", "set aside"])
async def test_pages_have_tokens_that_bytes_do_not_tell(bytes_: int) -> None:
    """A PDF is counted by its pages, also where it has been set aside."""
    pdf = base64.b64encode(b"%PDF-1.7 " + b"/Type /Page " * 9 + bytes(bytes_)).decode()
    source = {"type": "base64", "media_type": "application/pdf", "data": pdf}
    said = [{"role": "user", "content": [{"type": "document", "source": source}]}]
    body, held = await set_aside(
        json.dumps({"model": "m", "max_tokens": 5, "messages": said}).encode(), mark_of("req_" + "0" * 32)
    )
    exchange = Scene().exchange
    read = CLIENT_DIALECTS["anthropic_messages"].read_call(body, CallOptions(), ())
    exchange.call = structs.replace(read, held=held)

    await Choose(model(route("s"), LONG)).admit(exchange)

    assert (held is not None) is (bytes_ > 65_536)
    assert [one.provider.name for one in exchange.candidates] == ["l"]


async def test_the_pieces_make_the_whole() -> None:
    """Counted in pieces a prompt has as many tokens as in one go, but for one at the most behind each cut."""
    call = scene(NOISE).exchange.call
    steps, cuts = prompt_tokens_steps(call, ANY_FAMILY), 0
    try:
        while True:
            next(steps)
            cuts += 1
    except StopIteration as end:
        more = end.value - prompt_tokens(call, ANY_FAMILY)

    assert cuts == 16
    assert 0 <= more <= cuts


@pytest.mark.parametrize(
    ("terms", "verdict", "code"),
    [
        (CallTerms(), None, None),
        (CallTerms(max_prompt_chars=300_000), Verdict("pass"), None),
        (CallTerms(max_prompt_chars=100), Verdict("block", place="messages"), "policy_denied"),
        (CallTerms(models=(("other",),)), Verdict("block", place="model"), "policy_denied"),
    ],
)
async def test_the_policy(terms: CallTerms, verdict: Verdict | None, code: str | None) -> None:
    """What it says is a verdict, and what it denies a refusal that waits for the limits, as all that is wrong does."""
    exchange = scene("word " * 100).exchange
    exchange.key = replace(exchange.key, rules=Rules({}, calls=terms))

    await Choose(model(route("s"))).admit(exchange)

    assert exchange.verdicts.get("policy") == verdict
    assert (exchange.refusal.kind.code if exchange.refusal else None) == code
    assert bool(exchange.candidates) is (code is None)


async def test_a_long_prompt_is_measured_in_pieces() -> None:
    """Others are served between its messages."""
    exchange = Scene().exchange
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Halo" * 500}] * 500}).encode()
    exchange.call = CLIENT_DIALECTS["openai_chat"].read_call(body, CallOptions(), ())
    exchange.key = replace(exchange.key, rules=Rules({}, calls=CallTerms(max_prompt_chars=1_000_000)))

    turns = await turns_during(Choose(model(route("s"))).admit(exchange))

    assert exchange.refusal is None
    assert turns >= 50
