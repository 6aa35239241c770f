"""The eyes of the guard `pii`: a first look at the whole text, then a close one at what may be there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from gateway.core.guarding import Check, Finding, GuardName, Text
from gateway.guards.blanking import FOUND, blank, blank_spans
from gateway.guards.looking import Seeds
from gateway.guards.pii import numbers, words
from gateway.guards.pii.context import Context

Finder = Callable[[str, Context, Check], Iterator[Finding]]

WINDOW_CHARS = 64

# What has to be somewhere in a text for a finder to have work. In one pass, linear, whatever the text is made of. The
# finders go in this order, and none sees what one in front of it found.
_WORD = r"(?:^|[^0-9A-Za-z])"
_SEEDS: tuple[tuple[str, Finder], ...] = (
    (r"[0-9A-Za-z._%+'\-\x{c0}-\x{24f}]@[0-9A-Za-z\x{c0}-\x{24f}]", words.find_emails),
    (_WORD + r"[A-Za-z]{2}[0-9]{2}[ \-]?[0-9A-Za-z]{3,4}[ \-]?[0-9A-Za-z]{3}", words.find_ibans),
    (_WORD + r"[STFGMstfgm][ .\-]?[0-9](?:[ .\-]?[0-9]){6}[ .\-]?[A-Za-z]", words.find_nrics),
    (r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]", words.find_addresses),
    (_WORD + r"[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]{2}", words.find_addresses),
    (_WORD + r"[A-Za-z]{1,2}[ \-]?[0-9]{6}", words.find_passports),
    (_WORD + r"[A-Za-z]{1,2}[ \-.]?[1-9][0-9]{0,3}[ \-.]?[A-Za-z]{1,3}(?:$|[^0-9A-Za-z])", words.find_plates),
    (r"[0-9](?:[ .\-/()]{0,3}[0-9]){7}", numbers.find_numbers),
)
# What is no number of anybody, however it looks: blanked out before numbers are looked for.
_DATA_URL = re.compile(r"data:[0-9A-Za-z/+.;=\-]{0,100};base64,[0-9A-Za-z+/=_\-]*+")
_UUID = re.compile(  # from its first dash on: so the search has a character to look for
    r"-(?<=[0-9A-Fa-f]{8}-)[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])"
)
_NOTHING = "\1"  # ends a number, as `FOUND` does, but words in front are not taken for its own
_MARK = re.compile("[0-9@]")


class PiiEngine:
    """
    Finds personal data by shape, check digits, codes and dates, and by the words in front where those say too little.

    It sees no number that is spelled out, none over two lines, none in base64 or a picture, no address written
    `name at host dot com`, no names of people or streets, and of a table only the first row behind a heading.
    """

    name: GuardName = "pii"
    version = "1"
    window_chars: int | None = WINDOW_CHARS
    threshold = 0.5

    def __init__(self) -> None:
        self._seeds = Seeds(pattern for pattern, _ in _SEEDS)

    def glance(self, text: str) -> bool:
        """Whether there is what a finder would begin with; none does without a digit or an `@`."""
        if text.isascii() and _MARK.search(text) is None:
            return False
        return self._seeds.may_be_in(text)

    def scan(self, text: Text, check: Check) -> Sequence[Finding]:
        """What is in *text*, in order and without overlaps, whatever its score."""
        return self._seeds.find(text.text, lambda plain, seeds: _look_closely(plain, seeds, check))


def _look_closely(text: str, seeds: Sequence[int], check: Check) -> tuple[list[Finding], str]:
    """What the finders of *seeds* find, and *text* without it."""
    if ";base64," in text:
        text = blank(_DATA_URL, text, _NOTHING)
    context = Context(text)
    check()
    findings: list[Finding] = []
    for finder in dict.fromkeys(_SEEDS[seed][1] for seed in seeds):
        if finder is numbers.find_numbers:
            text = blank_spans(text, [(found.start() - 8, found.end()) for found in _UUID.finditer(text)], _NOTHING)
        found = list(finder(text, context, check))
        if found:
            findings += found
            text = blank_spans(text, [(finding.start, finding.end) for finding in found], FOUND)
    return findings, text
