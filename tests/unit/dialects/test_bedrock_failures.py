"""Bedrock's exceptions, as answers and inside a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.errors import CONTEXT_LENGTH_EXCEEDED, INVALID_REQUEST, PROVIDER_REFUSES, PROVIDER_UNAVAILABLE
from gateway.dialects.bedrock_failures import fault_failure, read_failure
from gateway.dialects.failures import MALFORMED
from gateway.wire.eventstream import UNREADABLE, Fault

HEADER = "{}:http://internal.amazon.com/coral/com.amazon.bedrock/"

# Exception, its status, and what we make of it: our error, our word, whether it may pass, whether it counts.
KINDS: list[tuple[str, int, Any, str, bool, bool]] = [
    ("ThrottlingException", 429, PROVIDER_UNAVAILABLE, "status_429", True, False),
    ("ModelNotReadyException", 429, PROVIDER_UNAVAILABLE, "status_429", True, False),
    ("ServiceQuotaExceededException", 400, PROVIDER_UNAVAILABLE, "status_429", True, False),
    ("ModelTimeoutException", 408, PROVIDER_UNAVAILABLE, "status_408", True, True),
    ("ModelErrorException", 424, PROVIDER_UNAVAILABLE, "status_500", True, True),
    ("ModelStreamErrorException", 424, PROVIDER_UNAVAILABLE, "status_500", True, True),
    ("InternalServerException", 500, PROVIDER_UNAVAILABLE, "status_500", True, True),
    ("ServiceUnavailableException", 503, PROVIDER_UNAVAILABLE, "status_503", True, True),
    ("AccessDeniedException", 403, PROVIDER_REFUSES, "credential", False, True),
    ("ExpiredTokenException", 403, PROVIDER_REFUSES, "credential", False, True),
    ("InvalidSignatureException", 403, PROVIDER_REFUSES, "credential", False, True),
    ("UnrecognizedClientException", 403, PROVIDER_REFUSES, "credential", False, True),
    ("IncompleteSignature", 400, PROVIDER_REFUSES, "credential", False, True),
    ("ResourceNotFoundException", 404, PROVIDER_REFUSES, "status_404", False, True),
    ("ValidationException", 400, INVALID_REQUEST, "callers_fault", False, False),
]


@pytest.mark.parametrize(
    ("name", "status", "kind", "reason", "retryable", "counts"), KINDS, ids=[row[0] for row in KINDS]
)
@pytest.mark.parametrize("how", ["header", "body", "stream"])
def test_kinds(how: str, name: str, status: int, kind: Any, reason: str, retryable: bool, counts: bool) -> None:
    """Each exception means the same by its header, by its body, and inside a stream, where it has no status."""
    if how == "stream":
        failure = fault_failure(Fault((name[0].lower() + name[1:]).encode(), b'{"message":"m"}'))
    elif how == "header":
        failure = read_failure(status, {"x-amzn-errortype": HEADER.format(name)}, b'{"message":"m"}', 0.0)
    else:
        failure = read_failure(
            status, {}, json.dumps({"__type": f"com.amazon.coral#{name}", "Message": "m"}).encode(), 0.0
        )

    assert (failure.error, failure.reason, failure.retryable, failure.counts) == (kind, reason, retryable, counts)
    assert name.lower() in failure.detail.lower()


@pytest.mark.parametrize(
    "words",
    [
        "Input is too long for requested model.",
        "The model returned the following errors: prompt is too long: 227255 tokens > 200000 maximum",
        "The model returned the following errors: input length and `max_tokens` exceed context limit: 1 + 2 > 2",
        "Too many input tokens. Max input tokens: 8192, request input token count: 9000",
        "This model's maximum context length is 8192 tokens. Please reduce the length of the prompt",
    ],
)
def test_calls_that_are_too_long(words: str) -> None:
    """In the words of several models; the caller reads them."""
    failure = read_failure(
        400, {"x-amzn-errortype": "ValidationException"}, json.dumps({"message": words}).encode(), 0.0
    )

    assert (failure.error, failure.public_message) == (CONTEXT_LENGTH_EXCEEDED, words)


@pytest.mark.parametrize(
    "words",
    [
        "The provided model identifier is invalid.",
        "Invocation of model ID anthropic.x with on-demand throughput isn\u2019t supported. Retry your request",
        "Operation not allowed",
    ],
)
def test_routes_that_name_no_model(words: str) -> None:
    """Ours to mend, not the caller's: another route may serve, and the caller is not told."""
    failure = read_failure(
        400, {"x-amzn-errortype": "ValidationException"}, json.dumps({"message": words}).encode(), 0.0
    )

    assert (failure.reason, failure.error, failure.public_message) == ("no_such_model", PROVIDER_REFUSES, None)


def test_words_about_a_busy_account_are_not_about_the_call() -> None:
    """A throttled account says "too many tokens", which in a refused call would mean its length."""
    failure = fault_failure(Fault(b"throttlingException", b'{"message":"Too many tokens, please wait"}'))

    assert (failure.error, failure.reason) == (PROVIDER_UNAVAILABLE, "status_429")


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"\xff", b'{"message":7}', b'{"message":"a\xff"}', b"[" * 100_000]
)
@pytest.mark.parametrize("status", [302, 400, 403, 500, 503])
def test_odd_bodies(body: bytes, status: int) -> None:
    """Whatever stands in a body, its status is judged."""
    failure = read_failure(status, {"x-amzn-errortype": ""}, body, 0.0)

    assert failure.error in (INVALID_REQUEST, PROVIDER_REFUSES, PROVIDER_UNAVAILABLE)


def test_a_pause_that_is_asked_for() -> None:
    """As by any provider."""
    headers = {"x-amzn-errortype": "ThrottlingException", "retry-after": "7"}

    assert read_failure(429, headers, b'{"message":"m"}', 0.0).retry_after_s == 7


def test_a_stream_that_cannot_be_read() -> None:
    """It is no exception of Bedrock's."""
    failure = fault_failure(Fault(UNREADABLE, b"damaged message"))

    assert (failure.reason, failure.detail) == (MALFORMED, "damaged message")
