"""The one table of errors, and the two ways a request can go wrong.

`ErrorKind` is a row: everything a client may learn of an error. `GatewayError` carries a row to the edge, where the
endpoint's dialect renders it. `Failure` says what an upstream (or we ourselves) did wrong; its `detail` is for the
server log alone. `docs/errors.md` is generated from `ERRORS`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

STALE = "stale"  # reason of a `Failure`: the connection had died while it rested, so the provider was not even reached
NO_SLOT = "no_slot"  # the same of one that waited for a connection in vain, as our own limit has them all in use
FailureClass = Literal["upstream_error", "upstream_timeout", "upstream_truncated", "gateway_shutdown", "policy_stop"]


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One row of the error table.

    `retry` says what the SDKs are told: `default` leaves it to the status, `never` adds `x-should-retry: false`.
    `retry_after_s` is the wait suggested when nothing better is known; None sends no `retry-after`.
    """

    code: str
    status: int
    openai_type: str
    anthropic_type: str
    message: str
    retry: Literal["default", "never"] = "default"
    retry_after_s: int | None = None


def _bad_request(code: str, message: str, status: int = 400) -> ErrorKind:
    return ErrorKind(code, status, "invalid_request_error", "invalid_request_error", message)


def _denied(code: str, message: str) -> ErrorKind:
    """A row of policies: the same request is denied again, however often it is sent."""
    return ErrorKind(code, 403, "invalid_request_error", "permission_error", message, retry="never")


MODEL_NOT_FOUND = _bad_request(
    "model_not_found",
    "The model does not exist or this key may not use it here. GET /v1/models lists those it may use.",
)
CONTEXT_LENGTH_EXCEEDED = _bad_request("context_length_exceeded", "The request is longer than the model's context.")
VISION_NOT_SUPPORTED = _bad_request("vision_not_supported", "The model does not take images.")
INVALID_REQUEST = _bad_request("invalid_request", "The request is not valid.")
INVALID_HOST = _bad_request("invalid_host", "The Host header is missing or malformed.")
REQUEST_TOO_LARGE = ErrorKind(
    "request_too_large", 413, "invalid_request_error", "request_too_large", "The request body is too large."
)
HEADERS_TOO_LARGE = _bad_request("headers_too_large", "The request line or headers are too large.", status=431)
REQUEST_TIMEOUT = ErrorKind(
    "request_timeout", 408, "invalid_request_error", "invalid_request_error",
    "The request did not arrive in time.", retry="never",
)
UNSUPPORTED_ENCODING = _bad_request(
    "unsupported_encoding", "Encoded request bodies are not supported; send plain JSON.", status=415
)
EXPECTATION_FAILED = _bad_request("expectation_failed", "Only Expect: 100-continue is supported.", status=417)
NOT_FOUND = ErrorKind("not_found", 404, "invalid_request_error", "not_found_error", "No such route.")
METHOD_NOT_ALLOWED = _bad_request("method_not_allowed", "This route does not take that method.", status=405)
INVALID_API_KEY = ErrorKind(
    "invalid_api_key", 401, "invalid_request_error", "authentication_error",
    "The API key is missing or not valid.", retry="never",
)
TOO_MANY_FAILURES = ErrorKind(  # another try with the same key would fail as well, and a good key is not refused
    "too_many_failures", 429, "requests", "rate_limit_error",
    "Too many requests from this address had no valid API key.", retry="never",
)
RESIDENCY_DENIED = _denied(
    "residency_denied", "No provider of this model computes where this key's calls have to stay."
)
PROMPT_INJECTION = _denied(
    "prompt_injection", "The request was refused: it has instructions that try to take the model over."
)
PII_BLOCKED = _denied(
    "pii_blocked", "The request was refused: it has personal data or a credential that this key may not send."
)
CONTENT_VIOLATION = _denied("content_violation", "This was stopped: it has content that this key's policy forbids.")
TOOL_DENIED = _denied("tool_denied", "The policy of this key forbids the tool.")
POLICY_DENIED = _denied("policy_denied", "The policy of this key forbids the request.")
KEY_REVOKED = ErrorKind(
    "key_revoked", 401, "invalid_request_error", "authentication_error",
    "The API key was revoked while it was in use.", retry="never",
)
RIGHT_DENIED = _denied("right_denied", "This key may not do that.")
CONFLICT = _bad_request("conflict", "There is one of that name already.", status=409)
RATE_LIMIT_EXCEEDED = ErrorKind(
    "rate_limit_exceeded", 429, "requests", "rate_limit_error",
    "Too many requests this minute for this key.", retry_after_s=1,
)
# The same to programs; OpenAI tells the two apart by their type.
TOKEN_LIMIT_EXCEEDED = replace(
    RATE_LIMIT_EXCEEDED, openai_type="tokens", message="Too many tokens this minute for this key."
)
BUDGET_EXCEEDED = ErrorKind(
    "budget_exceeded", 402, "insufficient_quota", "billing_error",
    "The budget does not cover this request.", retry="never",
)
INFLIGHT_CAP = ErrorKind(
    "inflight_cap", 429, "requests", "rate_limit_error",
    "Too many requests of this key are running at once.", retry_after_s=1,
)
IDEMPOTENCY_IN_PROGRESS = ErrorKind(
    "idempotency_in_progress", 409, "invalid_request_error", "invalid_request_error",
    "A request with this Idempotency-Key is still running; its answer is not here yet.", retry_after_s=2,
)
# Trying again would not help, and sending it without the key would bill it twice: only the caller can decide that.
IDEMPOTENCY_NOT_REPLAYABLE = ErrorKind(
    "idempotency_not_replayable", 409, "invalid_request_error", "invalid_request_error",
    "The request with this Idempotency-Key was answered, but its answer was too long to be kept.", retry="never",
)
IDEMPOTENCY_MISMATCH = ErrorKind(
    "idempotency_mismatch", 422, "invalid_request_error", "invalid_request_error",
    "This Idempotency-Key was used for another request.", retry="never",
)
IDEMPOTENCY_UNAVAILABLE = ErrorKind(
    "idempotency_unavailable", 503, "server_error", "api_error",
    "It cannot be told now whether this Idempotency-Key was used before; nothing was done.", retry_after_s=1,
)
PROVIDER_UNAVAILABLE = ErrorKind(
    "provider_unavailable", 503, "provider_error", "api_error",
    "The provider is not available.", retry_after_s=1,
)
# The same to read; but no retry makes a provider take our credential, or know a model or a path that it does not have.
PROVIDER_REFUSES = replace(PROVIDER_UNAVAILABLE, retry="never")
OVERLOADED = ErrorKind(
    "overloaded", 503, "server_error", "overloaded_error",
    "The gateway is at its limit.", retry_after_s=1,
)
STORAGE_UNAVAILABLE = ErrorKind(
    "storage_unavailable", 503, "server_error", "api_error",
    "The gateway's records cannot be reached now.", retry_after_s=2,
)
LEDGER_UNAVAILABLE = ErrorKind(
    "ledger_unavailable", 503, "server_error", "api_error",
    "The gateway cannot record the request now, so it does not serve it.", retry_after_s=2,
)
SHUTTING_DOWN = ErrorKind(
    "shutting_down", 503, "server_error", "api_error",
    "The gateway is shutting down.", retry_after_s=1,
)
LIMITS_UNAVAILABLE = ErrorKind(
    "limits_unavailable", 503, "server_error", "api_error",
    "The limits of this key cannot be told right now.", retry_after_s=1,
)
GUARDS_UNAVAILABLE = ErrorKind(
    "guards_unavailable", 503, "server_error", "api_error",
    "The request could not be checked now as this key's policy demands.", retry_after_s=1,
)
PROVIDER_TIMEOUT = ErrorKind(
    "provider_timeout", 504, "provider_error", "timeout_error",
    "The provider did not answer in time.",
)
GATEWAY_TIMEOUT = ErrorKind(
    "gateway_timeout", 504, "provider_error", "timeout_error",
    "The answer took longer than a request without streaming may; use streaming.", retry="never",
)
INTERNAL_ERROR = ErrorKind(
    "internal_error", 500, "server_error", "api_error", "Something went wrong in the gateway."
)
STREAM_INTERRUPTED = ErrorKind(
    "stream_interrupted", 200, "provider_error", "api_error", "upstream stream interrupted"
)
# The same to programs, which tell the two apart by their `failure_class`: no provider is to blame.
STREAM_SHUT_DOWN = replace(STREAM_INTERRUPTED, message="the gateway shut down while the answer ran")
PANEL_CANCELLED = ErrorKind("panel_cancelled", 200, "cancelled", "api_error", "the panel was cancelled")

ERRORS: tuple[ErrorKind, ...] = (
    MODEL_NOT_FOUND,
    CONTEXT_LENGTH_EXCEEDED,
    VISION_NOT_SUPPORTED,
    INVALID_REQUEST,
    INVALID_HOST,
    INVALID_API_KEY,
    KEY_REVOKED,
    BUDGET_EXCEEDED,
    RESIDENCY_DENIED,
    RIGHT_DENIED,
    PROMPT_INJECTION,
    PII_BLOCKED,
    CONTENT_VIOLATION,
    TOOL_DENIED,
    POLICY_DENIED,
    NOT_FOUND,
    METHOD_NOT_ALLOWED,
    CONFLICT,
    REQUEST_TIMEOUT,
    REQUEST_TOO_LARGE,
    UNSUPPORTED_ENCODING,
    EXPECTATION_FAILED,
    IDEMPOTENCY_IN_PROGRESS,
    IDEMPOTENCY_NOT_REPLAYABLE,
    IDEMPOTENCY_MISMATCH,
    RATE_LIMIT_EXCEEDED,
    INFLIGHT_CAP,
    TOO_MANY_FAILURES,
    HEADERS_TOO_LARGE,
    INTERNAL_ERROR,
    IDEMPOTENCY_UNAVAILABLE,
    PROVIDER_UNAVAILABLE,
    OVERLOADED,
    STORAGE_UNAVAILABLE,
    LEDGER_UNAVAILABLE,
    SHUTTING_DOWN,
    LIMITS_UNAVAILABLE,
    GUARDS_UNAVAILABLE,
    PROVIDER_TIMEOUT,
    GATEWAY_TIMEOUT,
    STREAM_INTERRUPTED,
    PANEL_CANCELLED,
)


class GatewayError(Exception):
    """An error the client is told of: a row of the table and what is particular to this request.

    Args:
        kind: The row.
        message: A public sentence instead of the row's; never provider text that was not cleaned.
        param: The request field at fault, as in `messages[0].role`.
        retry_after_s: Seconds to wait, instead of the row's.
        error_code: A provider's own code that clients act on (Anthropic's `details.error_code`).
        unsupported: Members that cannot be had together with this one (Anthropic's `details.unsupported`).
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str | None = None,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        error_code: str | None = None,
        unsupported: tuple[str, ...] = (),
    ) -> None:
        super().__init__(kind.code)
        self.kind = kind
        self.message = message or kind.message
        self.param = param
        self.retry_after_s = kind.retry_after_s if retry_after_s is None else retry_after_s
        self.error_code = error_code or kind.code
        self.unsupported = unsupported


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong at an upstream, or in us while we were talking to it.

    Attributes:
        failure_class: What a client is told in the mid-stream error frame.
        reason: Our own short word for logs and metrics (`connect`, `dns`, `status_500`, `idle`, ...).
        error: The plain HTTP answer when the stream was not yet open.
        retryable: Whether another attempt may help.
        retry_after_s: What the upstream asked us to wait, if it did.
        counts: Whether it is evidence against the route's health (for the breaker).
        detail: Provider text and exception for the server log. Never rendered to a client.
    """

    failure_class: FailureClass
    reason: str
    error: ErrorKind = PROVIDER_UNAVAILABLE
    retryable: bool = True
    retry_after_s: float | None = None
    counts: bool = True
    detail: str = ""
    public_message: str | None = None
    param: str | None = None
    error_code: str | None = None

    @property
    def told(self) -> ErrorKind:
        """What the frame says that ends a stream: a stop of our own by its own code, all else as an interruption."""
        if self.failure_class == "policy_stop":
            return self.error
        return STREAM_SHUT_DOWN if self.failure_class == "gateway_shutdown" else STREAM_INTERRUPTED

    @property
    def is_ours(self) -> bool:
        """Whether the gateway itself ended what went well: no route is to blame, and none is to go on with it."""
        return self.failure_class in ("gateway_shutdown", "policy_stop")

    def as_error(self) -> GatewayError:
        """The plain HTTP error of this failure, for use before the stream is open."""
        return GatewayError(
            self.error,
            self.public_message,
            param=self.param,
            retry_after_s=self.retry_after_s,
            error_code=self.error_code,
        )


class UpstreamFailed(Exception):
    """Raised by the upstream port and by lanes: the attempt ended in *failure*."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


FetchReason = Literal[
    "url", "scheme", "credentials", "blocked", "unreachable", "timeout", "status", "encoding", "too_large"
]


class FetchFailed(Exception):
    """A URL of a caller was not fetched.

    `blocked` and `unreachable` tell the caller apart what is there and what is not; do not show them to one who might
    be mapping a network.
    """

    def __init__(self, reason: FetchReason, detail: str = "") -> None:
        super().__init__(reason)
        self.reason: FetchReason = reason
        self.detail = detail


SHUTDOWN = Failure("gateway_shutdown", "shutdown", SHUTTING_DOWN, retryable=False, counts=False)
KEY_CUT = Failure("policy_stop", "key_revoked", KEY_REVOKED, retryable=False, counts=False)
CONTENT_CUT = Failure("policy_stop", "content_violation", CONTENT_VIOLATION, retryable=False, counts=False)
GUARDS_CUT = Failure("policy_stop", "guards_unavailable", GUARDS_UNAVAILABLE, retryable=False, counts=False)
FIRST_TOKEN_TIMEOUT = Failure("upstream_timeout", "first_token", PROVIDER_TIMEOUT)
IDLE_TIMEOUT = Failure("upstream_timeout", "idle", PROVIDER_TIMEOUT, retryable=False)
NON_STREAM_TIMEOUT = Failure("upstream_timeout", "non_stream", GATEWAY_TIMEOUT, retryable=False)
TRUNCATED = Failure("upstream_truncated", "truncated")
