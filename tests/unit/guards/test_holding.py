"""One text on its way out: whatever the pieces, the same text, no masked character, and no other one lost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.guarding import AnswerTerms, GuardMode, GuardTerms, Verdict
from gateway.guards.screen import Passage, Screen
from gateway.guards.sieve import make_eyes
from tests.support.guards import PATTERN, Faulty, Spotter
from tests.support.scale import examples

MAIL = "mail jane.doe@example.com now"
KEY = "-----BEGIN KEY-----" + "QUJD" * 2000 + "-----END KEY-----"
PARTS = [
    "so ", "it is, ", "\n", "Hello World. ", "jane.doe@example.com", "jane.", "doe@exam", "ple.com", " ", "kim@x.id",
    "4111 1111 1111 1111", "4111", "1111", "0", "-", "I will kill you all", "kill ", "you ", "all", "lorem ipsum " * 30,
    "-----BEGIN KEY-----", "-----END KEY-----", "QUJD" * 30, "\U0001f600", "\u00e9", "\u6f22\u5b57", '"', "\\", "[",
    "]", "[EMAIL_1]", "[NIK_1]", "[NIK", "_1", "[NIK_12]",
]  # fmt: skip
texts = st.lists(st.sampled_from(PARTS), max_size=30).map("".join)
NIK = {"[NIK_1]": "secret 17", "[NIK_12]": 'a "b"\n'}


def screen(mode: GuardMode = "redact", originals: Mapping[str, str] | None = None, **terms: int) -> Screen:
    eyes = make_eyes([Spotter()], mode, {})
    return Screen(eyes, AnswerTerms(mode, **terms), originals or {})  # type: ignore[arg-type]  # ints of hold_chars


def passed(passage: Passage, pieces: Iterable[str]) -> str:
    return "".join(map(passage.feed, pieces)) + passage.flush()


def cut(text: str, at: Iterable[int]) -> list[str]:
    bounds = [0, *sorted(one % (len(text) + 1) for one in at), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


def masked(text: str) -> str:
    """*text* with masks, by its whole: what no stream may differ from."""
    numbers: dict[str, dict[str, int]] = {}

    def mask(found: object) -> str:
        kind, value = found.lastgroup, found[0]  # type: ignore[attr-defined]  # of re.Match
        known = numbers.setdefault(kind, {})
        return f"[{kind.upper()}_{known.setdefault(value, len(known) + 1)}]"

    return PATTERN.sub(mask, text)


@pytest.mark.fuzz
@settings(max_examples=examples(300), deadline=None)
@given(text=texts, cuts=st.lists(st.integers(0, 5000), max_size=60))
def test_any_cuts(text: str, cuts: list[int]) -> None:
    """What leaves of a text is the same for all cuts of it, and what it would be if the whole had been masked."""
    one = screen()

    out = passed(one.open("a"), cut(text, cuts))

    assert masked(text) == out


def test_every_cut() -> None:
    """A value that is cut at any two characters is masked, and nothing of it leaves before."""
    text = f"{MAIL} {'and so on ' * 9}4111 1111 1111 1111 is it, {MAIL} kim@x.id."
    for first in range(len(text)):
        for second in range(first, len(text), 7):
            assert masked(text) == passed(screen().open("a"), [text[:first], text[first:second], text[second:]])


@pytest.mark.fuzz
@settings(max_examples=examples(200), deadline=None)
@given(text=texts, cuts=st.lists(st.integers(0, 5000), max_size=60))
def test_stop(text: str, cuts: list[int]) -> None:
    """Where a finding blocks, what leaves is all that stands in front of the first, and nothing behind it."""
    one, found = screen("block"), PATTERN.search(text)
    passage = one.open("a")

    out = passed(passage, cut(text, cuts))

    assert (text[: found.start()] if found else text) == out
    assert one.stopped is (found is not None)
    assert passage.feed("more") == "" or not one.stopped


@pytest.mark.fuzz
@settings(max_examples=examples(200), deadline=None)
@given(text=texts, cuts=st.lists(st.integers(0, 5000), max_size=60))
def test_monitor(text: str, cuts: list[int]) -> None:
    """What is only watched leaves at once, as it came; the tally is that of the whole text."""
    one = screen("monitor")
    passage, pieces = one.open("a"), cut(text, cuts)

    assert pieces == list(map(passage.feed, pieces))
    assert passage.flush() == ""
    counted: dict[str, int] = {}
    for found in PATTERN.finditer(text):
        counted[str(found.lastgroup)] = counted.get(str(found.lastgroup), 0) + 1
    verdict = one.verdict()
    assert ("flag" if counted else "pass", counted) == (verdict.status, verdict.findings)


def test_placeholders() -> None:
    """Placeholders are found by nobody: they pass as they are."""
    text = "of [EMAIL_1], [CARD_2] and [KEY_17]"

    assert screen().pass_whole(text, "a") == text


@given(text=texts, cuts=st.lists(st.integers(0, 5000), max_size=60))
@settings(max_examples=examples(100), deadline=None)
def test_whole(text: str, cuts: list[int]) -> None:
    """A stream says what the JSON answer says."""
    assert screen(originals=NIK).pass_whole(text, "a") == passed(screen(originals=NIK).open("a"), cut(text, cuts))


def test_hold() -> None:
    """No more is held back than the policy lets, whatever comes, and it leaves in time."""
    for hold in (8, 20, 64):
        passage, out = screen(hold_chars=hold).open("a"), 0
        for at, piece in enumerate("Nothing to be seen in here, so it goes on and on. " * 20):
            out += len(passage.feed(piece))
            assert at + 1 - out < hold


def test_long_value() -> None:
    """A value longer than all windows is masked once, from its beginning on, and what follows it is not lost."""
    for size in (1, 7, 100, 20_000):
        text = f"so {KEY} and {KEY} it is"
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert passed(screen().open("a"), pieces) == "so [KEY_1] and [KEY_1] it is"


def test_quiet() -> None:
    """A silence lets words go, but not what could be the beginning of a value: that stays until more is known."""
    passage = screen().open("a")
    pieces = ("mail jane.", "doe@exam", "ple.com now, or call ", "4111 1111 ", "1111 1111 or ", "B 12")

    steps = [passage.feed(piece) + passage.ease() for piece in pieces]

    assert steps == ["mail ", "", "[EMAIL_1] now, or call ", "", "[CARD_1] or ", ""]
    assert passage.flush() == "B 12"


def test_quiet_within_words() -> None:
    """A silence within a phrase lets its beginning go: what is left of it is masked, or the answer stops there."""
    for mode, rest in (("redact", "[VIOLENCE_1] now"), ("block", "")):
        one = screen(mode)  # type: ignore[arg-type]  # a GuardMode
        passage = one.open("a")
        begun = passage.feed("I kill you ") + passage.ease()
        assert begun == "I kill you "
        assert passage.feed("all now") + passage.flush() == rest
        assert one.verdict().findings == {"violence": 1}


def test_interlude() -> None:
    """A value that something else comes between leaves in part; the rest of it is masked all the same."""
    passage = screen().open("a")

    assert passage.feed("mail jane.doe@exam") + passage.flush() == "mail jane.doe@exam"
    assert passage.feed("ple.com now") + passage.flush() == "[EMAIL_1] now"


ARGUMENTS = [
    '{"to":"jane@x.id","n":4111111111111111,"m":[4111111111111111,1.5,null]}',
    '{"t":"\\n\\tjane@x.id\\"kim@x.id\\u00e9jane@x.id\\\\"}',
    '{"jane@x.id":"4111 1111 1111 1111","a":"I kill you all","b":"kill you","all":1}',
    '{"a":"\\\\\\"", "b" : "-----BEGIN KEY-----' + "QUJD" * 1500 + '-----END KEY-----"}',
    '{"q":"[NIK_1] and [NIK_12]"}',
]


@pytest.mark.parametrize("text", ARGUMENTS)
def test_arguments(text: str) -> None:
    """Arguments of a tool are JSON under masks too, wherever they are cut; originals come back as JSON spells them."""
    whole = screen(originals=NIK).pass_whole(text, "a", json=True)
    said = json.dumps(json.loads(whole))

    assert PATTERN.search(said) is None
    for size in (1, 2, 3, 5, 11):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert whole == passed(screen(originals=NIK).open("a", json=True), pieces)


@pytest.mark.fuzz
@settings(max_examples=examples(200), deadline=None)
@given(values=st.lists(st.lists(st.sampled_from(PARTS), max_size=4).map("".join), max_size=5), size=st.integers(1, 9))
def test_any_arguments(values: list[str], size: int) -> None:
    """Arguments stay JSON, whatever is in them and however they are cut, and always the same."""
    text = json.dumps({f"k{at}": [value, at] for at, value in enumerate(values)})
    out = passed(screen().open("a", json=True), [text[at : at + size] for at in range(0, len(text), size)])

    assert isinstance(json.loads(out), dict)
    assert screen().pass_whole(text, "a", json=True) == out


def test_originals() -> None:
    """A placeholder of the call becomes what it stood for, wherever it is cut; others, and new masks, stay."""
    text = "of [NIK_1], [NIK_12], [NIK_123], [NIK_ 1], [[NIK_1]] mail kim@x.id [NIK_1"
    expected = f"of {NIK['[NIK_1]']}, {NIK['[NIK_12]']}, [NIK_123], [NIK_ 1], [{NIK['[NIK_1]']}] mail [EMAIL_3] [NIK_1"
    for first in range(len(text)):
        one = Screen(make_eyes([Spotter()], "redact", {}), AnswerTerms("redact"), NIK, taken={"email": 2})
        assert expected == passed(one.open("a"), [text[:first], text[first:]])


def test_originals_alone() -> None:
    """Without guards nothing is held back but what could be the beginning of a placeholder."""
    passage = Screen((), AnswerTerms(), NIK).open("a")

    assert passage.feed("of [1] and ") == "of [1] and "
    assert (passage.feed("x [NI"), passage.feed("K_1]!")) == ("x ", "secret 17!")


def test_what_counts() -> None:
    """Thresholds and kinds of the policy hold for answers; a guard of whole texts blocks where others mask."""
    for terms, mode in (({"pii": GuardTerms("block", kinds=frozenset({"card"}))}, "redact"), ({}, "monitor")):
        one = Screen(make_eyes([Spotter()], mode, terms), AnswerTerms(mode), {})  # type: ignore[arg-type]
        assert one.pass_whole(MAIL, "a") in (MAIL, "")
        assert not one.stopped
    strict = Screen(make_eyes([Spotter("content")], "redact", {}), AnswerTerms("redact"), {})
    assert (strict.pass_whole(MAIL, "a"), strict.stopped) == ("mail ", True)
    numb = Screen(make_eyes([Spotter()], "redact", {"pii": GuardTerms(threshold=1.1)}), AnswerTerms("redact"), {})
    assert numb.pass_whole(MAIL, "a") == MAIL


def test_engine_fails() -> None:
    """An answer that has to pass a guard which fails is stopped; one that is only watched goes on, and says so."""
    for mode, out in (("block", ""), ("redact", ""), ("monitor", MAIL)):
        eyes = make_eyes([Faulty("pii"), Spotter("credentials")], mode, {})  # type: ignore[arg-type]
        one = Screen(eyes, AnswerTerms(mode), {})  # type: ignore[arg-type]  # a GuardMode
        assert passed(one.open("a"), [MAIL]) == out
        assert (one.broken, one.stopped, one.verdict().status) == (True, mode != "monitor", "error")


def test_blind_engine() -> None:
    """An engine without sight of streams looks at whole answers alone."""
    eyes = make_eyes([Spotter(window_chars=None)], "redact", {})

    assert passed(Screen(eyes, AnswerTerms("redact"), {}).open("a"), [MAIL]) == MAIL
    assert Screen(eyes, AnswerTerms("redact"), {}, whole=True).pass_whole(MAIL, "a") == "mail [EMAIL_1] now"


def test_verdict() -> None:
    """The verdict has the status, the score, how many of each kind, and where the first stood; no text."""
    one = screen()
    one.pass_whole("so", "choices[0].message.content")
    assert Verdict("pass", None, {}, "") == one.verdict()
    one.pass_whole(MAIL, "choices[1].message.content")

    assert Verdict("redact", 1.0, {"email": 1}, "choices[1].message.content") == one.verdict()
    assert Screen((), AnswerTerms(), NIK).verdict().status == "off"


def test_work_is_linear() -> None:
    """Engines see a megabyte some dozen times over at the most, in whatever pieces, and memory stays bounded."""
    for piece, times in (("a b " * 1024, 250), ("x" * 7, 20_000), ("-----BEGIN KEY-----", 5000), ("[", 50_000)):
        engine = Spotter()
        passage = Screen(make_eyes([engine], "redact", {}), AnswerTerms("redact"), NIK).open("a")
        for _ in range(times):
            passage.feed(piece)
        assert engine.seen_chars < 600 * len(piece) * times
