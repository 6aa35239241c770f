"""What the Python SDKs have in common."""

from __future__ import annotations

from typing import Any

from tests.conformance.outcome import Ask, Outcome


def failed(out: Outcome, error: Exception) -> Outcome:
    """*out*, ended by *error*."""
    out.errors = [kind.__name__ for kind in type(error).__mro__]
    out.status = getattr(error, "status_code", None)
    out.code = getattr(error, "code", None)
    body = getattr(error, "body", None)
    if out.code is None and isinstance(body, dict):
        out.code = body.get("error", {}).get("code")
    return out


def options(ask: Ask, path: str) -> dict[str, Any]:
    """Arguments of a client's constructor, with *path* behind the gateway's address."""
    retries = {} if ask.retries is None else {"max_retries": ask.retries}
    return {"base_url": ask.base_url + path, "api_key": ask.key, "default_headers": dict(ask.headers), **retries}
