"""The models that ship with the gateway: that they make sense, when they are served, and how a file changes them."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gateway.core.catalog import Catalog, Model
from gateway.core.money import Price
from gateway.providers.aws import AREAS, UNKNOWN, area
from gateway.providers.presets import PRESETS
from gateway.settings import (
    Settings,
    SettingsError,
    build_catalog,
    describe,
    from_document,
    shipped_presets,
    warnings_text,
)
from gateway.settings.shipped import shipped_models, with_shipped

# Presets whose models cannot be known: they are called what their operator calls them, or priced by nobody.
OPERATORS_OWN = {"azure", "ollama", "vllm", "openai_compatible", "openai_compatible_plain", "anthropic_compatible"}
DOCUMENTED = {"claude-sonnet-4-6", "gpt-4o", "deepseek-v3", "claude-sonnet-bedrock-id"}  # slugs of our documents
LAST_EPOCH_S = 10**11
ROWS = pytest.mark.parametrize("slug", shipped_models())


def provider(preset: str, **more: Any) -> dict[str, Any]:
    return {"preset": preset, "api_key": "sk-x", **more}


def settings(*presets: str, models: Any = None, **providers: dict[str, Any]) -> Settings:
    """A file with an account at each of *presets*, called as they are, and with *providers*."""
    document: dict[str, Any] = {"catalogue": {"shipped": True}}
    document["providers"] = {name: provider(name) for name in presets} | providers
    if models is not None:
        document["models"] = models
    return from_document(document, {}, {}, presets=PRESETS)


def catalog(*presets: str, models: Any = None, **providers: dict[str, Any]) -> Catalog:
    return build_catalog(settings(*presets, models=models, **providers), PRESETS)


@cache
def everything() -> Catalog:
    """Every row as a model, with each of its routes at an account of the preset in the place that it is for."""
    presets = {name: PRESETS.get(name, replace(PRESETS["openai"], name=name)) for name in sorted(shipped_presets())}
    places = {None: "US", "us-": "US", "eu-": "EU", "ap-southeast-3": "ID", "ap-southeast-1": "SG", "us-west-2": "US"}
    accounts = {f"{name}.{at}": provider(name, region=region) for name in presets for at, region in places.items()}
    models = {}
    for slug, row in shipped_models().items():
        facts = {name: value for name, value in row.items() if name not in ("source", "checked")}
        routes = [
            {"provider": f"{route['provider']}.{route.get('aws_region')}", "model": route["model"]}
            for route in row["routes"]
        ]
        models[slug] = facts | {"routes": routes}
    document = {"providers": accounts, "models": models}
    return build_catalog(from_document(document, {"AWS_REGION": "us-east-1"}, {}, presets=presets), presets)


# -- the file --


@ROWS
def test_each_row_has_a_source(slug: str) -> None:
    """A row says where its facts are from, and as of which day."""
    row = shipped_models()[slug]

    assert re.fullmatch(r"\w[^:]+: .+", row["source"])
    assert date(2026, 1, 1) <= date.fromisoformat(row["checked"]) <= date.today()


@ROWS
def test_each_row_names_presets(slug: str) -> None:
    """The routes of a row name presets that there are."""
    for route in shipped_models()[slug]["routes"]:
        assert route["provider"] in PRESETS


def test_only_profiles_have_an_area() -> None:
    """A model's own id on Bedrock, whatever dots its version has, is computed in the region that is asked."""
    names = {
        route["model"]
        for row in shipped_models().values()
        for route in row["routes"]
        if route["provider"] == "bedrock" and route["model"].partition(".")[0] not in AREAS
    }

    assert "deepseek.v3.2" in names
    assert {area(name) for name in names} == {None}
    assert [area(f"xx.{name}") for name in ("ai21.jamba-1-5-large-v1:0", "deepseek.r1-v1:0")] == [UNKNOWN] * 2


def test_each_vendor_has_rows() -> None:
    """A preset has models in the file, unless they are its operator's own."""
    assert PRESETS.keys() - OPERATORS_OWN <= shipped_presets()
    assert OPERATORS_OWN.isdisjoint(shipped_presets())


def test_the_first_page_names_each_key() -> None:
    """The variables that the demo looks for are those of its list."""
    text = (Path(__file__).parents[2] / "README.md").read_text()
    said = re.search(r"usual key variable is set \(([^)]+)\)", text)

    assert said is not None
    assert set(re.findall(r"`(\w+)`", said[1])) - {"AWS_REGION"} == {
        preset.key_variable for name, preset in PRESETS.items() if name in shipped_presets()
    }


def test_region_slugs_of_an_account() -> None:
    """An account in Jakarta has the slugs of its own region and those of anywhere, whose region is never its own."""
    account = {"preset": "bedrock", "api_key": "x", "aws_region": "ap-southeast-3"}

    models = catalog(aws=account).models

    name = "claude-sonnet-bedrock"
    homes = {slug: model.routes[0].provider.region for slug, model in models.items() if slug.startswith(name)}
    assert homes == {name: "ID", f"{name}-id": "ID", f"{name}-global": "GLOBAL"}


def test_documented_slugs() -> None:
    """The slugs of the documents are among them."""
    assert shipped_models().keys() >= DOCUMENTED


def test_each_row_is_a_model() -> None:
    """Every row is read without a problem."""
    assert everything().models.keys() == shipped_models().keys()


def prices(model: Model) -> list[Price]:
    """Every price that *model* has or will have, of long prompts too."""
    dated = [model.price, *(price for _, price in model.effective)]
    return dated + [long for price in dated for _, long in price.long]


@ROWS
def test_prices_make_sense(slug: str) -> None:
    """No price is 0; an answer costs no less than a prompt, what is read from a cache no more; longer is dearer."""
    for price in prices(everything().models[slug]):
        assert 0 < price.cached_input <= price.input <= price.output
        assert price.cache_write >= price.input
        assert all(long.input > price.input and long.output > price.output for _, long in price.long)


def test_an_hour_in_claudes_cache() -> None:
    """Every price of a Claude has that of an hour, twice that of input; nobody else has one."""
    found = {slug: prices(model) for slug, model in everything().models.items()}

    for slug, all_prices in found.items():
        expected = [2 * price.input if "claude" in slug else None for price in all_prices]
        assert [price.cache_write_1h for price in all_prices] == expected


@ROWS
def test_each_input_has_a_way_in(slug: str) -> None:
    """No row promises what neither endpoint takes: sound, whatever the vendor's own API does with it."""
    assert set(shipped_models()[slug]["input"]) <= {"text", "image", "file"}


@ROWS
def test_class_follows_the_price(slug: str) -> None:
    """The class is that of the last list price of output, as the head of the file says."""
    model = everything().models[slug]
    usd = model.price_at(LAST_EPOCH_S).output / 10**6

    expected = "budget" if usd < 4 else "mid" if usd < 20 else "premium" if usd <= 50 else "ultra"

    assert model.model_class == expected


@pytest.mark.parametrize(
    ("ending", "aws_region", "residency"),
    [
        ("us", "us-", "any"),
        ("eu", "eu-", "any"),
        ("id", "ap-southeast-3", "id_only"),
        ("sg", "ap-southeast-1", "sg_only"),
    ],
)
def test_a_region_in_a_slug_is_kept(ending: str, aws_region: str, residency: str) -> None:
    """A slug that ends in a region is for accounts there alone, and where a key may ask for it, fails closed."""
    found = {slug: row for slug, row in shipped_models().items() if slug.endswith(f"-{ending}")}

    assert len(found) >= 4
    for slug, row in found.items():
        assert [route["aws_region"] for route in row["routes"]] == [aws_region]
        assert everything().models[slug].residency == residency


# -- when they are served --


def test_only_where_the_file_says_so() -> None:
    """Without the setting a file's own models are all there are."""
    document = {"providers": {"openai": provider("openai")}}

    loaded = from_document(document, {}, {}, presets=PRESETS)

    assert loaded.models == {}
    assert "`shipped = true` in [catalogue]" in warnings_text(loaded)
    assert "[catalogue]" not in warnings_text(from_document({}, {}, {}, presets=PRESETS))


def test_by_variable() -> None:
    """The setting can come from the environment like every other."""
    document = {"providers": {"openai": provider("openai")}}

    loaded = from_document(document, {"GATEWAY_CATALOGUE_SHIPPED": "true"}, {}, presets=PRESETS)

    assert "gpt-4o" in loaded.models


def test_a_model_is_there_where_a_provider_is() -> None:
    """A shipped model is served when a provider of one of its routes is configured, by the routes that are."""
    one, both = catalog("anthropic").models, catalog("openrouter", "anthropic").models

    assert "gpt-4o" not in one
    assert [route.id for route in one["claude-sonnet-4-6"].routes] == ["anthropic/claude-sonnet-4-6"]
    assert [route.id for route in both["claude-sonnet-4-6"].routes] == [
        "anthropic/claude-sonnet-4-6",
        "openrouter/anthropic/claude-sonnet-4.6",
    ]
    assert catalog().models == {}


def test_each_account_is_a_route() -> None:
    """Providers may have any name, and several of one preset are several routes, in the file's order."""
    models = catalog(second=provider("openai"), first=provider("openai", base_url="https://eu.example/v1")).models

    assert [route.id for route in models["gpt-4o"].routes] == ["second/gpt-4o", "first/gpt-4o"]


def test_an_account_elsewhere_is_no_route() -> None:
    """A row that names a part of Amazon's cloud is served by accounts there, in the file's order, and by no other."""
    regions = {"a": "eu-west-1", "b": "us-east-1", "c": "us-west-2", "d": "ap-southeast-3", "e": "ap-northeast-1"}
    accounts = {name: {"preset": "bedrock", "aws_region": region} for name, region in regions.items()}

    models = with_shipped({"providers": accounts})["models"]

    routes = {slug: [(route["provider"], route["model"]) for route in models[slug]["routes"]] for slug in models}
    bare = "anthropic.claude-sonnet-5-5"
    assert routes["claude-sonnet-bedrock"] == [
        ("b", f"us.{bare}"), ("c", f"us.{bare}"), ("a", f"eu.{bare}"), ("d", bare),
    ]  # fmt: skip
    assert routes["claude-sonnet-bedrock-id"] == [("d", bare)]
    assert "claude-sonnet-bedrock-sg" not in routes
    assert len(routes["claude-sonnet-bedrock-global"]) == len(accounts)
    assert all("aws_region" not in route for slug in models for route in models[slug]["routes"])


# -- what a file changes --


def test_member_by_member() -> None:
    """What a file says of a shipped model takes the place of what was shipped, member by member."""
    shipped = catalog("openai").models["gpt-4o"]

    changed = catalog("openai", models={"gpt-4o": {"class": "budget", "max_output_tokens": 1000}}).models["gpt-4o"]

    assert (changed.model_class, changed.max_output_tokens) == ("budget", 1000)
    assert (changed.price, changed.context_window, changed.routes) == (
        shipped.price, shipped.context_window, shipped.routes,
    )  # fmt: skip


def test_a_price_of_ones_own_is_for_good() -> None:
    """A file's price takes the place of the shipped ones of every day; days that it names itself are kept."""
    own = {"price": {"input": "1", "output": "2"}}
    dated = own | {"effective": [{"from": "2027-01-01", "price": {"input": "3", "output": "4"}}]}

    first = catalog("anthropic", models={"claude-sonnet-4-6": own}).models["claude-sonnet-4-6"]
    second = catalog("anthropic", models={"claude-sonnet-4-6": dated}).models["claude-sonnet-4-6"]

    assert catalog("anthropic").models["claude-sonnet-4-6"].effective != ()
    assert (first.price_at(LAST_EPOCH_S).input, first.price.long) == (1_000_000, ())
    assert second.price_at(LAST_EPOCH_S).input == 3_000_000


def test_models_of_ones_own() -> None:
    """Models that are not shipped are served beside those that are; routes of one's own are the only ones."""
    own = {
        "class": "mid",
        "context_window": 1000,
        "price": {"input": "1", "output": "2"},
        "routes": [{"provider": "openai", "model": "x"}],
    }

    models = catalog("openai", models={"mine": own, "claude-sonnet-4-6": {"routes": own["routes"]}}).models

    assert [route.id for route in models["mine"].routes] == ["openai/x"]
    assert [route.id for route in models["claude-sonnet-4-6"].routes] == ["openai/x"]
    assert "gpt-4o" in models


@pytest.mark.parametrize(
    ("models", "problem"),
    [
        ({"gpt-4o": {"clas": "mid"}}, 'models."gpt-4o".clas: there is no such setting; did you mean class?'),
        ({"gpt-4o": 7}, 'models."gpt-4o": 7 is not a table'),
        ({"claude-sonnet-4-6": {"class": "mid"}}, 'models."claude-sonnet-4-6".routes: is missing'),
        ([], "models: is not a table"),
    ],
)
def test_mistakes_are_named(models: Any, problem: str) -> None:
    """What is wrong with a file's own words is said with its place, as elsewhere."""
    with pytest.raises(SettingsError) as caught:
        settings("openai", models=models)

    (found,) = caught.value.problems
    assert found.startswith(problem)


@pytest.mark.parametrize("providers", [[], {"a": 7}, {"a": {}}, {"a": {"preset": []}}, {"a": {"preset": "opnai"}}])
def test_broken_providers(providers: Any) -> None:
    """Providers with problems have no shipped models, and the problems are told as elsewhere."""
    with pytest.raises(SettingsError) as caught:
        from_document({"catalogue": {"shipped": True}, "providers": providers}, {}, {}, presets=PRESETS)

    assert all(problem.startswith("providers") for problem in caught.value.problems)


def test_settings_show_what_the_file_says() -> None:
    """Of the shipped models `settings` prints those that the file changes; `models` lists them all."""
    told = {row.name: row for row in describe(settings("openai", models={"gpt-4o": {"class": "budget"}}))}

    mine = {name.removeprefix('models."gpt-4o".'): row for name, row in told.items() if name.startswith("models")}
    assert (mine["class"].value, mine["class"].origin) == ('"budget"', "file")
    assert (mine["price.input"].value, mine["price.input"].origin) == ('"2.5"', "shipped")
    assert mine["routes[0].model"].origin == "shipped"
    assert not any("gpt-4o-mini" in name for name in told)
