"""The content guard: words that matter, and what stands around them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import re2
from ahocorasick_rs import AhoCorasick
from msgspec.structs import replace

from gateway.core.guarding import Check, Finding, GuardName, Text, never_late
from gateway.guards.content.lexicon import KINDS, Lexicon, Rule, Term, joined, load_lexicon
from gateway.guards.content.scene import Hit, Reach, Scene
from gateway.guards.content.squeezing import Squeezed
from gateway.guards.folding import Folded, fold

WINDOW_CHARS = 48
"""So far behind a finding's first character everything ends that it depends on, where an answer is looked at."""

_NEED_CHARS, _EXCUSE_CHARS = 120, 200  # how far off a term still belongs to what is said; about one sentence, and two
_WHOLE = Reach(_NEED_CHARS, _EXCUSE_CHARS, 1 << 40)
_ANSWER = Reach(_NEED_CHARS, _EXCUSE_CHARS, WINDOW_CHARS - 1)  # a term ends where the next character tells
_HITS = 512  # between two looks at the time
_TERM_CHARS = 64  # no term is longer
_AROUND_CHARS = _EXCUSE_CHARS + 2 * _TERM_CHARS
_STRETCH_CHARS = 4096  # of core terms that are judged together; some milliseconds where there is nothing else

_ENDINGS = {
    "en": re.compile(r"(?:'?s)?(?![a-z0-9])"),
    "id": re.compile(r"(?:nya|ku|mu|lah|kah|pun)?(?![a-z0-9])"),
}


class ContentEngine:
    """Finds what is asked for or said of the kinds in `KINDS`, in English and Indonesian, by lexicons with context."""

    name: GuardName = "content"
    version: Final = "1"
    window_chars: int | None = WINDOW_CHARS
    threshold = 0.7

    def __init__(self, lexicon: Lexicon | None = None) -> None:
        lexicon = load_lexicon() if lexicon is None else lexicon
        self._terms = lexicon.terms
        self._patterns = [(re2.compile(pattern), (group,)) for pattern, group in lexicon.patterns]
        self._rules: dict[int, list[Rule]] = {}
        for rule in lexicon.rules:
            self._rules.setdefault(rule.core, []).append(rule)
        self._hiding = lexicon.hiding
        self._core_terms = [term for term in lexicon.terms if not self._rules.keys().isdisjoint(term.groups)]
        self._cores = AhoCorasick([term.text for term in self._core_terms])
        self._all = AhoCorasick([term.text for term in lexicon.terms])

    def glance(self, text: str) -> bool:
        """Whether there is a core term."""
        words = joined(fold(text).text)
        return any(True for _ in self._stretches(words, never_late))

    def scan(self, text: Text, check: Check) -> Sequence[Finding]:
        """What is in *text*, in order, no two of one place; a finding's place is the words that it turns on."""
        folded = fold(text.text, check)
        words, reach = joined(folded.text), _ANSWER
        squeezed = None
        if text.role != "answer":  # what is on its way is told within a window of its own characters
            squeezed = Squeezed(words)
            words, reach = squeezed.text, _WHOLE
        found: list[Finding] = []
        for first, last in self._stretches(words, check):
            around = max(0, first - _AROUND_CHARS), last + _AROUND_CHARS
            scene = Scene(self._hits(words, *around, check), self._hiding, reach)
            found += self._judge(scene, first, last)
        return [_placed(finding, folded, squeezed) for finding in _apart(found)]

    def _stretches(self, words: str, check: Check) -> Iterator[tuple[int, int]]:
        """From where a core term ends to behind where the last one near by does; apart from each other, not long."""
        first = last = -1
        for count, (number, start, end) in enumerate(self._cores.find_matches_as_indexes(words, overlapping=True)):
            if count % _HITS == 0:
                check()
            if end == last or not _is_term(self._core_terms[number], words, start, end):
                continue
            if first < 0:
                first = end
            elif end - last > _AROUND_CHARS or end - first > _STRETCH_CHARS:
                yield first, last + 1
                first = end
            last = end
        check()
        if first >= 0:
            yield first, last + 1

    def _hits(self, words: str, start: int, end: int, check: Check) -> Iterator[Hit]:
        """All terms from *start* to *end*."""
        stretch = words[start:end]
        for count, (number, first, last) in enumerate(self._all.find_matches_as_indexes(stretch, overlapping=True)):
            if count % _HITS == 0:
                check()
            term = self._terms[number]
            if _is_term(term, words, start + first, start + last):
                yield Hit(start + first, start + last, term.groups)
        for pattern, groups in self._patterns:
            for match in pattern.finditer(stretch):
                yield Hit(start + match.start(), start + match.end(), groups)

    def _judge(self, scene: Scene, first: int, last: int) -> Iterator[Finding]:
        """What rules make of cores that end from *first* on and before *last*; of each kind the most of one core."""
        for group, rules in self._rules.items():
            for start, end in scene.places(group, first, last):
                best: dict[str, Finding] = {}
                for rule in rules:
                    known = best.get(rule.kind)
                    score = scene.score(rule, start, end)
                    if score and (known is None or score > known.score):
                        best[rule.kind] = Finding(rule.kind, start, end, score, rule.reason)
                yield from best.values()


def _is_term(term: Term, words: str, start: int, end: int) -> bool:
    """Whether what stands from *start* to *end* is *term* by itself, and no part of another word."""
    if start and words[start - 1].isalnum():
        return False
    return term.is_open or _ENDINGS[term.language].match(words, end) is not None


def _placed(finding: Finding, folded: Folded, squeezed: Squeezed | None) -> Finding:
    """*finding* at its place in the original."""
    start, end = finding.start, finding.end
    if squeezed is not None:
        start, end = squeezed.span(start, end)
    start, end = folded.span(start, end)
    return replace(finding, start=start, end=end)


def _apart(found: list[Finding]) -> list[Finding]:
    """By their places, and of those that overlap the surest, or the gravest of the surest."""
    apart: list[Finding] = []
    for finding in sorted(found, key=lambda finding: (finding.start, -finding.score, KINDS.index(finding.kind))):
        last = apart[-1] if apart else None
        if last is None or finding.start >= last.end:
            apart.append(finding)
        elif finding.score > last.score:
            apart[-1] = finding
    return apart
