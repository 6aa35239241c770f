"""What a provider's error means for the caller, and how much of it the caller may read."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from gateway.core.catalog import DialectName
from gateway.core.errors import (
    CONTEXT_LENGTH_EXCEEDED,
    PROVIDER_REFUSES,
    PROVIDER_UNAVAILABLE,
    Failure,
    GatewayError,
)
from gateway.dialects.errors import dialect_of_path, error_body
from gateway.dialects.failures import MAX_ERROR_BYTES, in_band_failure, read_failure
from gateway.dialects.scrub import MAX_PUBLIC_CHARS, scrub


def failure(
    status: int, body: Any = b"", dialect: DialectName = "openai_chat", headers: dict[str, str] | None = None
) -> Failure:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_failure(dialect, status, headers or {}, raw, 0.0)


STATUSES = [  # status, our code, reason, retryable, counts against the route
    (400, "invalid_request", "callers_fault", False, False),
    (413, "request_too_large", "callers_fault", False, False),
    (422, "invalid_request", "callers_fault", False, False),
    (401, "provider_unavailable", "credential", False, True),
    (402, "provider_unavailable", "credential", False, True),
    (403, "provider_unavailable", "credential", False, True),
    (404, "provider_unavailable", "status_404", False, True),
    (408, "provider_unavailable", "status_408", True, True),
    (409, "provider_unavailable", "status_409", True, True),
    (418, "provider_unavailable", "status_418", False, True),
    (425, "provider_unavailable", "status_425", True, True),
    (429, "provider_unavailable", "status_429", True, False),
    (500, "provider_unavailable", "status_500", True, True),
    (503, "provider_unavailable", "status_503", True, True),
    (529, "provider_unavailable", "status_529", True, True),
    (204, "provider_unavailable", "protocol", False, True),
    (206, "provider_unavailable", "protocol", False, True),
    (302, "provider_unavailable", "redirect", False, True),
    (307, "provider_unavailable", "redirect", False, True),
]


@pytest.mark.parametrize(("status", "code", "reason", "retryable", "counts"), STATUSES)
def test_what_a_status_means(status: int, code: str, reason: str, retryable: bool, counts: bool) -> None:
    """Each status has its meaning: whose fault it is, whether to try again, whether the route is ill."""
    told = failure(status, {"error": {"message": "m"}})

    assert (told.error.code, told.reason, told.retryable, told.counts) == (code, reason, retryable, counts)
    assert told.failure_class == "upstream_error"
    assert told.detail.startswith(f"HTTP {status}: ")


HOPELESS = ("credential", "status_404", "status_418", "protocol", "redirect")


@pytest.mark.parametrize(
    ("status", "reason"), [(row[0], row[2]) for row in STATUSES if row[1] == "provider_unavailable"]
)
def test_who_is_told_not_to_retry(status: int, reason: str) -> None:
    """What the provider will say again until an operator mends it stops the SDKs; whatever may pass does not."""
    told = failure(status, {"error": {"message": "m"}}).as_error()

    assert told.kind.retry == ("never" if reason in HOPELESS else "default")
    assert (told.kind.status, told.message) == (503, PROVIDER_UNAVAILABLE.message)


def test_what_the_caller_did_wrong_is_told() -> None:
    """A 400's message and parameter reach the caller, under our own code."""
    body = {"error": {"message": "max_tokens: 5000 > 4096, which is the maximum", "param": "max_tokens", "code": "x"}}

    error = failure(400, body).as_error()

    assert (error.kind.code, error.message) == ("invalid_request", body["error"]["message"])
    assert error.param == "max_tokens"
    assert error.error_code == "invalid_request"


def test_anthropics_own_code_is_kept_on_its_lane() -> None:
    """SDKs act on `details.error_code`; elsewhere it would be a stranger."""
    body = {"type": "error", "error": {"message": "m", "details": {"error_code": "thread_unsupported_request"}}}

    native, other = failure(400, body, "anthropic_messages"), failure(400, body, "openai_chat")

    assert native.as_error().error_code == "thread_unsupported_request"
    assert other.as_error().error_code == "invalid_request"


TOO_LONG = {  # in the words of each provider's reference or of its users' reports
    "anthropic": "prompt is too long: 213462 tokens > 200000 maximum",
    "anthropic, answer": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease it",
    "bedrock": "Input is too long for requested model.",
    "bedrock, llama": "This model's maximum context length is 8192 tokens. Please reduce the length of the prompt",
    "cerebras": "Please reduce the length of the messages or completion. Current length is 9021 while limit is 8192",
    "deepseek": "This model's maximum context length is 131072 tokens. However, you requested 140000 tokens "
    "(139000 in the messages, 1000 in the completion). Please reduce the length of the messages or completion.",
    "fireworks": "The prompt is too long: 40177, model maximum context length: 32767",
    "gemini": "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "groq": "Please reduce the length of the messages or completion.",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
    "mistral": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "moonshot": "Invalid request: Your request exceeded model token limit: 8192",
    "ollama": "prompt too long; exceeded max context length by 12 tokens",
    "openai": "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "openrouter": "This endpoint's maximum context length is 8192 tokens. However, you requested about 9000 tokens",
    "qwen": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
    "together": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs`",
    "together, newer": "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
    "vllm": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "xai": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "z.ai": "Prompt exceeds max length",
}
NOT_TOO_LONG = (
    "max_tokens: 5000 > 4096, which is the maximum",
    "messages.0.content: too long",
    "Invalid 'user': string too long. Expected a string with maximum length 64, but got one with length 90 instead.",
    "Rate limit reached for tokens per minute",
    "the image is too large",
)


@pytest.mark.parametrize("words", TOO_LONG.values(), ids=TOO_LONG)
def test_too_long_a_prompt(words: str) -> None:
    """However a provider puts it, a prompt that is too long has one code, and the provider's figures stay."""
    for status in (400, 422):
        error = failure(status, {"error": {"message": words}}).as_error()

        assert (error.kind.code, error.kind.status) == ("context_length_exceeded", 400)
        assert [figure for figure in re.findall(r"\d{4,}", words) if figure not in error.message] == []


@pytest.mark.parametrize(
    "error",
    [
        {"code": "context_length_exceeded", "message": "m"},
        {"code": "1261", "message": "m"},
        {"code": 400, "type": "exceed_context_size_error", "message": "m"},
        {"code": "context_length_exceeded"},
    ],
)
def test_too_long_a_prompt_by_its_code(error: dict[str, Any]) -> None:
    """A provider's own code for it is enough."""
    assert failure(400, {"error": error}).error.code == "context_length_exceeded"
    assert failure(413, {"error": error}).error.code == "request_too_large"


@pytest.mark.parametrize("words", NOT_TOO_LONG)
def test_other_lengths(words: str) -> None:
    """What else may be too long is a request that is not valid."""
    assert failure(400, {"error": {"message": words}}).error.code == "invalid_request"


BODIES = [
    b"", b"<html>", b"{", b"[]", b"null", b'{"error":null}', b'{"error":[]}', b'{"error":{"message":7}}', b"\xff",
    b"[" * 99_999,
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=[repr(body[:20]) for body in BODIES])
def test_bodies_without_a_message(body: bytes) -> None:
    """Without a message to keep, the caller reads our own."""
    error = failure(400, body).as_error()

    assert error.message == "The request is not valid."


WRAPPED = {"message": "Provider returned error", "code": 400, "metadata": {"raw": TOO_LONG["xai"]}}


def test_the_words_of_the_host_behind_it() -> None:
    """A router's own sentence says nothing; what the host behind it said decides, and is not repeated."""
    error = failure(400, {"error": WRAPPED}).as_error()

    assert (error.kind, error.message) == (CONTEXT_LENGTH_EXCEEDED, CONTEXT_LENGTH_EXCEEDED.message)


@pytest.mark.parametrize("error", [{"message": TOO_LONG["xai"]}, {"code": "context_length_exceeded"}, WRAPPED])
def test_too_long_a_prompt_in_band(error: dict[str, Any]) -> None:
    """An error inside a 200 that is about the prompt's length is the caller's too; its words stay in the log."""
    told = in_band_failure(json.dumps({"id": "c1", "error": error}).encode())

    assert (told.error, told.retryable, told.counts) == (CONTEXT_LENGTH_EXCEEDED, False, False)
    assert told.as_error().message == CONTEXT_LENGTH_EXCEEDED.message


@pytest.mark.parametrize("raw", [b'{"error":{"message":"boom"}}', b"[", b"null", b'{"error":' + b"[" * 99_999])
def test_other_errors_in_band(raw: bytes) -> None:
    """Every other one is the provider's, and may pass."""
    told = in_band_failure(raw)

    assert (told.error, told.reason, told.retryable, told.counts) == (PROVIDER_UNAVAILABLE, "in_band", True, True)


def test_an_error_without_an_envelope() -> None:
    """Some vendors send code and sentence on the top level."""
    mistral = {"object": "error", "type": "invalid_request_prompt", "code": "3051", "message": TOO_LONG["mistral"]}

    error = failure(400, mistral).as_error()

    assert (error.kind.code, error.message) == ("context_length_exceeded", TOO_LONG["mistral"])
    assert failure(400, {"error": {"message": "m"}, "message": "other"}).as_error().message == "m"


@pytest.mark.parametrize("words", [TOO_LONG["anthropic"], TOO_LONG["deepseek"], "The request is longer."])
def test_clients_of_anthropics_dialect_read_its_words(words: str) -> None:
    """Claude Code shortens a conversation when it reads "prompt is too long": so begins the message, once, there."""
    error = GatewayError(CONTEXT_LENGTH_EXCEEDED, words)

    there = json.loads(error_body("anthropic_messages", error, "req_1"))["error"]["message"]
    elsewhere = json.loads(error_body("openai_chat", error, "req_1"))["error"]["message"]

    assert there == (words if words == TOO_LONG["anthropic"] else f"prompt is too long: {words}")
    assert elsewhere == words


def test_an_error_that_is_a_string() -> None:
    """Some vendors send the sentence alone."""
    assert failure(400, {"error": "temperature is too high"}).as_error().message == "temperature is too high"


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after": "30"}, 30.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 60.0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_the_pause_a_provider_asks_for(headers: dict[str, str], wait_s: float | None) -> None:
    """Seconds, milliseconds and dates are understood."""
    assert failure(429, headers=headers).retry_after_s == wait_s


def test_details_are_bounded() -> None:
    """A flood in an error body is not told in full."""
    told = failure(400, {"error": {"message": "word " * MAX_ERROR_BYTES}})

    assert len(told.public_message or "") <= MAX_PUBLIC_CHARS


def test_which_envelope_a_path_has() -> None:
    """Everything under /anthropic speaks Anthropic's errors, look-alikes do not."""
    paths = ("/anthropic", "/anthropic/v1/messages", "/anthropic/x", "/anthropicx", "/v1/chat/completions", "/")

    assert [dialect_of_path(path) == "anthropic_messages" for path in paths] == [True, True, True, False, False, False]


# -- scrubbing --

SECRETS = [
    "sk-proj-abc***xyz", "sk-ant-api03-AbCd", "gsk_abcdEFGH", "xai-123456", "anm-sk-whatever", "pk_live_abc", "rk-1234",
    "org-77", "org-AbCdEfGhIj", "proj_9x8y", "req_011CSHoEeqs5C35K2UUqR7Fy", "user-8F3k", "acct_1AbC",
    "AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE",
    "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-sonnet-4-6",
    "AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY", "Bearer abcdef", "https://10.1.2.3", "http://[::1]:8080/v1?key=x",
    "postgres://u:p@db/x", "10.1.2.3", "192.168.0.1:8080", "::1", "fe80::1", "2001:db8::ff00:42:8329",
    "::ffff:10.0.0.1",
    "1:2:3:4:5:6:7:8", "db-7.internal", "api.openai.com:443", "localhost:5432", "gateway.svc", "host.example.co",
    "ani@example.test", "a.b+c@mail.example.org", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
]  # fmt: skip
HARMLESS = [
    "max_tokens: 5000 > 4096, which is the maximum",
    "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    "tools.0.custom.id: Field required",
    "metadata.user.id must be a string",
    "messages: roles must alternate between user-provided and assistant messages",
    "Unsupported value: 'temperature' does not support 0.5 with gpt-4o-mini-2024-07-18 or claude-3-5-sonnet-20241022",
    "key_value pairs, user_name and org-wide settings at 12:34:56 on 2026-08-31",
    "std::vector, x::y and 3.14 or v1.2.3 are no addresses",
    "Invalid schema for function 'get_weather': None is not of type 'object'.",
    "asia-southeast1 and ASIA-PACIFIC are no keys",
    "請求無效: é",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("sentence", ["{}", "provided: {}.", "({}) failed", "at {}, now", '"{}"', "x={} y"])
def test_secrets_are_removed(secret: str, sentence: str) -> None:
    """Where we called, as whom, and on whose account: none of it is in what the caller reads."""
    shown = scrub(sentence.format(secret))

    assert secret not in shown
    assert "[removed]" in shown


@pytest.mark.parametrize("sentence", HARMLESS)
def test_harmless_sentences_stay(sentence: str) -> None:
    """What the caller needs in order to mend the request stays readable."""
    assert scrub(sentence) == sentence


def test_one_line_of_bounded_length() -> None:
    """Controls, line separators and surrogates become spaces; the length is bounded; no half key at the cut."""
    assert scrub("a\r\nb\x00c\u2028d\ud800e\x1b[0m") == "a b c d e [0m"
    assert len(scrub("word " * 1000)) <= MAX_PUBLIC_CHARS
    assert "sk-" not in scrub("https://x.test/" + "a" * 3970 + " sk-proj-0123456789abcdef")


HOSTILE = [
    "a-", "a.", "1.", "a@", ":", "f:", "f::", "a-1", "sk-", "user-", "org-a", "0:0:", "a://", "\u2028", "1", "a", "[",
    "Bearer ", "arn:aws", "ASIA",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_messages_cost_little(piece: str) -> None:
    """No message makes the patterns go back and forth: time grows with the length, and the length is bounded."""
    message = (piece * 4000)[:3999]
    best_s = 1.0
    for _ in range(3):
        started_s = time.perf_counter()
        scrub(message)
        best_s = min(best_s, time.perf_counter() - started_s)

    assert best_s < 0.1  # measured 14 ms at most on a busy machine; a quadratic pattern takes a second


def test_a_wrong_name_in_a_route_is_not_the_callers_fault() -> None:
    """A provider that does not know the model which the route names is our mistake: another route may serve."""
    body = b'{"error":{"message":"The model x does not exist","code":"model_not_found"}}'

    failure = read_failure("openai_chat", 400, {}, body, 0.0)

    assert (failure.reason, failure.error, failure.public_message) == ("no_such_model", PROVIDER_REFUSES, None)
