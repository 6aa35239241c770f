"""Numbers made of nothing but digits: what a row of digits may be, whole, by its groups, or one group of it.

Digits with a few spaces, dots, dashes, slashes or brackets between them are a *run*. It is taken whole where the way it
is grouped says that it is one number; else its groups are looked at one by one, and those windows of them that numbers
are written in (`4444` is a card's). So a text of a million small groups costs no more than one of a million words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from gateway.core.guarding import Check, Finding
from gateway.guards.pii import checks
from gateway.guards.pii.context import NO_TOPIC, Context, Last, Topic

# Possessive, and separators are no digits: where it fails, less than eight digits are read again.
_RUN = re.compile(r"[0-9](?:[ .\-/()]{0,3}[0-9]){7,}+")
# A date in a run is no part of a number.
_DATE = re.compile(
    r"(?<![0-9])(?<![0-9][\-/.])(?:"
    r"(?:19|20)[0-9]{2}([\-/.])(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0?[1-9]|[12][0-9]|3[01])([\-/.])(?:0?[1-9]|1[0-2])\2(?:19|20)[0-9]{2}"
    r"|[0-3]?[0-9]/[0-3]?[0-9]/[0-9]{2}"
    r")(?![0-9])(?![\-/.][0-9])"
)
_GROUP = re.compile("[0-9]+")
_MOST_DIGITS = 19
_LEAST_DIGITS = 8
_PHONE_DIGITS = 14
_PHONE_GROUPS = 6
_LEN_CHARS = "-123456789abcdefghij"  # a group's length as one character; longer ones are `z`

# How numbers are grouped when they are, by the lengths of their groups.
_SHAPES = {
    "4444": "NIK, family card, NPWP, cards",
    "664": "NIK",
    "22264": "NIK",
    "2222224": "NIK",
    "6244": "NIK",
    "466": "NIK",
    "88": "NIK, cards",
    "233133": "NPWP",
    "44443": "cards of 19",
    "465": "cards of 15",
    "464": "cards of 14",
    "445": "BPJS",
    "42621": "accounts at BRI",
    "4261": "accounts at BRI",
    "3271": "accounts at Mandiri",
    "334": "accounts",
    "3331": "accounts",
    "343": "accounts",
    "361": "accounts",
    "3352": "accounts",
}
_WINDOW = re.compile(f"(?=({'|'.join(sorted(_SHAPES, key=len, reverse=True))}))")
_GLUE = re.compile(r"[0-9A-Za-z_\u00c0-\u024f]")

_MOBILE = re.compile(
    r"(?:0062|620?|0)8(?:1[1-9]|2[1-38]|3[1-38]|5[1-35-9]|68|7[7-9]|8[1-9]|9[5-9])[0-9]{6,9}"  # by operators' prefixes
)
_PHONE_BEGINS = re.compile(r"(?:0062|620?|0)8[1-9]|65[3689]|62[2-79]|0[2-79]")
_LANDLINE = re.compile(r"(?:62|0)[2-79][0-9]{7,10}")
_SINGAPORE = re.compile(r"65[3689][0-9]{7}")


class Number(NamedTuple):
    """
    Digits that may be one number.

    Attributes:
        groups: How they are written.
        sign: What belongs to it in front of its first digit.
    """

    digits: str
    groups: tuple[int, ...]
    topic: Topic
    sign: str = ""


class Judged(NamedTuple):
    """What a number is taken for."""

    kind: str
    score: float
    reason: str


def find_numbers(text: str, context: Context, check: Check) -> Iterator[Finding]:
    """The numbers of *text*, in order; what other finders found is blanked out of it with NULs."""
    last = Last()
    for count, (start, end) in enumerate(_spans(text)):
        if not count % 256:
            check()
        run = _Run(text, (start, end), context, last)
        yield from run.numbers(check)
        last = run.last


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the runs of *text* are, without the dates in them."""
    for found in _RUN.finditer(text):
        start, end = found.span()
        for date in _DATE.finditer(text, start, end):
            yield start, date.start()
            start = date.end()
        yield start, end


class _Run:
    """One run, from left to right."""

    def __init__(self, text: str, span: tuple[int, int], context: Context, last: Last) -> None:
        self._text = text
        self._context = context
        self.last = last
        start, end = span
        groups = [group.span() for group in _GROUP.finditer(text, start, end)]
        if groups and start and _GLUE.match(text, start - 1) and not context.is_word(start):
            del groups[0]
        if groups and _GLUE.match(text, end):
            del groups[-1]
        self._groups = groups
        self._has_brackets = text.find(")", start, end) >= 0

    def numbers(self, check: Check) -> Iterator[Finding]:
        """What is in the run, in order."""
        size = sum(end - start for start, end in self._groups)
        if size < _LEAST_DIGITS:
            return
        length = len(self._groups)
        if size <= _MOST_DIGITS and (found := self._judge(0, length, is_whole=True)) is not None:
            yield found
            return
        if length == 1:
            return
        at = 0
        for count, (first, ends) in enumerate(self._windows()):
            if not count % 256:
                check()
            if first < at:
                continue
            before = self.last
            for end in ends:
                if (found := self._judge(first, end, is_whole=False)) is not None:
                    behind, self.last = self.last, before
                    yield from self._rest(at, first)
                    yield found
                    at, self.last = end, behind
                    break
        if at:
            yield from self._rest(at, length)

    def _rest(self, first: int, end: int) -> Iterator[Finding]:
        """What is left between two findings, looked at as it will be when they are masked."""
        size = sum(end - start for start, end in self._groups[first:end])
        if _LEAST_DIGITS <= size <= _MOST_DIGITS and (found := self._judge(first, end, is_whole=True)) is not None:
            yield found

    def _windows(self) -> Iterator[tuple[int, list[int]]]:
        """Which groups may begin a number, and with which ones it may end, the longest first."""
        sizes = [end - start for start, end in self._groups]
        shape = "".join([_LEN_CHARS[size] if size <= _MOST_DIGITS else "z" for size in sizes])
        ends: dict[int, list[int]] = {found.start(): [found.end(1)] for found in _WINDOW.finditer(shape)}
        for first, size in enumerate(sizes):
            if size >= _LEAST_DIGITS:
                if size <= _MOST_DIGITS and not self._is_fraction(first):
                    ends.setdefault(first, []).append(first + 1)
            elif self._text[self._groups[first][0]] in "06" and self._begins_phone(first):
                ends.setdefault(first, []).extend(self._phone_ends(first, sizes))
        return iter(sorted(ends.items()))

    def _begins_phone(self, first: int) -> bool:
        head = "".join([self._text[start:end] for start, end in self._groups[first : first + 3]])
        return _PHONE_BEGINS.match(head) is not None

    @staticmethod
    def _phone_ends(first: int, sizes: list[int]) -> list[int]:
        ends, total, longest = [], 0, 0
        for end in range(first, min(first + _PHONE_GROUPS, len(sizes))):
            total += sizes[end]
            longest = max(longest, sizes[end])
            if total > _PHONE_DIGITS:
                break
            if total > _LEAST_DIGITS and longest > 2:  # pairs are as often times and dates
                ends.append(end + 1)
        return ends[::-1]

    def _is_fraction(self, at: int) -> bool:
        """Whether the group is what stands behind a decimal point."""
        if not at:
            return False
        before = self._groups[at - 1]
        return self._text[before[1] : self._groups[at][0]] == "." and before[1] - before[0] <= 3

    def _judge(self, first: int, end: int, is_whole: bool) -> Finding | None:
        groups = self._groups[first:end]
        start, stop = groups[0][0], groups[-1][1]
        sign = self._sign(groups[0]) if not first or self._has_brackets else ""
        number = Number(
            "".join([self._text[a:b] for a, b in groups]),
            tuple([b - a for a, b in groups]),
            self._context.before(self._text, start - len(sign), self.last),
            sign,
        )
        if number.groups[0] <= 2 and self._is_decimal(groups, number):
            return None
        if is_whole and not self._is_grouped(groups, number):
            return None
        judged = judge(number)
        if judged is None:
            return None
        self.last = Last(stop, number.topic if judged.score >= 0.5 else NO_TOPIC)
        return Finding(judged.kind, start - len(sign), stop, judged.score, judged.reason)

    def _sign(self, group: tuple[int, int]) -> str:
        """What stands in front of a number and is a part of it: `+`, `(+`, and `(` where a bracket closes."""
        front = self._text[max(group[0] - 2, self.last.end) : group[0]]
        if front.endswith("+"):
            return "(+" if front == "(+" and self._has_brackets else "+"
        return "(" if front.endswith("(") and self._text[group[1] : group[1] + 1] == ")" else ""

    def _is_decimal(self, groups: list[tuple[int, int]], number: Number) -> bool:
        """Whether it is one or two digits, a point and what follows it: `62.83185307` is no phone in Indonesia."""
        return (
            len(groups) > 1
            and number.groups[1] >= 5
            and self._text[groups[0][1] : groups[1][0]] == "."
            and not number.sign
            and not number.topic.name
        )

    def _is_grouped(self, groups: list[tuple[int, int]], number: Number) -> bool:
        """
        Whether one would write one number so: in groups as usual, in equal ones with the same sign between them.

        Any other grouping takes a word that says what it is, so that a date and a price are no number together.
        """
        if len(groups) == 1 or number.topic.name not in ("", "other"):
            return True
        sizes = number.groups
        if "".join([_LEN_CHARS[size] for size in sizes]) in _SHAPES or _PHONE_BEGINS.match(number.digits):
            return True
        signs = {self._text[a[1] : b[0]] for a, b in pairwise(groups)}
        return len(signs) == 1 and len(set(sizes[:-1])) == 1 and sizes[-1] <= sizes[0]


def judge(number: Number) -> Judged | None:
    """What *number* most probably is: what the words in front say, if it can be that, else what it can be by itself."""
    topic = number.topic.name
    said = _SAID.get(topic)
    if said is not None and (found := said(number)) is not None:
        return found
    for ask in _ALONE.get(len(number.digits), ()):
        if (found := ask(number)) is not None:
            return found._replace(score=found.score / 2) if topic == "other" and found.kind != "card" else found
    return None


def _said_nik(number: Number) -> Judged | None:
    if len(number.digits) == 16 and checks.is_citizen(number.digits):
        return Judged("nik", 1.0, "area, day of birth and serial, behind a word for it")
    return None


def _said_kk(number: Number) -> Judged | None:
    if len(number.digits) == 16 and checks.is_family(number.digits):
        return Judged("kk", 1.0, "area, day of issue and serial, behind a word for it")
    return None


def _said_npwp(number: Number) -> Judged | None:
    if len(number.digits) in (15, 16) and checks.is_taxpayer(number.digits):
        return Judged("npwp", 1.0, "its check digit or a citizen's number, behind a word for it")
    return None


def _said_bpjs(number: Number) -> Judged | None:
    size = len(number.digits)
    if (size == 13 and number.digits.startswith("000")) or (size == 11 and number.digits[0] != "0"):
        return Judged("bpjs", 0.9, "its length and beginning, behind a word for it")
    return None


def _said_account(number: Number) -> Judged | None:
    lengths = number.topic.lengths or range(8, 17)
    if len(number.digits) in lengths and len(set(number.digits)) > 2 and not checks.is_card(number.digits):
        return Judged("bank_account", 0.9 if number.topic.lengths else 0.7, "as long as accounts are, behind a word")
    return None


def _said_phone(number: Number) -> Judged | None:
    digits = number.digits
    if _MOBILE.fullmatch(digits) or _MOBILE.fullmatch("0" + digits) or _SINGAPORE.fullmatch(digits):
        return Judged("phone", 1.0, "an operator's prefix, behind a word for it")
    if _LANDLINE.fullmatch(digits) or (len(digits) == 8 and digits[0] in "3689"):
        return Judged("phone", 0.8, "as long as phone numbers are, behind a word for it")
    return None


def _is_nik(number: Number) -> Judged | None:
    if checks.is_citizen(number.digits):
        return Judged("nik", 0.8, "area, day of birth and serial")
    return None


def _is_card(number: Number) -> Judged | None:
    if checks.is_card(number.digits) and (
        len(number.digits) < 17 or number.topic.name == "card" or len(number.groups) > 1
    ):
        return Judged("card", 0.9, "an issuer's prefix and the check digit")
    return None


def _is_npwp(number: Number) -> Judged | None:
    if number.groups == (2, 3, 3, 1, 3, 3) and checks.is_taxpayer(number.digits):
        return Judged("npwp", 0.9, "its grouping and its check digit")
    return None


def _is_phone(number: Number) -> Judged | None:
    digits = number.digits
    if _MOBILE.fullmatch(digits):
        return Judged("phone", 0.95 if "+" in number.sign else 0.75, "an operator's prefix")
    if "+" in number.sign and (_SINGAPORE.fullmatch(digits) or _LANDLINE.fullmatch(digits)):
        return Judged("phone", 0.95, "a country's code and a number of its length")
    if number.sign == "(" and _LANDLINE.fullmatch(digits):
        return Judged("phone", 0.8, "an area code in brackets")
    return None


_SAID = {
    "nik": _said_nik,
    "kk": _said_kk,
    "npwp": _said_npwp,
    "bpjs": _said_bpjs,
    "bank_account": _said_account,
    "phone": _said_phone,
}
_ALONE = {
    size: tuple(
        ask
        for ask, sizes in (
            (_is_card, range(14, 20)),
            (_is_npwp, range(15, 16)),
            (_is_nik, range(16, 17)),
            (_is_phone, range(9, 15)),
        )
        if size in sizes
    )
    for size in range(_LEAST_DIGITS, _MOST_DIGITS + 1)
}
