"""Keeps a flood of equal events from being a flood of lines."""

from __future__ import annotations

from collections.abc import Callable


class LineLimiter:
    """
    At most *per_s* lines per reason and second; the rest is counted.

    Args:
        clock_s: Monotonic seconds.
        per_s: 5 for each of our about twenty reasons is at most 100 lines a second under any flood, and one
            more for each that tells of the rest.
    """

    MAX_REASONS = 64  # reasons are words of ours; should they ever come from outside, the rest shares one count

    def __init__(self, clock_s: Callable[[], float], per_s: int = 5) -> None:
        self._clock_s = clock_s
        self._per_s = per_s
        self._reasons: dict[str, list[int]] = {}  # the second, lines written in it, lines suppressed since

    def admit(self, reason: str) -> int | None:
        """How many lines of *reason* were suppressed since one was written; None: suppress this one too."""
        if reason not in self._reasons and len(self._reasons) >= self.MAX_REASONS:
            reason = "other"
        second = int(self._clock_s())
        counts = self._reasons.setdefault(reason, [second, 0, 0])
        if counts[0] != second:
            counts[0], counts[1] = second, 0
        if counts[1] >= self._per_s:
            counts[2] += 1
            return None
        counts[1] += 1
        suppressed, counts[2] = counts[2], 0
        return suppressed

    def pending(self) -> dict[str, int]:
        """What was suppressed and not told of yet, by reason; told of with this."""
        counts = {reason: counts[2] for reason, counts in self._reasons.items() if counts[2]}
        for reason in counts:
            self._reasons[reason][2] = 0
        return counts
