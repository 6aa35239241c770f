"""What can be called: providers, models and routes, as frozen facts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from msgspec import Raw

from gateway.core.accounts import Key, Residency
from gateway.core.guarding import CallTerms
from gateway.core.money import Price, Weight

ProviderType = Literal["cloud_direct", "bedrock", "self_hosted", "local_id"]
ModelClass = Literal["budget", "mid", "premium", "ultra"]
ClientDialectName = Literal["openai_chat", "anthropic_messages"]
DialectName = Literal[ClientDialectName, "gemini_content", "bedrock_converse"]  # providers speak more than clients do
Mode = Literal["realtime", "provider_cache", "batch", "cache_hit"]
Strategy = Literal["fallback", "weighted", "least_loaded", "lowest_latency"]
OnCancel = Literal["abort", "drain"]
OnInterrupt = Literal["error", "continue"]

# Where a provider has to compute; None is anywhere. By a provider's region alone: the gateway's own does not matter.
HOMES: Mapping[Residency, str | None] = {"any": None, "sg_only": "SG", "id_only": "ID"}
MEASURED: frozenset[Strategy] = frozenset({"least_loaded", "lowest_latency"})  # they look at how routes fare


class Path(Protocol):
    """What follows a base URL, by the provider's own name for a model and by whether a stream is asked for."""

    def __call__(self, model: str, *, stream: bool) -> str: ...


class Signer(Protocol):
    """Makes the credential of each request anew, from all of it and the time."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What nobody may be shown."""

    def __call__(
        self, url: str, headers: tuple[tuple[str, str], ...], body_sha256: str, epoch_s: float
    ) -> tuple[tuple[str, str], ...]:
        """
        The headers to be added to a request that is sent at *epoch_s* by the wall clock.

        Args:
            body_sha256: The digest of the body, in hexadecimal digits.
        """


class Remarks(Protocol):
    """Where it is noted what became of a call on its way, place by place in the client's words; see `Params`."""

    def translate(self, name: str) -> None: ...

    def drop(self, name: str) -> None: ...


class Quirk(Protocol):
    """What a provider wants otherwise than the dialect that it speaks: a pure function of a body's members.

    What it does not change it passes on as it is, so that the bytes stay the client's. Where nothing is to be changed
    it gives back *fields* themselves.
    """

    def __call__(self, fields: Mapping[str, Raw], remarks: Remarks) -> Mapping[str, Raw]: ...


@dataclass(frozen=True, slots=True)
class Drain:
    """How far an answer is read on whose client has left: *max_s* seconds, or *max_tokens* more tokens of a stream."""

    max_s: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Provider:
    """One upstream account: where it is, how to speak to it, and the credential header it wants.

    Attributes:
        secret: A header pair such as `("Authorization", "Bearer sk-...")`, or None where no credential is needed; kept
            out of `repr`.
        signer: Where requests are signed instead.
        path: What follows the base URL; None where it is the dialect's.
        omits: Members of a body that are never sent there: its API refuses them, and does unasked what they ask for.
        quirks: What is done to bodies that clients wrote in its own dialect, in this order. Translated ones are written
            in a form that needs none of it.
        drain: What is read on after a client has left, so that it can be metered; None closes at once.
        fetches_images: Whether it fetches pictures by their URLs. Others get the pictures themselves.
    """

    name: str
    dialect: DialectName
    base_url: str
    type: ProviderType
    region: str
    weight: Weight
    secret: tuple[str, str] | None = field(default=None, repr=False)
    path: Path | None = field(default=None, repr=False)
    omits: frozenset[str] = frozenset()
    quirks: tuple[Quirk, ...] = field(default=(), repr=False)
    drain: Drain | None = None
    fetches_images: bool = False
    signer: Signer | None = field(default=None, repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What nobody may be shown: the credential, without the word before it in its header."""
        if self.signer is not None:
            return self.signer.secrets
        return (self.secret[1].rpartition(" ")[2],) if self.secret is not None else ()


@dataclass(frozen=True, slots=True)
class Route:
    """One way to reach a model: a provider and the provider's own name for it.

    Attributes:
        weight: Its share among the routes of the model, for strategies that ask; 0 is for when the others have failed.
        tools: Whether the model can call tools here; None where it is as the model says. So is `context_window`.
        is_measured: Whether some model's strategy looks at how it fares.
    """

    provider: Provider
    model: str
    weight: int = 1
    tools: bool | None = None
    context_window: int | None = None
    is_measured: bool = False
    id: str = field(init=False)
    """Stable name of the route, for the breaker, logs and metrics."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", f"{self.provider.name}/{self.model}")


@dataclass(frozen=True, slots=True)
class Model:
    """A catalogue entry. `routes` are in fallback order; `weight` is the factor of the model's class.

    Attributes:
        residency: Where it may be computed, whoever asks; a key may narrow it further.
        on_interrupt: What becomes of a stream that broke after it had begun to speak.
        is_picky: Whether there are calls that some of its routes do not take.
        effective: Prices that took or will take the place of `price`, each with the epoch second from which it holds;
            ascending.
        batch: Whether a provider of it takes batches as well.
    """

    slug: str
    model_class: ModelClass
    weight: Weight
    price: Price
    routes: tuple[Route, ...]
    context_window: int
    max_output_tokens: int | None = None
    input: tuple[str, ...] = ("text",)
    tools: bool = True
    strategy: Strategy = "fallback"
    residency: Residency = "any"
    effective: tuple[tuple[int, Price], ...] = ()
    batch: bool = False
    on_interrupt: OnInterrupt = "error"
    is_picky: bool = field(init=False)

    def __post_init__(self) -> None:
        odd = any(route.tools is not None or route.context_window is not None for route in self.routes)
        object.__setattr__(self, "is_picky", odd or not self.tools or self.residency != "any")

    def price_at(self, epoch_s: float) -> Price:
        """The price of a call that began at *epoch_s*."""
        for starts_s, price in reversed(self.effective):
            if epoch_s >= starts_s:
                return price
        return self.price


@dataclass(frozen=True, slots=True)
class Catalog:
    """Every model by slug, and the factor of each mode."""

    models: Mapping[str, Model]
    modes: Mapping[Mode, Weight]

    def visible_to(self, key: Key) -> tuple[Model, ...]:
        """The models that *key* may use, by tier and policy and by where they are computed, in catalogue order."""
        terms = key.rules.calls
        return tuple(
            model
            for model in self.models.values()
            if allows(key, model)
            and forbidden_by(terms, model) is None
            and ((key.residency == model.residency == "any" and terms.regions is None) or routes_for(key, model))
        )


def allows(key: Key, model: Model) -> bool:
    """Whether the tier of *key* admits the class of *model*, and its own list its slug."""
    classes = key.tier.classes
    if classes is not None and model.model_class not in classes:
        return False
    return key.models is None or any(_fits(model.slug, pattern) for pattern in key.models)


def forbidden_by(terms: CallTerms, model: Model) -> str | None:
    """The field of *terms* that does not let *model* be called; None where it may be."""
    if terms.classes is not None and model.model_class not in terms.classes:
        return "classes"
    is_named = all(any(_fits(model.slug, pattern) for pattern in patterns) for patterns in terms.models)
    return None if is_named else "models"


def unknown_models(patterns: Iterable[str], slugs: Collection[str]) -> list[str]:
    """Those of a key's *patterns* that no model of *slugs* is called by; none where there are no models to go by."""
    return [pattern for pattern in patterns if slugs and not any(_fits(slug, pattern) for slug in slugs)]


def _fits(slug: str, pattern: str) -> bool:
    return slug.startswith(pattern[:-1]) if pattern.endswith("*") else slug == pattern


def routes_for(key: Key, model: Model) -> tuple[Route, ...]:
    """The routes of *model* that are within its own and *key*'s residency, and the regions of its policy."""
    return tuple(
        route
        for route in model.routes
        if is_at_home(route, key.residency, model.residency) and is_within(route, key.rules.calls)
    )


def is_at_home(route: Route, *residencies: Residency) -> bool:
    """Whether *route* computes where every one of *residencies* wants it. A region that is no known home is none."""
    return all(HOMES[one] in (None, route.provider.region.upper()) for one in residencies)


def is_within(route: Route, terms: CallTerms) -> bool:
    """Whether *route* computes in a region that *terms* allow."""
    return terms.regions is None or route.provider.region.upper() in terms.regions
