"""
Calendar periods in UTC, as numbers: days since 1970, ISO weeks by their Mondays, months since year 0; `total` is 0.

The script of the shared counters has the same arithmetic (`storage/admission.lua`); a test holds the two together.
"""

from __future__ import annotations

import re
from datetime import date

from gateway.core.accounts import Period

DAY_MS = 86_400_000
_EPOCH_DAY = date(1970, 1, 1).toordinal()
# 1970-01-01 was a Thursday: three days after its Monday.
_MONDAY = 3
_MONTH = re.compile(r"(?:19[7-9][0-9]|[2-8][0-9]{3})-(?:0[1-9]|1[0-2])")


def number_of(period: Period, at_ms: int) -> int:
    """The *period* in which *at_ms*, epoch milliseconds from 1970 on, falls."""
    if period == "total":
        return 0
    day = at_ms // DAY_MS
    if period == "day":
        return day
    if period == "week":
        return (day + _MONDAY) // 7
    found = date.fromordinal(_EPOCH_DAY + day)
    return found.year * 12 + found.month - 1


def month_of(text: str) -> int:
    """
    The number of a month as in `2026-03`.

    Raises:
        ValueError: It is none from 1970 on.
    """
    if _MONTH.fullmatch(text) is None:
        raise ValueError("this is no month such as 2026-03")
    return int(text[:4]) * 12 + int(text[5:]) - 1


def month_name(number: int) -> str:
    """What `month_of` reads."""
    return f"{number // 12:04}-{number % 12 + 1:02}"


def start_ms(period: Period, number: int) -> int:
    """The first millisecond of the *number*th *period*."""
    if period == "total":
        return 0
    if period == "day":
        return number * DAY_MS
    if period == "week":
        return (number * 7 - _MONDAY) * DAY_MS
    return (date(number // 12, number % 12 + 1, 1).toordinal() - _EPOCH_DAY) * DAY_MS


def end_ms(period: Period, number: int) -> int | None:
    """The first millisecond after it; None for the one that never ends."""
    return None if period == "total" else start_ms(period, number + 1)
