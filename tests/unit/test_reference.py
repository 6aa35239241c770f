"""The generated documents are those in the repository, and they are complete."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from gateway.core.errors import ERRORS, FailureClass
from gateway.providers.presets import PRESETS
from gateway.reference import DOCUMENTS, FAILURES, MEANINGS, errors_markdown, settings_markdown, write
from gateway.settings.entries import (
    EffectiveEntry,
    KeyEntry,
    LongPriceEntry,
    MeteringSettings,
    ModelEntry,
    PriceEntry,
    ProviderEntry,
    RouteEntry,
    TierEntry,
)
from gateway.settings.fields import rules_of, variable_of
from gateway.settings.relations import ORDERED
from gateway.settings.sections import SCALAR_SECTIONS

DOCS = Path(__file__).parents[2] / "docs"
SECTIONS = (
    *SCALAR_SECTIONS.values(),
    EffectiveEntry,
    KeyEntry,
    LongPriceEntry,
    MeteringSettings,
    ModelEntry,
    PriceEntry,
    ProviderEntry,
    RouteEntry,
    TierEntry,
)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_committed_documents(tmp_path: Path, name: str) -> None:
    """The committed file is what `python -m gateway.reference docs` writes."""
    write(tmp_path)

    assert (tmp_path / name).read_text() == (DOCS / name).read_text()


def test_make_docs_writes_them(tmp_path: Path) -> None:
    """The recipe of `make docs`, run elsewhere, writes every document into `docs`."""
    (tmp_path / "docs").mkdir()
    recipe = re.search(r"^docs: .*\n\t\$\(BIN\)/python (.*)\n", (DOCS.parent / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None

    environ = {**os.environ, "PYTHONPATH": str(DOCS.parent)}
    subprocess.run([sys.executable, *shlex.split(recipe[1])], cwd=tmp_path, env=environ, check=True)

    assert {path.name for path in (tmp_path / "docs").iterdir()} == set(DOCUMENTS)


def test_every_scalar_setting_is_documented() -> None:
    """Each scalar setting has a row with its variable and its sentence."""
    text = settings_markdown()

    for section, cls in SCALAR_SECTIONS.items():
        for name, rule in rules_of(cls).items():
            assert f"| `{section}.{name}` | `{variable_of(section, name)}` |" in text
            assert f"| {rule.description} |" in text


@pytest.mark.parametrize("cls", SECTIONS)
def test_every_setting_has_a_sentence(cls: type[object]) -> None:
    """Each setting, of the tables too, is described in one sentence that the document holds."""
    text = settings_markdown()

    for rule in rules_of(cls).values():
        assert re.fullmatch(r"[A-Z][^|\n]+\.", rule.description), rule.name
        assert f"| {rule.description} |" in text


@pytest.mark.parametrize(
    ("section", "one", "other"),
    [("server", "drain_s", "exit_s"), *((section, small, large) for section, small, _, large in ORDERED)],
)
def test_what_must_hold_between_settings_is_documented(section: str, one: str, other: str) -> None:
    """Where a setting is bounded by another, the sentence of each names the other."""
    rules = rules_of(SCALAR_SECTIONS[section])

    assert f"`{other}`" in rules[one].description
    assert f"`{one}`" in rules[other].description


def test_every_preset_is_documented() -> None:
    """Each preset has a row."""
    text = settings_markdown()

    assert all(f"\n| `{name}` | " in text for name in PRESETS)


def test_every_error_is_documented() -> None:
    """Each error of the table has a meaning and a row with its code, status and message; none is left from before."""
    text = errors_markdown()

    assert set(MEANINGS) == {kind.code for kind in ERRORS}
    for kind in ERRORS:
        (row,) = re.findall(rf"^\| {kind.status} \| `{kind.code}` \|.*$", text, re.MULTILINE)
        assert kind.message in row
        assert f"`{kind.openai_type}` | `{kind.anthropic_type}`" in row
        assert ("`x-should-retry: false`" in row) == (kind.retry == "never")


def test_every_failure_class_is_documented() -> None:
    """Each failure class of the mid-stream frame has a row."""
    assert set(FAILURES) == set(get_args(FailureClass))
    assert all(f"| `{name}` | " in errors_markdown() for name in FAILURES)


@pytest.mark.parametrize("text", [make() for make in DOCUMENTS.values()], ids=DOCUMENTS)
def test_tables_are_whole(text: str) -> None:
    """Every row of a table has as many cells as its head."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.replace("\\|", "").count("|") for line in table.splitlines()}) == 1
