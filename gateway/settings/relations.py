"""What must hold between settings. What has a problem of its own is passed over; all else is checked in spite of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

from gateway.core.catalog import HOMES
from gateway.providers.aws import REGIONS
from gateway.providers.presets import Preset
from gateway.settings.fields import shown, written
from gateway.settings.places import region_of, region_of_route
from gateway.settings.policies import check_policy
from gateway.settings.reader import Reader, beneath, good, good_rows, key_place
from gateway.settings.sections import TAIL_S

# (section, setting, relation, setting): the first must be that of the second.
ORDERED = (
    ("server", "max_body_bytes", "at most", "max_image_body_bytes"),
    ("idempotency", "max_answer_bytes", "at most", "max_held_bytes"),
    ("upstream", "breaker_open_s", "at most", "breaker_open_max_s"),
    ("limits", "renew_s", "at most", "lease_s"),
)

AWS_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
AWS_NAMES = ("aws_region", *AWS_KEYS)
Region = Callable[[str], str | None]
"""Where a provider computes a model, by its name for it; None where that cannot be told."""


def check_relations(
    reader: Reader, scalars: Mapping[str, Any], tables: Mapping[str, Any], presets: Mapping[str, Preset]
) -> None:
    """Note every relation that does not hold. Sections and entries may be `Broken`."""
    for section, small, relation, large in ORDERED:
        values = good(scalars[section])
        if {small, large} <= values.keys() and values[small] > values[large]:
            left, right = written(values[small]), written(values[large])
            reader.problem(f"{section}.{small}", f"{left} is not {relation} {large} ({right})")
    _exit(reader, good(scalars["server"]))
    _durability(reader, good(scalars["ledger"]), good(scalars["storage"]))
    for name, provider in tables["providers"].items():
        _provider(reader, beneath("providers", name), good(provider), presets)
    regions = {name: partial(_region, good(provider), presets) for name, provider in tables["providers"].items()}
    for slug, model in tables["models"].items():
        _model(reader, beneath("models", slug), good(model), regions)
    for name, tier in tables["tiers"].items():
        _tier(reader, beneath("tiers", name), good(tier))
    for number, key in enumerate(tables["keys"].values(), start=1):
        _key(reader, key_place(number), good(key), tables)
    moderation = good(scalars["moderation"])
    _moderation(reader, moderation, tables["providers"], presets)
    for name, policy in tables["policies"].items():
        check_policy(reader, beneath("policies", name), policy, moderates=bool(moderation.get("provider", "broken")))


def _exit(reader: Reader, server: Mapping[str, Any]) -> None:
    if {"drain_s", "exit_s"} <= server.keys() and server["drain_s"] + TAIL_S > server["exit_s"]:
        left = f"{written(server['drain_s'])} leaves less than {TAIL_S} s until exit_s ({written(server['exit_s'])})"
        reader.problem("server.drain_s", f"{left} for the last frames and for closing")


def _durability(reader: Reader, ledger: Mapping[str, Any], storage: Mapping[str, Any]) -> None:
    if ledger.get("durability") == "redis-stream" and not storage.get("redis_url", "broken"):
        reader.problem("ledger.durability", '"redis-stream" needs a Redis; storage.redis_url is not set')


def _moderation(
    reader: Reader, moderation: Mapping[str, Any], providers: Mapping[str, Any], presets: Mapping[str, Preset]
) -> None:
    name = moderation.get("provider")
    if not name:
        return
    if name not in providers:
        there = ", ".join(sorted(providers)) or "none"
        reader.problem("moderation.provider", f"there is no provider {shown(name)}; there are: {there}")
        return
    preset = presets.get(good(providers[name]).get("preset", ""))
    if preset is not None and (preset.dialect != "openai_chat" or preset.path is not None):
        reader.problem("moderation.provider", f"the preset {preset.name} has no POST /moderations of OpenAI's form")


def _provider(reader: Reader, place: str, provider: Mapping[str, Any], presets: Mapping[str, Preset]) -> None:
    if "preset" not in provider:
        return
    preset = presets.get(provider["preset"])
    if preset is None:
        names = ", ".join(sorted(presets)) or "none"
        reader.problem(f"{place}.preset", f"{shown(provider['preset'])} is not a preset; there are: {names}")
        return
    if preset.service is not None:
        _account(reader, place, provider, preset)
        return
    for name in AWS_NAMES:
        if provider.get(name) is not None:
            reader.problem(f"{place}.{name}", f"the preset {preset.name} is not in Amazon's cloud; remove it")
    # `get` with a default: a value that is there and has a problem was reported, and is not missing.
    if preset.base_url is None and provider.get("base_url", "broken") is None:
        reader.problem(f"{place}.base_url", f"is missing; the preset {preset.name} has none of its own")
    if preset.key_variable is not None and provider.get("api_key", "broken") is None:
        example = f'{{ env = "{preset.key_variable}" }}'
        reader.problem(f"{place}.api_key", f"is missing; the preset {preset.name} needs api_key, such as {example}")


def _region(provider: Mapping[str, Any], presets: Mapping[str, Preset], model: str) -> str | None:
    """Where *model* is computed at a provider; None where that cannot be told for a problem of its own."""
    preset, own = presets.get(provider.get("preset", "")), provider.get("region", "broken")
    if preset is None or own == "broken":
        return None
    region = region_of(preset, own, provider.get("aws_region"))
    return region_of_route(preset, own, region, model).upper() if region is not None else None


def _account(reader: Reader, place: str, provider: Mapping[str, Any], preset: Preset) -> None:
    """An account in Amazon's cloud: a region that we know the place of, and one credential, whole."""
    region = provider.get("aws_region", "broken")
    if region is None:
        reader.problem(f"{place}.aws_region", "is missing, and neither AWS_REGION nor AWS_DEFAULT_REGION is set")
    elif region != "broken" and region not in REGIONS:
        for name in ("base_url", "region"):
            if provider.get(name, "broken") is None:
                reader.problem(f"{place}.{name}", f"is missing; {region} is no region that is known here")
    given = [name for name in AWS_KEYS if provider.get(name, "broken") is not None]
    if provider.get("api_key", "broken") is not None:
        if given:
            reader.problem(f"{place}.{given[0]}", "there is an api_key as well; requests take one of the two")
        return
    for name in AWS_KEYS[:2]:
        if name not in given:
            other = f', or an api_key such as {{ env = "{preset.key_variable}" }}' if not given else ""
            reader.problem(f"{place}.{name}", f"is missing; requests are signed with it{other}")


def _nowhere(model: str) -> None:
    """As `Region`, of a provider that there is none of."""


def _model(reader: Reader, place: str, model: Mapping[str, Any], regions: Mapping[str, Region]) -> None:
    providers, seen = regions, set()
    for number, route in enumerate(map(good, model.get("routes", ()))):
        here = f"{place}.routes[{number}]"
        if "provider" in route and route["provider"] not in providers:
            names = ", ".join(providers) or "none"
            reader.problem(f"{here}.provider", f"there is no provider {shown(route['provider'])}; there are: {names}")
        if {"provider", "model"} <= route.keys():
            pair = (route["provider"], route["model"])
            if pair in seen:
                reader.problem(here, "is the same route as one before it")
            seen.add(pair)
    _residency(reader, place, model, regions)
    _prices(reader, place, model)
    longest, window = model.get("max_output_tokens"), model.get("context_window")
    if longest is not None and window is not None and longest > window:
        reader.problem(f"{place}.max_output_tokens", f"{longest} is not at most context_window ({window})")


def _residency(reader: Reader, place: str, model: Mapping[str, Any], regions: Mapping[str, Region]) -> None:
    """A model that may be computed nowhere is a mistake, not a restriction."""
    residency = model.get("residency", "any")
    home = HOMES[residency]
    routes = [good(route) for route in model.get("routes", ())]
    found = [regions.get(route.get("provider", ""), _nowhere)(route.get("model", "")) for route in routes]
    if home is not None and found and all(region not in (home, None) for region in found):
        reader.problem(f"{place}.residency", f"{shown(residency)} leaves no route: none of its providers is in {home}")


def _prices(reader: Reader, place: str, model: Mapping[str, Any]) -> None:
    """Note what in the model's lists of prices does not ascend."""
    later = good_rows(model.get("effective"))
    _ascends(reader, f"{place}.effective", "from", [row.get("starts") for row in later])
    for where, price in (("price", model), *((f"effective[{number}].price", row) for number, row in enumerate(later))):
        steps = good_rows(good(price["price"]).get("long")) if "price" in price else []
        _ascends(reader, f"{place}.{where}.long", "above", [row.get("above") for row in steps])


def _ascends(reader: Reader, place: str, name: str, values: list[Any]) -> None:
    """Note where a value is not above the one before it; None stands for one that has a problem of its own."""
    for number, (left, right) in enumerate(pairwise(values), start=1):
        if left is not None and right is not None and not left < right:
            reader.problem(f"{place}[{number}].{name}", f"{written(right)} does not follow {written(left)}")


def _tier(reader: Reader, place: str, tier: Mapping[str, Any]) -> None:
    """What adds to a limit needs one to add to."""
    for name, base, words in (
        ("burst", "rpm", "no rpm that it could add to"),
        ("overage_usd_per_million", "weighted_tokens_per_month", "no allowance that it would follow"),
    ):
        if tier.get(name) is not None and tier.get(base, "broken") is None:
            reader.problem(f"{place}.{name}", f"there is {words}: set {base}, or remove it")


def _key(reader: Reader, place: str, key: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
    for name, section in (("tier", "tiers"), ("policy", "policies")):
        named, known = key.get(name), tables[section]
        if named is not None and named not in known:
            names = ", ".join(known) or "none"
            reader.problem(f"{place}.{name}", f"there is no {name} {shown(named)}; there are: {names}")
