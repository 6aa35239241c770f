"""Points in time as people write them."""

from __future__ import annotations

import pytest

from gateway.wire.moments import MAX_MS, moment_text, read_moment

NOW_MS = 1_772_366_400_000  # 2026-03-01 12:00 UTC


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-03-01", NOW_MS - 12 * 3_600_000),
        ("2026-03-01T12:00:00Z", NOW_MS),
        ("2026-03-01T12:00:00.250", NOW_MS + 250),
        ("2026-03-01 19:00+07:00", NOW_MS),
        ("1970-01-01", 0),
        ("90m", NOW_MS - 5_400_000),
        ("24h", NOW_MS - 86_400_000),
        ("7d", NOW_MS - 7 * 86_400_000),
        ("4w", NOW_MS - 28 * 86_400_000),
        ("99999w", 0),
        ("0m", NOW_MS),
    ],
)
def test_forms(text: str, ms: int) -> None:
    """Dates and times are of UTC unless they say otherwise; a span is so long ago."""
    assert read_moment(text, NOW_MS) == ms


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "7", "7y", "-7d", "1e9d", "2026-13-01", "2026-02-30", "1969-12-31", "0001-01-01T00:00+14:00",
        "9999-12-31T23:59:59-14:00", "2026-03-01\0", "\u0662026-03-01", "\ud800", "'", "9" * 10_000, "999999d", "now",
        "2026-03-01T12:00:00Z; DROP TABLE ledger",
    ],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    """Anything else is refused, in words that say what is wanted."""
    with pytest.raises(ValueError, match="this is not"):
        read_moment(text, NOW_MS)


def test_there_and_back() -> None:
    """What is told can be read again; beyond the calendar a number is told."""
    assert moment_text(NOW_MS + 5) == "2026-03-01T12:00:00.005Z"
    assert read_moment(moment_text(NOW_MS + 5), 0) == NOW_MS + 5
    assert moment_text(MAX_MS - 1) == "9999-12-31T23:59:59.999Z"
    assert (moment_text(MAX_MS), moment_text(-1)) == (str(MAX_MS), "-1")
