"""What policies of the file and of the database may say of tools, and the rules that it becomes."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.accounts import BadTerms
from gateway.core.guarding import ArgumentRule, ToolTerms
from gateway.providers.presets import PRESETS
from gateway.settings import FileTerms, SettingsError, build_keys, from_document

KEY = "anm-sk-ruled"
A_RULE = {"tool": "pay", "path": "amount"}


def document(tools: Any) -> dict[str, Any]:
    key = {"tenant": "demo", "tier": "pro", "policy": "default"}
    return {"policies": {"default": {"tools": tools}}, "keys": {KEY: key}}


def terms(tools: Any) -> ToolTerms:
    key = build_keys(from_document(document(tools), {}, {}, presets=PRESETS))[KEY]
    assert FileTerms({}).policy({"tools": tools}) == key.rules
    return key.rules.tools


def test_terms() -> None:
    """What a policy says reaches the keys that name it, from the file as from the database."""
    rules = [
        {**A_RULE, "max": 100, "required": True},
        {"tool": "*", "path": "files.*", "allow": ["/tmp/*"], "deny": ["*..*"]},
    ]

    assert terms({"allow": ["*"], "deny": ["delete_*"], "arguments": rules}) == ToolTerms(
        (("*",),),
        ("delete_*",),
        (
            ArgumentRule("pay", "amount", maximum=100.0, required=True),
            ArgumentRule("*", "files.*", allow=("/tmp/*",), deny=("*..*",)),
        ),
    )


def test_nothing_said() -> None:
    """A table that says nothing rules nothing."""
    assert terms({}).is_open


@pytest.mark.parametrize(
    ("tools", "place", "problem"),
    [
        ({"allowed": ["*"]}, "allowed", "there is no such setting; did you mean allow?"),
        ({"allow": []}, "allow", "is empty"),
        ({"allow": ["a", "a"]}, "allow", "a list with an entry twice"),
        ({"deny": "delete_*"}, "deny", "is not a list of texts"),
        ({"deny": [""]}, "deny", "not a glob of 1 to 256 printable characters"),
        ({"deny": ["x" * 257]}, "deny", "not a glob of 1 to 256 printable characters"),
        ({"deny": [str(n) for n in range(257)]}, "deny", "a list of more than 256 globs"),
        ({"arguments": []}, "arguments", "must be a list of at least one table"),
        ({"arguments": [{"tool": "pay", "max": 1}]}, "arguments[0].path", "is missing"),
        ({"arguments": [A_RULE]}, "arguments[0]", "says nothing of the value"),
        ({"arguments": [{**A_RULE, "required": False}]}, "arguments[0]", "says nothing of the value"),
        ({"arguments": [{**A_RULE, "path": "a..b", "max": 1}]}, "arguments[0].path", "is not a path such as"),
        ({"arguments": [{**A_RULE, "max": float("nan")}]}, "arguments[0].max", "not a number that others"),
        ({"arguments": [{**A_RULE, "max": "1"}]}, "arguments[0].max", '"1" is not a number'),
        ({"arguments": [{**A_RULE, "min": 2, "max": 1}]}, "arguments[0].min", "is above max"),
    ],
    ids=range(15),
)
def test_what_makes_no_sense_is_refused(tools: Any, place: str, problem: str) -> None:
    """In the file and in the database, at its place, before it could be taken for enforced."""
    with pytest.raises(SettingsError) as of_the_file:
        from_document(document(tools), {}, {}, presets=PRESETS)
    with pytest.raises(BadTerms) as of_the_database:
        FileTerms({}).policy({"tools": tools})

    (told,) = of_the_file.value.problems
    ((where, what),) = of_the_database.value.problems
    assert told.startswith(f"policies.default.tools.{place}: ")
    assert problem in told
    assert (where, what) == (f"tools.{place}", told.partition(": ")[2])
