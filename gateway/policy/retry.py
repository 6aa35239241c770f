"""Which route to ask next after an attempt has failed, and how long to wait before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from msgspec import Struct

from gateway.core.catalog import Route
from gateway.core.errors import STALE
from gateway.core.exchange import Attempt

# No byte of the request can have been processed, or the connection died under it: waiting would not make it better.
AT_ONCE = frozenset({"connect", "reset", STALE})


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How long to wait before the one further attempt at a route. The defaults are those of the settings.

    Attributes:
        base_s: Shortest wait; with the spread at most twice that.
        wait_max_s: Longest wait asked for by a provider that is waited here; a longer one is for the client, who is
            told by `retry-after`.
    """

    base_s: float
    wait_max_s: float


class Try(Struct, frozen=True, gc=False):
    """Ask *route* in *wait_s* seconds from now."""

    route: Route
    wait_s: float


def next_try(
    candidates: Sequence[Route],
    attempts: Sequence[Attempt],
    *,
    now_s: float,
    deadline_s: float,
    allow: Callable[[Route], bool],
    may_retry: Callable[[Route], bool],
    rules: RetryRules,
    spread: float,
) -> Try | None:
    """
    The next attempt of an exchange whose *attempts* have all failed, or None when it is to fail.

    Every candidate that can say what is asked is asked once, in order, and again at once where only a connection was
    dead; then each at most once more, the shortest wait first. Nothing is tried after a failure that is the caller's
    fault, nor once the gateway is leaving.

    Args:
        now_s: Monotonic seconds, as are `deadline_s` and the stamps of *attempts*.
        deadline_s: No attempt starts at or after it.
        allow: Whether the route can say what is asked, and its breaker. Asked last: a yes may take a probe slot, so its
            route is always the one returned.
        may_retry: The route's retry budget, asked for second attempts only; a yes spends.
        spread: Random number in [0, 1) that keeps the clients of one outage apart.
    """
    if now_s >= deadline_s or (attempts and _final(attempts[-1])):
        return None
    if attempts and _was_stale(attempts) and allow(attempts[-1].route):
        return Try(attempts[-1].route, 0.0)
    tried = {attempt.route.id for attempt in attempts} if attempts else ()
    for route in candidates:
        if route.id not in tried and allow(route):
            return Try(route, 0.0)
    if not attempts:
        return None
    again = sorted(_again(candidates, attempts, now_s, rules, spread), key=lambda item: item.wait_s)
    for item in again:
        if now_s + item.wait_s < deadline_s and may_retry(item.route) and allow(item.route):
            return item
    return None


def _was_stale(attempts: Sequence[Attempt]) -> bool:
    """Whether the last attempt got no further than a dead connection, and its route has had no other."""
    failure, route = attempts[-1].failure, attempts[-1].route
    if failure is None or failure.reason != STALE:
        return False
    return sum(attempt.route.id == route.id for attempt in attempts) == 1


def _final(attempt: Attempt) -> bool:
    """Whether no route could do better: the caller's own request is at fault, or we are shutting down."""
    failure = attempt.failure
    if failure is None or failure.retryable:
        return False
    return 400 <= failure.error.status < 500 or failure.is_ours


def _again(
    candidates: Sequence[Route], attempts: Sequence[Attempt], now_s: float, rules: RetryRules, spread: float
) -> Iterator[Try]:
    """The candidates that were tried once and may be tried again, with the rest of their waits."""
    for route in candidates:
        mine = [attempt for attempt in attempts if attempt.route.id == route.id]
        wait_s = _wait_s(mine[0], rules, spread) if len(mine) == 1 else None
        if wait_s is not None:
            ended_s = mine[0].ended_s
            yield Try(route, max(0.0, wait_s - (now_s - ended_s if ended_s is not None else 0.0)))


def _wait_s(attempt: Attempt, rules: RetryRules, spread: float) -> float | None:
    """Seconds between the end of *attempt* and the next one of its route; None: never."""
    failure = attempt.failure
    if failure is None or not failure.retryable:
        return None
    if failure.retry_after_s is not None:
        return failure.retry_after_s if failure.retry_after_s <= rules.wait_max_s else None
    return 0.0 if failure.reason in AT_ONCE else rules.base_s * (1 + spread)
