"""Which routes can serve a call, and in what order they are asked. Pure: loads, clock and chance are handed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import NamedTuple

from msgspec import Struct

from gateway.core.accounts import Key, Residency
from gateway.core.call import Call, tool_members
from gateway.core.catalog import (
    HOMES,
    Catalog,
    Model,
    Route,
    Strategy,
    allows,
    forbidden_by,
    is_at_home,
    is_within,
)
from gateway.core.errors import (
    CONTEXT_LENGTH_EXCEEDED,
    INVALID_REQUEST,
    POLICY_DENIED,
    RESIDENCY_DENIED,
    ErrorKind,
    GatewayError,
)
from gateway.core.guarding import CallTerms
from gateway.dialects.pairs import is_native
from gateway.dialects.pictures import may_show
from gateway.policy.loads import LoadBoard, Standing
from gateway.policy.suggestions import not_found

_NOWHERE = "No provider of this model computes in a region that this key's policy allows."
_DOCUMENTS = (b'"document"', b'"file"')  # their pages have tokens that their bytes do not tell


class Left(Struct, frozen=True, gc=False):
    """
    A route that is not asked, and why; the rest is what the client is told where no route is left.

    The words only: an exception would hold the call by its traceback.
    """

    route: Route
    why: str
    kind: ErrorKind
    message: str | None = None
    param: str | None = None


class Choice(Struct, frozen=True, gc=False):
    """The routes that may serve a call, in fallback order, and those that may not."""

    routes: tuple[Route, ...]
    left: tuple[Left, ...] = ()


def choose(model: Model, key: Key, call: Call, tokens: int = 0) -> tuple[Route, ...]:
    """
    The routes of *model* that may serve *call*, in fallback order. Raises GatewayError when none is left: `refusal`.

    Args:
        tokens: As `consider` has it.
    """
    if len(model.routes) == 1 and not _is_picky(model, key):
        return model.routes  # as most are: there is nothing to consider
    choice = consider(model, key, call, tokens)
    if not choice.routes:
        raise refusal(choice)
    return choice.routes


def find(catalog: Catalog, key: Key, slug: str) -> Model:
    """
    The model *slug*.

    Raises:
        GatewayError: `model_not_found` when there is no such model, or when the key's tier does not include it: the two
            read alike. `policy_denied` where only the key's policy does not let it be called.
    """
    model = catalog.models.get(slug)
    if model is None or not allows(key, model):
        raise not_found(catalog, key, slug)
    field = forbidden_by(key.rules.calls, model)
    if field is not None:
        message = f"The policy of this key does not let this model be called: `calls.{field}`."
        raise GatewayError(POLICY_DENIED, message, param="model")
    return model


def consider(model: Model, key: Key, call: Call, tokens: int = 0) -> Choice:
    """
    Every route of *model*, as taken or as left.

    Args:
        tokens: Of the prompt, by our estimate; 0 where that does not matter (`length_matters`).

    Those that speak the call's dialect come first, since nothing is lost on them. A route outside of the residency is
    in no list that anybody could ask from: fallback and continuation fail closed.
    """
    routes: tuple[Route, ...] = model.routes
    left: tuple[Left, ...] = ()
    if _is_picky(model, key):
        routes, left = _sift(model, key, call, tokens)
    if len(routes) > 1:
        routes = tuple(sorted(routes, key=lambda route: not is_native(call, route)))
    return Choice(routes, left)


def _is_picky(model: Model, key: Key) -> bool:
    """Whether a call of *key*'s may leave routes of *model*."""
    return model.is_picky or key.residency != "any" or key.rules.calls.regions is not None


def refusal(choice: Choice) -> GatewayError:
    """What the client is told when every route was left: what those cannot do that it may use, else that it may not."""
    left = next((left for left in choice.left if left.kind not in (RESIDENCY_DENIED, POLICY_DENIED)), choice.left[0])
    return GatewayError(left.kind, left.message, param=left.param)


def _sift(model: Model, key: Key, call: Call, tokens: int) -> tuple[tuple[Route, ...], tuple[Left, ...]]:
    taken: list[Route] = []
    left: list[Left] = []
    for route in model.routes:
        found = _residency(route, key.residency, model.residency) or _region(route, key.rules.calls)
        found = found or _tools(route, model, call)
        if found is None:
            taken.append(route)
        else:
            left.append(found)
    short = _short(taken, model, tokens)
    kept = tuple(route for route in taken if all(one.route is not route for one in short))
    return kept, (*left, *short)


def _residency(route: Route, key: Residency, model: Residency) -> Left | None:
    for whose, residency in (("key", key), ("model", model)):
        if not is_at_home(route, residency):
            region = route.provider.region.upper()
            why = f"it computes in {region}, and the {whose} is {residency}: only {HOMES[residency]}"
            return Left(route, why, RESIDENCY_DENIED)
    return None


def _region(route: Route, terms: CallTerms) -> Left | None:
    if is_within(route, terms):
        return None
    allowed = ", ".join(sorted(terms.regions or ())) or "nowhere"
    why = f"it computes in {route.provider.region.upper()}, and the key's policy allows {allowed}"
    return Left(route, why, POLICY_DENIED, _NOWHERE, "model")


def _tools(route: Route, model: Model, call: Call) -> Left | None:
    if model.tools if route.tools is None else route.tools:
        return None
    for name in tool_members(call):
        return Left(route, "it cannot call tools", INVALID_REQUEST, "This model cannot call tools.", name)
    return None


def _short(routes: list[Route], model: Model, tokens: int) -> tuple[Left, ...]:
    """
    The routes whose context looks too small, as long as a longer one is left: our count is an estimate, so it may
    prefer but not refuse.
    """
    windows = {route.id: window_of(route, model) for route in routes}
    longest = max(windows.values(), default=0)
    return tuple(
        Left(route, f"some {tokens} tokens do not fit into {windows[route.id]}", CONTEXT_LENGTH_EXCEEDED)
        for route in routes
        if windows[route.id] < min(tokens, longest)
    )


def length_matters(model: Model, call: Call) -> bool:
    """Whether it depends on the tokens of *call* which routes of *model* are left; most often its bytes settle it."""
    if not model.is_picky:
        return False
    windows = [window_of(route, model) for route in model.routes]
    if max(windows) == min(windows):
        return False
    if call.held is not None:
        return True
    if sum(map(len, call.fields.values())) > min(windows):  # a token of text is a byte at least
        return True
    messages = call.fields.get("messages")
    return messages is not None and (may_show(messages) or any(kind in bytes(messages) for kind in _DOCUMENTS))


def window_of(route: Route, model: Model) -> int:
    """Tokens of context that *model* has by *route*."""
    return route.context_window or model.context_window


# -- the order --


class Sight(NamedTuple):
    """What a strategy sees besides a route: how it fares with calls of this kind, the clock, and chance in [0, 1)."""

    standing: Standing
    stream: bool
    now_s: float
    spread: Callable[[], float]


Rank = tuple[float, float]
"""What routes are sorted by, the least first; equal ones stay in fallback order."""


def rank(
    model: Model, call: Call, routes: tuple[Route, ...], loads: LoadBoard, *, now_s: float, spread: Callable[[], float]
) -> tuple[Route, ...]:  # fmt: skip
    """
    *routes*, which are in fallback order, in the order in which *model*'s strategy asks them.

    Args:
        now_s: Monotonic seconds.
        spread: Random numbers in [0, 1).
    """
    order = _ORDERS[model.strategy]
    ranks = {route.id: order(route, Sight(loads.of(route.id), call.stream, now_s, spread)) for route in routes}
    return tuple(sorted(routes, key=lambda route: ranks[route.id]))


def _as_written(route: Route, sight: Sight) -> Rank:
    return 0.0, 0.0


def _by_weight(route: Route, sight: Sight) -> Rank:
    """
    A draw without putting back, each with a chance by its weight: the one with the greatest u^(1/w) first, as
    Efraimidis and Spirakis have shown (2006). So those asked after a failure have their shares too.
    """
    return (0.0, -(sight.spread() ** (1 / route.weight))) if route.weight else (1.0, 0.0)


def _by_load(route: Route, sight: Sight) -> Rank:
    """As if the call were there already: of two idle routes the one with more weight."""
    return (0.0, (sight.standing.running + 1) / route.weight) if route.weight else (1.0, 0.0)


def _by_pace(route: Route, sight: Sight) -> Rank:
    """
    The fastest first. A route of which nothing is known of late comes before them all, for one call of a kind at a
    time: so times are learnt, and a route that hangs holds one call up, not everybody's.
    """
    pace = sight.standing.paces[sight.stream]
    if not route.weight:
        return 3.0, 0.0
    if pace.is_fresh(sight.now_s):
        return (1.0, pace.answer_s) if pace.answer_s is not None else (2.0, inf)  # it has just failed
    return (2.0, inf if pace.answer_s is None else pace.answer_s) if pace.running else (0.0, 0.0)


_ORDERS: Mapping[Strategy, Callable[[Route, Sight], Rank]] = {
    "fallback": _as_written,
    "weighted": _by_weight,
    "least_loaded": _by_load,
    "lowest_latency": _by_pace,
}
