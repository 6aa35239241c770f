"""What `pii` finds, what it leaves alone, and where it says that something is."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.guarding import Text
from gateway.guards.pii import PiiEngine
from gateway.guards.pii.kinds import KINDS
from tests.support.scale import examples
from tests.unit.guards.pii import cases
from tests.unit.guards.redaction import assert_in_order, counted, redact, scan
from tests.unit.guards.timing import MOST, growth

ENGINE = PiiEngine()


@pytest.mark.parametrize(("text", "expected"), cases.FOUND, ids=lambda case: str(case)[:30])
def test_found(text: str, expected: tuple[tuple[str, str], ...]) -> None:
    """What is personal is found as a whole and as what it is, however it is written."""
    found = [(finding.kind, text[finding.start : finding.end]) for finding in counted(ENGINE, text)]

    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("text", cases.NEAR_MISSES)
def test_near_misses(text: str) -> None:
    """A shape alone is not enough: wrong check digits, dates, codes and lengths, and missing words, are no findings."""
    found = [finding.kind for finding in counted(ENGINE, text)]

    assert found == (["nik"] if text.startswith("KK") else [])


@pytest.mark.parametrize("text", cases.BENIGN)
def test_benign(text: str) -> None:
    """Times, ids, hashes, prices, versions, code, log lines and placeholders are no findings."""
    assert [(finding.kind, text[finding.start : finding.end]) for finding in counted(ENGINE, text)] == []


def test_every_kind_is_found() -> None:
    """The table of kinds has those that the cases have, and the engine finds no other."""
    kinds = {kind for _, expected in cases.FOUND for kind, _ in expected}

    assert kinds == set(KINDS)


def test_reasons_do_not_quote() -> None:
    """No finding says a piece of the text: a digit in its reason would be one."""
    reasons = [finding.reason for text, _ in cases.FOUND for finding in scan(ENGINE, text)]

    assert [reason for reason in reasons if not reason or re.search(r"[0-9@]", reason)] == []


@pytest.mark.parametrize(("text", "expected"), cases.FOUND, ids=lambda case: str(case)[:30])
def test_redaction_is_idempotent(text: str, expected: tuple[tuple[str, str], ...]) -> None:
    """Nothing is found in a text that was redacted, a placeholder least of all."""
    once = redact(ENGINE, text)

    assert once.count("[") == len(expected) + text.count("[")
    assert redact(ENGINE, once) == once


SAMPLES = [piece for _, expected in cases.FOUND for _, piece in expected]
SIGNS = [*" -.()+/:x@0é\n\u200b\u00a0", "", ", ", " dan ", "[NIK_1]"]
WORDS = ["NIK", "kk", "rekening", "BCA", "plat", "paspor", "telp", "order", "NPWP", "bpjs", "Rp", "halo apa kabar"]
PIECES = st.one_of(
    st.sampled_from(SAMPLES),
    st.sampled_from(SIGNS),
    st.sampled_from(WORDS),
    st.text(max_size=6),
    st.from_regex(r"[0-9]{1,17}", fullmatch=True),
)


@pytest.mark.fuzz
@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(st.lists(PIECES, max_size=14).map("".join))
def test_any_text(text: str) -> None:
    """
    Whatever a text is made of, findings are in order, inside it, apart, not empty, of a known kind.

    And redaction is idempotent.
    """
    findings = scan(ENGINE, text)

    assert_in_order(findings, len(text))
    assert {finding.kind for finding in findings} <= set(KINDS)
    once = redact(ENGINE, text)
    assert redact(ENGINE, once) == once


@pytest.mark.fuzz
@settings(max_examples=examples(200), derandomize=True, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=40), st.sampled_from([cases.MAIL, cases.CARD])), max_size=4))
def test_offsets(parts: list[tuple[str, str]]) -> None:
    """A place is one of characters of the text as it came, whatever stands in front of it."""
    text = "".join(f"{front}\n{value}\n" for front, value in parts)

    pieces = [text[finding.start : finding.end] for finding in scan(ENGINE, text)]

    assert [piece for piece in pieces if piece in {value for _, value in parts}] == [value for _, value in parts]


HOSTILE = (
    "1", "@", "1-", "１", "12-", "123-", "1234-", "08-", "0812-1-", "4111 ", "a@", "a@b.", "1.1.1.1 ", "GB82 ",
    "B 1 A ", "nik ", "1234567890\n", "rekening 1234567890\n", "0812-12345678901-", "A1234567 ", "2001:1::",
    "1\u200b", "S1234567D ", "(1)", "62 8", "a.", "[A_1]",
    "2024-01-01 ", "data:;base64,", "1234abcd-", "\u0660\u0661\u0662", "İ1",
)  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_time_is_linear(unit: str) -> None:
    """The time of a scan grows with its text, whatever that is a repetition of."""
    assert growth(ENGINE, unit) < MOST


def test_time_is_checked() -> None:
    """A scan that has much to do asks again and again whether its time is over."""
    for unit in ("1234567890\n", "a@b.co ", "1.1.1.1 ", "GB82 WEST ", "A1234567 ", "4111 ", "0812-1-"):
        checks: list[None] = []

        ENGINE.scan(Text(unit * (200_000 // len(unit))), lambda asked=checks: asked.append(None))

        assert len(checks) >= 10, unit
