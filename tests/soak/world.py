"""The world of a soak: its models and prices, its tenants and their keys, and the gateway's settings."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from gateway.settings.catalog import key_id
from tests.support.config import CANARY, Config, anthropic_provider, merged, model, openai_provider
from tests.support.gateway import CHAT, MESSAGES


@dataclass(frozen=True, slots=True)
class Model:
    """
    A model of the catalogue.

    Attributes:
        provider: The fake's dialect.
        names: Its names there, in fallback order. By their families' names the gateway counts `percent` tokens for a
            hundred of its vocabulary's.
        price: Input, cached input and output in pico-USD per token: none of them whole nano-USD, so that every call is
            rounded.
    """

    slug: str
    path: str
    provider: Literal["openai", "anthropic"]
    names: tuple[str, str]
    percent: int
    price: tuple[int, int, int]


_CHEAP, _DEAR = (2_500_117, 1_250_041, 10_000_333), (3_000_213, 300_029, 15_000_471)
MODELS = (
    Model("chat", CHAT, "openai", ("soak-a", "soak-b"), 100, _CHEAP),
    Model("messages", MESSAGES, "anthropic", ("claude-soak-a", "claude-soak-b"), 120, _DEAR),
    Model("chat-abroad", CHAT, "anthropic", ("claude-soak-c", "claude-soak-d"), 120, _DEAR),
    Model("messages-abroad", MESSAGES, "openai", ("soak-c", "soak-d"), 100, _CHEAP),
)
UNIT = Model("unit", CHAT, "openai", ("soak-unit", "soak-unit-more"), 100, (0, 0, 10_000_000))
"""Its prompts are for nothing: what a call may cost at the most is known beforehand. No chance chooses it."""
MAX_OUTPUT = 200  # tokens: what a call without a limit of its own reserves
_CLASS_WEIGHT = 4  # of `mid`, contract 9
_CACHED_WEIGHT = (9, 10)


def price_nano_usd(model: Model, prompt: int, cached: int, completion: int) -> int:
    """What so many tokens cost: whole nano-USD, rounded half up once."""
    plain, kept, out = model.price
    return ((prompt - cached) * plain + cached * kept + completion * out + 500) // 1000


def weigh(model: Model, tokens: int, *, is_cached: bool) -> int:
    """Weighted tokens, rounded half up once."""
    above, below = _CACHED_WEIGHT if is_cached else (1, 1)
    return (2 * tokens * _CLASS_WEIGHT * above + below) // (2 * below)


@dataclass(frozen=True, slots=True)
class Customer:
    """
    A key and whose it is. All tenants name their sessions and their idempotency keys alike.

    Attributes:
        budget_usd: What it may spend in all.
    """

    secret: str
    tenant: str
    tier: str
    budget_usd: str | None = None

    @property
    def key_id(self) -> str:
        """As the gateway names it."""
        return key_id(self.secret)

    @property
    def budget_nano_usd(self) -> int | None:
        return None if self.budget_usd is None else int(Fraction(self.budget_usd) * 10**9)


def key_of(tenant: str, tier: str, budget_usd: str | None = None) -> Customer:
    """A customer of *tenant* with a key of its own."""
    return Customer(f"anm-sk-{CANARY}-{tenant}-{tier}", tenant, tier, budget_usd)


OPEN, RATED, NARROW, CAPPED, PLACED = "enterprise", "rated", "narrow", "capped", "placed"
"""Tiers: nothing that a soak meets; requests per minute; places at once; money (the key has the budget); a hundred
places, for a scene of its own."""
PLACES = 100
TIERS: Config = {
    RATED: {"rpm": 300}, NARROW: {"inflight": 6}, CAPPED: {"rpm": 100_000}, PLACED: {"inflight": PLACES},
}  # fmt: skip


def customers(budget_usd: str) -> list[Customer]:
    """Two tenants with a key of each tier."""
    return [
        key_of(tenant, tier, budget_usd if tier == CAPPED else None)
        for tenant in ("north", "south")
        for tier in (OPEN, RATED, NARROW, CAPPED)
    ]


# Long enough for two busy cores, short enough that a rolling restart takes seconds; the pings stay out of the way.
_TIMES: Config = {
    "server": {"region": "id", "accept_s": 0.5, "drain_s": 3, "exit_s": 10, "keepalive_s": 5},
    "stream": {"first_token_s": 10, "idle_s": 10, "heartbeat_s": 20, "commit_after_s": 10, "usage_grace_s": 0.3},
    "upstream": {
        "connect_s": 2,
        "retry_base_s": 0.01,
        "retry_wait_max_s": 0.5,
        "retry_budget_percent": 100,
        "breaker_failures": 100_000,  # the faults are the load's, not the providers'
        "pool_idle_s": 2,
    },
    "logging": {"format": "json", "level": "warning"},  # a line for each of 100,000 receipts would be kept in memory
}


def configuration(provider_url: str, keys: list[Customer], **more: Config) -> Config:
    """The gateway's settings, with *more* sections put in."""
    config: dict[str, Any] = merged({}, _TIMES)
    makers = {"fake-openai": openai_provider, "fake-anthropic": anthropic_provider}
    config["providers"] = {name: make(provider_url) for name, make in makers.items()}
    config["models"] = {one.slug: _entry(one) for one in (*MODELS, UNIT)}
    config["tiers"] = TIERS
    config["keys"] = {key.secret: _key(key) for key in keys}
    return merged(config, more)


def _entry(one: Model) -> Config:
    plain, cached, out = (f"{pico // 10**6}.{pico % 10**6:06}" for pico in one.price)
    routes = [f"fake-{one.provider}/{name}" for name in one.names]
    return model(*routes, price=(plain, cached, out), max_output_tokens=MAX_OUTPUT)


def _key(key: Customer) -> Config:
    entry: Config = {"tenant": key.tenant, "tier": key.tier}
    return entry | ({"budget_usd": key.budget_usd} if key.budget_usd is not None else {})
