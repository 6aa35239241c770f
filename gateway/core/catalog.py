"""What can be called: providers, models, routes, keys and tiers, as frozen facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gateway.core.money import Price, Weight

ProviderType = Literal["cloud_direct", "bedrock", "self_hosted", "local_id"]
ModelClass = Literal["budget", "mid", "premium", "ultra"]
ClientDialectName = Literal["openai_chat", "anthropic_messages"]
DialectName = Literal[ClientDialectName, "gemini_content"]  # providers speak more than clients do
Mode = Literal["realtime", "provider_cache", "batch", "cache_hit"]


class Path(Protocol):
    """What follows a base URL, by the provider's own name for a model and by whether a stream is asked for."""

    def __call__(self, model: str, *, stream: bool) -> str: ...


@dataclass(frozen=True, slots=True)
class Provider:
    """One upstream account: where it is, how to speak to it, and the credential header it wants.

    Attributes:
        secret: A header pair such as `("Authorization", "Bearer sk-...")`, or None where no credential is needed; kept
            out of `repr`.
        path: What follows the base URL; None where it is the dialect's.
        omits: Members of a body that are never sent there: its API refuses them, and does unasked what they ask for.
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


@dataclass(frozen=True, slots=True)
class Route:
    """One way to reach a model: a provider and the provider's own name for it."""

    provider: Provider
    model: str
    id: str = field(init=False)
    """Stable name of the route, for the breaker, logs and metrics."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", f"{self.provider.name}/{self.model}")


@dataclass(frozen=True, slots=True)
class Model:
    """A catalogue entry. `routes` are in fallback order; `weight` is the factor of the model's class."""

    slug: str
    model_class: ModelClass
    weight: Weight
    price: Price
    routes: tuple[Route, ...]
    context_window: int
    max_output_tokens: int | None = None
    input: tuple[str, ...] = ("text",)
    tools: bool = True


@dataclass(frozen=True, slots=True)
class Tier:
    """Limits of a plan; None means no limit. `classes` None admits every model class."""

    name: str
    rpm: int | None = None
    inflight: int | None = None
    classes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """Who is calling. `id` is safe to log: it is derived from the secret's digest, never the secret."""

    id: str
    tenant: str
    tier: Tier


@dataclass(frozen=True, slots=True)
class Catalog:
    """Every model by slug, and the factor of each mode."""

    models: Mapping[str, Model]
    modes: Mapping[Mode, Weight]

    def visible_to(self, key: Key) -> tuple[Model, ...]:
        """The models that *key*'s tier may use, in catalogue order."""
        return tuple(model for model in self.models.values() if allows(key, model))


def allows(key: Key, model: Model) -> bool:
    """Whether the tier of *key* admits the class of *model*."""
    classes = key.tier.classes
    return classes is None or model.model_class in classes
