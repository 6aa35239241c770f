"""The limit on equal log lines."""

from __future__ import annotations

from gateway.loglimit import LineLimiter


class Clock:
    now_s = 100.5

    def __call__(self) -> float:
        return self.now_s


def test_a_flood_is_counted_and_told_of() -> None:
    """Two lines per second pass; the first of the next second says how many did not."""
    clock = Clock()
    limiter = LineLimiter(clock, per_s=2)
    flood = [limiter.admit("bad_host") for _ in range(5)]
    other = limiter.admit("too_large")
    clock.now_s = 101.0
    after = [limiter.admit("bad_host") for _ in range(2)]

    assert (flood, other, after) == ([0, 0, None, None, None], 0, [3, 0])


def test_pending_is_told_once() -> None:
    """What no later line told of can be asked for, once."""
    limiter = LineLimiter(Clock(), per_s=1)
    for _ in range(4):
        limiter.admit("bad_host")
    limiter.admit("fine")

    assert [limiter.pending(), limiter.pending()] == [{"bad_host": 3}, {}]


def test_reasons_are_bounded() -> None:
    """Reasons without end share one count, so neither memory nor lines grow with them."""
    limiter = LineLimiter(Clock(), per_s=1)

    admitted = sum(limiter.admit(f"reason {number}") is not None for number in range(1000))

    assert admitted == LineLimiter.MAX_REASONS + 1
    assert limiter.pending() == {"other": 1000 - LineLimiter.MAX_REASONS - 1}
