"""The limits and budgets that a database keeps, by the same checks as those of the file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from gateway.core.accounts import BadTerms, Tier
from gateway.core.guarding import Rules
from gateway.settings.catalog import tier_of
from gateway.settings.entries import SHIPPED_TIERS, KeyEntry, TierEntry
from gateway.settings.fields import rules_of
from gateway.settings.loading import Settings, Stored
from gateway.settings.policies import PolicyEntry, check_policy, rules_of_policy
from gateway.settings.reader import Broken, Reader

T = TypeVar("T")

NONE: Mapping[str, PolicyEntry] = {}
OWN_LIMITS = frozenset(rules_of(TierEntry)) & frozenset(rules_of(KeyEntry))
"""What a key may have of its own instead of its tier's."""


class FileTerms:
    """The port `Terms` over the tiers and policies of the file, each by name."""

    def __init__(
        self, tiers: Mapping[str, TierEntry], policies: Mapping[str, PolicyEntry] = NONE, *, moderates: bool = False
    ) -> None:
        self._tiers = {**SHIPPED_TIERS, **tiers}
        self._check_policy = partial(check_policy, moderates=moderates)
        self._policies = {name: rules_of_policy(entry) for name, entry in policies.items()}

    @classmethod
    def of(cls, settings: Settings | Stored) -> FileTerms:
        """Those of *settings*."""
        return cls(settings.tiers, settings.policies, moderates=settings.moderates)

    @property
    def names(self) -> frozenset[str]:
        """The tiers of the file."""
        return frozenset(self._tiers)

    def tier(self, name: str, limits: Mapping[str, object] | None, own: Mapping[str, object]) -> Tier:
        """See `core.ports.Terms`."""
        base = self._tiers.get(name) if limits is None else _read(TierEntry, limits)
        if base is None:
            raise BadTerms([("tier", f"there is no tier {name}")])
        foreign = sorted(own.keys() - OWN_LIMITS)
        if foreign:
            raise BadTerms([(foreign[0], f"a key may have {', '.join(sorted(OWN_LIMITS))} of its own")])
        return tier_of(_read(KeyEntry, {"tenant": "any", "tier": name, **own}), base)

    def written(self, name: str) -> Mapping[str, object]:
        """See `core.ports.Terms`."""
        return _as_written(self._tiers[name])

    def is_shipped(self, name: str) -> bool:
        """See `core.ports.Terms`."""
        return self._tiers.get(name) is SHIPPED_TIERS.get(name)

    def filed_policy(self, name: str) -> Rules | None:
        """See `core.ports.Terms`."""
        return self._policies.get(name)

    def policy(self, rules: Mapping[str, object]) -> Rules:
        """See `core.ports.Terms`."""
        return rules_of_policy(_read(PolicyEntry, rules, self._check_policy))


def _as_written(entry: Any) -> dict[str, object]:
    """A table of the file as JSON."""
    table: dict[str, object] = {}
    for name, rule in rules_of(type(entry)).items():
        value = getattr(entry, rule.attribute)
        if dataclasses.is_dataclass(value):
            table[name] = _as_written(value)
        elif rule.render is not None and value is not None:
            table[name] = rule.render(value).strip('"')
        elif value is not None:
            table[name] = value
    return table


def _read(cls: type[T], table: Mapping[str, Any], check: Callable[[Reader, str, object], None] | None = None) -> T:
    reader = Reader({}, Path())
    entry = reader.table(cls, table, "")
    if check is not None:
        check(reader, "", entry)
    if reader.problems or isinstance(entry, Broken):
        split = (problem.partition(": ") for problem in reader.problems)
        raise BadTerms([(place, text) for place, _, text in split])
    return entry
