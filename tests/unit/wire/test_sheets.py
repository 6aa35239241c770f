"""CSV that spreadsheets read as it was meant."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.sheets import sheet


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def test_a_table() -> None:
    """Commas, quotes and line ends are quoted, nothing is an empty cell, numbers stay, lines end as the RFC has it."""
    text = sheet(["name", "n"], [['a,"b"', 1], ["c\nd", -2], [None, 0]])

    assert text == 'name,n\r\n"a,""b""",1\r\n"c\nd",-2\r\n,0\r\n'


@pytest.mark.parametrize("begins", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_formulas(begins: str) -> None:
    """E6: a text that a spreadsheet would run is shown, by an apostrophe in front."""
    cell = f"{begins}HYPERLINK(0)"

    ((shown,),) = read(sheet([], [[cell]]))[1:]

    assert shown == f"'{cell}"


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_any_text(text: str) -> None:
    """Every text comes back whole, and none begins like a formula."""
    ((shown, _),) = read(sheet([], [[text, 1]]))[1:]

    assert shown.removeprefix("'") == text.removeprefix("'")
    assert not shown.startswith(("=", "+", "-", "@")) or shown[1:].replace(".", "").isdecimal()


def test_numbers() -> None:
    """What is lower than nothing is no formula, as long as it is but a number."""
    text = sheet([], [["-0.5", -1, "-0.5+1", "-1e9", "+1"]])

    assert text == "\r\n-0.5,-1,'-0.5+1,'-1e9,'+1\r\n"
