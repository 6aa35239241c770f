"""Providers, models, tiers and keys: what is refused, and what the core gets."""

from __future__ import annotations

import copy
import hashlib
import tomllib
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.core.accounts import Budget, Burst, Tier
from gateway.core.catalog import Drain, allows
from gateway.core.money import Price, parse_weight, weigh
from gateway.providers.presets import PRESETS
from gateway.settings import Settings, SettingsError, build_catalog, build_keys, from_document, load

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "gateway.toml"
ENVIRON = {"OPENAI_API_KEY": "sk-canary-openai", "ANTHROPIC_API_KEY": "sk-canary-anthropic"}
DOCUMENT: dict[str, Any] = {
    "providers": {"main": {"preset": "openai", "api_key": {"env": "OPENAI_API_KEY"}}},
    "models": {
        "gpt-4o": {
            "class": "mid",
            "context_window": 128000,
            "price": {"input": "2.50", "output": "10.00"},
            "routes": [{"provider": "main", "model": "gpt-4o-2024"}],
        }
    },
    "tiers": {"pro": {"rpm": 120}},
    "keys": {"anm-sk-canary": {"tenant": "demo", "tier": "pro"}},
}
LATER = "belongs to a later version; this one would not enforce it, so it refuses it: remove it"


def settings(document: Mapping[str, Any], environ: Mapping[str, str] = ENVIRON, folder: Path = Path()) -> Settings:
    return from_document(document, environ, {}, presets=PRESETS, folder=folder)


def changed(*path: str | int, to: object) -> dict[str, Any]:
    """DOCUMENT with the value at *path* replaced."""
    document = copy.deepcopy(DOCUMENT)
    node: Any = document
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = to
    return document


def problems(document: Mapping[str, Any], environ: Mapping[str, str] = ENVIRON, folder: Path = Path()) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        settings(document, environ, folder)
    return caught.value.problems


def test_example() -> None:
    """The example in the documentation is a configuration that works."""
    got = load(str(EXAMPLE), ENVIRON, {}, presets=PRESETS)

    catalog = build_catalog(got, PRESETS)
    keys = build_keys(got)
    assert list(catalog.models) == ["gpt-4o", "claude-sonnet-4-6", "llama-3.2"]
    assert catalog.visible_to(keys["anm-sk-demo"]) == tuple(catalog.models.values())
    assert catalog.models["llama-3.2"].routes[0].provider.secret is None


def test_example_shows_the_defaults() -> None:
    """A value that is commented out in the example is the default: with all of them in force nothing changes."""
    lines = EXAMPLE.read_text().splitlines()
    spoken = "\n".join(line[2:] if line.startswith("# ") and " = " in line.split("#")[1] else line for line in lines)
    assert spoken.count("idle_s = 90") == 1

    told = settings(tomllib.loads(spoken))

    assert settings(tomllib.loads(EXAMPLE.read_text())) == told


def test_catalog() -> None:
    """Providers get preset, header and weight; models their class weight, price and routes in fallback order."""
    document = changed(
        "models", "gpt-4o", "routes", to=[{"provider": "b", "model": "y"}, {"provider": "main", "model": "x"}]
    )
    document["providers"]["b"] = {"preset": "openai_compatible", "base_url": "http://10.0.0.5:8000/v1/", "region": "SG"}

    catalog = build_catalog(settings(document), PRESETS)

    model = catalog.models["gpt-4o"]
    first, second = (route.provider for route in model.routes)
    assert [route.id for route in model.routes] == ["b/y", "main/x"]
    assert (first.base_url, first.region, first.type) == ("http://10.0.0.5:8000/v1", "SG", "self_hosted")
    assert first.secret is None
    assert (second.base_url, second.region) == ("https://api.openai.com/v1", "US")
    assert second.secret == ("Authorization", "Bearer sk-canary-openai")
    assert (first.weight, second.weight, model.weight) == (parse_weight("0.5"), parse_weight("1"), parse_weight("4"))
    assert (model.context_window, model.max_output_tokens, model.input, model.tools) == (128000, None, ("text",), True)
    assert catalog.modes["provider_cache"] == parse_weight("0.9")
    assert weigh(1000, catalog.modes["cache_hit"]) == 0


def test_routing() -> None:
    """Strategy, weights and residency arrive; a route is measured where some model's strategy looks at it."""
    document = changed("keys", "anm-sk-canary", "region_preference", to="sg_only")
    document["providers"]["b"] = {"preset": "openai_compatible", "base_url": "http://10.0.0.5", "region": "sg"}
    document["providers"]["b"] |= {"on_cancel": "drain", "drain_max_s": 5, "drain_max_tokens": 100}
    plain = document["models"]["gpt-4o"]
    routes = [*plain["routes"], {"provider": "b", "model": "x", "weight": 0, "tools": False}]
    document["models"]["balanced"] = plain | {"routes": routes, "strategy": "least_loaded", "residency": "sg_only"}
    document["models"]["other"] = plain | {"routes": [{"provider": "b", "model": "y"}], "strategy": "lowest_latency"}

    got = settings(document)

    models = build_catalog(got, PRESETS).models
    main, b = models["balanced"].routes
    assert (models["balanced"].strategy, models["balanced"].residency) == ("least_loaded", "sg_only")
    assert (main.weight, main.tools, b.weight, b.tools) == (1, None, 0, False)
    assert (main.is_measured, b.is_measured) == (True, True)
    assert models["gpt-4o"].routes[0].is_measured  # the same route
    assert not models["other"].routes[0].is_measured  # there is nothing to choose
    assert (main.provider.drain, b.provider.drain) == (None, Drain(5, 100))
    assert build_keys(got)["anm-sk-canary"].residency == "sg_only"


def test_weights_can_be_changed_one_by_one() -> None:
    """A factor that is given replaces the default; the others stay."""
    document = changed("metering", to={"class_weight": {"mid": "3.5"}, "provider_weight": {"cloud_direct": "0.9"}})

    catalog = build_catalog(settings(document), PRESETS)

    model = catalog.models["gpt-4o"]
    assert (model.weight, model.routes[0].provider.weight) == (parse_weight("3.5"), parse_weight("0.9"))
    assert catalog.modes["batch"] == parse_weight("0.5")


@pytest.mark.parametrize(
    ("price", "expected"),
    [
        ({"input": "2.50", "output": "10"}, Price(2_500_000, 10_000_000, 2_500_000, 2_500_000)),
        ({"input": "3", "output": "15", "cached_input": "0.30"}, Price(3_000_000, 15_000_000, 300_000, 3_000_000)),
        ({"input": "3", "output": "0", "cache_write": "3.75"}, Price(3_000_000, 0, 3_000_000, 3_750_000)),
        ({"input": "3", "output": "1", "cached_input": "0", "cache_write": "0"}, Price(3_000_000, 1_000_000, 0, 0)),
        ({"input": "0", "output": "0"}, Price(0, 0, 0, 0)),
    ],
)
def test_prices(price: dict[str, str], expected: Price) -> None:
    """Cache prices default to the price of input; an explicit 0 is a price like any other."""
    catalog = build_catalog(settings(changed("models", "gpt-4o", "price", to=price)), PRESETS)

    assert expected == catalog.models["gpt-4o"].price


@pytest.mark.parametrize("missing", ["input", "output"])
def test_use_12_missing_price(missing: str) -> None:
    """USE-12: a model without a price is refused at load and never costs nothing by accident."""
    document = copy.deepcopy(DOCUMENT)
    del document["models"]["gpt-4o"]["price"][missing]
    (problem,) = problems(document)

    assert problem.startswith(f'models."gpt-4o".price.{missing}: is missing')
    assert 'never taken for 0, so write "0"' in problem


def test_use_12_no_prices_at_all() -> None:
    """USE-12: so is a model without the whole table."""
    document = copy.deepcopy(DOCUMENT)
    del document["models"]["gpt-4o"]["price"]

    assert problems(document)[0].startswith('models."gpt-4o".price: is missing')


@pytest.mark.parametrize("value", [2.5, 2, "", "free", "-1", "0.0000001", "1000001", "NaN", None, True])
def test_bad_price(value: object) -> None:
    """A price is decimal text from 0 to a million; a TOML float could not hold it exactly."""
    (problem,) = problems(changed("models", "gpt-4o", "price", "output", to=value))

    assert problem.startswith('models."gpt-4o".price.output: ')


def test_keys() -> None:
    """A key is known by its secret; its id is derived from the digest and holds nothing of the secret."""
    keys = build_keys(settings(DOCUMENT))

    key = keys["anm-sk-canary"]
    assert key.id == "key_" + hashlib.sha256(b"anm-sk-canary").hexdigest()[:12]
    assert (key.tenant, key.tier) == ("demo", Tier("pro", rpm=120))


def test_key_overrides_its_tier() -> None:
    """Limits of a key replace those of its tier one by one."""
    document = changed("keys", "anm-sk-canary", to={"tenant": "t", "tier": "pro", "inflight": 2, "classes": ["budget"]})

    key = build_keys(settings(document))["anm-sk-canary"]

    assert key.tier == Tier("pro", rpm=120, inflight=2, classes=frozenset({"budget"}))
    assert not allows(key, build_catalog(settings(document), PRESETS).models["gpt-4o"])


def test_enterprise_is_built_in() -> None:
    """The tier "enterprise" needs no entry, and a file that has one replaces it."""
    document = changed("keys", "anm-sk-canary", "tier", to="enterprise")

    assert build_keys(settings(document))["anm-sk-canary"].tier == Tier("enterprise", rpm=100_000)
    document["tiers"]["enterprise"] = {"rpm": 7}
    assert build_keys(settings(document))["anm-sk-canary"].tier == Tier("enterprise", rpm=7)


def test_limits_of_a_plan_become_facts() -> None:
    """Bursts, tokens, allowances, overage and budgets are held as whole numbers; money as nano-USD."""
    document = changed("tiers", "pro", "tpm", to=400_000)
    document["tiers"]["pro"] |= {
        "burst": {"capacity": 600, "refill_per_min": 10},
        "weighted_tokens_per_month": 20_000_000,
        "overage_usd_per_million": "1.20",
    }
    document["keys"]["anm-sk-canary"] |= {
        "budget_usd": "5.00",
        "budgets": [{"scope": "session", "period": "total", "usd": "0.000001"}, {"period": "day", "usd": "1"}],
        "when_blind": "closed",
    }

    key = build_keys(settings(document))["anm-sk-canary"]

    assert (key.tier.tpm, key.tier.burst, key.when_blind) == (400_000, Burst(600, 10), "closed")
    assert (key.tier.weighted_tokens_per_month, key.tier.overage_nano_usd_per_million) == (20_000_000, 1_200_000_000)
    assert key.budgets == (
        Budget("session", "total", 1_000),
        Budget("key", "day", 10**9),
        Budget("key", "month", 5 * 10**9),
    )


@pytest.mark.parametrize("name", ["starter", "pro", "payg", "enterprise"])
def test_plans_ship(name: str) -> None:
    """A key may name one of them without the file writing it down; only starter ends with its allowance."""
    document = changed("keys", "anm-sk-canary", "tier", to=name)
    del document["tiers"]

    tier = build_keys(settings(document))["anm-sk-canary"].tier

    hard = tier.weighted_tokens_per_month is not None and tier.overage_nano_usd_per_million is None
    assert (tier.name, hard) == (name, name == "starter")


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("tiers", "pro", "burst"), {"capacity": 600}, "tiers.pro.burst.refill_per_min: is missing"),
        (
            ("tiers", "pro", "overage_usd_per_million"),
            "1.2",
            "overage_usd_per_million: there is no allowance",
        ),
        (("tiers", "pro", "burst"), {"capacity": 6, "refill_per_min": 1}, "tiers.pro.burst: there is no rpm"),
        (("keys", "anm-sk-canary", "budget_usd"), "-1", "'-1' is not a plain decimal"),
        (("keys", "anm-sk-canary", "budget_usd"), "1000000000.01", "'1000000000.01' is not a plain decimal"),
        (("keys", "anm-sk-canary", "budgets"), [{"period": "year", "usd": "1"}], '"year" is not one of'),
        (("limits",), {"lease_s": 1, "renew_s": 2}, "limits.renew_s: 2 is not at most lease_s (1)"),
    ],
)
def test_limits_that_make_no_sense_are_refused(path: tuple[str, ...], value: object, problem: str) -> None:
    """Each at its place, before anything starts."""
    document = changed(*path, to=value)
    document["tiers"]["pro"].pop("rpm", None)

    (told,) = problems(document)

    assert problem in told


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (("models", "gpt-4o", "price", "batch_factor"), "0.5", 'models."gpt-4o".price.batch_factor'),
    ],
)
def test_later_versions_are_not_pretended(path: tuple[str, ...], value: object, place: str) -> None:
    """A limit or guardrail that this version does not enforce is refused, not ignored."""
    assert problems(changed(*path, to=value)) == [f"{place}: {LATER}"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("keys", "anm-sk-canary", "prefer_batch"), False),
    ],
)
def test_what_this_version_does_anyway_may_be_said(path: tuple[str | int, ...], value: object) -> None:
    """A setting of a later version may have the one value that describes this one; it changes nothing."""
    assert settings(changed(*path, to=value)) == settings(DOCUMENT)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("keys", "anm-sk-canary", "region_preference"), "id", '"id" is not one of "any", "sg_only", "id_only"'),
        (("models", "gpt-4o", "residency"), "id_only", "leaves no route: none of its providers is in ID"),
        (("models", "gpt-4o", "strategy"), "random", '"random" is not one of "fallback"'),
        (("keys", "anm-sk-canary", "prefer_batch"), True, "true is for a later version; in this one: only false"),
        (("keys", "anm-sk-canary", "prefer_batch"), 0, "0 is for a later version; in this one: only false"),
        (("providers", "main", "on_cancel"), "wait", '"wait" is not one of "abort", "drain"'),
        (("providers", "main", "drain_max_s"), 0, "0 is not within 0.1 to 600"),
        (("models", "gpt-4o", "routes", 0, "weight"), 1001, "1001 is not within 0 to 1000"),
        (("models", "gpt-4o", "routes", 0, "weight"), 0.5, "0.5 is not a whole number"),
        (("models", "gpt-4o", "routes", 0, "provider"), "other", 'there is no provider "other"; there are: main'),
        (("models", "gpt-4o", "routes"), [], "must be a list of at least one table"),
        (("models", "gpt-4o", "routes"), "main/gpt-4o", "must be a list of at least one table"),
        (("models", "gpt-4o", "routes"), [{"provider": "main", "model": "x"}] * 2, "routes[1]: is the same route"),
        (("models", "gpt-4o", "class"), "huge", 'class: "huge" is not one of "budget"'),
        (("models", "gpt-4o", "max_output_tokens"), 128001, "128001 is not at most context_window (128000)"),
        (("models", "gpt-4o", "context_window"), 0, "0 is not within 1 to 100000000"),
        (("models", "gpt-4o", "input"), ["smell"], 'is not a list of "text", "image", "audio", "file"'),
        (("models", "gpt-4o", "input"), [], "[] is empty"),
        (("models", "gpt-4o", "tool"), False, "there is no such setting; did you mean tools?"),
        (("models", "gpt 4o"), DOCUMENT["models"]["gpt-4o"], 'models."gpt 4o": the name is not a name of'),
        (("models",), [], "models: is not a table"),
        (("keys",), "anm-sk-canary", "keys: is not a table"),
        (("keys", "anm-sk-canary"), 1, "keys.(number 1): 1 is not a table"),
        (
            ("keys", "anm-sk-canary", "tier"),
            "gold",
            'is no tier "gold"; there are: starter, pro, payg, enterprise',
        ),
        (("keys", "sk-canary"), {"tenant": "a", "tier": "pro"}, 'keys.(number 2): the name is not "anm-sk-"'),
        (("keys", " anm-sk-canary"), {"tenant": "a", "tier": "pro"}, 'keys.(number 2): the name is not "anm-sk-"'),
        (("tiers", "pro", "classes"), ["mid", "gold"], "is not a list of"),
        (("tiers", "pro", "classes"), ["mid", "mid"], "is a list with an entry twice"),
        (("tiers", "pro", "rpm"), 0, "0 is not within 1 to 1000000000"),
        (("providers", "main", "preset"), "opnai", '"opnai" is not a preset; there are: anthropic'),
        (("providers", "main", "preset"), "openai_compatible", "base_url: is missing"),
        (
            ("providers", "main"),
            {"preset": "openai"},
            "providers.main.api_key: is missing; the preset openai needs api_key",
        ),
        (("providers", "a/b"), {"preset": "openai", "api_key": "x"}, 'providers."a/b": the name is not a name of'),
        (("metering",), {"class_weight": {"mid": "-1"}}, "metering.class_weight.mid: '-1' is not a "),
        (("metering",), {"class_weight": {"mid": 4}}, "4 is not a decimal as text"),
        (("metering",), {"class_weight": {"midd": "4"}}, "did you mean mid?"),
    ],
)
def test_refused(path: tuple[str | int, ...], value: object, problem: str) -> None:
    """Each mistake is one problem that names its place and does not show a key."""
    (found,) = problems(changed(*path, to=value))

    assert problem in found
    assert "canary" not in found


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.openai.com/v1",
        "ftp://api.openai.com",
        "https://",
        "https:///v1",
        "https://user:canary@api.openai.com/v1",
        "https://canary@api.openai.com/v1",
        "https://api.openai.com/v1?key=canary",
        "https://api.openai.com/v1#canary",
        "https://api.openai.com/v1?",
        "https://api.openai.com:port/v1",
        "https://api.openai.com:99999/v1",
        "https://[::1/v1",
        "https://api.openai.com/v 1",
        "https://api.openai.com/v1\r\nx: y",
    ],
)
def test_base_url(url: str) -> None:
    """A base URL is http(s) with a host and a path, nothing else; a credential in it is not repeated."""
    (problem,) = problems(changed("providers", "main", "base_url", to=url))

    assert problem.startswith("providers.main.base_url: the value is ")
    assert "canary" not in problem


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"env": "NOT_SET"}, "the environment variable NOT_SET is not set"),
        ({"env": "EMPTY"}, "the environment variable EMPTY is not set"),
        ({"env": "gsk_canary"}, "the environment variable that env names is not set"),
        ({"file": "canary.key"}, "the file cannot be read: No such file or directory"),
        ({"file": "binary.key"}, "the file cannot be read: not plain text"),
        ({"file": "huge.key"}, "the file is too large to hold a key"),
        ({"file": "blank.key"}, "the key is empty"),
        ({"env": "A", "file": "canary"}, 'must be text, { env = "NAME" } or { file = "path" }'),
        ({}, 'must be text, { env = "NAME" } or { file = "path" }'),
        (5, 'must be text, { env = "NAME" } or { file = "path" }'),
        ("", "the key is empty"),
        ("sk canary", "has blanks or characters that a header cannot hold"),
        ("sk-canary\r\nx: y", "has blanks or characters that a header cannot hold"),
        ("sk-canary-é", "has blanks or characters that a header cannot hold"),
    ],
)
def test_api_key_problems(tmp_path: Path, value: object, problem: str) -> None:
    """A provider's key that is missing or cannot be a header is a problem; what was written is not shown."""
    (tmp_path / "binary.key").write_bytes(b"\xffcanary")
    (tmp_path / "blank.key").write_text(" \n")
    (tmp_path / "huge.key").write_text("canary" * 20_000)

    (found,) = problems(changed("providers", "main", "api_key", to=value), {"EMPTY": ""}, tmp_path)

    assert found.startswith("providers.main.api_key: ")
    assert problem in found
    assert "canary" not in found


def test_literal_api_key() -> None:
    """A key may stand in the file itself."""
    catalog = build_catalog(settings(changed("providers", "main", "api_key", to="sk-literal")), PRESETS)

    assert catalog.models["gpt-4o"].routes[0].provider.secret == ("Authorization", "Bearer sk-literal")


def test_a_broken_entry_breaks_no_other() -> None:
    """References to an entry that has problems of its own are not reported as well."""
    document = changed("providers", "main", "region", to="not a region")
    document["tiers"]["pro"]["rpm"] = -1

    found = problems(document)

    assert [problem.split(":")[0] for problem in found] == ["providers.main.region", "tiers.pro.rpm"]


def test_a_problem_hides_no_other() -> None:
    """What has a problem of its own is checked all the same against what it refers to, and so are its neighbours."""
    document = changed("providers", "main", to={"preset": "opnai", "api_key": {"env": "NOT_SET"}})
    document["server"] = {"port": "x", "max_body_bytes": 4096, "max_image_body_bytes": 2048, "drain_s": 60}
    document["models"]["gpt-4o"] |= {"class": "huge", "max_output_tokens": 200_000}
    document["models"]["gpt-4o"]["routes"] = [{"provider": "main"}, {"provider": "other", "model": "x", "wait": 1}, 7]
    document["keys"]["anm-sk-canary"] = {"tenant": "a b", "tier": "gold"}

    found = problems(document)

    assert sorted(problem.split(": ")[0] for problem in found) == [
        "keys.(number 1).tenant",
        "keys.(number 1).tier",
        'models."gpt-4o".class',
        'models."gpt-4o".max_output_tokens',
        'models."gpt-4o".routes[0].model',
        'models."gpt-4o".routes[1].provider',
        'models."gpt-4o".routes[1].wait',
        'models."gpt-4o".routes[2]',
        "providers.main.api_key",
        "providers.main.preset",
        "server.drain_s",
        "server.max_body_bytes",
        "server.port",
    ]


def test_what_is_wrong_is_not_missing() -> None:
    """A base_url or a key that is there, but unusable, is reported once and not as missing too."""
    compatible = changed("providers", "main", to={"preset": "openai_compatible", "base_url": "nowhere"})
    vendor = changed("providers", "main", "api_key", to={"env": "NOT_SET"})

    found = [problem.split(": ")[0] for document in (compatible, vendor) for problem in problems(document)]

    assert found == ["providers.main.base_url", "providers.main.api_key"]


def test_names_with_a_dot() -> None:
    """A name that TOML took apart at its dot is told to be quoted; what follows the dot of a key stays hidden."""
    document = tomllib.loads("[models.gpt-4o.mini]\nclass = 'mid'\n[keys.anm-sk-a.canary]\ntenant = 'a'\n")

    found = problems(document)

    assert 'models."gpt-4o".mini: there is no such setting (quote names that have a dot)' in found
    assert "keys.(number 1): there is no such setting (quote names that have a dot)" in found
    assert "canary" not in "".join(found)


@pytest.mark.parametrize("show", [repr, str, "{}".format, lambda got: repr(build_catalog(got, PRESETS))])
def test_secrets_are_masked(show: Callable[[object], str]) -> None:
    """No way of printing settings or catalogue shows a key, a provider's key or a password."""
    document = changed("storage", to={"database_url": "postgres://u:canary@db/x", "redis_url": "redis://:canary@c"})

    text = show(settings(document))

    assert "canary" not in text


FREE = {"input": "0", "output": "0"}
PRICES = [
    {"from": "2026-03-13", "price": {"input": "2", "output": "8"}},
    {"from": "2026-12-01", "price": {"input": "4", "output": "16", "cached_input": "0.4"}},
]


def test_prices_have_their_days() -> None:
    """A price holds from the beginning of its day, in UTC, to that of the next one's."""
    model = build_catalog(settings(changed("models", "gpt-4o", "effective", to=PRICES)), PRESETS).models["gpt-4o"]
    march, december = (datetime(2026, *day, tzinfo=UTC).timestamp() for day in ((3, 13), (12, 1)))
    moments = (0.0, march - 0.001, march, december - 0.001, december, december + 10**9)

    assert [model.price_at(moment).input for moment in moments] == [
        2_500_000, 2_500_000, 2_000_000, 2_000_000, 4_000_000, 4_000_000,
    ]  # fmt: skip
    assert model.price_at(december).cached_input == 400_000


def test_long_prompts_have_their_own_price() -> None:
    """Each price of long prompts is whole: what it leaves out is the price of its own input."""
    long = [{"above": 1000, "input": "5", "output": "15"}, {"above": 2000, "input": "9", "output": "9"}]

    price = (
        build_catalog(settings(changed("models", "gpt-4o", "price", "long", to=long)), PRESETS).models["gpt-4o"].price
    )

    first, second = Price(5_000_000, 15_000_000, 5_000_000, 5_000_000), Price(*[9_000_000] * 4)
    assert price.long == ((1000, first), (2000, second))


@pytest.mark.parametrize(
    ("path", "value", "place", "problem"),
    [
        (("effective",), PRICES[::-1], "effective[1].from", '"2026-03-13" does not follow "2026-12-01"'),
        (("effective",), PRICES[:1] * 2, "effective[1].from", '"2026-03-13" does not follow "2026-03-13"'),
        (("effective",), [], "effective", "must be a list of at least one table"),
        (("effective",), [{"from": "2026-02-30", "price": PRICES[0]["price"]}], "effective[0].from", "is not a day"),
        (("effective",), [{"from": "2026-W11-5", "price": PRICES[0]["price"]}], "effective[0].from", "is not a day"),
        (("effective",), [{"from": date(2026, 3, 13), "price": PRICES[0]["price"]}], "effective[0].from", "not a day"),
        (("effective",), [{"from": "2026-03-13"}], "effective[0].price", "is missing"),
        (("effective",), [{"from": "2026-03-13", "price": {"input": "1"}}], "effective[0].price.output", "is missing"),
        (("price", "long"), [{"above": 9, **FREE}, {"above": 9, **FREE}], "price.long[1].above", "9 does not follow 9"),
        (("price", "long"), [{"above": 0, **FREE}], "price.long[0].above", "0 is not within"),
        (("price", "long"), [FREE], "price.long[0].above", "is missing"),
        (("price", "long"), [{"above": 9, "input": "1"}], "price.long[0].output", "is missing"),
    ],
)
def test_prices_that_make_no_sense(path: tuple[str, ...], value: object, place: str, problem: str) -> None:
    """A day that is none, prices that do not ascend and a price that is not known are problems with their places."""
    (found,) = problems(changed("models", "gpt-4o", *path, to=value))

    assert found.startswith(f'models."gpt-4o".{place}: ')
    assert problem in found
