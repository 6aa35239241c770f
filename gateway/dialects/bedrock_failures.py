"""What Bedrock's refusals mean, as answers and inside a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.core.errors import Failure
from gateway.dialects.failures import MAX_ERROR_BYTES, malformed
from gateway.dialects.failures import read_failure as read_standard
from gateway.wire.eventstream import UNREADABLE, Fault
from gateway.wire.values import decode_values

# The status by which an exception is judged, whatever it came with: inside a stream it has none, and AWS has some that
# others use otherwise (424 for a model that failed, 400 for our quota or a signature of ours). The exceptions are those
# of the API reference of Amazon Bedrock Runtime, and of "Common errors" there.
_STATUSES = {
    "accessdeniedexception": 403,
    "expiredtokenexception": 403,
    "incompletesignature": 403,
    "incompletesignatureexception": 403,
    "internalserverexception": 500,
    "invalidsignatureexception": 403,
    "missingauthenticationtokenexception": 403,
    "modelerrorexception": 500,
    "modelnotreadyexception": 429,
    "modelstreamerrorexception": 500,
    "modeltimeoutexception": 408,
    "optinrequired": 403,
    "resourcenotfoundexception": 404,
    "servicequotaexceededexception": 429,
    "serviceunavailableexception": 503,
    "throttlingexception": 429,
    "unrecognizedclientexception": 403,
    "validationexception": 400,
}
# Wordings of a ValidationException, in lower case, as users report them. They are not about the caller's mistake: the
# route names a model that is not there, or not to be had by that name or that account.
_NO_SUCH_MODEL = ("model identifier is invalid", "on-demand throughput isn", "operation not allowed")


def read_failure(status: int, headers: Mapping[str, str], body: bytes, now_epoch_s: float) -> Failure:
    """The failure that an answer with *status* is; see `failures.read_failure`."""
    said = _members(body)
    kind = headers.get("x-amzn-errortype") or _text(said, "__type")
    name = kind.partition(":")[0].rpartition("#")[2]
    return _judged(name, status, headers, said, now_epoch_s)


def fault_failure(event: Fault) -> Failure:
    """The failure that an exception inside a stream is, or a stream that cannot be read."""
    if event.name == UNREADABLE:
        return malformed(event.data.decode())
    return _judged(event.name.decode(), 500, {}, _members(event.data[:MAX_ERROR_BYTES]), 0.0)


def _judged(name: str, status: int, headers: Mapping[str, str], said: dict[str, Any], now_epoch_s: float) -> Failure:
    status = _STATUSES.get(name.lower(), status)
    words = _text(said, "message") or _text(said, "Message") or _text(said, "originalMessage")
    code = "model_not_found" if any(wording in words.lower() for wording in _NO_SUCH_MODEL) else None
    error = {"type": name, "message": words, "code": code if status == 400 else None}
    # in the form in which other vendors say it
    return read_standard("bedrock_converse", status, headers, msgspec.json.encode({"error": error}), now_epoch_s)


def _members(body: bytes) -> dict[str, Any]:
    """*body* as an object; one that is none, as its message."""
    try:
        said = decode_values(body)
    except (msgspec.DecodeError, RecursionError):
        return {"message": body.decode("utf-8", "replace")}
    return said if isinstance(said, dict) else {}


def _text(said: dict[str, Any], name: str) -> str:
    value = said.get(name)
    return value if isinstance(value, str) else ""
