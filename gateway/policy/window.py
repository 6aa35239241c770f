"""Requests per minute, as a fixed window that opens with a key's first request."""

from __future__ import annotations

from msgspec import Struct

WINDOW_S = 60.0  # "per minute" is what the limit is sold as


class Window(Struct, frozen=True, gc=False):
    """A minute of one key: monotonic seconds of its first request, and the requests admitted since."""

    opened_s: float
    used: int

    @property
    def ends_s(self) -> float:
        return self.opened_s + WINDOW_S


class Verdict(Struct, frozen=True, gc=False):
    """Whether the request is admitted, what the window has left after it, and when a refused one may come again."""

    allowed: bool
    remaining: int
    retry_after_s: float = 0.0


def take(window: Window | None, now_s: float, limit: int) -> tuple[Window, Verdict]:
    """
    Spend one request of *window* as of *now_s*.

    Args:
        window: The key's window, None before its first request. One that has ended is replaced.
        now_s: Monotonic seconds; passed in so that tests own the clock.
        limit: Requests per window, at least 0. It may have changed since the window was opened.

    Returns:
        The next window and the verdict. A refusal leaves the window as it was, so that being refused costs nothing.
    """
    if window is None or now_s >= window.ends_s:
        window = Window(now_s, 0)
    if window.used >= limit:
        return window, Verdict(allowed=False, remaining=0, retry_after_s=window.ends_s - now_s)
    used = window.used + 1
    return Window(window.opened_s, used), Verdict(allowed=True, remaining=limit - used)
