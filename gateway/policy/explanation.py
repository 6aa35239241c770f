"""Why each route is taken or left, in words: what the choice of a call would be, without making the call. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from gateway.core.accounts import Key
from gateway.core.call import Call
from gateway.core.catalog import Catalog, Model, Route, Strategy
from gateway.core.errors import CONTEXT_LENGTH_EXCEEDED, VISION_NOT_SUPPORTED
from gateway.dialects.pairs import is_native
from gateway.policy.loads import LoadBoard
from gateway.policy.pictures import blindness, sees
from gateway.policy.routing import consider, find, rank, refusal, window_of


class Assumed(Struct, frozen=True):
    """
    What is assumed of the messages, of which a dry run has none.

    Attributes:
        tokens: How long they are.
        has_image: Whether there is one among them.
    """

    tokens: int = 0
    has_image: bool = False


NOTHING = Assumed()


def explain(catalog: Catalog, key: Key, call: Call, prompt: Assumed = NOTHING) -> Iterator[str]:
    """
    Lines for people: the order in which *key*'s *call* would ask, by the very functions that choose for live calls. As
    in a process that has just started, nothing runs, no time is known and no breaker is open.

    Raises:
        GatewayError: `model_not_found`, `policy_denied`.
    """
    model = find(catalog, key, call.slug)
    choice = consider(model, key, call, prompt.tokens)
    order = rank(model, call, choice.routes, LoadBoard(), now_s=0.0, spread=_even)
    yield f"{model.slug}: {call.dialect}, strategy {model.strategy}, residency {model.residency}"
    policy = "" if key.policy is None else f", policy {key.policy}"
    yield f"key {key.id}: tier {key.tier.name}, region_preference {key.residency}{policy}"
    for place, route in enumerate(order, start=1):
        native = "native" if is_native(call, route) else "translated"
        yield f"  {place}. taken  {_named(route)}: {native}{_WHY[model.strategy](model, choice.routes, route)}"
    for left in choice.left:
        yield f"  -  left   {_named(left.route)}: {left.why}"
    if not order:
        error = refusal(choice)
        yield f"no route is left: {error.kind.status} {error.kind.code}: {error.message}"
    else:
        yield from _refused(model, order, prompt)


def _refused(model: Model, routes: tuple[Route, ...], prompt: Assumed) -> Iterator[str]:
    """What *routes* would not be asked for, although they are taken."""
    if prompt.has_image and not sees(model):
        yield f"no route is asked: {VISION_NOT_SUPPORTED.status} {VISION_NOT_SUPPORTED.code}: {blindness(model)}"
    longest = max(window_of(route, model) for route in routes)
    if prompt.tokens > longest:
        kind = CONTEXT_LENGTH_EXCEEDED
        yield f"{prompt.tokens} tokens > {longest} maximum: {kind.status} {kind.code}, by us or by them"


def _even() -> float:
    """Chance, without any: routes come by weight."""
    return 0.5


def _named(route: Route) -> str:
    return f"{route.id} ({route.provider.region.upper()})"


def _in_order(model: Model, routes: tuple[Route, ...], route: Route) -> str:
    return f", number {model.routes.index(route) + 1} in the file"


def _share(model: Model, routes: tuple[Route, ...], route: Route) -> str:
    total = sum(one.weight for one in routes)
    if not route.weight:
        return ", weight 0: only when the others have failed"
    return f", weight {route.weight} of {total}: first in {100 * route.weight / total:.0f} % of the calls"


def _load(model: Model, routes: tuple[Route, ...], route: Route) -> str:
    return f", weight {route.weight}: by (running + 1) / weight" if route.weight else _share(model, routes, route)


def _pace(model: Model, routes: tuple[Route, ...], route: Route) -> str:
    return ", by its time to answer, none known yet" if route.weight else _share(model, routes, route)


_WHY: Mapping[Strategy, Callable[[Model, tuple[Route, ...], Route], str]] = {
    "fallback": _in_order,
    "weighted": _share,
    "least_loaded": _load,
    "lowest_latency": _pace,
}
