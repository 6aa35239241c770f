"""Errors in the two envelopes that clients understand, before and inside a stream."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.core.catalog import ClientDialectName
from gateway.core.errors import CONTEXT_LENGTH_EXCEEDED, Failure, GatewayError

TOO_LONG = "prompt is too long"

_encode = msgspec.json.encode


def dialect_of_path(path: str) -> ClientDialectName:
    """The dialect whose envelope errors of *path* use: under /anthropic it is Anthropic's, elsewhere OpenAI's."""
    return "anthropic_messages" if path == "/anthropic" or path.startswith("/anthropic/") else "openai_chat"


def error_body(dialect: ClientDialectName, error: GatewayError, request_id: str) -> bytes:
    """The JSON body of *error* as a plain HTTP answer."""
    extension = {"request_id": request_id}
    kind = error.kind
    if dialect == "anthropic_messages":
        return _encode(
            {
                "type": "error",
                "error": {
                    "type": kind.anthropic_type,
                    "message": _anthropic_message(error),
                    "code": kind.code,
                    "details": _details(error),
                    "_anoman": extension,
                },
                "request_id": request_id,
            }
        )
    return _encode({"error": openai_error(error, extension)})


def openai_error(error: GatewayError, extension: dict[str, Any]) -> dict[str, Any]:
    """The object that tells of *error* in OpenAI's words, with *extension* as its `_anoman`."""
    kind = error.kind
    return {
        "message": error.message,
        "type": kind.openai_type,
        "param": error.param,
        "code": kind.code,
        "_anoman": extension,
    }


def _anthropic_message(error: GatewayError) -> str:
    """The message. Clients of this dialect shorten their history when they read Anthropic's own words for too long."""
    message = error.message
    if error.kind is CONTEXT_LENGTH_EXCEEDED and not message.startswith(TOO_LONG):
        return f"{TOO_LONG}: {message}"
    return message


def _details(error: GatewayError) -> dict[str, Any]:
    details: dict[str, Any] = {"error_code": error.error_code}
    if error.unsupported:
        details["unsupported"] = error.unsupported
    return details


def interruption_frames(dialect: ClientDialectName, failure: Failure, completion_tokens: int, request_id: str) -> bytes:
    """The frames that end a stream which broke: the documented error frame, then the dialect's own end."""
    kind = failure.told
    message = (failure.public_message if failure.is_ours else None) or kind.message
    extension: dict[str, Any] = {"failure_class": failure.failure_class, "completion_tokens": completion_tokens}
    if dialect == "anthropic_messages":
        body = {
            "type": "error",
            "error": {
                "type": kind.anthropic_type,
                "message": message,
                "code": kind.code,
                "details": {"error_code": kind.code},
                "_anoman": extension,
            },
            "request_id": request_id,
        }
        return b"event: error\ndata: " + _encode(body) + b"\n\n"
    # Exactly the documented keys in the documented order; clients compare it to the letter.
    error = {"type": kind.openai_type, "code": kind.code, "message": message, "_anoman": extension}
    return b"data: " + _encode({"error": error}) + b"\n\ndata: [DONE]\n\n"
