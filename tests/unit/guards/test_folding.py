"""Texts are folded by character, and every place has a way back."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.guards.folding import LONGEST, fold
from gateway.guards.globs import is_like_one_of
from gateway.guards.lookalikes import LOOKALIKES

SAME = [
    ("full-width", "\uff2b\uff29\uff2c\uff2c"),
    ("mathematical", "\U0001d424\U0001d422\U0001d425\U0001d425"),
    ("zero-width", "k\u200bi\u200dl\ufeffl"),
    ("soft hyphen", "ki\u00adll"),
    ("tags", "ki\U000e006bll"),
    ("accents", "k\u00efl\u0300l"),
    ("variation", "k\ufe0fill"),
    ("Cyrillic", "\u043a\u0456ll"),
    ("Greek capitals", "\u039a\u0399ll"),
    ("case", "KiLL"),
    ("circled", "\u24da\u24d8\u24db\u24db"),
]


@pytest.mark.parametrize(("dressed", "text"), SAME, ids=[name for name, _ in SAME])
def test_dress_is_taken_off(dressed: str, text: str) -> None:
    """The same word is the same folded, whatever its characters are dressed in."""
    assert fold(text).text == "kill"


def test_quotes_dashes_and_spaces_are_plain() -> None:
    """What a keyboard has one key for is one character."""
    assert fold("don\u2019t\u00a0\u201cgo\u201d\u2014now\u2028").text == 'don\'t "go"-now\n'


def test_a_span_is_the_originals() -> None:
    """A place in the folded text is told as the place of what it came from."""
    text = "\u00bd a \ufb01le: k\u200bi\u0301ll\u00df!"
    folded = fold(text)
    start = folded.text.index("kill")

    assert [folded.text, text[slice(*folded.span(start, start + 4))]] == [
        "1\u20442 a file: killss!",
        "k\u200bi\u0301ll",
    ]


def test_an_original_that_became_several_is_told_whole() -> None:
    """Half a character has no place: a part of what it became is the place of all of it."""
    folded = fold("a\ufb03b")

    assert [folded.text, folded.span(2, 3), folded.span(4, 5)] == ["affib", (1, 2), (2, 3)]


@given(st.text(st.characters(), max_size=40))
def test_every_character_has_its_origin(text: str) -> None:
    """Each folded character is one of those that the original at its place became, and places only grow."""
    folded = fold(text)
    spans = [folded.span(at, at + 1) for at in range(len(folded.text))]

    assert "".join(fold(char).text for char in text) == folded.text
    assert all(
        end == start + 1 and char in fold(text[start]).text
        for (start, end), char in zip(spans, folded.text, strict=True)
    )
    assert spans == sorted(spans)


def test_folding_twice_is_folding_once() -> None:
    """No character becomes one that would be folded again: checked for every code point there is."""
    once = fold("".join(map(chr, range(sys.maxunicode + 1)))).text

    assert fold(once).text == once


def test_no_character_becomes_many() -> None:
    """What is folded is bounded by what was sent: checked for every code point there is."""
    assert max(len(fold(chr(code)).text) for code in range(sys.maxunicode + 1)) == LONGEST


def test_halves_of_pairs_can_be_encoded() -> None:
    """What is folded can go to an engine that reads UTF-8."""
    assert fold("a\ud83db").text.encode() == b"a\xef\xbf\xbdb"


def test_letters_that_need_their_marks_keep_their_syllables() -> None:
    """Hangul stays in syllables: one character is one."""
    assert fold(unicodedata.normalize("NFC", "\ud55c\uae00")).text == "\ud55c\uae00"


@pytest.mark.parametrize("letter", sorted(LOOKALIKES))
def test_letters_that_look_alike(letter: str) -> None:
    """Each is the letter that it looks like, also for those who deny names of tools."""
    assert fold(letter).text == LOOKALIKES[letter]
    assert is_like_one_of(f"{letter}_all", (f"{LOOKALIKES[letter]}_*",))


def test_a_name_in_small_capitals() -> None:
    """A name that a reader takes for a denied one is denied."""
    assert is_like_one_of("ᴅᴇʟᴇᴛᴇ_all", ("*delete*",))
    assert is_like_one_of("🅳rop", ("drop",))
