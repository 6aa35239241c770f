"""Placeholders as rules: nothing that was found is left, and nothing else is changed."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.guarding import Finding
from gateway.policy.guards import Placeholders

PLACEHOLDER = re.compile(r"\[(NIK|EMAIL)_\d+\]")


@st.composite
def found(draw: st.DrawFn) -> tuple[str, list[Finding]]:
    """A text without brackets, and findings anywhere in it, some over others."""
    text = draw(st.text(st.characters(exclude_characters="[]"), min_size=1, max_size=30))
    spans = draw(st.lists(st.tuples(st.integers(0, len(text) - 1), st.integers(1, 8)), max_size=6))
    kinds = st.sampled_from(["nik", "email"])
    return text, [Finding(draw(kinds), start, min(len(text), start + length)) for start, length in spans]


@given(found())
def test_redaction(case: tuple[str, list[Finding]]) -> None:
    """Every character of a finding is gone, every other one stays, and the originals put in their places again are the
    text that it was."""
    text, findings = case
    placeholders = Placeholders()

    redacted = placeholders.redact(text, [(finding, True) for finding in findings])

    gone = {at for finding in findings for at in range(finding.start, finding.end)}
    assert PLACEHOLDER.sub("", redacted) == "".join(char for at, char in enumerate(text) if at not in gone)
    assert PLACEHOLDER.sub(lambda one: placeholders.originals[one[0]], redacted) == text


@given(st.lists(st.sampled_from(["a@e", "b@e", "c@e"]), min_size=1, max_size=12))
def test_numbers(values: list[str]) -> None:
    """Values are numbered in the order in which they come, and each has one number through all texts of a call."""
    placeholders = Placeholders()
    order = list(dict.fromkeys(values))

    redacted = [placeholders.redact(value, [(Finding("email", 0, 3), False)]) for value in values]

    assert redacted == [f"[EMAIL_{order.index(value) + 1}]" for value in values]
    assert placeholders.originals == {}


def test_numbers_that_are_taken() -> None:
    """A placeholder that stands for something else already is nobody's."""
    placeholders = Placeholders({"[EMAIL_1]", "[EMAIL_3]", "[NIK_2]"})

    redacted = [placeholders.redact(value, [(Finding("email", 0, 3), True)]) for value in ("a@e", "b@e", "a@e")]

    assert redacted == ["[EMAIL_2]", "[EMAIL_4]", "[EMAIL_2]"]
    assert placeholders.originals == {"[EMAIL_2]": "a@e", "[EMAIL_4]": "b@e"}


def test_what_comes_back_only_in_part() -> None:
    """Of findings that overlap, one of a guard that gives nothing back keeps the whole to itself."""
    placeholders = Placeholders()

    redacted = placeholders.redact("key-jane@e.com", [(Finding("key", 0, 8), False), (Finding("email", 4, 14), True)])

    assert (redacted, placeholders.originals) == ("[EMAIL_1]", {})
