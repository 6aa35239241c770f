"""Who may call, and how much: keys, the plans they are on, and the money they may spend, as frozen facts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal

from gateway.core.guarding import NO_RULES, Rules

Residency = Literal["any", "sg_only", "id_only"]
Scope = Literal["key", "tenant", "session"]
Period = Literal["day", "week", "month", "total"]
Right = Literal["inference", "read", "manage", "operate"]
WhenBlind = Literal["open", "closed"]


class BadTerms(Exception):
    """Limits that are not as the file's would have to be. `problems`: each field's name, and a phrase that follows."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {problem}" for field, problem in problems))
        self.problems = problems


class BeyondRights(BadTerms):
    """Terms that make sense, but are not for whoever asks to give."""


@dataclass(frozen=True, slots=True)
class Burst:
    """
    Credits that double `Tier.rpm` while they last: each request above it costs one.

    Attributes:
        capacity: The most that can be saved up; a new key has them all.
        refill_per_min: The most that a minute with unused requests earns.
    """

    capacity: int
    refill_per_min: int


@dataclass(frozen=True, slots=True)
class Budget:
    """
    USD that may be spent in each *period*, by calendar in UTC (weeks begin on Monday).

    Attributes:
        scope: Whose spending counts together: the key's, all of its tenant's keys, or each session's of its own.
    """

    scope: Scope
    period: Period
    limit_nano_usd: int


@dataclass(frozen=True, slots=True)
class Tier:
    """
    Limits of a plan; None means no limit. `classes` None admits every model class.

    Attributes:
        tpm: Tokens per minute, prompt and answer.
        weighted_tokens_per_month: The allowance of a tenant, all of its keys together.
        overage_nano_usd_per_million: What a million weighted tokens beyond the allowance cost; None refuses them.
    """

    name: str
    rpm: int | None = None
    inflight: int | None = None
    classes: frozenset[str] | None = None
    tpm: int | None = None
    burst: Burst | None = None
    weighted_tokens_per_month: int | None = None
    overage_nano_usd_per_million: int | None = None


def beyond(tier: Tier, other: Tier) -> list[str]:
    """The limits of *other* that go beyond those of *tier*, by name."""
    found = []
    for name in ("rpm", "inflight", "tpm", "weighted_tokens_per_month"):
        most, asked = getattr(tier, name), getattr(other, name)
        if most is not None and (asked is None or asked > most):
            found.append(name)
    if tier.classes is not None and (other.classes is None or not other.classes <= tier.classes):
        found.append("classes")
    most_burst, burst = tier.burst or Burst(0, 0), other.burst or Burst(0, 0)
    if burst.capacity > most_burst.capacity or burst.refill_per_min > most_burst.refill_per_min:
        found.append("burst")
    return found


def bounded(tier: Tier, most: Tier) -> Tier:
    """*tier*, of what a key may have of its own (rpm, inflight, classes) no more than *most* has."""
    classes = [one.classes for one in (tier, most) if one.classes is not None]
    return replace(
        tier,
        rpm=lower(tier.rpm, most.rpm),
        inflight=lower(tier.inflight, most.inflight),
        classes=frozenset.intersection(*classes) if classes else None,
    )


def lower(limit: int | None, other: int | None) -> int | None:
    """The lower of two limits, of which None is none."""
    return min((each for each in (limit, other) if each is not None), default=None)


INFERENCE: frozenset[Right] = frozenset({"inference"})


@dataclass(frozen=True, slots=True)
class Key:
    """Who is calling. `id` is safe to log: it is no part of the secret.

    Attributes:
        residency: Where its calls may be computed; the setting is called `region_preference`.
        rights: What it may do. `inference` is for keys `anm-sk-`; `read` and `manage` are of its own tenant, `operate`
            of all of them, for keys `anm-ak-`.
        models: Slugs it may use, `*` at the end of one standing for any rest; None admits all of its tier's classes.
        budgets: Every one that its calls draw on.
        when_blind: What becomes of its calls once limits cannot be told for longer than the settings grant. Calls that
            a budget or a hard allowance bounds are refused in any case.
        log_bodies: Whether what it sends and gets may be kept, redacted, for as long as the settings say.
        expires_s: Epoch second from which on it is unknown.
        rules: What its policy, and that of its tenant, ask of its calls.
        revoked_now: Whether its streams under way are to be cut; a key that is merely revoked is not found any more.
    """

    id: str
    tenant: str
    tier: Tier
    residency: Residency = "any"
    rights: frozenset[Right] = INFERENCE
    models: tuple[str, ...] | None = None
    budgets: tuple[Budget, ...] = ()
    policy: str | None = None
    prefer_batch: bool = False
    when_blind: WhenBlind = "open"
    log_bodies: bool = False
    expires_s: float | None = None
    revoked_now: bool = False
    rules: Rules = NO_RULES


def may_keep(key: Key) -> bool:
    """Whether bodies of *key*'s calls may be kept: where the key says so, and no policy says the opposite."""
    return key.log_bodies and key.rules.calls.log_bodies is not False


def session_key(tenant: str, session_id: str) -> str:
    """What a session's spending is counted under: the ids are of the callers' choice, and unique in a tenant only."""
    return sha256(f"{tenant}\0{session_id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
