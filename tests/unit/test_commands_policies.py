"""`gateway policies`, and what puts keys and tenants under them, on a SQLite file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.__main__ import main
from gateway.commands.policies import MAX_BYTES
from tests.unit.test_commands import folder, told

__all__ = ["folder"]

RULES = {"calls": {"max_tokens": 1000}, "guardrails": {"injection": {"mode": "off", "threshold": 0.5}}}


def run(*words: str, given: str | bytes = "") -> Result:
    return CliRunner().invoke(main, list(words), prog_name="gateway", input=given)


def put(name: str, rules: Any = RULES, *words: str) -> Result:
    done = run("policies", "put", name, "-", *words, given=json.dumps(rules))
    assert (done.exit_code, done.stderr) == (0, "")
    return done


def test_a_policy_from_its_making_to_its_end(folder: Path) -> None:
    """What was put is shown as it was and can be put again; it is listed with whose it is, and gone when deleted."""
    (folder / "rules.json").write_text(json.dumps(RULES))
    run("tenants", "create", "acme")

    made = run("policies", "put", "small", "rules.json")
    own = put("small", {}, "--tenant", "acme")
    shown, record = run("policies", "show", "small"), told("policies", "show", "small", "--tenant", "acme")
    listed = [line.split() for line in run("policies", "list").stdout.splitlines()]
    again = run("policies", "put", "small", "-", "--json", given=shown.stdout)
    deleted = run("policies", "delete", "small", "--tenant", "acme")
    left = run("policies", "list", "--json").stdout.splitlines()

    assert made.stdout == own.stdout == "The policy small is in force.\n"
    assert json.loads(shown.stdout) == json.loads(again.stdout)["rules"] == RULES
    assert (record["tenant"], record["rules"]) == ("acme", {})
    assert listed[1:] == [["small", "-", "calls,", "guardrails"], ["small", "acme", "-"]]
    assert deleted.stdout == "Deleted the policy small.\n"
    assert [json.loads(line)["tenant"] for line in left] == [None]


def test_keys_and_tenants_under_policies() -> None:
    """They are put under one, and taken from under it; one that somebody is under is not deleted."""
    put("small")
    tenant = told("tenants", "create", "acme", "--policy", "small")
    key = told("keys", "create", "--tenant", "acme", "--policy", "small")
    refused = [run("policies", "delete", "small").stderr]
    freed = told("keys", "update", key["id"], "--no-policy")
    refused.append(run("policies", "delete", "small").stderr)
    let_go = told("tenants", "update", "acme", "--no-policy")
    under = told("keys", "update", key["id"], "--policy", "small")

    assert (tenant["policy"], key["policy"]) == ("small", "small")
    assert (freed["policy"], let_go["policy"], under["policy"]) == (None, None, "small")
    assert refused == [f"There are {whose} under the policy small.\n" for whose in ("keys", "tenants")]


def test_policies_of_the_file(folder: Path) -> None:
    """A key and a tenant may be under one that stands in the file."""
    (folder / "gateway.toml").write_text("[policies.filed]\ncalls = { max_tokens = 5 }\n")

    tenant = told("tenants", "create", "acme", "--policy", "filed")
    key = told("keys", "create", "--tenant", "acme", "--policy", "filed")

    assert (tenant["policy"], key["policy"]) == ("filed", "filed")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (b"", "There are no rules here; those of a policy that asks for nothing are {}."),
        (b"{", "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"calls":{},"calls":{}}', "has the same key twice"),
        (b'{"calls":{"max_tokens":0}}', "calls.max_tokens: 0 is not within 1 to 100000000"),
        (b'{"calls":{"max_tokens":1e999}}', "number"),
        (b'{"tool":{}}', "there is no such setting"),
        (b'{"calls":"' + b"x" * MAX_BYTES + b'"}', f"These are more than {MAX_BYTES} bytes."),
    ],
    ids=["nothing", "half", "a list", "twice", "out of bounds", "no number", "unknown", "long"],
)
def test_rules_that_are_refused(given: bytes, complaint: str) -> None:
    """With what is wrong, and nothing is kept of them."""
    run("tenants", "create", "acme")  # so that there is a database

    done = run("policies", "put", "small", "-", given=given)

    assert (done.exit_code, done.stdout) == (1, "")
    assert complaint.lower() in done.stderr.lower()
    assert run("policies", "show", "small").stderr == "There is no policy small.\n"


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("show", "none"), 1, "There is no policy none.\n"),
        (("delete", "none"), 1, "There is no policy none.\n"),
        (("put", "small", "-", "--tenant", "none"), 1, "There is no tenant none.\n"),
        (("put", "no name", "-"), 2, "it is not a name"),
        (("put", "small", "no-such-file"), 2, "No such file"),
    ],
)
def test_what_is_not_there(words: tuple[str, ...], code: int, complaint: str) -> None:
    """It is told in a line."""
    run("tenants", "create", "acme")  # so that there is a database

    done = run("policies", *words, given="{}")

    assert done.exit_code == code
    assert complaint in done.stderr
