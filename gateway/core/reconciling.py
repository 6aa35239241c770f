"""A provider's own count of what it served, beside the ledger's: what differs, and by how much."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from gateway.core.money import format_nano

AMOUNTS = ("requests", "prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_tokens", "cost_nano_usd")
# Vendors bill by the snapshot that a model's name stood for: gpt-4o-2024-08-06, claude-sonnet-4-5-20250929.
_SNAPSHOT = re.compile(r"-[0-9]{4}-?[0-9]{2}-?[0-9]{2}\Z")

Place = tuple[str, ...]
"""What is counted together: one answer, by its id; or a day and a model."""


class Counted(Struct, frozen=True):
    """
    One count. None is what nobody has counted, and what is then not compared.

    Attributes:
        uncertain: How many of the requests were not counted by the provider's own last word, but by us.
    """

    requests: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_nano_usd: int | None = None
    uncertain: int = 0

    def __add__(self, other: Counted) -> Counted:
        sums = {name: _plus(getattr(self, name), getattr(other, name)) for name in AMOUNTS}
        return Counted(**sums, uncertain=self.uncertain + other.uncertain)


class Difference(Struct, frozen=True):
    """An amount that the two do not agree on; None of a side that has nothing at all at the place."""

    place: Place
    amount: str
    ours: int | None
    theirs: int | None
    uncertain: int

    def told(self) -> dict[str, object]:
        """As in `--json`, the cost as an exact decimal of USD."""
        name, ours, theirs = self.amount, self.ours, self.theirs
        if name == "cost_nano_usd":
            return {
                "place": self.place,
                "amount": "cost_usd",
                "ours": None if ours is None else format_nano(ours),
                "theirs": None if theirs is None else format_nano(theirs),
                "uncertain": self.uncertain,
            }
        return {"place": self.place, "amount": name, "ours": ours, "theirs": theirs, "uncertain": self.uncertain}


def gathered(counts: Iterable[tuple[Place, Counted]]) -> dict[Place, Counted]:
    """*counts*, those of one place added up."""
    found: dict[Place, Counted] = {}
    for place, counted in counts:
        found[place] = found[place] + counted if place in found else counted
    return found


def renamed(theirs: Mapping[Place, Counted], ours: Iterable[Place], aliases: Mapping[str, str]) -> dict[Place, Counted]:
    """
    *theirs*, by the names that the ledger has for models.

    A model is called by its alias, if it has one; else a snapshot by the name it stood for, where the ledger has never
    heard of the snapshot.
    """
    known = {place[1] for place in ours}

    def name_of(model: str) -> str:
        alias = aliases.get(model)
        return alias or (model if model in known else _SNAPSHOT.sub("", model))

    return gathered(((day, name_of(model)), counted) for (day, model), counted in theirs.items())


def differences(ours: Mapping[Place, Counted], theirs: Mapping[Place, Counted]) -> list[Difference]:
    """
    Where *theirs* says something else than *ours*, by place; of what it does not count, nothing.

    A place that only one of them has is told by each amount that *theirs* counts anywhere; where that is none, by the
    requests.
    """
    found: list[Difference] = []
    counted = [name for name in AMOUNTS if any(getattr(each, name) is not None for each in theirs.values())]
    for place in sorted({*ours, *theirs}):
        mine, other = ours.get(place), theirs.get(place)
        uncertain = mine.uncertain if mine is not None else 0
        if mine is None or other is None:
            found += _one_sided(place, mine, other, counted)
            continue
        for name in AMOUNTS:
            here, there = getattr(mine, name), getattr(other, name)
            if there is not None and abs((here or 0) - there) > _allowance(name, mine):
                found.append(Difference(place, name, here or 0, there, uncertain))
    return found


def totals(counts: Mapping[Place, Counted]) -> Counted:
    """All of *counts* together."""
    return sum(counts.values(), start=Counted())


def _one_sided(
    place: Place, mine: Counted | None, other: Counted | None, counted: Iterable[str]
) -> Iterable[Difference]:  # fmt: skip
    uncertain = mine.uncertain if mine is not None else 0
    side = mine or other
    for name in [name for name in counted if getattr(side, name) is not None] or ["requests"]:
        here, there = (None if each is None else getattr(each, name) for each in (mine, other))
        yield Difference(place, name, here, there, uncertain)


def _allowance(name: str, mine: Counted) -> int:
    """What rounding alone can make: each row of the ledger is a whole number of nano-USD."""
    return (mine.requests or 0) if name == "cost_nano_usd" else 0


def _plus(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return one + other


def is_by_id(counts: Mapping[Place, Counted]) -> bool:
    """Whether the places of *counts*, of which there is one at least, are answers."""
    return len(next(iter(counts))) == 1
