"""Two policies as one: the stricter of both in everything, so that neither gives away what the other keeps.

For a guard that is its mode, the lower threshold and the kinds of either; for lists of what is allowed, both lists; for
limits, the lower one. It is the same in whatever order, and once more changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar, get_args

from msgspec.structs import replace

from gateway.core.accounts import lower
from gateway.core.guarding import (
    NO_RULES,
    OFF,
    OPEN,
    AnswerTerms,
    ArgumentRule,
    CallTerms,
    GuardMode,
    GuardName,
    GuardTerms,
    Rules,
    ToolTerms,
)

T = TypeVar("T")
_ORDER = {mode: place for place, mode in enumerate(get_args(GuardMode))}


def stricter(one: Rules, other: Rules) -> Rules:
    """What a call is under that is under *one* and under *other*."""
    if other in (NO_RULES, one):
        return one
    if one == NO_RULES:
        return other
    names = {*one.guards, *other.guards}
    return Rules(
        {name: stricter_guard(one.guards.get(name, OFF), other.guards.get(name, OFF)) for name in sorted(names)},
        _answers(one, other),
        _tools(one.tools, other.tools),
        _calls(one.calls, other.calls),
    )


def stricter_guard(one: GuardTerms, other: GuardTerms) -> GuardTerms:
    """
    What a guard does that is to do *one* and *other*. Of a guard that is off nothing counts beside one that is on.

    The longer deadline counts: what is late is refused under `block` anyhow, and seen by nobody under `monitor`.
    """
    if "off" in (one.mode, other.mode) and one.mode != other.mode:
        return other if one.mode == "off" else one
    mode = _mode(one.mode, other.mode)
    given = [terms.threshold for terms in (one, other) if terms.threshold is not None]
    return GuardTerms(
        mode,
        threshold=min(given, default=None),
        kinds=None if one.kinds is None or other.kinds is None else one.kinds | other.kinds,
        reversible=all(terms.reversible for terms in (one, other) if terms.mode == mode),
        deadline_s=max(one.deadline_s, other.deadline_s),
        or_own=bool(given) and any(terms.threshold is None or terms.or_own for terms in (one, other)),
    )


def _mode(one: GuardMode, other: GuardMode) -> GuardMode:
    return max(one, other, key=_ORDER.__getitem__)


def _answers(one: Rules, other: Rules) -> AnswerTerms:
    looking = [rules for rules in (one, other) if rules.answers.mode != "off"]
    if len(looking) == 1:
        return replace(looking[0].answers, sights=_sights(looking))
    left, right = one.answers, other.answers
    return AnswerTerms(
        _mode(left.mode, right.mode),
        left.guards | right.guards,
        max(left.hold_chars, right.hold_chars),
        max(left.hold_s, right.hold_s),
        _sights(looking),
    )


def _sights(looking: Collection[Rules]) -> dict[GuardName, GuardTerms]:
    """By what guards look at answers for all of *looking*: what another policy wants of calls narrows none of it."""
    found: dict[GuardName, GuardTerms] = {}
    for rules in looking:
        for name in rules.answers.guards:
            said = rules.sight(name)
            sight = replace(OPEN, threshold=said.threshold, kinds=said.kinds, or_own=said.or_own)
            found[name] = stricter_guard(found[name], sight) if name in found else sight
    return found


def _tools(one: ToolTerms, other: ToolTerms) -> ToolTerms:
    rules = {_sortable(rule): rule for rule in (*one.arguments, *other.arguments)}
    return ToolTerms(
        _both(one.allow, other.allow), _both(one.deny, other.deny), tuple(rules[text] for text in sorted(rules))
    )


def _sortable(rule: ArgumentRule) -> str:
    """A text that is a rule's alone."""
    return repr(rule)


def _calls(one: CallTerms, other: CallTerms) -> CallTerms:
    return CallTerms(
        _both(one.models, other.models),
        classes=_common(one.classes, other.classes),
        regions=_common(one.regions, other.regions),
        max_tokens=lower(one.max_tokens, other.max_tokens),
        max_prompt_chars=lower(one.max_prompt_chars, other.max_prompt_chars),
        log_bodies=_kept(one.log_bodies, other.log_bodies),
    )


def _both(one: Collection[T], other: Collection[T]) -> tuple[T, ...]:
    """What is in either, once, in an order of its own."""
    return tuple(sorted({*one, *other}, key=repr))


def _common(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return one if other is None else other
    return one & other


def _kept(one: bool | None, other: bool | None) -> bool | None:
    said = [allowed for allowed in (one, other) if allowed is not None]
    return all(said) if said else None
