"""How routes fare: what runs on each, and how soon each answers. Pure; the clock belongs to the caller."""

from __future__ import annotations

from collections.abc import Collection

SMOOTHING = 0.2  # of a new time in the average: some ten answers make it up. A choice, as TCP's 1/8 is one
STALE_S = 60.0  # after that long a time says little of a provider; as long as a minute's limits


class Pace:
    """
    How soon a route answers, for one kind of calls.

    Attributes:
        answer_s: Seconds to the first good frame, or to the whole body, averaged; None while there is none.
        told_s: Monotonic seconds when that was learnt, or when an attempt failed.
        running: Attempts of the kind under way.
    """

    __slots__ = ("answer_s", "running", "told_s")

    def __init__(self) -> None:
        self.running = 0
        self.answer_s: float | None = None
        self.told_s: float | None = None

    def is_fresh(self, now_s: float) -> bool:
        """Whether anything was learnt lately."""
        return self.told_s is not None and now_s - self.told_s < STALE_S


class Standing:
    """
    Where a route stands.

    Attributes:
        running: Attempts of either kind that are under way.
        paces: By whether it is of streams: a whole body takes as long as all of its tokens.
    """

    __slots__ = ("paces", "running")

    def __init__(self) -> None:
        self.running = 0
        self.paces = {True: Pace(), False: Pace()}


class Load:
    """One attempt under way. Released once, however often that is said."""

    __slots__ = ("_is_held", "_pace", "_standing", "_started_s")

    def __init__(self, standing: Standing, stream: bool, now_s: float) -> None:
        self._standing = standing
        self._pace = standing.paces[stream]
        self._started_s = now_s
        self._is_held = True
        standing.running += 1
        self._pace.running += 1

    def answered(self, now_s: float) -> None:
        """The attempt is good: its first frame, or all of it, is here."""
        took_s, pace = now_s - self._started_s, self._pace
        old_s = pace.answer_s if pace.is_fresh(now_s) else None
        pace.answer_s = took_s if old_s is None else old_s + SMOOTHING * (took_s - old_s)
        pace.told_s = now_s

    def failed(self, now_s: float) -> None:
        """The attempt failed: how fast it did so is no pace, and what was known before does not hold any more."""
        self._pace.answer_s, self._pace.told_s = None, now_s

    def release(self) -> None:
        """Nothing runs any more."""
        if self._is_held:
            self._is_held = False
            self._standing.running -= 1
            self._pace.running -= 1


class LoadBoard:
    """The standing of every route that a strategy looks at, made when first asked for."""

    def __init__(self) -> None:
        self._routes: dict[str, Standing] = {}

    def of(self, route_id: str) -> Standing:
        standing = self._routes.get(route_id)
        if standing is None:
            standing = self._routes[route_id] = Standing()
        return standing

    def keep(self, route_ids: Collection[str]) -> None:
        """Forget every route that is not in *route_ids*; what still runs there ends unseen."""
        self._routes = {route_id: standing for route_id, standing in self._routes.items() if route_id in route_ids}
