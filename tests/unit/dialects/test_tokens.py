"""Our own counts: estimates that neither overcount pieces nor undercount silence."""

from __future__ import annotations

import random
import tracemalloc

from gateway.dialects.tokens import MAX_KEPT_CHARS, Tally, count_prompt, count_text

TEXT = "The capital of Indonesia is Jakarta, and it will be Nusantara. " * 20


def test_h26_pieces_are_counted_as_a_whole() -> None:
    """However the text is cut into few pieces, the count is that of the whole, not the sum of the pieces."""
    chance = random.Random(1)
    for _ in range(20):
        tally, at = Tally(), 0
        while at < len(TEXT):
            step = chance.randrange(40, 200)
            tally.add(TEXT[at : at + step])
            at += step
        assert tally.tokens() == count_text(TEXT)


def test_a_delta_is_a_token_at_least() -> None:
    """Providers send a token or more per delta, so the number of deltas is a floor."""
    tally = Tally()
    for char in "Jakarta":
        tally.add(char)

    assert tally.tokens() == 7


def test_many_deltas_are_folded() -> None:
    """The pieces of a long answer are joined as they come, and nothing of them is lost."""
    tally = Tally()
    for _ in range(1000):
        tally.add(" word")

    assert tally.tokens() == count_text(" word" * 1000) == 1000


def test_a_long_answer_is_not_kept() -> None:
    """Of an answer beyond the bound only a part is kept, and the estimate is that of the whole."""
    tally, text = Tally(), TEXT * 10
    tracemalloc.start()
    for _ in range(400):
        tally.add(text[:-1] + " ")

    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    whole = 400 * count_text(text)
    assert held_bytes < 2 * MAX_KEPT_CHARS
    assert abs(tally.tokens() - whole) < whole / 100


def test_nothing_is_nothing() -> None:
    """No text, no tokens; a message costs its frame."""
    assert (Tally().tokens(), count_text(""), count_prompt([])) == (0, 0, 0)
    assert count_prompt(["a", "a"]) == 2 * (1 + 4)
