"""Fixed minutes, and the credits of a burst."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.rates import MINUTE_MS, Rate, RateRule, Tokens, current, current_tokens, forgotten_ms, take

PLAIN = RateRule(3)
BURST = RateRule(10, capacity=6, refill=2)


def filled(rate: Rate | None, now_ms: int, rule: RateRule) -> tuple[Rate, int]:
    """The minute of *now_ms* with all that it admits, and how much that was."""
    rate, count = current(rate, now_ms, rule), 0
    while (more := take(rate, rule)) is not None:
        rate, count = more, count + 1
    return rate, count


def test_first_request_opens_the_minute() -> None:
    """A key's minute begins with its first request, and a new key has all its credits."""
    assert take(current(None, 100, BURST), BURST) == Rate(100, 1, 6)


def test_minute_that_is_over_is_replaced() -> None:
    """The next minute begins with the next request, not on a grid."""
    assert current(Rate(100, 3, 0), 100 + MINUTE_MS, PLAIN) == Rate(100 + MINUTE_MS, 0, 0)


def test_full_minute_refuses() -> None:
    """Without a burst, the rate is all there is."""
    assert filled(None, 0, PLAIN) == (Rate(0, 3, 0), 3)


def test_burst_adds_a_request_per_credit() -> None:
    """Six credits let six more in; the next minute has none, for all its requests are used."""
    rate, count = filled(None, 0, BURST)

    assert (rate, count) == (Rate(0, 16, 0), 16)
    assert filled(rate, MINUTE_MS, BURST)[1] == 10


def test_burst_at_most_doubles_the_rate() -> None:
    """However many credits there are."""
    assert filled(None, 0, RateRule(10, capacity=600, refill=10)) == (Rate(0, 20, 590), 20)


def test_unused_requests_earn_credits() -> None:
    """What was left of a minute earns up to the refill, and a minute without any request all of it."""
    spent = Rate(0, 10, 0)

    earned = [current(rate, at, BURST).credits for rate, at in (
        (spent, MINUTE_MS), (Rate(0, 9, 0), MINUTE_MS), (Rate(0, 3, 0), MINUTE_MS),
        (spent, 2 * MINUTE_MS), (spent, 3 * MINUTE_MS), (spent, 90 * MINUTE_MS), (Rate(0, 16, 0), MINUTE_MS),
    )]  # fmt: skip

    assert earned == [0, 1, 2, 2, 4, 6, 0]


def test_clock_that_was_put_back_is_followed() -> None:
    """The minute goes on from where the clock is now: it neither lasts for an hour nor begins again."""
    assert current(Rate(3_600_000, 2, 0), 1000, PLAIN) == Rate(1000, 2, 0)
    assert current_tokens(Tokens(3_600_000, 7), 1000) == Tokens(1000, 7)


def test_lowered_limits_hold_at_once() -> None:
    """A rate lowered below what is used refuses the rest of the minute; credits above a lowered capacity are gone."""
    assert take(current(Rate(0, 8, 9), 1, RateRule(3, 2, 1)), RateRule(3, 2, 1)) is None
    assert current(Rate(0, 0, 9), 1, RateRule(3, 2, 1)).credits == 2


@given(
    st.lists(st.integers(0, 150_000), max_size=60),
    st.builds(RateRule, st.integers(1, 5), st.integers(0, 8), st.integers(1, 4)),
)
def test_bounds_hold_whatever_the_rhythm(pauses: list[int], rule: RateRule) -> None:
    """No minute admits more than twice the rate; credits stay within their bounds; what may be forgotten is as new."""
    now_ms, rate, admitted = 0, None, dict[int, int]()
    for pause in pauses:
        now_ms += pause
        rate = current(rate, now_ms, rule)
        if (more := take(rate, rule)) is not None:
            rate = more
            admitted[rate.opened_ms] = admitted.get(rate.opened_ms, 0) + 1
        assert 0 <= rate.credits <= rule.capacity
        until_ms = forgotten_ms(rate, rule)
        assert current(rate, until_ms, rule) == current(None, until_ms, rule)

    extra = sum(max(0, count - rule.rpm) for count in admitted.values())
    assert all(count <= 2 * rule.rpm for count in admitted.values())
    assert extra <= rule.capacity + rule.earned * (now_ms // MINUTE_MS)
