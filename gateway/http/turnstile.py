"""Short turns of the event loop, however many requests are there at once.

What arrives together would be begun together, and until the last of it is through the loop hears of nothing else: not
of frames, not of clients that leave. So a few requests begin, the loop looks at its sockets, and the next few begin.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

STARTS = 2  # in a short turn. A look at the sockets costs some 10 us and a request 150 and more: it can be afforded
STARTS_PER_S = 500  # in a turn that other work makes long: what begins has its share of the core beside what goes on
MAX_STARTS = 8  # however long: those that begin hold up what goes on


class Turnstile:
    """
    Lets requests begin in the order of their arrival: so many in one turn of the loop.

    Args:
        clock_s: Monotonic seconds.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._loop = asyncio.get_running_loop()
        self._left = STARTS  # that may begin in this turn
        self._queue: deque[asyncio.Future[None]] = deque()
        self._turn_s: float | None = None  # when this turn began; None while nobody comes
        self._began_s: float | None = None  # when the first of those that begin in this turn did

    def let_in(self, place: asyncio.Future[None]) -> float:
        """Have *place* done when its turn comes; one that is done by then takes nobody's. Returns the time."""
        now_s = self._clock_s()
        if self._turn_s is None:
            self._turn_s = now_s
            self._loop.call_soon(self._next_turn)
        if self._left:
            self._left -= 1  # nobody queues while a place is left
            place.set_result(None)
        else:
            self._queue.append(place)
        return now_s

    async def enter(self) -> float:
        """Wait for one's turn, behind all who came before. Returns when the wait began."""
        place: asyncio.Future[None] = self._loop.create_future()
        came_s = self.let_in(place)
        await place
        self.begin()
        return came_s

    def begin(self) -> None:
        """To be called by those that were let in: what follows is their own work."""
        if self._began_s is None:
            self._began_s = self._clock_s()

    def _next_turn(self) -> None:
        """Runs right behind those that were let in: what has passed since the first of them is their own work."""
        now_s, turn_s, began_s = self._clock_s(), self._turn_s, self._began_s
        assert turn_s is not None
        others_s = (now_s if began_s is None else began_s) - turn_s
        self._began_s = None
        allowed = min(MAX_STARTS, max(STARTS, int(others_s * STARTS_PER_S)))
        left, queue = allowed, self._queue
        while left and queue:
            place = queue.popleft()
            if not place.done():  # else its client is gone
                place.set_result(None)
                left -= 1
        if left < allowed:
            self._turn_s, self._left = now_s, left
            self._loop.call_soon(self._next_turn)
        else:
            self._turn_s, self._left = None, STARTS
