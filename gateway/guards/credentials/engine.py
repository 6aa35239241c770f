"""The eyes of the guard `credentials`: a first look at the whole text, then a close one at what may be there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gateway.core.guarding import Check, Finding, GuardName, Text
from gateway.guards.blanking import FOUND, blank_spans
from gateway.guards.credentials import stated
from gateway.guards.credentials.formats import FORMATS, Format
from gateway.guards.looking import Seeds

Finder = Callable[[str], Iterator[Finding]]

WINDOW_CHARS = 64


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
        self._seeds = Seeds(pattern for pattern, _ in _SEEDS)

    def glance(self, text: str) -> bool:
        """Whether there is what a finder would begin with."""
        return self._seeds.may_be_in(text)

    def scan(self, text: Text, check: Check) -> Sequence[Finding]:
        """What is in *text*, in order and without overlaps, whatever its score."""
        return self._seeds.find(text.text, lambda plain, seeds: _look_closely(plain, seeds, check))


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
