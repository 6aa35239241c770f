"""The fixed window of a minute."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.window import WINDOW_S, Verdict, Window, take


def test_first_request_opens_the_window() -> None:
    """A key's minute begins with its first request."""
    window, verdict = take(None, 100.0, 3)

    assert (Window(100.0, 1), Verdict(allowed=True, remaining=2)) == (window, verdict)


def test_refusal_tells_when_the_window_ends() -> None:
    """A full window refuses until its end, and is left as it was."""
    full = Window(100.0, 3)

    window, verdict = take(full, 142.5, 3)

    assert (full, Verdict(allowed=False, remaining=0, retry_after_s=17.5)) == (window, verdict)


def test_ended_window_is_replaced() -> None:
    """The minute after the window's end begins with the next request, not on a grid."""
    window, verdict = take(Window(100.0, 3), 160.0, 3)

    assert (Window(160.0, 1), Verdict(allowed=True, remaining=2)) == (window, verdict)


def test_limit_of_zero_admits_nothing() -> None:
    """A limit of zero refuses the first request too."""
    _, verdict = take(None, 5.0, 0)

    assert Verdict(allowed=False, remaining=0, retry_after_s=WINDOW_S) == verdict


def test_lowered_limit_refuses_at_once() -> None:
    """A limit that was lowered below what is used refuses the rest of the window."""
    _, verdict = take(Window(0.0, 8), 1.0, 5)

    assert Verdict(allowed=False, remaining=0, retry_after_s=59.0) == verdict


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(0, 5))
def test_never_more_than_the_limit_between_opening_and_end(pauses: list[int], limit: int) -> None:
    """Whatever the rhythm, one window admits at most the limit, and whoever waits as told is admitted."""
    now_s, window, admitted = 0.0, None, dict[float, int]()
    for pause in pauses:
        now_s += pause
        window, verdict = take(window, now_s, limit)
        if verdict.allowed:
            admitted[window.opened_s] = admitted.get(window.opened_s, 0) + 1
        elif limit:
            assert take(window, now_s + verdict.retry_after_s, limit)[1].allowed

    assert all(count <= limit for count in admitted.values())
    assert all(later - earlier >= WINDOW_S for earlier, later in zip(admitted, list(admitted)[1:], strict=False))
