"""The one place where exceptions of the client library become a `Failure`."""

from __future__ import annotations

import errno
import re

from aiohttp import (
    ClientConnectionError,
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientPayloadError,
    ClientSSLError,
    ConnectionTimeoutError,
)
from aiohttp.http_exceptions import ContentLengthError, HttpProcessingError, TransferEncodingError

from gateway.core.errors import NO_SLOT, OVERLOADED, STALE, Failure, FailureClass
from gateway.upstream.connection import NoSlot

LibraryError = ClientConnectionError | HttpProcessingError | ClientPayloadError
LIBRARY_ERRORS = (ClientConnectionError, HttpProcessingError, ClientPayloadError)
"""What a peer or the network can cause. Other exceptions are bugs of ours and are not to be caught."""

MAX_DETAIL_CHARS = 500  # one log line: aiohttp quotes up to a whole head of garbage

_QUERY = re.compile(r"(https?://[^\s?'\"]+)\?[^\s'\"]*")


def failure_of(exc: LibraryError) -> Failure:
    """
    *exc* in our words.

    All of these may be retried as far as the network is concerned; whether bytes were delivered already is for the
    pipeline to know. `detail` holds no headers and no query string: providers put keys into both.
    """
    failure_class: FailureClass = "upstream_error"
    reason = _reason(exc)
    if reason == NO_SLOT:  # ours, and waiting for it once more would double the client's wait
        return Failure(failure_class, reason, OVERLOADED, retryable=False, counts=False, detail=_detail(exc))
    if reason == "connect_timeout":
        failure_class = "upstream_timeout"
    return Failure(failure_class, reason, detail=_detail(exc))


def stale_failure(exc: LibraryError) -> Failure:
    """A connection that had rested was dead when a request was sent over it, which says nothing of the provider."""
    return Failure("upstream_error", STALE, counts=False, detail=_detail(exc))


def encoding_failure(reason: str, detail: str) -> Failure:
    """A body whose encoding we did not ask for and cannot, or will not, undo."""
    return Failure("upstream_error", reason, detail=detail)


def _reason(exc: Exception) -> str:
    match exc:
        case NoSlot():
            return NO_SLOT
        case ConnectionTimeoutError():
            return "connect_timeout"
        case ClientConnectorDNSError():
            return "dns"
        case ClientSSLError():
            return "tls"
        case ClientConnectorError():
            return "connect_timeout" if exc.os_error.errno == errno.ETIMEDOUT else "connect"
        case HttpProcessingError():
            return "protocol"
        case ClientPayloadError():
            return _body_reason(exc.__cause__)
    return "reset"


def _body_reason(cause: BaseException | None) -> str:
    match cause:
        case OSError():
            return "reset"
        case ContentLengthError() | TransferEncodingError():
            return "truncated"
    return "protocol"


def _detail(exc: Exception) -> str:
    # The parser's message quotes what it stumbled over, which may be a model's answer, behind its first line.
    text = exc.message.partition("\n")[0] if isinstance(exc, HttpProcessingError) else str(exc)
    text = _QUERY.sub(r"\1?...", text)
    return f"{type(exc).__name__}: {text}"[:MAX_DETAIL_CHARS]
