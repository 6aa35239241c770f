"""From settings to the facts that the core works with."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping
from dataclasses import replace

from gateway.core.accounts import Budget, Burst, Key, Tier
from gateway.core.catalog import MEASURED, Catalog, Drain, Model, Provider, Route
from gateway.core.guarding import NO_RULES
from gateway.core.money import Price
from gateway.providers.presets import Preset
from gateway.providers.sigv4 import Credential, Signer
from gateway.settings.entries import (
    KeyEntry,
    ModelEntry,
    PriceEntry,
    ProviderEntry,
    RatesEntry,
    RouteEntry,
    TierEntry,
)
from gateway.settings.loading import Settings
from gateway.settings.places import region_of, region_of_route
from gateway.settings.policies import rules_of_policy


def build_catalog(settings: Settings, presets: Mapping[str, Preset]) -> Catalog:
    """The catalogue of *settings*; *presets* are those that it was loaded with."""
    providers = {
        name: _provider(name, entry, presets[entry.preset], settings) for name, entry in settings.providers.items()
    }
    modes = settings.metering.mode_weight
    measured = {
        (route.provider, route.model)
        for entry in settings.models.values()
        if entry.strategy in MEASURED and len(entry.routes) > 1
        for route in entry.routes
    }

    def routes(model: ModelEntry) -> tuple[Route, ...]:
        made = []
        for route in model.routes:
            entry = settings.providers[route.provider]
            provider = _at(providers[route.provider], entry, presets[entry.preset], route.model)
            made.append(_route(route, provider, is_measured=(route.provider, route.model) in measured))
        return tuple(made)

    return Catalog(
        models={slug: _model(slug, entry, routes(entry), settings) for slug, entry in settings.models.items()},
        modes={
            "realtime": modes.realtime,
            "provider_cache": modes.provider_cache,
            "batch": modes.batch,
            "cache_hit": modes.cache_hit,
        },
    )


def moderation_provider(settings: Settings, presets: Mapping[str, Preset]) -> Provider | None:
    """Who is asked for `moderation`; None where nobody is."""
    name = settings.moderation.provider
    if not name:
        return None
    entry = settings.providers[name]
    return _provider(name, entry, presets[entry.preset], settings)


def build_keys(settings: Settings) -> dict[str, Key]:
    """Every static key by its secret."""
    keys = {}
    for secret, entry in settings.keys.items():
        text = secret.reveal()
        tier = tier_of(entry, settings.tiers[entry.tier])
        keys[text] = Key(
            key_id(text),
            entry.tenant,
            tier,
            entry.region_preference,
            budgets=_budgets(entry),
            policy=entry.policy,
            when_blind=entry.when_blind,
            rules=rules_of_policy(settings.policies[entry.policy]) if entry.policy is not None else NO_RULES,
        )
    return keys


def key_id(secret: str) -> str:
    """A name for logs. 48 bits of a digest: it cannot be turned back, and keys are too few for two to meet."""
    return f"key_{hashlib.sha256(secret.encode()).hexdigest()[:12]}"


def _provider(name: str, entry: ProviderEntry, preset: Preset, settings: Settings) -> Provider:
    kind = entry.type or preset.type
    base_url = entry.base_url or preset.base_url
    if base_url is None and preset.service is not None and entry.aws_region is not None:
        base_url = preset.service.base_url(entry.aws_region)
    region = region_of(preset, entry.region, entry.aws_region)
    if base_url is None or region is None:
        raise ValueError(f"provider {name} has no base_url or region: the settings were loaded with other presets")
    return Provider(
        name=name,
        dialect=preset.dialect,
        base_url=base_url,
        type=kind,
        region=region,
        weight=getattr(settings.metering.provider_weight, kind),
        secret=preset.auth(entry.api_key.reveal()) if entry.api_key else None,
        path=preset.path,
        omits=preset.omits,
        quirks=preset.quirks,
        drain=Drain(entry.drain_max_s, entry.drain_max_tokens) if entry.on_cancel == "drain" else None,
        fetches_images=preset.fetches_images,
        signer=_signer(entry, preset),
    )


def _signer(entry: ProviderEntry, preset: Preset) -> Signer | None:
    key, secret, token = entry.aws_access_key_id, entry.aws_secret_access_key, entry.aws_session_token
    if preset.service is None or entry.aws_region is None or key is None or secret is None:
        return None
    credential = Credential(key.reveal(), secret.reveal(), token.reveal() if token is not None else None)
    return preset.service.signer(entry.aws_region, credential)


def _at(provider: Provider, entry: ProviderEntry, preset: Preset, model: str) -> Provider:
    """*provider* with the region in which *model* is computed, which is not always that of its other ones."""
    region = region_of_route(preset, entry.region, provider.region, model)
    return provider if region == provider.region else replace(provider, region=region)


def _route(entry: RouteEntry, provider: Provider, *, is_measured: bool) -> Route:
    return Route(
        provider,
        entry.model,
        weight=entry.weight,
        tools=entry.tools,
        context_window=entry.context_window,
        is_measured=is_measured,
    )


def _model(slug: str, entry: ModelEntry, routes: tuple[Route, ...], settings: Settings) -> Model:
    return Model(
        slug=slug,
        model_class=entry.model_class,
        weight=getattr(settings.metering.class_weight, entry.model_class),
        price=_price(entry.price),
        routes=routes,
        context_window=entry.context_window,
        max_output_tokens=entry.max_output_tokens,
        input=entry.input,
        tools=entry.tools,
        strategy=entry.strategy,
        residency=entry.residency,
        effective=tuple((_epoch_s(later.starts), _price(later.price)) for later in entry.effective or ()),
        batch=entry.batch,
        on_interrupt=entry.on_interrupt,
    )


def _price(entry: PriceEntry) -> Price:
    long = tuple((rates.above, _rates(rates, ())) for rates in entry.long or ())
    return _rates(entry, long)


def _rates(entry: RatesEntry, long: tuple[tuple[int, Price], ...]) -> Price:
    return Price(
        input=entry.input,
        output=entry.output,
        cached_input=entry.input if entry.cached_input is None else entry.cached_input,
        cache_write=entry.input if entry.cache_write is None else entry.cache_write,
        long=long,
        cache_write_1h=entry.cache_write_1h,
    )


def _epoch_s(day: datetime.date) -> int:
    return int(datetime.datetime(day.year, day.month, day.day, tzinfo=datetime.UTC).timestamp())


def tier_of(key: KeyEntry, tier: TierEntry) -> Tier:
    """The key's own limits where it has them, its tier's otherwise."""
    classes = key.classes or tier.classes
    burst = tier.burst
    return Tier(
        name=key.tier,
        rpm=key.rpm or tier.rpm,
        inflight=key.inflight or tier.inflight,
        classes=frozenset(classes) if classes else None,
        tpm=tier.tpm,
        burst=Burst(burst.capacity, burst.refill_per_min) if burst is not None else None,
        weighted_tokens_per_month=tier.weighted_tokens_per_month,
        overage_nano_usd_per_million=tier.overage_usd_per_million,
    )


def _budgets(key: KeyEntry) -> tuple[Budget, ...]:
    budgets = [Budget(one.scope, one.period, one.usd) for one in key.budgets or ()]
    if key.budget_usd is not None:
        budgets.append(Budget("key", "month", key.budget_usd))
    return tuple(budgets)
