"""What is kept of accounts, as the admin API and the command line show it. Times are epoch milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from gateway.core.accounts import Budget, Residency, Right, WhenBlind


class NotThere(Exception):
    """There is no such thing, or it is another tenant's."""


class Taken(Exception):
    """What is to be made is there already, or what is to be changed does not allow it. The message is public."""


class Actor(Struct, frozen=True):
    """Who changes something: the id of an admin key, or `cli`.

    Attributes:
        tenant: The only one whose things it may touch; None for operators.
        address: Where its request came from.
    """

    name: str
    tenant: str | None = None
    address: str | None = None

    @property
    def is_operator(self) -> bool:
        return self.tenant is None


CLI = Actor("cli")


class Tenant(Struct, frozen=True):
    """
    Who keys belong to.

    Attributes:
        tier: By name, in the database or the file.
        policy: The one that all of its keys are under besides their own; everybody's of that name, or the file's.
    """

    id: str
    name: str
    tier: str
    budgets: tuple[Budget, ...]
    created_ms: int
    updated_ms: int
    disabled_ms: int | None
    policy: str | None = None


class KeyRecord(Struct, frozen=True):
    """
    A key without its secret.

    Attributes:
        tier: None for its tenant's.
        limits: Its own, instead of the tier's, as in the file.
    """

    id: str
    tenant: str
    name: str
    prefix: str
    last4: str
    tier: str | None
    limits: Mapping[str, Any]
    rights: tuple[Right, ...]
    models: tuple[str, ...] | None
    region_preference: Residency
    prefer_batch: bool
    budgets: tuple[Budget, ...]
    policy: str | None
    when_blind: WhenBlind
    log_bodies: bool
    created_ms: int
    updated_ms: int
    expires_ms: int | None
    revoked_ms: int | None


class KeyDraft(Struct, frozen=True):
    """What a new key is to be; see `KeyRecord`."""

    tenant: str
    name: str
    rights: tuple[Right, ...] = ("inference",)
    tier: str | None = None
    limits: Mapping[str, Any] = {}
    models: tuple[str, ...] | None = None
    region_preference: Residency = "any"
    prefer_batch: bool = False
    budgets: tuple[Budget, ...] = ()
    policy: str | None = None
    when_blind: WhenBlind = "open"
    log_bodies: bool = False
    expires_ms: int | None = None


class Secret(Struct, frozen=True):
    """A key and its secret, which is shown once: nobody can tell it again."""

    key: KeyRecord
    text: str

    def __repr__(self) -> str:
        return f"Secret({self.key.id})"


class TierRecord(Struct, frozen=True):
    """`limits` as in the file's [tiers.NAME]; the database's tier of a name is the one that counts."""

    name: str
    source: Literal["database", "file", "shipped"]
    limits: Mapping[str, Any]


class Policy(Struct, frozen=True):
    """`rules` as in the file's [policies.NAME]; `tenant` None: for every tenant that has none of
    that name."""

    name: str
    tenant: str | None
    rules: Mapping[str, Any]
    created_ms: int
    updated_ms: int


class AuditEntry(Struct, frozen=True):
    """A change. `tenant` None: the operators' business alone."""

    seq: int
    at_ms: int
    tenant: str | None
    actor: str
    action: str
    target: str
    details: Mapping[str, Any]
