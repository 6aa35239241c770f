"""When an answer has to be stopped because what may be spent on it is."""

from __future__ import annotations

from gateway.dialects.base import Lane

# Events between two counts of tokens, which take up to 0.5 ms each (as in `pipeline.draining`), and how much nearer
# together they come towards the end: an event has one token or a few.
_EVERY = 64
_NEARER = 8


class Gauge:
    """
    Counts what comes, now and then.

    Args:
        stop_tokens: Of the answer, at which it is over.
    """

    def __init__(self, stop_tokens: int) -> None:
        self._stop = stop_tokens
        self._next = 0  # the progress at which to count again

    def is_over(self, lane: Lane) -> bool:
        """Whether what *lane* has received reaches the bound."""
        if lane.progress < self._next or lane.complete:
            return False
        left = self._stop - lane.received_tokens()
        self._next = lane.progress + max(1, min(_EVERY, left // _NEARER))
        return left <= 0
