"""What a text is without disguise, and where what stands in it came from."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.guards.disguise import undisguise
from tests.support.scale import examples


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("４１１１", "4111"),
        ("٣١٧١ ३१७१", "3171 3171"),
        ("𝟒𝟏𝟏𝟏", "4111"),
        ("4\u200b1\u00ad1\u2060\ufeff1", "4111"),
        ("1️⃣2️⃣", "12"),
        ("0812\u20113456\u00a07890", "0812-3456 7890"),
        ("ａ＠ｂ．ＣＯ", "a@b.CO"),
        ("sk\u200b-Aé", "sk-Aé"),
    ],
)
def test_undone(text: str, bare: str) -> None:
    """Digits of any script are digits, wide letters plain ones of their case, and nothing unseen is left."""
    assert undisguise(text).text == bare


@pytest.mark.parametrize("text", ["", "plain 4111", "“quoted” — naïve café", "👩‍👩‍👧 family", "می‌خواهم", "1990 – 2000"])
def test_left_alone(text: str) -> None:
    """A text in which nothing could tear a number apart is itself: it costs no more than a look."""
    assert undisguise(text).text is text


ODD = st.lists(
    st.one_of(
        st.text(max_size=3), st.sampled_from(["\u200b", "\u00ad", "４", "1", "a", "-", "\u2011", "٣", "\U000e0041"])
    )
).map("".join)


@pytest.mark.fuzz
@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(ODD)
def test_places(text: str) -> None:
    """Each character left has its own place in the text, in order, and it is the one that stands there, undone."""
    bare = undisguise(text)

    spans = [bare.span(at, at + 1) for at in range(len(bare.text))]

    assert [end - start for start, end in spans] == [1] * len(spans)
    assert [start for start, _ in spans] == sorted({start for start, _ in spans})
    assert [undisguise(f"1{text[start]}").text[-1] for start, _ in spans if bare.text is not text] == [
        char for char in bare.text if bare.text is not text
    ]
