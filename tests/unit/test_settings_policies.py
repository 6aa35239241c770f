"""Policies of the file and of the database: what is refused, and the rules that they become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gateway.core.accounts import BadTerms
from gateway.core.guarding import NO_RULES, AnswerTerms, Check, Finding, GuardName, GuardTerms, Rules, Text
from gateway.guards import table
from gateway.providers.presets import PRESETS
from gateway.settings import FileTerms, SettingsError, build_keys, from_document, moderation_provider
from gateway.settings.reader import LATER

BLOCK = {"mode": "block"}


class Blind:
    """An engine that finds nothing."""

    name: GuardName = "pii"
    version = "1"
    window_chars = None
    threshold = 0.5

    def scan(self, text: Text, check: Check) -> Sequence[Finding]:
        return []


@pytest.fixture(autouse=True)
def engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are three guards, whatever the version has."""
    monkeypatch.setattr("gateway.settings.policies.ENGINES", dict.fromkeys(("injection", "pii", "content"), Blind))


def document(guardrails: Mapping[str, Any], policy: str = "default") -> dict[str, Any]:
    return {
        "policies": {"default": {"guardrails": guardrails}},
        "keys": {
            "anm-sk-ruled": {"tenant": "demo", "tier": "pro", "policy": policy},
            "anm-sk-free": {"tenant": "demo", "tier": "pro"},
        },
    }


def rules(guardrails: Mapping[str, Any]) -> Rules:
    keys = build_keys(from_document(document(guardrails), {}, {}, presets=PRESETS))
    assert keys["anm-sk-free"].rules == NO_RULES
    assert keys["anm-sk-ruled"].policy == "default"
    return keys["anm-sk-ruled"].rules


def test_terms() -> None:
    """What a policy says reaches the keys that name it, in the units of the core; what is off is not there."""
    pii = {"mode": "redact", "kinds": ["nik", "email"], "reversible": True, "deadline_ms": 50}

    found = rules({"injection": {"mode": "block", "threshold": 0.9}, "pii": pii, "content": {"mode": "off"}})

    assert found.guards == {
        "injection": GuardTerms("block", 0.9),
        "pii": GuardTerms("redact", None, frozenset({"nik", "email"}), reversible=True, deadline_s=0.05),
    }


def test_answers() -> None:
    """What a policy says of answers is apart from what it says of calls."""
    said = {"mode": "redact", "guards": ["pii"], "hold_chars": 32, "hold_ms": 20}

    found = rules({"response_content": said, "pii": BLOCK})

    assert found.answers == AnswerTerms("redact", frozenset({"pii"}), 32, 0.02)
    assert found.guards == {"pii": GuardTerms("block")}
    assert rules({"response_content": {"mode": "off"}}).answers == AnswerTerms()


def test_both_kinds_of_policies_are_the_same() -> None:
    """The database's rules come to what the file's do."""
    guardrails = {"injection": BLOCK, "pii": {"mode": "monitor", "threshold": 0}}

    assert FileTerms({}).policy({"guardrails": guardrails}) == rules(guardrails)
    assert FileTerms({}).policy({}) == NO_RULES


@pytest.mark.parametrize(
    ("guardrails", "place", "problem"),
    [
        ({"injektion": BLOCK}, "injektion", "there is no such setting; did you mean injection?"),
        ({"injection": {"mode": "redact"}}, "injection.mode", '"redact" is not one of "off", "monitor", "block"'),
        ({"pii": {"mode": "mask"}}, "pii.mode", 'is not one of "off", "monitor", "redact", "block"'),
        ({"pii": {}}, "pii.mode", "is missing"),
        ({"response_content": BLOCK}, "response_content", LATER),
        ({"response_content": {**BLOCK, "guards": ["injection"]}}, "response_content.guards", "injection"),
        ({"response_content": {**BLOCK, "guards": []}}, "response_content.guards", "is empty"),
        ({"injection": {**BLOCK, "threshold": 1.01}}, "injection.threshold", "1.01 is not within 0 to 1"),
        ({"injection": {**BLOCK, "threshold": float("nan")}}, "injection.threshold", "nan is not within 0 to 1"),
        ({"injection": {**BLOCK, "deadline_ms": 0}}, "injection.deadline_ms", "0 is not within 1 to 10000"),
        ({"pii": {**BLOCK, "kinds": []}}, "pii.kinds", "is empty"),
        ({"pii": {**BLOCK, "kinds": ["nik", "nikk"]}}, "pii.kinds", "there is no kind nikk; there are: nik, kk, npwp"),
        ({"injection": {**BLOCK, "kinds": ["nik"]}}, "injection.kinds", "there is no kind nik; there are: extraction"),
        ({"content": {**BLOCK, "kinds": ["nik"]}}, "content.kinds", "there is no kind nik; there are: minors"),
        ({"pii": {**BLOCK, "kinds": ["E mail"]}}, "pii.kinds", "is not a list of kinds"),
        ({"pii": {**BLOCK, "reversible": True}}, "pii.reversible", 'is for the mode "redact" alone'),
        ({"credentials": BLOCK}, "credentials", "belongs to a later version"),
        ({"moderation": BLOCK}, "moderation", "needs a provider to ask; moderation.provider is not set"),
        ({"moderation": {"mode": "redact"}}, "moderation.mode", '"redact" is not one of "off", "monitor", "block"'),
        ({"pii": True}, "pii", "true is not a table"),
    ],
)
def test_what_makes_no_sense_is_refused(guardrails: Mapping[str, Any], place: str, problem: str) -> None:
    """In the file and in the database, at its place, before it could be taken for enforced."""
    with pytest.raises(SettingsError) as of_the_file:
        from_document(document(guardrails), {}, {}, presets=PRESETS)
    with pytest.raises(BadTerms) as of_the_database:
        FileTerms({}).policy({"guardrails": guardrails})

    (told,) = of_the_file.value.problems
    ((where, what),) = of_the_database.value.problems
    assert told.startswith(f"policies.default.guardrails.{place}: ")
    assert problem in told
    assert (where, what) == (f"guardrails.{place}", told.partition(": ")[2])


def test_a_guard_that_is_off_needs_no_engine() -> None:
    """It may be said that a guard does not look, whether there is one or not."""
    assert rules({"credentials": {"mode": "off"}}) == NO_RULES


JUDGED = {"providers": {"judge": {"preset": "openai", "api_key": "sk-1"}}, "moderation": {"provider": "judge"}}


def test_moderation_where_there_is_a_provider() -> None:
    """Policies of the file and of the database may ask for it."""
    guardrails = {"moderation": {**BLOCK, "deadline_ms": 2000}}
    settings = from_document({**document(guardrails), **JUDGED}, {}, {}, presets=PRESETS)

    assert build_keys(settings)["anm-sk-ruled"].rules == FileTerms.of(settings).policy({"guardrails": guardrails})
    assert build_keys(settings)["anm-sk-ruled"].rules.guards == {"moderation": GuardTerms("block", deadline_s=2.0)}


def test_who_moderates() -> None:
    """The provider that is named, with its address and credential; nobody where none is."""
    settings = from_document({**document({}), **JUDGED}, {}, {}, presets=PRESETS)
    judge = moderation_provider(settings, PRESETS)

    assert judge is not None
    assert (judge.base_url, judge.secret) == ("https://api.openai.com/v1", ("Authorization", "Bearer sk-1"))
    assert moderation_provider(from_document(document({}), {}, {}, presets=PRESETS), PRESETS) is None


@pytest.mark.parametrize(
    ("provider", "problem"),
    [
        ("nobody", 'there is no provider "nobody"; there are: claude, judge'),
        ("claude", "the preset anthropic has no POST /moderations of OpenAI's form"),
    ],
)
def test_who_cannot_moderate(provider: str, problem: str) -> None:
    """One that is not there, and one that speaks otherwise, are refused before anything starts."""
    claude = {"claude": {"preset": "anthropic", "api_key": "sk-2"}}
    judged = {"providers": {**JUDGED["providers"], **claude}, "moderation": {"provider": provider}}

    with pytest.raises(SettingsError) as caught:
        from_document({**document({}), **judged}, {}, {}, presets=PRESETS)

    assert caught.value.problems == [f"moderation.provider: {problem}"]


def test_a_policy_that_is_not_there() -> None:
    """A key that names one would run without any."""
    with pytest.raises(SettingsError) as caught:
        from_document(document({}, policy="strict"), {}, {}, presets=PRESETS)

    assert caught.value.problems == ['keys.(number 1).policy: there is no policy "strict"; there are: default']


def test_the_table() -> None:
    """Each engine bears the name it is listed under."""
    assert {name: engine.name for name, engine in table.make_engines().items()} == {
        name: name for name in table.ENGINES
    }
