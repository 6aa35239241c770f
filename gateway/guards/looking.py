"""How engines look that search for pieces of a text: at all of it in one pass, and closely at what may be there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import re2

from gateway.core.guarding import Finding
from gateway.guards.blanking import blank_placeholders
from gateway.guards.disguise import ODD, Bare, undisguise

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
        self._odd = -1
        for pattern in (*patterns, ODD):
            self._set.Add(pattern)
            self._odd += 1
        self._set.Compile()

    def may_be_in(self, text: str) -> bool:
        """Whether *text* has a seed in it, in whatever disguise."""
        return bool(self._seen(text)[0])

    def find(self, text: str, look: Look) -> list[Finding]:
        """
        What *look* finds in *text* by the seeds in it, in order, with places in the text as it came.

        What is found may have stuck to something that is a finding without it, and will stand alone when it is masked:
        so it is looked at again without it.
        """
        seeds, bare = self._seen(text)
        if not seeds:
            return []
        plain = blank_placeholders(bare.text)
        findings: list[Finding] = []
        for _ in range(_MOST_LOOKS):
            found, plain = look(plain, seeds)
            findings += found
            seeds = self._without_odd(plain) if found else []
            if not seeds:
                break
        findings.sort(key=lambda finding: finding.start)
        return [
            Finding(found.kind, *bare.span(found.start, found.end), found.score, found.reason) for found in findings
        ]

    def _seen(self, text: str) -> tuple[list[int], Bare]:
        """The seeds of *text*, and itself, without disguise: for most texts in one pass."""
        seeds = self._seeds_of(text)
        if not seeds or seeds[-1] != self._odd:
            return seeds, Bare(text)
        bare = undisguise(text)
        return self._without_odd(bare.text), bare

    def _without_odd(self, plain: str) -> list[int]:
        return [seed for seed in self._seeds_of(plain) if seed != self._odd]

    def _seeds_of(self, plain: str) -> list[int]:
        return sorted(self._set.Match(plain.encode("utf-8", "replace")) or ())
