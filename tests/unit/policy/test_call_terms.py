"""What a policy lets calls ask for: models, regions, and the length of answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from msgspec import Raw, structs

from gateway.core.accounts import Key, Tier, may_keep
from gateway.core.call import Call, CallOptions
from gateway.core.catalog import Catalog, Model, Provider, Route
from gateway.core.errors import GatewayError
from gateway.core.guarding import CallTerms, Rules
from gateway.core.money import Price, Weight
from gateway.policy.call_terms import bounded, measured
from gateway.policy.explanation import explain
from gateway.policy.routing import choose, find
from tests.support.pictures import data_url, image_url, png

ONE, FREE = Weight(1, 1), Price(0, 0, 0, 0)


def model(slug: str, *regions: str, tools: bool = True) -> Model:
    routes = tuple(
        Route(Provider(f"p-{region}", "openai_chat", "https://p.test", "cloud_direct", region, ONE), slug)
        for region in regions or ("US",)
    )
    return Model(slug, "mid" if slug.startswith("big") else "budget", ONE, FREE, routes, 1000, tools=tools)


CATALOG = Catalog(
    {one.slug: one for one in (model("big-1"), model("big-2", "ID"), model("tiny", "us", "sg", "ID"))}, {}
)


def key(**terms: Any) -> Key:
    return Key("key_1", "acme", Tier("pro"), rules=Rules({}, calls=CallTerms(**terms)))


def call(slug: str, **fields: bytes) -> Call:
    raw = {name: Raw(value) for name, value in fields.items()}
    return Call("openai_chat", raw, slug, stream=True, options=CallOptions())


def asked(by: Key, slug: str, **fields: bytes) -> str:
    """The regions that may serve, or the refusal."""
    try:
        routes = choose(find(CATALOG, by, slug), by, call(slug, **fields))
    except GatewayError as error:
        return f"{error.kind.status} {error.kind.code} {error.param}"
    return " ".join(route.provider.region.upper() for route in routes)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({}, ["US", "ID", "US SG ID"]),
        ({"models": (("tiny",),)}, ["-", "-", "US SG ID"]),
        ({"models": (("big-*",),)}, ["US", "ID", "-"]),
        ({"models": (("big-*",), ("*",), ("big-2", "tiny"))}, ["-", "ID", "-"]),
        ({"models": ((),)}, ["-", "-", "-"]),
        ({"classes": frozenset({"budget"})}, ["-", "-", "US SG ID"]),
        ({"classes": frozenset()}, ["-", "-", "-"]),
        ({"regions": frozenset({"ID"})}, ["-", "ID", "ID"]),
        ({"regions": frozenset({"SG", "US"})}, ["US", "-", "US SG"]),
        ({"regions": frozenset()}, ["-", "-", "-"]),
    ],
)
def test_what_may_be_called(terms: dict[str, Any], expected: list[str]) -> None:
    """A model has to be in each list and of an allowed class, and no route of another region is among those that may
    be asked; what is left out is a 403, and is not in the list of models either."""
    by = key(**terms)

    found = [asked(by, slug) for slug in CATALOG.models]

    assert found == [one if one != "-" else "403 policy_denied model" for one in expected]
    assert [one.slug for one in CATALOG.visible_to(by)] == [
        slug for slug, one in zip(CATALOG.models, expected, strict=True) if one != "-"
    ]


def test_a_model_that_is_not_there() -> None:
    """It reads as ever, and nothing is suggested that the policy forbids."""
    with pytest.raises(GatewayError) as caught:
        find(CATALOG, key(models=(("big-2",),)), "big-3")

    assert caught.value.kind.code == "model_not_found"
    assert "Did you mean big-2?" in caught.value.message


def test_residency_and_regions_together() -> None:
    """Both bind: what is left is within the key's residency and within the policy's regions."""
    by = Key("k", "acme", Tier("pro"), "id_only", rules=Rules({}, calls=CallTerms(regions=frozenset({"SG"}))))

    assert asked(by, "tiny") == "403 residency_denied None"


def test_what_cannot_be_had_within_the_regions_is_said() -> None:
    """Where the routes within the regions cannot call tools that is the refusal, not the others' region."""
    plain = Catalog({"m": model("m", "US", "ID", tools=False)}, {})
    by = key(regions=frozenset({"ID"}))

    with pytest.raises(GatewayError) as caught:
        choose(find(plain, by, "m"), by, call("m", tools=b"[{}]"))

    assert caught.value.param == "tools"


def test_why_a_route_is_left() -> None:
    """The dry run names the policy, the region, and those that it allows."""
    by = replace(key(regions=frozenset({"SG", "ID"})), policy="at-home")

    lines = [*explain(CATALOG, by, call("tiny"))]

    assert lines[1] == "key key_1: tier pro, region_preference any, policy at-home"
    assert "  -  left   p-us/tiny (US): it computes in US, and the key's policy allows ID, SG" in lines


# -- the length of prompts --

SAID = "Halo 🎉"  # six characters, ten bytes, and more where JSON escapes them
SHAPES = {
    "a prompt": {"messages": [{"role": "user", "content": SAID}]},
    "blocks": {"messages": [{"role": "user", "content": [{"type": "text", "text": SAID}]}]},
    "a system": {"system": SAID, "messages": []},
    "a tool": {"messages": [], "tools": [{"type": "function", "function": {"name": "f", "description": SAID[1:]}}]},
    "a result": {"messages": [{"role": "tool", "tool_call_id": "c", "content": SAID}]},
}
PICTURE = image_url(data_url(png(90, 90)))


def long(by: int, body: dict[str, Any], *, is_ascii: bool = False) -> str | None:
    """The member at fault of a call that is too long for a policy that allows *by* characters."""
    fields = {name: Raw(json.dumps(value, ensure_ascii=is_ascii).encode()) for name, value in body.items()}
    whole = Call("openai_chat", fields, "m", stream=True, options=CallOptions())
    try:
        [*measured(whole, CallTerms(max_prompt_chars=by))]
    except GatewayError as error:
        return f"{error.kind.code} {error.param}"
    return None


@pytest.mark.parametrize("is_ascii", [True, False])
@pytest.mark.parametrize("body", SHAPES.values(), ids=SHAPES)
def test_the_longest_prompt(body: dict[str, Any], is_ascii: bool) -> None:
    """Characters of all texts count together, however they are spelled and wherever they stand."""
    name = next(name for name in ("system", "tools", "messages") if body.get(name))

    assert long(6, body, is_ascii=is_ascii) is None
    assert long(5, body, is_ascii=is_ascii) == f"policy_denied {name}"


def test_pictures_are_no_texts() -> None:
    """What a picture is made of does not count."""
    assert long(6, {"messages": [{"role": "user", "content": [PICTURE, {"type": "text", "text": SAID}]}]}) is None


def test_a_prompt_is_measured_in_pieces() -> None:
    """Others are served between messages, and what is surely short enough is not looked at."""
    fields = {"messages": Raw(json.dumps([{"role": "user", "content": "word" * 500}] * 40).encode())}
    whole = Call("openai_chat", fields, "m", stream=True, options=CallOptions())

    assert [*measured(whole, CallTerms(max_prompt_chars=80_000))] == [18_000, 36_000, 54_000, 72_000]
    assert [*measured(whole, CallTerms(max_prompt_chars=len(fields["messages"])))] == []


# -- the length of answers --


def limited(most: int | None, **fields: bytes) -> dict[str, bytes] | str:
    """The members of the call that is sent, or the refusal."""
    try:
        sent = bounded(call("m", **fields), CallTerms(max_tokens=most))
    except GatewayError as error:
        return f"{error.kind.status} {error.kind.code} {error.param}"
    return {name: bytes(raw) for name, raw in sent.fields.items()}


DENIED, NEWER = "403 policy_denied", "max_completion_tokens"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {NEWER: b"100"}),
        ({"max_tokens": b"null"}, {"max_tokens": b"null", NEWER: b"100"}),
        ({NEWER: b"null"}, {NEWER: b"100"}),
        ({"max_tokens": b"100"}, {"max_tokens": b"100"}),
        ({NEWER: b"1", "max_tokens": b"100"}, {NEWER: b"1", "max_tokens": b"100"}),
        ({"max_tokens": b"101"}, f"{DENIED} max_tokens"),
        ({"max_tokens": b"1", NEWER: b"101"}, f"{DENIED} {NEWER}"),
        ({"max_tokens": b"1e2"}, f"{DENIED} max_tokens"),
        ({"max_tokens": b"99.0"}, f"{DENIED} max_tokens"),
    ],
)
def test_the_longest_answer(fields: dict[str, bytes], expected: dict[str, bytes] | str) -> None:
    """A call that asks for more is refused at the member that does, as is a number that can be read in two ways; one
    that does not say is sent with what the policy allows."""
    assert limited(100, **fields) == expected


@pytest.mark.parametrize(("longest", "sent"), [(None, b"100"), (4096, b"100"), (50, b"50")])
def test_a_model_with_shorter_answers(longest: int | None, sent: bytes) -> None:
    """No more is sent along than the model can say: its provider would refuse the call."""
    made = bounded(call("m"), CallTerms(max_tokens=100), longest)

    assert {name: bytes(raw) for name, raw in made.fields.items()} == {NEWER: sent}


def test_nothing_is_changed_without_a_limit() -> None:
    """A call is sent as it came where no policy limits its answer, and where there will be none."""
    plain = call("m")

    assert bounded(plain, CallTerms()) is plain
    counted = structs.replace(plain, task="count")
    assert bounded(counted, CallTerms(max_tokens=1)) is counted


@pytest.mark.parametrize(
    ("of_the_key", "of_the_policy", "expected"),
    [(True, None, True), (True, True, True), (True, False, False), (False, True, False), (False, None, False)],
)
def test_bodies(of_the_key: bool, of_the_policy: bool | None, expected: bool) -> None:
    """Bodies are kept where the key allows it and no policy says the opposite."""
    rules = Rules({}, calls=CallTerms(log_bodies=of_the_policy))

    assert may_keep(Key("k", "acme", Tier("pro"), log_bodies=of_the_key, rules=rules)) is expected
