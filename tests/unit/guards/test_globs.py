"""Globs: what they stand for, and that no text makes them slow."""

from __future__ import annotations

import re
import time
from fnmatch import translate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.guards.globs import in_any_spelling, is_like_one_of, is_one_of

LONG = 200_000


@pytest.mark.parametrize(
    ("glob", "text", "expected"),
    [
        ("read", "read", True),
        ("read", "reader", False),
        ("read", "Read", False),
        ("read_*", "read_", True),
        ("read_*", "read_file", True),
        ("*_file", "read_file", True),
        ("*_file", "read_file_now", False),
        ("r?ad", "read", True),
        ("r?ad", "rad", False),
        ("ab*ba", "aba", False),
        ("ab*ba", "abba", True),
        ("*a*b*", "xbxa", False),
        ("*a*b*", "xaxb\n", True),
        ("*", "", True),
        ("", "", True),
        ("", "a", False),
        ("[ab].", "a.", False),
        ("[ab].", "[ab].", True),
    ],
)
def test_what_a_glob_stands_for(glob: str, text: str, expected: bool) -> None:
    """`*` is any run of characters, line ends too; `?` any one; all else is itself, and the whole text has to match."""
    assert is_one_of(text, ("other", glob)) is expected


@pytest.mark.fuzz
@given(st.text("ab*?", max_size=8), st.text("ab\n", max_size=12))
def test_as_a_matcher_that_tries_everything(glob: str, text: str) -> None:
    """Never trying again what was skipped loses no match."""
    tries_all = re.fullmatch(translate(glob), text) is not None

    assert is_one_of(text, (glob,)) is tries_all


@pytest.mark.parametrize(
    "text",
    [
        "delete_file",
        "DELETE_File",
        " delete_file\n",
        "dele\u200bte_file",
        "ｄｅｌｅｔｅ_file",
        "de\u0301lete_file",
        "d\u0435lete_file",
    ],
)
def test_a_like_spelling(text: str) -> None:
    """What is denied is denied in any case and width, with unseen characters, accents and letters that look like it."""
    assert is_like_one_of(text, ("delete_*",))
    assert is_like_one_of(text, ("Delete_FILE",))
    assert is_one_of(text, ("delete_*",)) is (text == "delete_file")


@pytest.mark.fuzz
@given(st.text(max_size=20), st.text(max_size=20))
def test_no_less_is_alike_than_the_same(glob: str, text: str) -> None:
    """Whatever matches to the letter matches in a like spelling too, and a text in its folded form stays as it is."""
    assert is_like_one_of(text, (glob,)) or not is_one_of(text, (glob,))
    assert is_like_one_of(text, (text,))
    assert in_any_spelling(in_any_spelling(text)) == in_any_spelling(text) or not text.isascii()


@pytest.mark.parametrize("glob", ["*" + "a" * 120 + "b*", "*a" * 120 + "b", "*" + "a?" * 60 + "c", "*" + "?" * 255])
@pytest.mark.parametrize(("piece", "end"), [("a", ""), ("a", "c"), ("\u0301\u0316", "")])
def test_hostile_texts(glob: str, piece: str, end: str) -> None:
    """A text of any kind is matched in time linear in its length."""
    text = piece * (LONG // len(piece)) + end
    began_s = time.perf_counter()

    is_like_one_of(text, (glob,))

    assert time.perf_counter() - began_s < 5.0  # 0.1 s alone; a matcher that goes back takes minutes
