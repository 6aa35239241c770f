"""A call and a route become a request to a provider. Pure; the result holds the credential."""

from __future__ import annotations

from gateway.core.call import Call, UpstreamRequest
from gateway.core.catalog import Route
from gateway.dialects.base import Dialect

_JSON = ("Content-Type", "application/json")
_ACCEPT = {True: ("Accept", "text/event-stream"), False: ("Accept", "application/json")}


def build_request(call: Call, route: Route, dialect: Dialect, *, fresh: bool = False) -> UpstreamRequest:
    """The request that asks *route* for *call*: a fixed path, our own credential, allow-listed headers only."""
    provider = route.provider
    defaults = dialect.default_headers
    if call.forward_headers:
        sent = {name.lower() for name, _ in call.forward_headers}
        defaults = (*(pair for pair in defaults if pair[0] not in sent), *call.forward_headers)
    secret = (provider.secret,) if provider.secret is not None else ()
    return UpstreamRequest(
        url=provider.base_url + dialect.upstream_path,
        headers=(_JSON, _ACCEPT[call.stream], *defaults, *secret),
        body=dialect.upstream_body(call, route),
        fresh=fresh,
    )
