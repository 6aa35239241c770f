"""Which routes can go on with an answer that broke, and with what."""

from __future__ import annotations

from functools import partial

from gateway.core.errors import Failure
from gateway.core.exchange import Exchange
from gateway.dialects.base import Lane
from gateway.dialects.continuation import KeptLane, can_go_on, continued
from gateway.dialects.edited import unedited
from gateway.pipeline.opening import Rest
from gateway.providers.traits import takes_prefill


def rest_of(exchange: Exchange, lane: Lane, failure: Failure) -> Rest | None:
    """
    What is to be asked for the rest of the answer that *lane* has told the beginning of, and that broke by *failure*.

    Routes that have not been tried come in the order of the exchange. None where there is none that takes the beginning
    of an answer, where going on would not be sound, and where another provider is no remedy: the gateway itself has to
    leave, or the first one objected to what was asked or answered.
    """
    lane = unedited(lane)
    if not isinstance(lane, KeptLane) or failure.is_ours or failure.error.status < 500:
        return None
    tried = {attempt.route.id for attempt in exchange.attempts}
    routes = tuple(route for route in exchange.candidates if route.id not in tried and takes_prefill(route))
    tokens = lane.received_tokens()
    if not routes or not lane.seam.is_open or not can_go_on(exchange.call, tokens):
        return None
    return Rest(lane.seam, routes, partial(continued, exchange.call, lane.seam.text, tokens))
