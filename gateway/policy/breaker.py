"""When to leave a route alone, and how many extra attempts it may get.

Both are kept per route. All `now_s` are monotonic seconds of the caller's clock. Nothing locks: use it from one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from gateway.core.call import Task

State = Literal["closed", "open", "half_open"]

_SLICES = 10  # a window is forgotten a tenth at a time, which bounds memory at any request rate


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """
    When a breaker opens and for how long.

    Defaults: a dead route is to be left alone after at most 20 failures in 10 s and to be back at most 30 s after it
    has recovered.

    Attributes:
        failures: Failures within `window_s` that open it, provided that they are at least `share` of the calls.
        open_s: First time it stays open; doubled by every failed probe, up to `open_max_s`.
        probe_s: A probe that has not reported by then is given up; no longer than `open_max_s`, so a lost one costs no
            more than a failed one.
    """

    failures: int = 10
    window_s: float = 10.0
    share: float = 0.5
    open_s: float = 5.0
    open_max_s: float = 30.0
    probe_s: float = 30.0


@dataclass(frozen=True, slots=True)
class BudgetRules:
    """Extra attempts: `percent` of the requests of the last `window_s`, and `minimum` besides."""

    percent: float = 10.0  # an outage must not bring a provider more than a tenth on top of its usual load
    minimum: int = 3  # so that a route with one request a minute gets its second attempt too
    window_s: float = 10.0


class _Tally:
    """Two running counts over the last *window_s* seconds, exact to a tenth of it: nothing older is ever counted."""

    def __init__(self, window_s: float) -> None:
        self._slice_s = window_s / _SLICES
        self._slices: deque[tuple[int, list[int]]] = deque()
        self._sums = [0, 0]

    def add(self, now_s: float, first: int, second: int) -> None:
        index = self._forget(now_s)
        if not self._slices or self._slices[-1][0] < index:
            self._slices.append((index, [0, 0]))
        for counts in (self._slices[-1][1], self._sums):
            counts[0] += first
            counts[1] += second

    def sums(self, now_s: float) -> tuple[int, int]:
        self._forget(now_s)
        return self._sums[0], self._sums[1]

    def clear(self) -> None:
        self._slices.clear()
        self._sums = [0, 0]

    def _forget(self, now_s: float) -> int:
        index = int(now_s / self._slice_s)
        while self._slices and self._slices[0][0] <= index - _SLICES:
            _, (first, second) = self._slices.popleft()
            self._sums[0] -= first
            self._sums[1] -= second
        return index


class Permit:
    """Leave to make one call, and the way to tell how it went. Only the first word counts, but a success that breaks
    later may be turned into a failure."""

    __slots__ = ("_breaker", "_verdict")

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker
        self._verdict: Literal["succeeded", "failed", "abandoned"] | None = None

    def succeeded(self, now_s: float) -> None:
        """The route answered well."""
        if self._verdict is None:
            self._verdict = "succeeded"
            self._breaker._on_success(self, now_s)

    def failed(self, now_s: float) -> None:
        """The call failed, at once or after it had begun well."""
        if self._verdict is None:
            self._breaker._on_failure(self, now_s, calls=1)
        elif self._verdict == "succeeded":
            self._breaker._on_failure(self, now_s, calls=0)
        self._verdict = "failed"

    def abandoned(self) -> None:
        """The call ended without telling anything of the route (its client left): no verdict."""
        if self._verdict is None:
            self._verdict = "abandoned"
            self._breaker._on_abandoned(self)


class Breaker:
    """
    Keeps calls away from a route that fails.

    closed: calls pass and are counted. open: none passes. half_open, once the open time is over: one call at a time
    passes as a probe; its success closes the breaker, its failure opens it again for twice as long. What calls from
    before it opened have to report is ignored until it is closed again.

    Args:
        changed: Told when it opens from closed and when it closes again; a failed probe changes nothing.
    """

    def __init__(self, rules: BreakerRules, changed: Callable[[State], None] = lambda state: None) -> None:
        self._rules = rules
        self._changed = changed
        self._tally = _Tally(rules.window_s)
        self._until_s: float | None = None  # None: closed
        self._open_s = rules.open_s
        self._probe: Permit | None = None
        self._probe_until_s = 0.0

    def state(self, now_s: float) -> State:
        if self._until_s is None:
            return "closed"
        return "open" if now_s < self._until_s else "half_open"

    def admit(self, now_s: float) -> Permit | None:
        """Leave for a call that starts now. In half_open it takes the probe slot, so ask only if you mean to call."""
        if self._until_s is None:
            return Permit(self)
        if now_s < self._until_s or (self._probe is not None and now_s < self._probe_until_s):
            return None
        self._probe = Permit(self)
        self._probe_until_s = now_s + self._rules.probe_s
        return self._probe

    def _on_success(self, permit: Permit, now_s: float) -> None:
        if self._until_s is None:
            self._tally.add(now_s, 1, 0)
        elif permit is self._probe:
            self._until_s = self._probe = None
            self._open_s = self._rules.open_s
            self._tally.clear()
            self._changed("closed")

    def _on_failure(self, permit: Permit, now_s: float, calls: int) -> None:
        if self._until_s is None:
            self._tally.add(now_s, calls, 1)
            counted, failures = self._tally.sums(now_s)
            if failures >= self._rules.failures and failures >= self._rules.share * counted:
                self._until_s = now_s + self._open_s
                self._changed("open")
        elif permit is self._probe:
            self._probe = None
            self._open_s = min(2 * self._open_s, self._rules.open_max_s)
            self._until_s = now_s + self._open_s

    def _on_abandoned(self, permit: Permit) -> None:
        if permit is self._probe:
            self._probe = None


class RetryBudget:
    """Bounds extra attempts by the traffic there is, so that an outage is not answered with a storm of retries."""

    def __init__(self, rules: BudgetRules) -> None:
        self._rules = rules
        self._tally = _Tally(rules.window_s)

    def started(self, now_s: float) -> None:
        """A request made its first attempt."""
        self._tally.add(now_s, 1, 0)

    def may_retry(self, now_s: float) -> bool:
        """Whether one extra attempt may start now; a yes spends it."""
        requests, extra = self._tally.sums(now_s)
        if extra + 1 > self._rules.minimum + requests * self._rules.percent / 100:
            return False
        self._tally.add(now_s, 0, 1)
        return True


def name_of(route_id: str, task: Task) -> str:
    """Of a route for *task*: one that answers need not count, and that it does not is no sign of ill health."""
    return route_id if task == "answer" else f"{route_id}#{task}"


class BreakerBoard:
    """The breaker and the retry budget of every route, for each task by its name, made when first asked for.

    Args:
        changed: Told the name of a route whose breaker opened from closed, or closed again.
    """

    def __init__(
        self, breaker: BreakerRules, budget: BudgetRules, changed: Callable[[str, State], None] = lambda name, to: None
    ) -> None:
        self._rules = breaker, budget
        self._changed = changed
        self._routes: dict[str, tuple[Breaker, RetryBudget]] = {}

    def of(self, name: str) -> tuple[Breaker, RetryBudget]:
        pair = self._routes.get(name)
        if pair is None:
            breaker = Breaker(self._rules[0], partial(self._changed, name))
            pair = self._routes[name] = breaker, RetryBudget(self._rules[1])
        return pair

    def keep(self, route_ids: Collection[str]) -> None:
        """Forget every route that is not in *route_ids*, for all tasks: after a reload of the catalogue."""
        kept = {name_of(route_id, task) for route_id in route_ids for task in get_args(Task)}
        self._routes = {name: pair for name, pair in self._routes.items() if name in kept}
