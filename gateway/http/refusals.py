"""What is wrong with bytes that never became a request: a row of the error table and one word for the log.

The framework's own messages quote the offending line, `Authorization` included, so they are looked at by type and by
whole sentence only and go nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp.http_exceptions import (
    BadHttpMethod,
    BadStatusLine,
    HttpProcessingError,
    InvalidHeader,
    InvalidURLError,
    LineTooLong,
)

from gateway.core.errors import (
    HEADERS_TOO_LARGE,
    INVALID_HOST,
    INVALID_REQUEST,
    REQUEST_TIMEOUT,
    ErrorKind,
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a connection ends: `reason` is one word of ours, safe to log."""

    kind: ErrorKind
    reason: str


class Refused(Exception):
    """Carries a refusal of our own through the framework's queue of messages."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


HEADER_TIMEOUT = Refusal(REQUEST_TIMEOUT, "header_timeout")
HEADERS_TOO_LONG = Refusal(HEADERS_TOO_LARGE, "headers_too_long")

_UNREADABLE = Refusal(INVALID_REQUEST, "unreadable")
# In this order: BadHttpMethod is a BadStatusLine.
_BY_TYPE: tuple[tuple[type[HttpProcessingError], Refusal], ...] = (
    (LineTooLong, Refusal(HEADERS_TOO_LARGE, "line_too_long")),
    (InvalidHeader, Refusal(INVALID_REQUEST, "bad_header")),
    (InvalidURLError, Refusal(INVALID_REQUEST, "bad_target")),
    (BadHttpMethod, Refusal(INVALID_REQUEST, "bad_method")),
    (BadStatusLine, Refusal(INVALID_REQUEST, "bad_request_line")),
)
# Sentences of aiohttp 3.14 that its exception types do not tell apart; the tests notice when one changes.
_BY_SENTENCE = {
    "Too many headers received": Refusal(HEADERS_TOO_LARGE, "too_many_headers"),
    "Missing 'Host' header in request.": Refusal(INVALID_HOST, "no_host"),
    "Duplicate 'Host' header found.": Refusal(INVALID_HOST, "two_hosts"),
}


def refusal_of(error: BaseException) -> Refusal:
    """The refusal that a parser's *error* stands for; whatever is not known is a plain 400."""
    if isinstance(error, Refused):
        return error.refusal
    if not isinstance(error, HttpProcessingError):
        return _UNREADABLE
    for kind, refusal in _BY_TYPE:
        if isinstance(error, kind):
            return refusal
    return _BY_SENTENCE.get(error.message, _UNREADABLE)


def peeked_path(head: bytes) -> str:
    """The path in the first bytes of a request, as far as they go; "" when there is none."""
    words = head.lstrip(b"\r\n").split(b"\r\n", 1)[0].split(b" ", 2)
    return words[1].partition(b"?")[0].decode("latin-1") if len(words) > 1 else ""
