"""What a provider's non-200 answer, or its error object inside a 200, means for us."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from gateway.core.catalog import DialectName
from gateway.core.errors import (
    CONTEXT_LENGTH_EXCEEDED,
    INVALID_REQUEST,
    PROVIDER_REFUSES,
    PROVIDER_UNAVAILABLE,
    REQUEST_TOO_LARGE,
    ErrorKind,
    Failure,
)
from gateway.dialects.scrub import scrub
from gateway.dialects.too_long import says_too_long
from gateway.wire.headers import parse_retry_after

MAX_ERROR_BYTES = 64 * 1024  # of an error body: enough for any provider's message, bounded against floods
MALFORMED = "malformed"
ABSENT = Raw(b"null")
NOTHING = frozenset((b"", b"null", b'""', b"{}", b"[]", b"false"))  # an `error` member that says that there is none
_CALLERS_FAULT: dict[int, ErrorKind] = {400: INVALID_REQUEST, 413: REQUEST_TOO_LARGE, 422: INVALID_REQUEST}
_CREDENTIAL = (401, 402, 403)  # 402: it is our account that has run out, not the caller's
_PASSING = (408, 409, 425, 429)  # worth another attempt, like every 5xx


def read_failure(
    dialect: DialectName, status: int, headers: Mapping[str, str], body: bytes, now_epoch_s: float
) -> Failure:
    """
    The failure that an answer with *status* is.

    Args:
        body: At most `MAX_ERROR_BYTES` of the answer's body.
        now_epoch_s: Wall clock, for a `Retry-After` that is a date.
    """
    detail = f"HTTP {status}: {body.decode('utf-8', 'replace')}"
    kind = _CALLERS_FAULT.get(status)
    if kind is not None:
        if _error_object(body).get("code") == "model_not_found":  # the caller named ours; the route has the wrong name
            return refused("no_such_model", detail)
        return _callers_fault(dialect, kind, body, detail)
    if status in _CREDENTIAL:
        return refused("credential", detail)
    if status < 400:
        return refused("redirect" if status >= 300 else "protocol", detail)
    if status < 500 and status not in _PASSING:
        return refused(f"status_{status}", detail)
    return Failure(
        "upstream_error",
        f"status_{status}",
        retry_after_s=parse_retry_after(headers, now_epoch_s),
        counts=status != 429,  # a rate limit of ours there is no sign of ill health
        detail=detail,
    )


def refused(reason: str, detail: str) -> Failure:
    """The failure of a route that is set up wrongly: the provider will say the same until somebody mends it."""
    return Failure("upstream_error", reason, PROVIDER_REFUSES, retryable=False, detail=detail)


def in_band_failure(raw: bytes) -> Failure:
    """The failure that an error object inside a 200 is; its words stay in the log."""
    detail = raw.decode("utf-8", "replace")
    if len(raw) <= MAX_ERROR_BYTES and _is_about_length(_error_object(raw)):
        return Failure(
            "upstream_error", "callers_fault", CONTEXT_LENGTH_EXCEEDED, retryable=False, counts=False, detail=detail
        )
    return Failure("upstream_error", "in_band", PROVIDER_UNAVAILABLE, detail=detail)


def malformed(detail: str) -> Failure:
    """The failure that an unintelligible event or body is."""
    return Failure("upstream_error", MALFORMED, detail=detail)


def _callers_fault(dialect: DialectName, kind: ErrorKind, body: bytes, detail: str) -> Failure:
    error = _error_object(body)
    words = error.get("message")
    message = scrub(words) if isinstance(words, str) else None
    if kind is INVALID_REQUEST and _is_about_length(error):
        kind = CONTEXT_LENGTH_EXCEEDED
        message = message if _says_so_itself(error) else None
    details = error.get("details")
    error_code = details.get("error_code") if isinstance(details, dict) else None
    param = error.get("param")
    return Failure(
        "upstream_error",
        "callers_fault",
        kind,
        retryable=False,
        counts=False,
        detail=detail,
        public_message=message or None,
        param=scrub(param) if isinstance(param, str) else None,
        error_code=scrub(error_code) if dialect == "anthropic_messages" and isinstance(error_code, str) else None,
    )


def _is_about_length(error: dict[str, Any]) -> bool:
    """Whether code, type or words of *error* are about the length of the prompt, or those of the host behind it."""
    if _says_so_itself(error):
        return True
    metadata = error.get("metadata")  # OpenRouter's, where `message` is "Provider returned error"
    return isinstance(metadata, dict) and says_too_long(None, metadata.get("raw"))


def _says_so_itself(error: dict[str, Any]) -> bool:
    return says_too_long(error.get("code"), error.get("message")) or says_too_long(error.get("type"), None)


def _error_object(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(parsed, dict):
        return {}
    error = parsed.get("error")
    if error is None and isinstance(parsed.get("message"), str):  # Mistral's and vLLM's have no envelope
        return parsed
    if isinstance(error, dict):
        return error
    return {"message": error} if isinstance(error, str) else {}
