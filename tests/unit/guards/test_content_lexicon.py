"""The content guard's words and rules."""

from __future__ import annotations

from typing import Any

import pytest
import re2

from gateway.guards.content.engine import WINDOW_CHARS
from gateway.guards.content.lexicon import KINDS, build_lexicon, load_lexicon, plain


def test_terms_are_as_texts_are_seen() -> None:
    """A term that is not folded would be found nowhere, a long one could not be told on a stream."""
    terms = load_lexicon().terms

    assert [
        term.text for term in terms if term.text != plain(term.text).strip() or len(term.text) >= WINDOW_CHARS
    ] == []


def test_every_kind_has_rules_in_both_languages() -> None:
    """No kind is named that nothing is found of."""
    lexicon = load_lexicon()
    spoken = {(group, term.language) for term in lexicon.terms for group in term.groups}
    told = {(rule.kind, language) for rule in lexicon.rules for group, language in spoken if group == rule.core}

    assert told == {(kind, language) for kind in KINDS for language in ("en", "id")}


def test_every_group_is_of_use() -> None:
    """A group that no rule names would only cost time."""
    lexicon = load_lexicon()
    named = set(lexicon.hiding)
    for rule in lexicon.rules:
        named |= {rule.core, *rule.excuses, *(group for need in rule.needs for group in need.groups)}

    assert {group for term in lexicon.terms for group in term.groups} == named


def test_patterns_are_linear() -> None:
    """Each is one that re2 takes."""
    assert all(re2.compile(pattern) for pattern, _ in load_lexicon().patterns)


RULE = {"reason": "r", "core": "a", "needs": ["b>20"], "score": 0.9, "excuses": []}
GROUPS: dict[str, Any] = {"a": {"en": "x"}, "b": {"id": "y"}}


def test_a_kinds_own_group_comes_first() -> None:
    """A name means the file's own group where it has one, and the shared one elsewhere."""
    shared = {"groups": {"a": {"en": "z"}}}
    lexicon = build_lexicon({"context": shared, "hate": {"groups": GROUPS, "rules": [RULE]}})
    [core] = [term.text for term in lexicon.terms if lexicon.rules[0].core in term.groups]

    assert core == "x"


@pytest.mark.parametrize(
    ("groups", "rule", "said"),
    [
        ({"a": {"en": "x"}}, RULE, "names the group b, which is nowhere"),
        (GROUPS, {**RULE, "needs": ["b"]}, "needs 'b', which says nothing"),
        ({**GROUPS, "c": {"fr": "z"}}, RULE, "group hate.c has fr"),
    ],
)
def test_a_file_that_says_nothing_is_refused(groups: Any, rule: Any, said: str) -> None:
    """A slip of the pen in a file is an error, not a rule that never fires."""
    with pytest.raises(ValueError, match=said):
        build_lexicon({"hate": {"groups": groups, "rules": [rule]}})
