"""The eyes of the guard `credentials`: a first look at the whole text, then a close one at what may be there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import re2

from gateway.core.guarding import Check, Finding, GuardName, Text
from gateway.guards.blanking import FOUND, blank_placeholders, blank_spans
from gateway.guards.credentials import stated
from gateway.guards.credentials.formats import FORMATS, Format
from gateway.guards.disguise import undisguise

Finder = Callable[[str], Iterator[Finding]]

WINDOW_CHARS = 64
_MOST_LOOKS = 4


def _finder(row: Format) -> Finder:
    def find(text: str) -> Iterator[Finding]:
        for found in row.shape.finditer(text):
            score = row.score(found[0])
            if score:
                yield Finding(row.kind, *found.span(), score, row.reason)

    return find


# What has to be somewhere in a text for a finder to have work; the finders go in this order, and none sees what one in
# front of it found.
_SEEDS: tuple[tuple[str, Finder], ...] = (
    (stated.BEGIN_SEED, stated.find_private_keys),
    *[(row.seed, _finder(row)) for row in FORMATS],
    (stated.URL_SEED, stated.find_url_passwords),
    (stated.AWS_SEED, stated.find_aws_secrets),
    (stated.HEADER_SEED, stated.find_header_tokens),
    (stated.NAMED_SEED, stated.find_named),
)


class CredentialsEngine:
    """
    Finds keys, tokens and passwords by the formats that issuers publish, and by the words in front of those without.

    It sees no key whose format is its issuer's secret and that no word is in front of, none in base64, none that is cut
    into pieces, and no password in a sentence that does not say `password is` or the like.
    """

    name: GuardName = "credentials"
    version = "1"
    window_chars: int | None = WINDOW_CHARS
    threshold = 0.5

    def __init__(self) -> None:
        options = re2.Options()
        options.never_capture = True
        self._seeds = re2.Set.SearchSet(options)
        for pattern, _ in _SEEDS:
            self._seeds.Add(pattern)
        self._seeds.Compile()

    def glance(self, text: str) -> bool:
        """Whether there is what a finder would begin with."""
        return bool(self._seeds.Match(undisguise(text).text.encode("utf-8", "replace")))

    def scan(self, text: Text, check: Check) -> Sequence[Finding]:
        """What is in *text*, in order and without overlaps, whatever its score."""
        bare = undisguise(text.text)
        plain = bare.text
        findings: list[Finding] = []
        # What is found may have stuck to something that is a key without it, and will stand alone when it is masked.
        for _ in range(_MOST_LOOKS):
            seeds = self._seeds.Match(plain.encode("utf-8", "replace"))
            if not seeds:
                break
            if not findings:
                plain = blank_placeholders(plain)
            found, plain = _look_closely(plain, sorted(seeds), check)
            if not found:
                break
            findings += found
        findings.sort(key=lambda finding: finding.start)
        return [
            Finding(found.kind, *bare.span(found.start, found.end), found.score, found.reason) for found in findings
        ]


def _look_closely(text: str, seeds: Sequence[int], check: Check) -> tuple[list[Finding], str]:
    """What the finders of *seeds* find, and *text* without it."""
    findings: list[Finding] = []
    for seed in seeds:
        found = []
        check()
        for count, finding in enumerate(_SEEDS[seed][1](text)):
            found.append(finding)
            if not count % 256:
                check()
        if found:
            findings += found
            text = blank_spans(text, [(finding.start, finding.end) for finding in found], FOUND)
    return findings, text
