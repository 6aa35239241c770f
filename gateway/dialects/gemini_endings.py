"""How a Gemini answer ended: Google's reference of `FinishReason` and `BlockReason`."""

from __future__ import annotations

from gateway.core.errors import Failure
from gateway.dialects.neutral import Finished, Reason
from gateway.wire.headers import clean_text

UNSPECIFIED = frozenset(("FINISH_REASON_UNSPECIFIED", "BLOCK_REASON_UNSPECIFIED"))
_REASONS: dict[str, Reason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "LANGUAGE": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
    "IMAGE_SAFETY": "refusal",
    "IMAGE_PROHIBITED_CONTENT": "refusal",
    "IMAGE_RECITATION": "refusal",
}
_PLAIN = frozenset(("STOP", "MAX_TOKENS"))
# The model wrote what is no answer. The route is well: the next attempt mostly gets one.
_FAILED = frozenset(
    (
        "MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE", "TOO_MANY_TOOL_CALLS",
        "UNEXPECTED_TOOL_CALL",
    )
)  # fmt: skip
_MAX_SAID_CHARS = 64  # of a reason; theirs have up to 25


def failed(said: str, detail: str) -> Failure | None:
    """The failure that the `finishReason` *said* is, if it is one."""
    if said not in _FAILED:
        return None
    return Failure("upstream_error", f"finish_{said.lower()}", counts=False, detail=detail)


def finished(said: str, calls: int) -> Finished:
    """What the `finishReason` *said* means for an answer with so many *calls*; why it refused is for the log."""
    reason = _REASONS.get(said, "stop")
    if reason == "stop" and calls:
        reason = "tool_calls"
    return Finished(reason, said=None if said in _PLAIN else clean_text(said, _MAX_SAID_CHARS))


def blocked(said: str) -> Finished:
    """What the `blockReason` *said* of the prompt means."""
    return Finished("refusal", said=clean_text(said, _MAX_SAID_CHARS))
