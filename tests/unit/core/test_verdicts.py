"""What guards said, as answers, headers, the log and traces tell it."""

from __future__ import annotations

import msgspec
import pytest

from gateway.core.entries import trace_row
from gateway.core.guarding import Verdict
from gateway.core.receipt import Receipt, extension, row_of
from gateway.core.verdicts import guardrails, kept, summary
from gateway.http.answer_headers import guard_headers
from tests.unit.receipts import receipt

SAID = {
    "injection": Verdict("pass", 0.018),
    "pii": Verdict("redact", 1.0, {"nik": 1, "email": 1}, "messages[2].content"),
    "credentials": Verdict("error"),
}


def test_answers() -> None:
    """Every block is always there; what was redacted has passed, and other guards are told of where they looked."""
    assert list(guardrails({})) == ["injection", "pii", "content", "policy", "response_content"]
    assert all(block == {"status": "off"} for block in guardrails({}).values())
    assert guardrails(SAID) == {
        "injection": {"status": "pass", "score": 0.02},
        "pii": {"status": "pass", "redacted": 2, "findings": {"nik": 1, "email": 1}},
        "content": {"status": "off"},
        "policy": {"status": "off"},
        "response_content": {"status": "off"},
        "credentials": {"status": "error"},
    }
    assert extension(receipt(verdicts=SAID))["guardrails"] == guardrails(SAID)


@pytest.mark.parametrize(
    ("name", "verdict", "line"),
    [
        ("injection", Verdict("pass", 0.018), "pass score=0.02"),
        ("injection", Verdict("flag", 0.97, {"override": 1}), "flag score=0.97"),
        ("content", Verdict("block", 0.8, {"violence": 2}), "block score=0.80"),
        ("pii", Verdict("redact", 1.0, {"nik": 1, "email": 1}), "pass redacted 2 entities"),
        ("pii", Verdict("redact", 1.0, {"nik": 1}), "pass redacted 1 entity"),
        ("pii", Verdict("flag", 1.0, {"nik": 3}), "flag found 3 entities"),
        ("pii", Verdict("pass", 0.0), "pass"),
        ("injection", Verdict("error"), "error"),
        ("policy", Verdict("pass"), "pass"),
    ],
)
def test_lines(name: str, verdict: Verdict, line: str) -> None:
    """As the contract spells them."""
    assert summary(name, verdict) == line


def test_headers() -> None:
    """Two are always there, the others where their guards looked."""
    assert guard_headers({}) == (("x-anoman-guardrail-injection", "off"), ("x-anoman-guardrail-pii", "off"))
    assert guard_headers({"response_content": Verdict("pass"), "pii": Verdict("error")}) == (
        ("x-anoman-guardrail-injection", "off"),
        ("x-anoman-guardrail-pii", "error"),
        ("x-anoman-guardrail-response-content", "pass"),
    )


def test_log_and_trace() -> None:
    """Both have what was said, the trace in parts; a call that no guard looked at says nothing."""
    settled = receipt(verdicts=SAID)

    assert row_of(settled).guards == (
        "injection: pass score=0.02",
        "pii: pass redacted 2 entities",
        "credentials: error",
    )
    assert (
        trace_row(settled, recorded_ms=1).verdicts
        == kept(SAID)
        == {
            "injection": {"status": "pass", "score": 0.018},
            "pii": {
                "status": "redact",
                "score": 1.0,
                "findings": {"nik": 1, "email": 1},
                "place": "messages[2].content",
            },
            "credentials": {"status": "error"},
        }
    )
    assert (row_of(receipt()).guards, trace_row(receipt(), recorded_ms=1).verdicts) == (msgspec.UNSET, None)


def test_the_journal_has_them() -> None:
    """A receipt that waits on the disk for the database still knows them, and one of before has none."""
    settled = receipt(verdicts=SAID)

    again = msgspec.msgpack.decode(msgspec.msgpack.encode(settled), type=Receipt)

    assert again == settled
    plain = msgspec.to_builtins(settled)
    del plain["verdicts"]
    assert msgspec.convert(plain, Receipt).verdicts == {}
