"""Points in time as people write them, and as they are told: UTC throughout."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

MAX_MS = 253_402_300_800_000  # the year 10000, where ISO dates with four digits end
MAX_CHARS = 40  # an ISO time with microseconds and an offset has 32
_AGO = re.compile(r"([0-9]{1,5})([mhdw])")
_UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FORMS = "a date such as 2026-03-01, a time such as 2026-03-01T12:00:00Z, or how long ago, such as 90m, 24h, 7d or 4w"


def read_moment(text: str, now_ms: int) -> int:
    """
    Epoch milliseconds of *text*, in one of `FORMS`; a time without an offset is of UTC.

    Raises:
        ValueError: It is in none of them, or before 1970 or after 9999.
    """
    if (ago := _AGO.fullmatch(text)) is not None:
        return max(0, now_ms - int(ago[1]) * _UNITS_MS[ago[2]])
    if len(text) > MAX_CHARS or not text.isascii():
        raise ValueError(f"this is not {FORMS}")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"this is not {FORMS}") from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    ms = (aware - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= ms < MAX_MS:
        raise ValueError("this is not between 1970 and 9999")
    return ms


def read_end(text: str, now_ms: int) -> int:
    """
    As `read_moment`, of a point in time to come: a span, as `90d`, is one from now on.

    Raises:
        ValueError: As there, or it has passed.
    """
    span = _AGO.fullmatch(text)
    try:
        end_ms = read_moment(text, now_ms) if span is None else now_ms + int(span[1]) * _UNITS_MS[span[2]]
    except ValueError as exc:
        raise ValueError(str(exc).replace("how long ago", "how long from now")) from None
    if not now_ms < end_ms < MAX_MS:
        raise ValueError("this has passed, or is after 9999")
    return end_ms


def moment_text(ms: int) -> str:
    """*ms* as in `2026-03-01T12:00:00.000Z`; what no calendar has is told as the number it is."""
    if not 0 <= ms < MAX_MS:
        return str(ms)
    return f"{(_EPOCH + timedelta(milliseconds=ms)).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
