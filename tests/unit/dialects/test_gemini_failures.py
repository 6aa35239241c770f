"""What a Gemini provider's error means for the caller."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.errors import PROVIDER_REFUSES, Failure
from gateway.dialects.registry import DIALECTS

Details = list[dict[str, Any]]
KEY = "API key not valid. Please pass a valid API key."
TOO_LONG = "The input token count (1200001) exceeds the maximum number of tokens allowed (1048576)."


def info(reason: str) -> Details:
    return [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"}]


def pause(delay: Any) -> Details:
    return [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}]


def failure(code: int, message: str, status: str, details: Details | None = None, **more: Any) -> Failure:
    """The failure of an error in Google's form; `wrap` puts it into an array, `headers` are the answer's."""
    body: Any = {"error": {"code": code, "message": message, "status": status, "details": details or []}}
    raw = json.dumps([body] if more.get("wrap") else body).encode()
    return DIALECTS["gemini_content"].read_failure(code, more.get("headers", {}), raw, 0.0)


@pytest.mark.parametrize("wrap", [False, True], ids=["object", "array"])
@pytest.mark.parametrize(
    ("code", "message", "status", "details", "expected"),
    [
        (400, "Bad value.", "INVALID_ARGUMENT", None, ("invalid_request", "callers_fault", False)),
        (400, TOO_LONG, "INVALID_ARGUMENT", None, ("context_length_exceeded", "callers_fault", False)),
        (400, KEY, "INVALID_ARGUMENT", info("API_KEY_INVALID"), ("provider_unavailable", "credential", False)),
        (400, KEY, "INVALID_ARGUMENT", None, ("provider_unavailable", "credential", False)),
        (400, "API key expired.", "INVALID_ARGUMENT", None, ("provider_unavailable", "credential", False)),
        (400, "Not here.", "FAILED_PRECONDITION", None, ("provider_unavailable", "failed_precondition", False)),
        (403, "No.", "PERMISSION_DENIED", None, ("provider_unavailable", "credential", False)),
        (404, "models/x is not found.", "NOT_FOUND", None, ("provider_unavailable", "status_404", False)),
        (429, "Quota.", "RESOURCE_EXHAUSTED", None, ("provider_unavailable", "status_429", True)),
        (500, "Internal.", "INTERNAL", None, ("provider_unavailable", "status_500", True)),
        (503, "Overloaded.", "UNAVAILABLE", None, ("provider_unavailable", "status_503", True)),
        (504, "Deadline.", "DEADLINE_EXCEEDED", None, ("provider_unavailable", "status_504", True)),
    ],
)
def test_whose_fault_it_is(
    code: int, message: str, status: str, details: Details | None, expected: tuple[str, str, bool], *, wrap: bool
) -> None:
    """Each error has its meaning, alone or in an array; a wrong key is ours, though it is a 400."""
    told = failure(code, message, status, details, wrap=wrap)

    assert (told.error.code, told.reason, told.retryable) == expected
    assert message in told.detail
    assert (told.error is PROVIDER_REFUSES) == (expected[0] == "provider_unavailable" and not told.retryable)


@pytest.mark.parametrize("wrap", [False, True], ids=["object", "array"])
def test_what_the_caller_reads(wrap: bool) -> None:
    """A caller reads what it did wrong, and nothing of a key that is ours."""
    assert failure(400, "Bad value.", "INVALID_ARGUMENT", wrap=wrap).public_message == "Bad value."
    assert failure(400, KEY, "INVALID_ARGUMENT", info("API_KEY_INVALID"), wrap=wrap).public_message is None


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [("34.074824224s", 34.074824224), ("2s", 2.0), ("999999s", 3600.0), ("-3s", None), ("soon", None), (7, None)],
)
def test_the_pause_in_the_body(delay: Any, seconds: float | None) -> None:
    """How long to wait stands in the body, bounded; nonsense is no pause."""
    assert failure(429, "Quota.", "RESOURCE_EXHAUSTED", pause(delay)).retry_after_s == seconds


def test_the_header_goes_first() -> None:
    """A `Retry-After`, where one is sent, is what counts."""
    told = failure(429, "Quota.", "RESOURCE_EXHAUSTED", pause("34s"), headers={"retry-after": "5"})

    assert told.retry_after_s == 5.0


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"[1]", b"{", b'{"error":"no"}', b'{"error":{"details":[1,{}]}}', b"[" * 5000]
)
@pytest.mark.parametrize("code", [400, 429, 500])
def test_errors_that_are_none(code: int, body: bytes) -> None:
    """Whatever the body is, the status has its meaning."""
    told = DIALECTS["gemini_content"].read_failure(code, {}, body, 0.0)

    assert told.reason == ("callers_fault" if code == 400 else f"status_{code}")
    assert told.retry_after_s is None
