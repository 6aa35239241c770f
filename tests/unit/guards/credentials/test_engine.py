"""What `credentials` finds, what it leaves alone, and where it says that something is."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.guarding import Text
from gateway.guards.credentials import CredentialsEngine
from gateway.guards.credentials.engine import WINDOW_CHARS
from gateway.guards.credentials.kinds import KINDS
from tests.support.scale import examples
from tests.unit.guards.credentials import cases
from tests.unit.guards.redaction import assert_in_order, counted, redact, scan
from tests.unit.guards.timing import MOST, growth

ENGINE = CredentialsEngine()
KEYS = [(kind, key) for kind, keys in cases.KEYS.items() for key in keys]
SURROUNDINGS = (
    "{}",
    "key: {}\n",
    '"{}"',
    "({})",
    "a={},",
    "kuncinya {} ya",
    "`{}`",
    "x\n{}\ny",
    "https://x.id/?k={}&y=1",
)


@pytest.mark.parametrize(("kind", "key"), KEYS, ids=lambda case: str(case)[:16])
def test_keys(kind: str, key: str) -> None:
    """A key is found as a whole and as what it is, whatever stands around it."""
    for surrounding in SURROUNDINGS:
        text = surrounding.format(key)

        assert [(f.kind, text[f.start : f.end]) for f in counted(ENGINE, text)] == [(kind, key)], surrounding


@pytest.mark.parametrize(("text", "expected"), cases.FOUND, ids=lambda case: str(case)[:24])
def test_found(text: str, expected: tuple[tuple[str, str], ...]) -> None:
    """What words say is secret is found, and of two kinds that fit the more exact one is told."""
    assert [(f.kind, text[f.start : f.end]) for f in counted(ENGINE, text)] == list(expected)


@pytest.mark.parametrize("text", cases.BENIGN, ids=lambda text: text[:24])
def test_benign(text: str) -> None:
    """Dummies, examples, hashes, ids, programs and talk of secrets are no findings."""
    assert [(f.kind, text[f.start : f.end]) for f in scan(ENGINE, text)] == []


def test_every_kind_is_found() -> None:
    """The table of kinds has those that the cases have, and no other."""
    kinds = set(cases.KEYS) | {kind for _, expected in cases.FOUND for kind, _ in expected}

    assert kinds == set(KINDS)


def test_checksums_count() -> None:
    """A key with the checksum that its kind has is surer than one without."""
    right, wrong = cases.GITHUB, f"{cases.GITHUB[:-1]}{'0' if cases.GITHUB[-1] != '0' else '1'}"

    assert [finding.score for finding in scan(ENGINE, right)] == [1.0]
    assert [finding.score for finding in scan(ENGINE, wrong)] == [0.9]


def test_reasons_do_not_quote() -> None:
    """No finding says a piece of the text."""
    reasons = {finding.reason for _, key in KEYS for finding in scan(ENGINE, key)}

    assert [reason for reason in reasons if not reason or re.search("[0-9_]", reason)] == []


@pytest.mark.parametrize(("kind", "key"), KEYS, ids=lambda case: str(case)[:16])
def test_told_within_the_window(kind: str, key: str) -> None:
    """On a stream a key is told by its first characters, as many as are held back: so none of it has left by then."""
    seen = key[:WINDOW_CHARS]

    (finding,) = counted(ENGINE, seen)

    assert (finding.kind, finding.start) == (kind, 0)
    assert re.search("[0-9A-Za-z+/]{12}", seen[finding.end :]) is None  # of a header of PEM the beginning may be left


PIECES = st.one_of(
    st.sampled_from([key for _, key in KEYS]),
    st.sampled_from([text for text, _ in cases.FOUND]),
    st.sampled_from([*" .,:=\"'`-_\n\u200bx7A[]", "password=", "token: ", "Bearer ", "://a:", "@", "[JWT_1]", "é", ""]),
    st.text(max_size=8),
    st.from_regex("[0-9A-Za-z]{6,20}", fullmatch=True),
)


@pytest.mark.fuzz
@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(st.lists(PIECES, max_size=10).map("".join))
def test_any_text(text: str) -> None:
    """Whatever a text is made of, findings are in order and of a known kind, and redaction is idempotent."""
    findings = scan(ENGINE, text)

    assert_in_order(findings, len(text))
    assert {finding.kind for finding in findings} <= set(KINDS)
    once = redact(ENGINE, text)
    assert redact(ENGINE, once) == once


HOSTILE = (
    "sk-", "password=", "password: a", "://a:a", cases.pem("")[:28] + "\n", cases.pem("")[:50] + "\n", "eyJ",
    cases.JWT_HEAD + ".", cases.GITHUB + " ", "bearer ", "token ", "a", "sk-" + cases.GITHUB[4:] + " ", "1", "A",
    "secret access key ", "SK0a", "password=Abc123 ", "passwd:= ", "sk-1\u200b", "İpassword:1", "-----BEGIN ", "\\n",
)  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE, ids=lambda unit: unit[:16])
def test_time_is_linear(unit: str) -> None:
    """The time of a scan grows with its text, whatever that is a repetition of."""
    assert growth(ENGINE, unit) < MOST


def test_time_is_checked() -> None:
    """A scan that has much to do asks again and again whether its time is over."""
    checks: list[None] = []

    ENGINE.scan(Text(f"password=Abc123 {cases.GITHUB} " * 3000), lambda: checks.append(None))

    assert len(checks) >= 10
