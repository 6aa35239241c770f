"""The one place that turns a `GatewayError` into an HTTP response."""

from __future__ import annotations

import math
from collections.abc import Iterable

from aiohttp import web

from gateway.core.errors import GatewayError
from gateway.dialects.errors import dialect_of_path, error_body
from gateway.wire.headers import header_value

MAX_OBEYED_S = 60  # SDKs obey the header up to a minute; beyond it they are told not to retry at all


def error_response(
    path: str, error: GatewayError, request_id: str, headers: Iterable[tuple[str, str]] = ()
) -> web.Response:
    """
    *error* in the envelope of *path*.

    Args:
        path: The path as the client sent it; only its prefix matters.
        request_id: Sent as `x-request-id` and `request-id`, which the two SDK families read.
        headers: Further headers, such as the key's limits.
    """
    response = web.Response(
        status=error.kind.status,
        body=error_body(dialect_of_path(path), error, request_id),
        content_type="application/json",
    )
    out = response.headers
    out["x-request-id"] = out["request-id"] = request_id
    for name, value in headers:
        out[name] = header_value(value)
    never = error.kind.retry == "never"
    if error.retry_after_s is not None:
        wait_s = max(0.0, error.retry_after_s)
        never = never or wait_s > MAX_OBEYED_S
        out["retry-after"] = str(math.ceil(wait_s))
        if wait_s <= MAX_OBEYED_S:
            out["retry-after-ms"] = str(math.ceil(wait_s * 1000))
    if never:
        out["x-should-retry"] = "false"
    return response
