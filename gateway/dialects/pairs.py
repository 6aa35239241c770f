"""Who speaks with whom: passthrough where client and provider have one dialect, translation where they have two."""

from __future__ import annotations

from gateway.core.call import ALL_PARAMS, Call, Params
from gateway.core.catalog import Provider, Route
from gateway.core.errors import INVALID_REQUEST, GatewayError
from gateway.dialects.base import Completion, Dialect, Journey, Lane
from gateway.dialects.neutral import Notes, Target
from gateway.dialects.registry import CLIENT_DIALECTS, DIALECTS
from gateway.dialects.tool_choice import check_choice
from gateway.dialects.tool_names import fit_names
from gateway.dialects.translation import TranslationLane, translated_completion


def is_native(call: Call, route: Route) -> bool:
    """Whether *route* speaks the dialect that *call* came in."""
    return route.provider.dialect == call.dialect


def native_body(call: Call, provider: Provider, target: Target) -> tuple[bytes, Params]:
    """
    The body that asks *provider* for *call* in the dialect of both, and what of the call is not in it as it was.

    Raises:
        GatewayError: The provider cannot take all of it and the client insists on that.
    """
    dialect, notes = CLIENT_DIALECTS[call.dialect], Notes()
    fields = dialect.tidy(call.fields, target, notes)
    for quirk in provider.quirks:
        fields = quirk(fields, notes)
    return dialect.upstream_body(fields, target), _params(call, notes)


def translated_body(call: Call, provider: Dialect, target: Target) -> tuple[bytes, Params]:
    """
    The body that asks a *provider* of another dialect for *call*, and what of the call is not in it as it was.

    Raises:
        GatewayError: The dialect cannot say it, or not all of it and the client insists on that.
    """
    notes, prompt = Notes(), CLIENT_DIALECTS[call.dialect].read_prompt(call)
    check_choice(prompt)
    prompt = fit_names(prompt, provider.tool_names, notes)
    body = provider.write_body(prompt, target, notes)
    return body, _params(call, notes)


def _params(call: Call, notes: Notes) -> Params:
    if not (notes.translated or notes.dropped or notes.tools):
        return ALL_PARAMS
    if notes.dropped and call.options.strict_params:
        places = ", ".join(notes.dropped)
        raise GatewayError(INVALID_REQUEST, f"This model's provider cannot take: {places}.", param=notes.dropped[0])
    return Params(tuple(notes.translated), tuple(notes.dropped), notes.tools)


def open_lane(journey: Journey) -> Lane:
    """The lane of a stream."""
    client, provider = CLIENT_DIALECTS[journey.call.dialect], DIALECTS[journey.route.provider.dialect]
    return client.open_lane(journey) if client is provider else TranslationLane(journey, provider, client)


def read_completion(body: bytes, journey: Journey) -> Completion:
    """A whole JSON answer. Raises UpstreamFailed when *body* is none."""
    client, provider = CLIENT_DIALECTS[journey.call.dialect], DIALECTS[journey.route.provider.dialect]
    if client is provider:
        return client.read_completion(body, journey)
    return translated_completion(body, journey, provider, client)
