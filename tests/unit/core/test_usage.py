"""Usage is merged field by field, and lies of an upstream are not counted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.usage import MAX_TOKENS, NO_USAGE, Usage, count, merge

FIELDS = ("prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens")
reports = st.dictionaries(st.sampled_from(FIELDS), st.none() | st.integers(0, MAX_TOKENS))


@pytest.mark.parametrize("value", [-5, -1, MAX_TOKENS + 1, 9 * 10**12, "12", True, False, 1.0, None, [], {}, b"1"])
def test_use_15_absurd_counts(value: object) -> None:
    """USE-15, A17: negative, huge, textual and other counts that cannot be are treated as not sent."""
    assert count(value) is None


@pytest.mark.parametrize("value", [0, 1, 2006, MAX_TOKENS])
def test_plausible_counts(value: int) -> None:
    """A whole number up to the limit is taken as it is, zero included."""
    assert value == count(value)


def test_use_15_the_case() -> None:
    """USE-15: prompt -5, completion "12" and total 9e12 leave the usage as it was, and nothing is negative."""
    sent: dict[str, Any] = {"prompt_tokens": -5, "completion_tokens": "12", "total_tokens": 9e12}
    known = Usage(prompt_tokens=7, completion_tokens=2)

    usage = merge(known, prompt_tokens=count(sent["prompt_tokens"]), completion_tokens=count(sent["completion_tokens"]))

    assert known == usage
    assert count(sent["total_tokens"]) is None


@given(st.lists(reports, max_size=8))
def test_last_explicit_value_wins(said: list[dict[str, int | None]]) -> None:
    """USE-04, USE-05: each field holds what was said of it last; reports are cumulative and are never added."""
    usage = NO_USAGE
    for report in said:
        usage = merge(usage, **report)

    for name in FIELDS:
        explicit = [report[name] for report in said if report.get(name) is not None]
        assert getattr(usage, name) == (explicit[-1] if explicit else 0)


def test_zero_is_said() -> None:
    """An explicit 0 replaces an earlier count; only a missing field leaves it."""
    usage = merge(Usage(prompt_tokens=9, cached_tokens=4), cached_tokens=0, prompt_tokens=None)

    assert usage == Usage(prompt_tokens=9, cached_tokens=0)


def test_total() -> None:
    """Cached, written and reasoning tokens are parts of prompt and completion: the total does not count them again."""
    usage = Usage(prompt_tokens=20, completion_tokens=9, cached_tokens=15, cache_write_tokens=5, reasoning_tokens=8)

    assert usage.total_tokens == 29
