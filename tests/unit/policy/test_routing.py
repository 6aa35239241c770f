"""Which routes serve a call, and in what order."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from msgspec import Raw

from gateway.core.accounts import Key, Residency, Tier
from gateway.core.call import Call, CallOptions
from gateway.core.catalog import Catalog, DialectName, Model, Provider, Route, Strategy
from gateway.core.errors import GatewayError
from gateway.core.money import Price, Weight
from gateway.dialects.families import ANY_FAMILY
from gateway.dialects.prompt_tokens import prompt_tokens
from gateway.policy.explanation import Assumed, explain
from gateway.policy.loads import STALE_S, Load, LoadBoard
from gateway.policy.routing import choose, consider, find, length_matters, rank

ONE, FREE = Weight(1, 1), Price(0, 0, 0, 0)
NOW_S = 1000.0


def route(
    name: str, region: str = "US", dialect: DialectName = "openai_chat", weight: int = 1, tools: bool | None = None,
    window: int | None = None,
) -> Route:  # fmt: skip
    provider = Provider(name, dialect, f"https://{name}.test", "cloud_direct", region, ONE)
    return Route(provider, "m", weight=weight, tools=tools, context_window=window, is_measured=True)


def model(
    *routes: Route, strategy: Strategy = "fallback", residency: Residency = "any", tools: bool = True
) -> Model:  # fmt: skip
    return Model(
        "m", "mid", ONE, FREE, routes, context_window=1000, strategy=strategy, residency=residency, tools=tools
    )


def key(residency: Residency = "any", *classes: str) -> Key:
    return Key("key_1", "acme", Tier("pro", classes=frozenset(classes) or None), residency)


def call(dialect: DialectName = "openai_chat", stream: bool = True, **fields: bytes) -> Call:
    return Call(dialect, {name: Raw(value) for name, value in fields.items()}, "m", stream, CallOptions())


def names(routes: tuple[Route, ...]) -> str:
    return "".join(each.provider.name for each in routes)


def chosen(of: Model, by: Key, for_call: Call) -> str:
    """The routes that may serve, or the code of the refusal."""
    tokens = prompt_tokens(for_call, ANY_FAMILY) if length_matters(of, for_call) else 0
    try:
        return names(choose(find(Catalog({"m": of}, {}), by, "m"), by, for_call, tokens))
    except GatewayError as error:
        return f"{error.kind.status} {error.kind.code} {error.param}"


# -- residency --

EVERYWHERE = (route("u"), route("s", "sg"), route("i", "ID"), route("x", "SG-2"))


@pytest.mark.parametrize(
    ("key_wants", "model_wants", "expected"),
    [
        ("any", "any", "usix"),
        ("sg_only", "any", "s"),
        ("id_only", "any", "i"),
        ("any", "id_only", "i"),
        ("id_only", "id_only", "i"),
        ("sg_only", "id_only", "403 residency_denied None"),
    ],
)
def test_residency(key_wants: Residency, model_wants: Residency, expected: str) -> None:
    """Only routes within the key's residency and the model's are left, by the provider's region in either case; a
    region that merely begins alike is another one, and no route at all is a 403."""
    assert chosen(model(*EVERYWHERE, residency=model_wants), key(key_wants), call()) == expected


def test_residency_hides_models() -> None:
    """A key sees exactly the models that it could call."""
    catalog = Catalog({"us": model(route("u")), "both": model(route("u"), route("i", "ID"))}, {})

    assert [len(catalog.visible_to(key(wants))) for wants in ("any", "id_only", "sg_only")] == [2, 1, 0]


def test_a_class_that_the_tier_lacks_is_not_found() -> None:
    """It reads like a name that does not exist, before anything of residency is said."""
    assert chosen(model(route("u")), key("id_only", "budget"), call()) == "400 model_not_found model"


# -- capabilities --


@pytest.mark.parametrize("tools", [b"[]", b"[ \n]", b"null", None])
def test_no_tools_are_no_demand(tools: bytes | None) -> None:
    """An empty list of tools is served by a model without them."""
    fields = {} if tools is None else {"tools": tools}

    assert chosen(model(route("a"), tools=False), key(), call(**fields)) == "a"


@pytest.mark.parametrize("member", ["tools", "functions"])
def test_tools(member: str) -> None:
    """A call with tools goes to the routes that can, whatever the model says; without one it is a 400 at the member."""
    with_tools = call(**{member: b"[{}]"})

    assert chosen(model(route("a", tools=False), route("b")), key(), with_tools) == "b"
    assert chosen(model(route("a"), route("b", tools=True), tools=False), key(), with_tools) == "b"
    assert chosen(model(route("a"), tools=False), key(), with_tools) == f"400 invalid_request {member}"


def test_what_cannot_be_had_at_home_is_said() -> None:
    """Where the routes within the residency cannot call tools that is the refusal, not the others' region."""
    mixed = model(route("u"), route("i", "ID", tools=False))

    assert chosen(mixed, key("id_only"), call(tools=b"[{}]")) == "400 invalid_request tools"


def test_a_smaller_context() -> None:
    """A call that looks longer than a route's context goes to the others, but is never refused by an estimate."""
    small, large = route("s", window=100), route("l")
    short, long, longer = (b'[{"role":"user","content":"%b"}]' % (b"word " * count) for count in (5, 400, 4000))

    assert chosen(model(small, large), key(), call(messages=short)) == "sl"
    assert chosen(model(small, large), key(), call(messages=long)) == "l"
    assert chosen(model(small, large), key(), call(messages=longer)) == "l"
    assert chosen(model(small), key(), call(messages=longer)) == "s"


def test_pictures_are_longer_than_their_names() -> None:
    """A picture by URL is more tokens than bytes: it is looked at where routes differ in their contexts."""
    parts = b",".join(b'{"type":"image_url","image_url":{"url":"https://x.test/%d"}}' % n for n in range(3))
    shown = call(messages=b'[{"role":"user","content":[%b]}]' % parts)

    assert chosen(model(route("s", window=300), route("l", window=100_000)), key(), shown) == "l"


def test_native_first() -> None:
    """Routes of the call's own dialect come first, each kind in the order of the file."""
    mixed = model(route("a", dialect="anthropic_messages"), route("b"), route("c", dialect="anthropic_messages"))

    assert [chosen(mixed, key(), call(dialect)) for dialect in ("openai_chat", "anthropic_messages")] == ["bac", "acb"]


# -- strategies --


def ordered(of: Model, loads: LoadBoard, now_s: float = NOW_S, draw: Random | None = None, stream: bool = True) -> str:
    chance = (draw or Random(1)).random
    return names(rank(of, call(stream=stream), consider(of, key(), call()).routes, loads, now_s=now_s, spread=chance))


def test_weighted() -> None:
    """Each route is first in its share of the calls, and second in its share of what is left; weight 0 is last."""
    of = model(route("z", weight=0), route("a", weight=6), route("b", weight=3), route("c"), strategy="weighted")
    draw, count = Random(7), 20_000

    orders = Counter(ordered(of, LoadBoard(), draw=draw) for _ in range(count))

    first = Counter[str]()
    for order, times in orders.items():
        first[order[0]] += times
    assert {order[-1] for order in orders} == {"z"}
    assert [round(first[name] / count, 1) for name in "abc"] == [0.6, 0.3, 0.1]
    assert round(orders["abcz"] / first["a"], 2) == pytest.approx(0.75, abs=0.02)


def test_weighted_by_an_unlikely_draw() -> None:
    """A draw of exactly 0 is a draw too."""

    class Nothing(Random):
        def random(self) -> float:
            return 0.0

    of = model(route("z", weight=0), route("a"), strategy="weighted")

    assert ordered(of, LoadBoard(), draw=Nothing()) == "az"


def test_least_loaded() -> None:
    """The route with the fewest calls for its weight comes first; equal ones in fallback order."""
    of, loads = model(route("a"), route("b"), route("c", weight=3), strategy="least_loaded"), LoadBoard()

    orders = []
    for _ in range(6):
        orders.append(ordered(of, loads)[0])
        Load(loads.of(f"{orders[-1]}/m"), stream=True, now_s=NOW_S)

    assert "".join(orders) == "ccabcc"


def test_a_load_is_released_once() -> None:
    """However often it is said that an attempt is over, one is taken off the count."""
    loads = LoadBoard()
    held, other = (Load(loads.of("a/m"), stream=True, now_s=NOW_S) for _ in range(2))

    held.release()
    held.release()

    assert loads.of("a/m").running == 1
    other.release()
    assert loads.of("a/m").running == 0


def measure(loads: LoadBoard, name: str, took_s: float, at_s: float = NOW_S, stream: bool = True) -> None:
    load = Load(loads.of(f"{name}/m"), stream, at_s - took_s)
    load.answered(at_s)
    load.release()


def test_lowest_latency() -> None:
    """The fastest first, by times of calls of the same kind."""
    of, loads = model(route("a"), route("b"), route("z", weight=0), strategy="lowest_latency"), LoadBoard()
    for name, took_s in (("a", 0.5), ("b", 0.4), ("z", 0.1)):
        measure(loads, name, took_s)
    for name, took_s in (("a", 2.0), ("b", 9.0)):
        measure(loads, name, took_s, stream=False)

    assert (ordered(of, loads), ordered(of, loads, stream=False)) == ("baz", "abz")


def test_one_slow_answer_is_not_the_rule() -> None:
    """A time counts by a fifth: one slow answer of many does not make a route the slower one, five do."""
    of, loads = model(route("a"), route("b"), strategy="lowest_latency"), LoadBoard()
    measure(loads, "a", 0.4)
    measure(loads, "b", 0.6)

    measure(loads, "a", 1.2)
    after_one = ordered(of, loads)
    measure(loads, "a", 1.2)

    assert (after_one, ordered(of, loads)) == ("ab", "ba")


def test_an_unknown_route_is_tried_by_one() -> None:
    """It goes first until it is asked, and last while the answer is out: a route that hangs costs one call."""
    of, loads = model(route("a"), route("b"), strategy="lowest_latency"), LoadBoard()
    measure(loads, "a", 0.5)
    before = ordered(of, loads)
    probe = Load(loads.of("b/m"), stream=True, now_s=NOW_S)
    meanwhile = ordered(of, loads)

    probe.answered(NOW_S + 0.1)
    probe.release()

    assert (before, meanwhile, ordered(of, loads)) == ("ba", "ab", "ba")


def test_each_kind_of_calls_tries_for_itself() -> None:
    """A stream that is out says nothing of bodies: the unknown route is tried by the first body as well."""
    of, loads = model(route("a"), route("b"), strategy="lowest_latency"), LoadBoard()
    for stream in (True, False):
        measure(loads, "a", 0.5, stream=stream)
    Load(loads.of("b/m"), stream=True, now_s=NOW_S)

    assert (ordered(of, loads), ordered(of, loads, stream=False)) == ("ab", "ba")


def test_no_time_at_all_is_a_time() -> None:
    """An answer within one tick of the clock was a fast one, not one that never came."""
    of, loads = model(route("a"), route("b"), strategy="lowest_latency"), LoadBoard()
    measure(loads, "a", 9.0)
    measure(loads, "b", 0.0)
    for name in "ab":
        Load(loads.of(f"{name}/m"), stream=True, now_s=NOW_S)

    assert ordered(of, loads, NOW_S + STALE_S) == "ba"


def test_old_times_are_forgotten() -> None:
    """A route that has not been asked for a minute is as good as unknown."""
    of, loads = model(route("a"), route("b"), strategy="lowest_latency"), LoadBoard()
    measure(loads, "b", 9.0)
    measure(loads, "a", 0.1, at_s=NOW_S + STALE_S - 1)

    assert [ordered(of, loads, now_s) for now_s in (NOW_S + STALE_S - 1, NOW_S + STALE_S)] == ["ab", "ba"]


def test_failing_fast_is_not_fast() -> None:
    """A route that has just failed goes last, not to the front as the fastest or as an unknown one."""
    of, loads = model(route("a"), route("b"), strategy="lowest_latency"), LoadBoard()
    measure(loads, "a", 0.1)
    measure(loads, "b", 0.5)
    load = Load(loads.of("a/m"), stream=True, now_s=NOW_S)

    load.failed(NOW_S + 0.01)
    load.release()

    assert ordered(of, loads, NOW_S + 1) == "ba"


def test_a_reload_forgets() -> None:
    """Routes that are gone leave nothing behind, and what still runs there ends without harm."""
    loads = LoadBoard()
    load = Load(loads.of("a/m"), stream=True, now_s=NOW_S)

    loads.keep({"b/m"})
    load.release()

    assert loads.of("a/m").running == 0


# -- the dry run --


def test_explanation() -> None:
    """Each route has a line: its place and why, or why it is left; and what the client would get."""
    of = model(route("u"), route("i", "ID", "anthropic_messages"), route("t", "ID", tools=False))

    lines = [*explain(Catalog({"m": of}, {}), key("id_only"), call(tools=b"[{}]"))]
    (*_, last) = explain(Catalog({"m": of}, {}), key("sg_only"), call())

    assert lines == [
        "m: openai_chat, strategy fallback, residency any",
        "key key_1: tier pro, region_preference id_only",
        "  1. taken  i/m (ID): translated, number 2 in the file",
        "  -  left   u/m (US): it computes in US, and the key is id_only: only ID",
        "  -  left   t/m (ID): it cannot call tools",
    ]
    assert last.startswith("no route is left: 403 residency_denied: No provider of this model")


def test_explanation_of_a_long_prompt() -> None:
    """A route whose context is too short is left, and a prompt too long for all of them is said to be refused."""
    of = model(route("s", window=100), route("l"))

    lines = [*explain(Catalog({"m": of}, {}), key(), call(), Assumed(500))]
    (*_, last) = explain(Catalog({"m": of}, {}), key(), call(), Assumed(1001))

    assert lines[2:] == [
        "  1. taken  l/m (US): native, number 2 in the file",
        "  -  left   s/m (US): some 500 tokens do not fit into 100",
    ]
    assert last == "1001 tokens > 1000 maximum: 400 context_length_exceeded, by us or by them"


def test_explanation_of_an_image() -> None:
    """A model without images is said to refuse one, in the client's words; a model with them takes it."""
    blind, seeing = (Catalog({"m": replace(model(route("a")), input=way)}, {}) for way in (("text",), ("image",)))

    (*_, refused), (*_, taken) = (explain(of, key(), call(), Assumed(has_image=True)) for of in (blind, seeing))

    assert refused == "no route is asked: 400 vision_not_supported: The model m does not take images."
    assert taken == "  1. taken  a/m (US): native, number 1 in the file"


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        ("weighted", "weight 3 of 4: first in 75 % of the calls"),
        ("least_loaded", "weight 3: by (running + 1) / weight"),
        ("lowest_latency", "by its time to answer, none known yet"),
    ],
)
def test_explanation_of_strategies(strategy: Strategy, why: str) -> None:
    """The order is the one of the live choice, with what it goes by; weight 0 is said to be a last resort."""
    of = model(route("z", weight=0), route("a"), route("b", weight=3), strategy=strategy)

    lines = [*explain(Catalog({"m": of}, {}), key(), call())]

    assert next(line for line in lines if " b/m " in line).endswith(why)
    assert lines[-1] == "  3. taken  z/m (US): native, weight 0: only when the others have failed"
