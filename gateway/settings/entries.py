"""The tables of the file: weights, providers, models, tiers, keys. They cannot come from the environment.

`LATER` holds names that the documents know and this version does not act on, each with the one value that says what
this version does anyway, or None where there is no such value. A limit or a guardrail that is silently ignored would be
a lie to the operator, so a file that sets anything else is refused.
"""

# ruff: noqa: RUF009 - `setting` makes a dataclass field, as `dataclasses.field` does

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Literal

from gateway.core.accounts import Period, Residency, Scope, WhenBlind
from gateway.core.catalog import ModelClass, OnInterrupt, ProviderType, Strategy
from gateway.core.money import Weight, parse_nano, parse_price, parse_weight
from gateway.settings import checks
from gateway.settings.fields import DateText, DecimalText, Secret, decimal_text, setting

_TOKENS = (1, 100_000_000)  # as gateway.core.usage.MAX_TOKENS: no context window comes near it
_COUNT = (1, 1_000_000_000)


def usd_per_million(pico_usd: int) -> str:
    """A price as it stands in the file."""
    return f'"{decimal_text(Decimal(pico_usd).scaleb(-6))}"'


def usd(nano_usd: int) -> str:
    """An amount as it stands in the file."""
    return f'"{decimal_text(Decimal(nano_usd).scaleb(-9))}"'


def _weight(what: str, default: str) -> Weight:
    weight: Weight = setting(f"Factor of {what}.", parse_weight(default), written=DecimalText, check=parse_weight)
    return weight


@dataclass(frozen=True, slots=True)
class ProviderWeights:
    """Factor by the type of provider that answered."""

    cloud_direct: Weight = _weight("a vendor's own API", "1.0")
    bedrock: Weight = _weight("Amazon Bedrock", "0.5")
    self_hosted: Weight = _weight("a model that we host", "0.5")
    local_id: Weight = _weight("a provider in Indonesia", "0.3")


@dataclass(frozen=True, slots=True)
class ClassWeights:
    """Factor by the class of the model."""

    budget: Weight = _weight("budget models", "1")
    mid: Weight = _weight("mid models", "4")
    premium: Weight = _weight("premium models", "17")
    ultra: Weight = _weight("ultra models", "42")


@dataclass(frozen=True, slots=True)
class ModeWeights:
    """Factor by how the answer came about."""

    realtime: Weight = _weight("an ordinary answer", "1.0")
    provider_cache: Weight = _weight("an answer that used the provider's prompt cache", "0.9")
    batch: Weight = _weight("an answer by batch", "0.5")
    cache_hit: Weight = _weight("an answer from our own cache", "0")


@dataclass(frozen=True, slots=True)
class MeteringSettings:
    """Weighted tokens = tokens x provider weight x class weight x mode weight, rounded half up once."""

    provider_weight: ProviderWeights = setting("Factors of the provider types.", factory=ProviderWeights)
    class_weight: ClassWeights = setting("Factors of the model classes.", factory=ClassWeights)
    mode_weight: ModeWeights = setting("Factors of the modes.", factory=ModeWeights)


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """An upstream account. None stands for the preset's own value."""

    preset: str = setting("The vendor: a name from the list of presets.")
    base_url: str | None = setting(
        "Where its API is; the path of an endpoint is added to it.",
        None,
        check=checks.base_url,
        render=checks.without_password,
        secret=True,
    )
    api_key: Secret | None = setting(
        'Its key: { env = "NAME" }, { file = "path" } or the text itself; required if the preset has a usual variable, '
        "unless requests are signed.",
        None,
    )
    aws_region: str | None = setting(
        "The region of Amazon's cloud that is asked; the variable AWS_REGION or AWS_DEFAULT_REGION by default.",
        None,
        check=checks.aws_region,
    )
    aws_access_key_id: Secret | None = setting(
        "The key that requests are signed with, written as api_key is; the variable AWS_ACCESS_KEY_ID by default.", None
    )
    aws_secret_access_key: Secret | None = setting(
        "Its secret half; the variable AWS_SECRET_ACCESS_KEY by default.", None
    )
    aws_session_token: Secret | None = setting(
        "What goes with a temporary key; the variable AWS_SESSION_TOKEN by default. From a file, SIGHUP renews it.",
        None,
    )
    type: ProviderType | None = setting("What kind of provider it is; it decides the weight.", None)
    region: str | None = setting(
        "Where it computes, reported as provider_region. `SG` and `ID` are what residency goes by.",
        None,
        check=checks.region,
    )
    on_cancel: Literal["abort", "drain"] = setting(
        "When a client leaves: `abort` closes the connection to the provider at once; `drain` reads the answer to its "
        "end, so that what the provider bills all the same is counted; see [routing.md](routing.md).",
        "abort",
    )
    drain_max_s: float = setting(
        "With `drain`: seconds at most, from the client's leaving on.", 30.0, bounds=(0.1, 600)
    )
    drain_max_tokens: int = setting("With `drain`: further tokens of a stream at most.", 4096, bounds=_TOKENS)


@dataclass(frozen=True, slots=True)
class RatesEntry:
    """USD per million tokens as decimal text with at most six places, held as pico-USD per token."""

    input: int = setting(
        'USD per million prompt tokens; an unknown price is never taken for 0, so write "0" for what is free.',
        written=DecimalText,
        check=parse_price,
        render=usd_per_million,
    )
    output: int = setting(
        'USD per million completion tokens; an unknown price is never taken for 0, so write "0" for what is free.',
        written=DecimalText,
        check=parse_price,
        render=usd_per_million,
    )
    cached_input: int | None = setting(
        "USD per million prompt tokens read from the provider's cache; the price of input by default.",
        None,
        written=DecimalText,
        check=parse_price,
        render=usd_per_million,
    )
    cache_write: int | None = setting(
        "USD per million prompt tokens written to the provider's cache; the price of input by default.",
        None,
        written=DecimalText,
        check=parse_price,
        render=usd_per_million,
    )
    cache_write_1h: int | None = setting(
        "USD per million prompt tokens written to be kept for an hour; the price of `cache_write` by default.",
        None,
        written=DecimalText,
        check=parse_price,
        render=usd_per_million,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LongPriceEntry(RatesEntry):
    """The prices of a call with a long prompt, for all of its tokens."""

    above: int = setting("The most prompt tokens, cached ones among them, that do not yet have it.", bounds=_TOKENS)


@dataclass(frozen=True, slots=True)
class PriceEntry(RatesEntry):
    """The prices of a model."""

    LATER: ClassVar = {"batch_factor": None}

    long: tuple[LongPriceEntry, ...] | None = setting(
        "Prices of calls with a long prompt, by ascending `above`; each has all its own prices.", None
    )


@dataclass(frozen=True, slots=True)
class EffectiveEntry:
    """A price and the day from which it holds."""

    starts: datetime.date = setting(
        "The day, as in `2026-03-13`, at whose beginning (UTC) it takes the place of the price before.",
        name="from",
        written=DateText,
        check=checks.day,
    )
    price: PriceEntry = setting("The price from then on, as a whole.")


@dataclass(frozen=True, slots=True)
class RouteEntry:
    """One way to a model."""

    provider: str = setting("Name of a provider in this file.")
    model: str = setting("The provider's own name of the model.", check=checks.provider_model)
    weight: int = setting(
        "Its share, for every strategy but `fallback`; a route with 0 is asked only when the others have failed.",
        1,
        bounds=(0, 1000),
    )
    tools: bool | None = setting("Whether the model can call tools here; as the model says by default.", None)
    context_window: int | None = setting(
        "Its context here, in tokens, where it is not the model's: a longer call goes to the other routes.",
        None,
        bounds=_TOKENS,
    )


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A catalogue entry."""

    model_class: ModelClass = setting("Its class, for tiers and weights.", name="class")
    context_window: int = setting(
        "Longest prompt and answer together, in tokens; what is surely longer is refused.", bounds=_TOKENS
    )
    price: PriceEntry = setting('Its prices; an unknown price is never taken for 0, so write "0" for what is free.')
    routes: tuple[RouteEntry, ...] = setting(
        "The providers that have it, in the order they are tried, unless `strategy` says otherwise; those that speak "
        "the endpoint's dialect come first."
    )
    max_output_tokens: int | None = setting(
        "Longest answer, in tokens; shown, and the most that a translated call asks for.", None, bounds=_TOKENS
    )
    input: tuple[Literal["text", "image", "audio", "file"], ...] = setting(
        "What a prompt may hold: a call with images needs `image`; the others are shown, not checked.",
        ("text",),
        check=checks.some,
    )
    tools: bool = setting("Whether it can call tools; a call with tools is refused otherwise.", default=True)
    strategy: Strategy = setting("Which route is asked first; see [routing.md](routing.md).", "fallback")
    residency: Residency = setting(
        "Where it may be computed, whoever asks: routes to providers of other regions are never taken.", "any"
    )
    batch: bool = setting("Whether a provider of it takes batches as well; shown.", default=False)
    effective: tuple[EffectiveEntry, ...] | None = setting(
        "Later prices by ascending day. A call has the price of the moment in which it began.", None
    )
    on_interrupt: OnInterrupt = setting(
        "What becomes of a stream that breaks after it began to speak: `error` ends it with the error frame, "
        "`continue` has the next route go on where that is sound; see [routing.md](routing.md).",
        "error",
    )


@dataclass(frozen=True, slots=True)
class BurstEntry:
    """Credits that let requests in above the rate."""

    capacity: int = setting("The most credits that can be saved up; a new key has them all.", bounds=_COUNT)
    refill_per_min: int = setting(
        "The most that a minute earns, a credit for each request that it left unused.", bounds=_COUNT
    )


@dataclass(frozen=True, slots=True)
class BudgetEntry:
    """Money that may be spent in each period."""

    period: Period = setting("How often it begins anew, by calendar in UTC; weeks begin on Monday.")
    usd: int = setting("The most, in USD, as text.", written=DecimalText, check=parse_nano, render=usd)
    scope: Scope = setting(
        "Whose calls count together: the key's, its tenant's, or those of each session, for calls that name one.", "key"
    )


@dataclass(frozen=True, slots=True)
class TierEntry:
    """Limits of a plan; what is left out is not limited."""

    rpm: int | None = setting("Requests per minute.", None, bounds=_COUNT)
    burst: BurstEntry | None = setting(
        "Requests above `rpm`, up to twice as many, while credits last; see [limits.md](limits.md).", None
    )
    inflight: int | None = setting("Requests at once.", None, bounds=_COUNT)
    tpm: int | None = setting("Tokens per minute, of prompts and answers.", None, bounds=_COUNT)
    weighted_tokens_per_month: int | None = setting(
        "Weighted tokens that all keys of a tenant may use in a calendar month, UTC.", None, bounds=(1, 10**12)
    )
    overage_usd_per_million: int | None = setting(
        "USD per million weighted tokens beyond those, which are then let in; without it they are refused.",
        None,
        written=DecimalText,
        check=parse_nano,
        render=usd,
    )
    classes: tuple[ModelClass, ...] | None = setting("The model classes it may use.", None, check=checks.some)


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """Who a key belongs to. Limits given here replace those of its tier."""

    LATER: ClassVar = {"prefer_batch": False}

    tenant: str = setting("Who it belongs to.", check=checks.label)
    tier: str = setting("Name of a tier in this file, or of one that ships: starter, pro, payg, enterprise.")
    rpm: int | None = setting("Requests per minute, instead of the tier's.", None, bounds=_COUNT)
    inflight: int | None = setting("Requests at once, instead of the tier's.", None, bounds=_COUNT)
    classes: tuple[ModelClass, ...] | None = setting(
        "The model classes it may use, instead of the tier's.", None, check=checks.some
    )
    region_preference: Residency = setting(
        "Where its calls may be computed: anywhere, or only at providers in Singapore or Indonesia.", "any"
    )
    budget_usd: int | None = setting(
        "USD that it may spend in a calendar month, UTC, as text.",
        None,
        written=DecimalText,
        check=parse_nano,
        render=usd,
    )
    budgets: tuple[BudgetEntry, ...] | None = setting(
        "Further budgets; of several for the same scope and period the smallest counts.", None
    )
    when_blind: WhenBlind = setting(
        "What becomes of its calls when the shared counters have not answered for longer than `limits.blind_s`: `open` "
        "lets them in without limits, `closed` refuses them. What a budget or a hard allowance bounds is refused "
        "in any case.",
        "open",
    )
    policy: str | None = setting("Name of a policy in this file, which its calls are under.", None)


# They ship with every file; one of the same name in it takes the whole place of one of these. The figures of `pro` and
# `enterprise` are the documents'; those of the others are ours, in proportion.
SHIPPED_TIERS: Mapping[str, TierEntry] = {
    # A plan for trying out, which ends where its allowance does.
    "starter": TierEntry(
        rpm=30,
        burst=BurstEntry(capacity=60, refill_per_min=5),
        inflight=8,
        tpm=60_000,
        weighted_tokens_per_month=2_000_000,
        classes=("budget", "mid"),
    ),
    # A plan for work: what goes beyond its allowance is let in and paid for.
    "pro": TierEntry(
        rpm=120,
        burst=BurstEntry(capacity=600, refill_per_min=10),
        inflight=32,
        tpm=400_000,
        weighted_tokens_per_month=20_000_000,
        overage_usd_per_million=1_200_000_000,
        classes=("budget", "mid", "premium"),
    ),
    # Paid by use: nothing is included and nothing ends but the budgets of its keys.
    "payg": TierEntry(rpm=120, burst=BurstEntry(capacity=300, refill_per_min=10), inflight=32, tpm=400_000),
    # No limit but a rate that only a runaway loop reaches.
    "enterprise": TierEntry(rpm=100_000),
}
