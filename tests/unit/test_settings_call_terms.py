"""What policies say of calls: what is refused, and the terms that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gateway.core.accounts import BadTerms
from gateway.core.guarding import NO_RULES, CallTerms
from gateway.providers.presets import PRESETS
from gateway.settings import FileTerms, build_keys, from_document

ALL = {
    "models": ["gpt-4o", "claude-*"],
    "classes": ["budget", "mid"],
    "regions": ["id", "SG"],
    "max_tokens": 500,
    "max_prompt_chars": 20_000,
    "log_bodies": False,
}


def test_terms() -> None:
    """What is said reaches the keys of the file that name the policy, and those of the database by the same rules."""
    key = {"tenant": "demo", "tier": "pro", "policy": "small"}
    document = {"policies": {"small": {"calls": ALL}}, "keys": {"anm-sk-ruled": key}}

    of_the_file = build_keys(from_document(document, {}, {}, presets=PRESETS))["anm-sk-ruled"].rules

    assert of_the_file == FileTerms({}).policy({"calls": ALL})
    assert of_the_file.calls == CallTerms(
        (("gpt-4o", "claude-*"),), frozenset({"budget", "mid"}), frozenset({"ID", "SG"}), 500, 20_000, log_bodies=False
    )


@pytest.mark.parametrize("rules", [{}, {"calls": {}}])
def test_nothing_said(rules: Mapping[str, Any]) -> None:
    """What is left out is not limited."""
    assert FileTerms({}).policy(rules) == NO_RULES


@pytest.mark.parametrize(
    ("calls", "place", "problem"),
    [
        ({"model": ["a"]}, "model", "there is no such setting; did you mean models?"),
        ({"models": []}, "models", "is empty"),
        ({"models": ["a", "a"]}, "models", "is a list with an entry twice"),
        ({"models": [f"m{n}" for n in range(101)]}, "models", "is a list of more than 100 models"),
        ({"models": ["*-mini"]}, "models", "is not a list of models' names, with * at the end of one for any rest"),
        ({"models": "gpt-4o"}, "models", "is not a list of texts"),
        ({"classes": ["royal"]}, "classes", "is not a list of"),
        ({"regions": ["id", "ID"]}, "regions", "is a list with an entry twice"),
        ({"regions": ["everywhere else"]}, "regions", "is not a region"),
        ({"max_tokens": 0}, "max_tokens", "0 is not within 1 to 100000000"),
        ({"max_tokens": True}, "max_tokens", "true is not a whole number"),
        ({"max_prompt_chars": 0}, "max_prompt_chars", "0 is not within 1 to 1000000000"),
        ({"log_bodies": "no"}, "log_bodies", '"no" is not true or false'),
    ],
)
def test_what_makes_no_sense_is_refused(calls: Mapping[str, Any], place: str, problem: str) -> None:
    """At its place: a limit that would not be kept is worse than none."""
    with pytest.raises(BadTerms) as caught:
        FileTerms({}).policy({"calls": calls})

    ((where, what),) = caught.value.problems
    assert where == f"calls.{place}"
    assert problem in what
