"""The gateway's own engines behind the hold-back: a stream says what a whole answer says, wherever it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.guarding import AnswerTerms, GuardMode
from gateway.guards.screen import Screen
from gateway.guards.sieve import make_eyes
from gateway.guards.table import make_engines
from tests.support.scale import examples
from tests.unit.guards.test_holding import cut, passed

ENGINES = [engine for name, engine in make_engines().items() if name in ("pii", "content", "credentials")]
PARTS = [
    "Hubungi Budi di ", "budi.santoso@contoh.co.id", " atau ", "0812-3456-7890", "+62 812 3456 7890", ". NIK ",
    "3171011505900001", ", NPWP 09.254.294.3-407.000", " kartu ", "4111 1111 1111 1111", " IBAN ",
    "DE89 3704 0044 0532 0130 00", " NRIC S1234567D", " rekening BCA 1234567890", " paspor A1234567", "plat B 1234 XYZ",
    " and then it says that the report is done ", "2026-11-30 22:10:01", "\n", " 123e4567-e89b-12d3-a456-426614174000 ",
    " how to kill a process on Linux ", " dan seterusnya, ", "8.8.8.8", "1", " ", "x" * 60, "\u6f22\u5b57", "[NIK_1]",
]  # fmt: skip


def screen(mode: GuardMode) -> Screen:
    return Screen(make_eyes(ENGINES, mode, {}), AnswerTerms(mode), {})


@pytest.mark.fuzz
@settings(max_examples=examples(150), deadline=None)
@given(
    text=st.lists(st.sampled_from(PARTS), max_size=25).map("".join),
    cuts=st.lists(st.integers(0, 2000), max_size=60),
    mode=st.sampled_from(["redact", "block", "monitor"]),
)
def test_any_cuts(text: str, cuts: list[int], mode: GuardMode) -> None:
    """What leaves, and what is told, are the same for all cuts of a text."""
    one, other = screen(mode), screen(mode)

    assert passed(one.open("a"), [text]) == passed(other.open("a"), cut(text, cuts))
    assert one.verdict() == other.verdict()


@pytest.mark.fuzz
@settings(max_examples=examples(150), deadline=None)
@given(text=st.lists(st.sampled_from(PARTS), max_size=25).map(". ".join), mode=st.sampled_from(["redact", "block"]))
def test_any_whole(text: str, mode: GuardMode) -> None:
    """Glances on a stream miss nothing that one look at the whole text finds, and nothing else is found."""
    one, other = screen(mode), screen(mode)

    assert passed(one.open("a"), text) == other.pass_whole(text, "a")
    assert one.verdict() == other.verdict()


def test_as_a_whole() -> None:
    """A text with every kind of value is masked on a stream as in a whole answer, and no value is left in it."""
    text = "".join(part + ". " for part in PARTS if part.strip())

    streamed = passed(screen("redact").open("a"), text)

    assert streamed == screen("redact").pass_whole(text, "a")
    for value in ("budi.santoso", "3456", "3171", "4111", "3704", "S1234567D", "B 1234 XYZ", "A1234567"):
        assert value not in streamed
