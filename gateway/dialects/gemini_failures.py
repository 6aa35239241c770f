"""What a non-200 answer of Gemini's means: the error model of Google's APIs, `google.rpc.Status`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from gateway.core.errors import Failure
from gateway.dialects.failures import read_failure, refused
from gateway.wire.headers import MAX_RETRY_AFTER_S
from gateway.wire.values import decode_values

_KEY_REASONS = frozenset(("API_KEY_INVALID", "API_KEY_EXPIRED", "API_KEY_SERVICE_BLOCKED", "CREDENTIALS_MISSING"))
_KEY_WORDS = ("api key not valid", "api key expired", "api key not found")  # where the details are left out
_NOT_HERE = "FAILED_PRECONDITION"  # billing that is off, a place that is not served: the account's, not the caller's
_DELAY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")  # `google.protobuf.Duration` in JSON


def read_gemini_failure(status: int, headers: Mapping[str, str], body: bytes, now_epoch_s: float) -> Failure:
    """
    The failure that an answer with *status* is; see `read_failure`.

    A wrong key is a 400 here, and how long to wait stands in the body. A method that streams wraps its error in an
    array where it is not asked for server-sent events, and some hosts do always.
    """
    error = _error_of(body)
    detail = f"HTTP {status}: {body.decode('utf-8', 'replace')}"
    if status == 400 and _is_about_key(error):
        return refused("credential", detail)
    if status == 400 and error.get("status") == _NOT_HERE:
        return refused("failed_precondition", detail)
    plain = msgspec.json.encode({"error": error}) if body.lstrip()[:1] == b"[" and error else body
    failure = replace(read_failure("gemini_content", status, headers, plain, now_epoch_s), detail=detail)
    if failure.retry_after_s is None and failure.retryable:
        return replace(failure, retry_after_s=_delay_s(error))
    return failure


def _error_of(body: bytes) -> dict[str, Any]:
    """The `error` of *body*, or of the first element where it is an array; empty where there is none."""
    try:
        root = decode_values(body)
    except (msgspec.DecodeError, RecursionError):
        return {}
    if isinstance(root, list):
        root = root[0] if root else None
    error = root.get("error") if isinstance(root, dict) else None
    return error if isinstance(error, dict) else {}


def _is_about_key(error: dict[str, Any]) -> bool:
    if any(detail.get("reason") in _KEY_REASONS for detail in _details(error)):
        return True
    message = error.get("message")
    return isinstance(message, str) and message.lower().startswith(_KEY_WORDS)


def _delay_s(error: dict[str, Any]) -> float | None:
    """The pause that a `google.rpc.RetryInfo` asks for, in seconds."""
    for detail in _details(error):
        delay = detail.get("retryDelay")
        found = _DELAY.fullmatch(delay) if isinstance(delay, str) else None
        if found is not None:
            return min(float(found[1]), MAX_RETRY_AFTER_S)
    return None


def _details(error: dict[str, Any]) -> Iterator[dict[str, Any]]:
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict):
            yield detail
