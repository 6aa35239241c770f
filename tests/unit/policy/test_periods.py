"""Calendar periods in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.accounts import Period
from gateway.policy.periods import end_ms, number_of, start_ms

MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2399, 12, 31))


def ms(when: datetime) -> int:
    return int(when.replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("period", "last", "first"),
    [
        ("day", datetime(2026, 3, 28, 23, 59, 59, 999_000), datetime(2026, 3, 29)),
        ("week", datetime(2026, 1, 4, 23, 59, 59, 999_000), datetime(2026, 1, 5)),  # a Sunday, and ISO week 2
        ("month", datetime(2028, 2, 29, 23, 59, 59, 999_000), datetime(2028, 3, 1)),
        ("month", datetime(2026, 12, 31, 23, 59, 59, 999_000), datetime(2027, 1, 1)),
    ],
)
def test_lim_12_periods_change_at_midnight_utc(period: Period, last: datetime, first: datetime) -> None:
    """LIM-12: the last millisecond belongs to the old period, the next to a new one, wherever the process runs."""
    before, after = number_of(period, ms(last)), number_of(period, ms(first))

    assert after == before + 1
    assert (start_ms(period, after), end_ms(period, before)) == (ms(first), ms(first))


@given(MOMENTS)
def test_weeks_are_iso_weeks(when: datetime) -> None:
    """Two moments are in one week exactly where ISO 8601 has them in one."""
    other = when + timedelta(days=1)

    same = when.isocalendar()[:2] == other.isocalendar()[:2]

    assert (number_of("week", ms(when)) == number_of("week", ms(other))) == same


@given(MOMENTS, st.sampled_from(["day", "week", "month"]))
def test_bounds_hold_the_moment(when: datetime, period: Period) -> None:
    """A moment lies between the start and the end of its period."""
    number = number_of(period, ms(when))

    end = end_ms(period, number)
    assert end is not None
    assert start_ms(period, number) <= ms(when) < end


def test_total_never_ends() -> None:
    """It has one number for ever."""
    assert (number_of("total", 10**14), start_ms("total", 0), end_ms("total", 0)) == (0, 0, None)
