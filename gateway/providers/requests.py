"""A call and a route become a request to a provider. Pure; the result holds the credential."""

from __future__ import annotations

from gateway.core.call import Call, UpstreamRequest, readable, suited
from gateway.core.catalog import Model, Provider, Route
from gateway.dialects.neutral import Target
from gateway.dialects.pairs import is_native, native_body, translated_body
from gateway.dialects.registry import CLIENT_DIALECTS, DIALECTS
from gateway.providers.traits import traits_of

_JSON = ("Content-Type", "application/json")
_ACCEPT_JSON = ("Accept", "application/json")


def build_request(call: Call, route: Route, model: Model, *, fresh: bool = False) -> UpstreamRequest:
    """
    The request that asks *route* for *call*: a fixed path, our own credential, allow-listed headers only.

    Raises:
        GatewayError: The route's dialect cannot say what the call asks for, or its provider not take all of it.
    """
    provider = route.provider
    call = suited(call, provider)
    dialect = DIALECTS[provider.dialect]
    defaults = dialect.default_headers
    if is_native(call, route):
        target = Target(route.model, call.stream, model.max_output_tokens, omits=provider.omits)
        body, params = native_body(call, provider, target)
    else:
        target = Target(
            route.model, call.stream, model.max_output_tokens, traits_of(*_names(call, route)), omits=provider.omits
        )
        call = readable(call)
        body, params = translated_body(call, dialect, target)
    if call.held is not None:
        body = call.held.fill(body)
    if call.forward_headers and is_native(call, route):  # they are of the client's dialect
        sent = {name.lower() for name, _ in call.forward_headers}
        defaults = (*(pair for pair in defaults if pair[0] not in sent), *call.forward_headers)
    secret = (provider.secret,) if provider.secret is not None else ()
    return UpstreamRequest(
        url=provider.base_url + _path(call, route),
        headers=(_JSON, ("Accept", dialect.stream_type) if call.stream else _ACCEPT_JSON, *defaults, *secret),
        body=body,
        fresh=fresh,
        params=params,
        signer=provider.signer,
    )


def moderation_request(provider: Provider, body: bytes, *, fresh: bool = False) -> UpstreamRequest:
    """The request that has *provider*, which speaks OpenAI's dialect by its own paths, moderate what *body* holds."""
    secret = (provider.secret,) if provider.secret is not None else ()
    return UpstreamRequest(f"{provider.base_url}/moderations", (_JSON, _ACCEPT_JSON, *secret), body, fresh=fresh)


def _names(call: Call, route: Route) -> tuple[str, ...]:
    """What tells of the model: the provider's name for it, and the catalogue's where the former may be a deployment's.

    Elsewhere the slug says nothing: the same weights at another host may have other rules.
    """
    return (route.model,) if route.provider.path is None else (route.model, call.slug)


def can_count(call: Call, route: Route) -> bool:
    """Whether the provider of *route* may know how to count *call*: it has the dialect's own paths."""
    return is_native(call, route) and route.provider.path is None and CLIENT_DIALECTS[call.dialect].counting is not None


def _path(call: Call, route: Route) -> str:
    counting = CLIENT_DIALECTS[call.dialect].counting
    if call.task == "count" and counting is not None:
        return counting.upstream_path
    path = route.provider.path or DIALECTS[route.provider.dialect].upstream_path
    return path(route.model, stream=call.stream)
