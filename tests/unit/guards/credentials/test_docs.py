"""What docs/guardrails-credentials.md says is what the engine does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.guards.credentials import CredentialsEngine
from gateway.guards.credentials.engine import WINDOW_CHARS
from gateway.guards.credentials.formats import FORMATS
from gateway.guards.credentials.kinds import KINDS
from tests.unit.guards.credentials import cases
from tests.unit.guards.redaction import counted, redact

DOCUMENT = (Path(__file__).parents[4] / "docs" / "guardrails-credentials.md").read_text(encoding="utf-8")
ENGINE = CredentialsEngine()


def test_table_of_kinds() -> None:
    """The document's table has the kinds of the engine, each with what is looked at."""
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", DOCUMENT, re.MULTILINE)

    assert rows == [(name, kind.what, kind.proof) for name, kind in KINDS.items()]


def test_order_of_kinds() -> None:
    """Formats stand in the table in the order in which they are looked for."""
    looked_for = list(dict.fromkeys(row.kind for row in FORMATS))

    assert [kind for kind in KINDS if kind in looked_for] == looked_for


@pytest.mark.parametrize("kind", cases.KEYS)
def test_prefixes(kind: str) -> None:
    """The prefixes that the table tells of are those of keys that are found."""
    prefixes = [prefix.partition(" ")[0] for prefix in re.findall("`([^`]+)`", KINDS[kind].what)]

    for prefix in {prefix.lstrip(":") for prefix in prefixes}:
        assert any(prefix in key for key in cases.KEYS[kind]) or kind in ("github_token", "gitlab_token"), prefix


def test_prefixes_of_a_family() -> None:
    """GitHub and GitLab have a prefix for each use; the table's are all found."""
    for prefix in re.findall("`([^`]+)`", KINDS["github_token"].what)[:-1]:
        assert [f.kind for f in counted(ENGINE, prefix + cases.GITHUB[4:])] == ["github_token"], prefix
    for prefix in re.findall("`([^`]+)`", KINDS["gitlab_token"].what):
        assert [f.kind for f in counted(ENGINE, prefix + cases.GITHUB[4:30])] == ["gitlab_token"], prefix


def test_only_the_value_is_masked() -> None:
    """A mask leaves the word in front, and the quotes, as they are."""
    assert redact(ENGINE, '{"password": "Kucing-123"}') == '{"password": "[PASSWORD_1]"}'
    assert redact(ENGINE, "postgresql://app:s3cr3tPw@db/x") == "postgresql://app:[URL_PASSWORD_1]@db/x"


def test_what_it_cannot_see() -> None:
    """What the document says is not found is not, and its window is the engine's."""
    for text in ("password: kucing", "password: kucing garong 1", cases.GITHUB[4:], "sk" + "_test_" + cases.GITHUB[4:]):
        assert counted(ENGINE, text) == [], text
    assert f"at most {WINDOW_CHARS} characters are held back" in DOCUMENT
