"""How engines look that search for pieces of a text: at all of it in one pass, and closely at what may be there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import re2

from gateway.core.guarding import Finding
from gateway.guards.blanking import blank_placeholders
from gateway.guards.disguise import undisguise

Look = Callable[[str, Sequence[int]], tuple[list[Finding], str]]
"""Looks closely for what seeds may have told, by their numbers: what there is, and the text without it."""

_MOST_LOOKS = 4


class Seeds:
    """
    Patterns of which one has to be somewhere in a text that has something to find.

    They are looked for by one automaton, in one pass, whatever the text is made of.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        options = re2.Options()
        options.never_capture = True
        self._set = re2.Set.SearchSet(options)
        for pattern in patterns:
            self._set.Add(pattern)
        self._set.Compile()

    def may_be_in(self, text: str) -> bool:
        """Whether *text* has a seed in it, in whatever disguise."""
        return bool(self._seen(undisguise(text).text))

    def find(self, text: str, look: Look) -> list[Finding]:
        """
        What *look* finds in *text* by the seeds in it, in order, with places in the text as it came.

        What is found may have stuck to something that is a finding without it, and will stand alone when it is masked:
        so it is looked at again without it.
        """
        bare = undisguise(text)
        plain = bare.text
        findings: list[Finding] = []
        for _ in range(_MOST_LOOKS):
            seeds = self._seen(plain)
            if not seeds:
                break
            if not findings:
                plain = blank_placeholders(plain)
            found, plain = look(plain, sorted(seeds))
            if not found:
                break
            findings += found
        findings.sort(key=lambda finding: finding.start)
        return [
            Finding(found.kind, *bare.span(found.start, found.end), found.score, found.reason) for found in findings
        ]

    def _seen(self, plain: str) -> list[int]:
        return self._set.Match(plain.encode("utf-8", "replace")) or []
