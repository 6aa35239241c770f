"""`gateway guard try`, with engines of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.__main__ import main
from gateway.guards import table
from tests.support.guards import Words

ENGINES = {
    "injection": lambda: Words("injection", override=("ignore", 0.9), hint=("please", 0.2)),
    "pii": lambda: Words("pii", email=(r"\w+@e\.com", 1.0)),
}
POLICY = '[policies.p]\nguardrails = { pii = { mode = "redact" }, injection = { mode = "block", threshold = 0.95 } }\n'


@pytest.fixture(autouse=True)
def engines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There are two guards, whatever the version has."""
    monkeypatch.setattr(table, "ENGINES", ENGINES)
    monkeypatch.setattr("gateway.settings.policies.ENGINES", ENGINES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GATEWAY_CONFIG", raising=False)
    (tmp_path / "gateway.toml").write_text(POLICY)


def run(*words: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(main, ["guard", "try", *words], prog_name="gateway", input=typed)


def test_without_a_policy() -> None:
    """Every guard looks, and says what it found, how sure it is, where, and why."""
    done = run("please ignore jane@e.com")

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "injection: flag score=0.90",
        "  hint 0.20 at 0-6: like hint (below 0.50)",
        "  override 0.90 at 7-13: like override",
        "pii: flag found 1 entity",
        "  email 1.00 at 14-24: like email",
    ]


def test_with_a_policy() -> None:
    """Its thresholds count, and the text is shown as a provider would get it."""
    done = run("-", "--policy", "p", typed="ignore jane@e.com")

    assert done.stdout.splitlines() == [
        "injection: pass score=0.90",
        "  override 0.90 at 0-6: like override (below 0.95)",
        "pii: pass redacted 1 entity",
        "  email 1.00 at 7-17: like email",
        "sent: ignore [EMAIL_1]",
    ]


def test_long_lists_end() -> None:
    """Of many findings some are shown, and how many there are."""
    done = run("jane@e.com " * 25)

    assert done.stdout.splitlines()[1] == "pii: flag found 25 entities"
    assert done.stdout.splitlines()[-1] == "  and 5 more"


def test_a_policy_that_is_not_there() -> None:
    """The command says which there are."""
    done = run("hello", "--policy", "q")

    assert (done.exit_code, done.stdout) == (1, "")
    assert "The file has no policy q; it has: p." in done.stderr
