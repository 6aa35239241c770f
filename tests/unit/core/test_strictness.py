"""What two policies come to together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields, replace

from gateway.core.guarding import (
    NO_RULES,
    AnswerTerms,
    ArgumentRule,
    CallTerms,
    GuardMode,
    GuardName,
    GuardTerms,
    Rules,
    ToolTerms,
)
from gateway.core.strictness import stricter, stricter_guard

MODES = get_args(GuardMode)
NAMES = get_args(GuardName)
KINDS = ("nik", "email", "phone")
SCORES = (0.0, 0.3, 0.5, 0.9, 1.0)
WORDS = ("read", "write", "drop")


def some(values: Any, least: int = 0) -> st.SearchStrategy[frozenset[Any]]:
    return st.frozensets(st.sampled_from(values), min_size=least)


def lists(values: Any) -> st.SearchStrategy[tuple[tuple[Any, ...], ...]]:
    return st.lists(some(values, 1).map(sorted).map(tuple), max_size=2, unique=True).map(tuple)


modes = st.sampled_from(MODES)
guards = st.builds(
    GuardTerms,
    mode=modes,
    threshold=st.none() | st.sampled_from(SCORES),
    kinds=st.none() | some(KINDS, 1),
    reversible=st.booleans(),
    deadline_s=st.sampled_from((0.1, 0.3, 2.0)),
)
answers = st.builds(
    AnswerTerms,
    mode=modes,
    guards=some(("content", "pii"), 1),
    hold_chars=st.sampled_from((0, 64)),
    hold_s=st.sampled_from((0.0, 0.04)),
)
arguments = st.builds(
    ArgumentRule,
    tool=st.sampled_from(WORDS),
    path=st.sampled_from(("a", "b.c")),
    maximum=st.none() | st.sampled_from((1.0, 2.0)),
    required=st.booleans(),
)
tools = st.builds(
    ToolTerms,
    allow=lists(WORDS),
    deny=some(WORDS).map(sorted).map(tuple),
    arguments=st.lists(arguments, max_size=2, unique_by=repr).map(tuple),
)
calls = st.builds(
    CallTerms,
    models=lists(WORDS),
    classes=st.none() | some(("budget", "mid")),
    regions=st.none() | some(("ID", "SG")),
    max_tokens=st.none() | st.sampled_from((1, 100)),
    max_prompt_chars=st.none() | st.sampled_from((1, 100)),
    log_bodies=st.none() | st.booleans(),
)
rules = st.builds(
    Rules, guards=st.dictionaries(st.sampled_from(NAMES), guards), answers=answers, tools=tools, calls=calls
)


@pytest.mark.fuzz
@given(rules, rules, rules)
def test_order_and_number_do_not_matter(one: Rules, two: Rules, three: Rules) -> None:
    """It is the same in whatever order policies come, and once more changes nothing."""
    both = stricter(one, two)

    assert stricter(one, one) == one
    assert both == stricter(two, one)
    assert stricter(both, two) == both
    assert stricter(both, three) == stricter(one, stricter(two, three))
    assert stricter(one, NO_RULES) == one == stricter(NO_RULES, one)


@dataclass(frozen=True)
class Seen:
    """A finding of an engine with a threshold of its own."""

    kind: str
    score: float
    own: float


findings = st.builds(Seen, st.sampled_from(KINDS), st.sampled_from(SCORES), st.sampled_from(SCORES))


def done(terms: GuardTerms, seen: Seen) -> int:
    """How strict *terms* are with a finding; 0 where nothing becomes of it."""
    counts = terms.kinds is None or seen.kind in terms.kinds
    return MODES.index(terms.mode) if counts and seen.score >= terms.threshold_of(seen.own) else 0


@pytest.mark.fuzz
@given(guards, guards, guards, findings)
def test_never_milder(one: GuardTerms, two: GuardTerms, three: GuardTerms, seen: Seen) -> None:
    """No finding is treated more mildly than any of the policies would, whatever the engine's own threshold."""
    all_three = stricter_guard(stricter_guard(one, two), three)

    assert done(all_three, seen) >= max(done(terms, seen) for terms in (one, two, three))


def done_to_answers(terms: Rules, name: GuardName, seen: Seen) -> int:
    """How strict *terms* are with what the guard *name* finds in an answer."""
    if name not in terms.answers.guards:
        return 0
    return done(replace(terms.sight(name), mode=terms.answers.mode), seen)


@pytest.mark.fuzz
@given(rules, rules, rules, st.sampled_from(("content", "pii")), findings)
def test_never_milder_with_answers(one: Rules, two: Rules, three: Rules, name: GuardName, seen: Seen) -> None:
    """Nor is one in an answer: what a policy narrows for calls narrows nothing that another wants of answers."""
    all_three = stricter(stricter(one, two), three)

    assert done_to_answers(all_three, name, seen) >= max(
        done_to_answers(terms, name, seen) for terms in (one, two, three)
    )


def test_narrow_for_calls_and_wide_for_answers() -> None:
    """What a key's policy narrows for calls narrows nothing of what its tenant's wants of answers, nor widens it."""
    of_the_tenant = Rules({}, AnswerTerms("block"))
    of_the_key = Rules({"pii": GuardTerms("redact", 0.9, frozenset({"nik"}))})

    both = stricter(of_the_tenant, of_the_key)

    assert both.guards == of_the_key.guards
    assert (both.sight("pii").kinds, both.sight("pii").threshold_of(0.5)) == (None, 0.5)
    assert (of_the_key.sight("pii").kinds, of_the_key.sight("content").kinds) == ({"nik"}, None)


@pytest.mark.fuzz
@given(guards, guards)
def test_originals_come_back_only_where_each_wants_it(one: GuardTerms, two: GuardTerms) -> None:
    """An answer gets the originals back only where every policy that masks says so."""
    both = stricter_guard(one, two)

    masking = [terms.reversible for terms in (one, two) if terms.mode == "redact"]
    if both.mode == "redact":
        assert both.reversible == all(masking)


def tool_may(terms: ToolTerms, name: str) -> bool:
    return all(name in names for names in terms.allow) and name not in terms.deny


@pytest.mark.fuzz
@given(tools, tools)
def test_tools(one: ToolTerms, two: ToolTerms) -> None:
    """A tool may be called if and only if both policies let it, and every rule of either holds for its arguments."""
    both = stricter(Rules({}, tools=one), Rules({}, tools=two)).tools

    for name in WORDS:
        assert tool_may(both, name) == (tool_may(one, name) and tool_may(two, name))
    assert {*map(repr, both.arguments)} == {*map(repr, one.arguments), *map(repr, two.arguments)}


QUESTIONS: tuple[Callable[[CallTerms], bool], ...] = (
    *[lambda terms, word=word: all(word in names for names in terms.models) for word in WORDS],
    *[lambda terms, one=one: terms.classes is None or one in terms.classes for one in ("budget", "mid")],
    *[lambda terms, one=one: terms.regions is None or one in terms.regions for one in ("ID", "SG")],
    *[lambda terms, asked=asked: asked <= (terms.max_tokens or 1000) for asked in (1, 50, 1000)],
    *[lambda terms, long=long: long <= (terms.max_prompt_chars or 1000) for long in (1, 50, 1000)],
    lambda terms: terms.log_bodies is not False,
)


@pytest.mark.fuzz
@given(calls, calls)
def test_calls(one: CallTerms, two: CallTerms) -> None:
    """A call may be what both policies let it be, and nothing else."""
    both = stricter(Rules({}, calls=one), Rules({}, calls=two)).calls

    assert [ask(both) for ask in QUESTIONS] == [ask(one) and ask(two) for ask in QUESTIONS]


STRICT: dict[type[Struct], dict[str, Any]] = {
    AnswerTerms: {
        "mode": "block", "guards": frozenset({"pii"}), "hold_chars": 999, "hold_s": 9.0,
        "sights": {"pii": GuardTerms("monitor", 0.1)},
    },
    ToolTerms: {"allow": (("a",),), "deny": ("b",), "arguments": (ArgumentRule("a", "b", required=True),)},
    CallTerms: {
        "models": (("a",),), "classes": frozenset({"mid"}), "regions": frozenset({"ID"}), "max_tokens": 1,
        "max_prompt_chars": 2, "log_bodies": False,
    },
    GuardTerms: {
        "mode": "redact", "threshold": 0.1, "kinds": frozenset({"nik"}), "reversible": True, "deadline_s": 9.0,
        "or_own": True,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", STRICT, ids=lambda kind: kind.__name__)
def test_nothing_is_forgotten(kind: type[Struct]) -> None:
    """Whatever a policy can say stays said beside one that says something else: each field of each part."""
    said = kind(**{field.name: STRICT[kind][field.name] for field in fields(kind)})
    place = {AnswerTerms: "answers", ToolTerms: "tools", CallTerms: "calls"}.get(kind)
    one = Rules({"pii": said}) if place is None else Rules({}, **{place: said})  # type: ignore[dict-item]

    both = stricter(one, Rules({"injection": GuardTerms("monitor")}))

    assert (both.guards["pii"] if place is None else getattr(both, place)) == said


def test_off_beside_on() -> None:
    """What a guard would have done had it been on does not count beside one that is."""
    off = GuardTerms("off", threshold=0.1, kinds=frozenset({"nik"}))
    on = GuardTerms("block", threshold=0.9, kinds=frozenset({"email"}))

    assert stricter_guard(off, on) == on


def test_own_threshold() -> None:
    """Where one policy leaves the threshold to the engine and another names one, the lower of the two counts."""
    both = stricter_guard(GuardTerms("block"), GuardTerms("block", threshold=0.7))

    assert [both.threshold_of(own) for own in (0.5, 0.9)] == [0.5, 0.7]
    assert GuardTerms("block", threshold=0.7).threshold_of(0.5) == 0.7
