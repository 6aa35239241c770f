"""
The guard's eyes: a text is cut into pieces, each is read, and a linear model says how much it looks like an attack.

What is hidden in another writing is read like a piece of its own. The score of a text is that of its worst piece, so
that whatever surrounds an attack makes it no weaker.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Set

from msgspec import Struct

from gateway.core.guarding import Check, Finding, GuardName, Role, Text
from gateway.guards.injection import model as models
from gateway.guards.injection import words
from gateway.guards.injection.lettering import smuggled, unfold
from gateway.guards.injection.model import Model, likelihood
from gateway.guards.injection.peeking import is_respelt, peek, respelt, turned
from gateway.guards.injection.pieces import cut
from gateway.guards.injection.reading import Reading, about, features, read
from gateway.guards.injection.rules import SURE as RULE_MARGIN
from gateway.guards.injection.rules import broken
from gateway.guards.injection.words import Lexicon

LEAST_SCORE = 0.05
"""A piece below says nothing; it would only fill the list."""

NONSENSE = -1.0
"""A margin at which no rule counts: the model is sure that its words say something else, as terms and manuals do."""

PLAIN_CHARS = 500
MOST_DOUBT = 1.0
"""The most that a long text's pieces are asked to be surer by: an attack that is padded loses no more than that."""

FAMILIES = {
    "extraction": "PROMPT REVEAL SHOW WHATARE HIDDEN VERBATIM ABOVE",
    "jailbreak": "PERSONA FREE JAIL MODE ACTIVATE DISABLE SAFETY REFUSE",
    "exfiltration": "SEND DATA LINK MAILTO NUMBER IMAGE KEYFILE",
    "tools": "EXEC TOOL SKIPOK DANGER ACCESS",
    "turns": "SETUP TURN",
    "document": "ADDRESS AI COMMENT UNSEEN DOCHIDE CONCEAL USER",
    "override": "IGNORE NOFOLLOW INSTR PRIOR OBEY MINE AUTH NEW NOW",
}
KINDS = tuple(FAMILIES)
_FAMILY = {concept: family for family, concepts in FAMILIES.items() for concept in concepts.split()}


class Window(Struct, frozen=True, gc=False):
    """
    What the model is asked about.

    Attributes:
        rules: The families of which a rule holds.
    """

    start: int
    end: int
    features: Set[str]
    rules: tuple[str, ...] = ()


Scored = tuple[Window, float]


class InjectionEngine:
    """Finds instructions that are aimed at the model. Sees no streams: a piece is whole sentences."""

    name: GuardName = "injection"
    version = "2"
    window_chars: int | None = None
    threshold = 0.9

    def __init__(self, model: Model | None = None, lexicon: Lexicon | None = None) -> None:
        self._model = models.load() if model is None else model
        self._lexicon = words.load() if lexicon is None else lexicon

    def scan(self, text: Text, check: Check) -> Sequence[Finding]:
        """Pieces of *text* that may be aimed at the model, in order and without overlaps, with how likely that is."""
        seen: list[Scored] = []
        for window in self.windows(text, check):
            score = self._score(window, len(text.text))
            if score >= LEAST_SCORE:
                seen.append((window, score))
        return [self._finding(window, score) for window, score in _apart(seen)]

    def _score(self, window: Window, chars: int) -> float:
        """Many pieces are many chances to be wrong, so that those of long texts have to be surer; rules do not."""
        margin = self._model.margin(window.features)
        if window.rules and margin > NONSENSE:
            return likelihood(max(margin, RULE_MARGIN))
        return likelihood(margin - min(MOST_DOUBT, 0.5 * math.log(max(1.0, chars / PLAIN_CHARS))))

    def windows(self, text: Text, check: Check) -> Iterator[Window]:
        """Everything in *text* that the model is asked about."""
        quotes = text.role in ("user", "assistant", "system")
        before: Reading | None = None
        before_start = 0
        topic: frozenset[str] = frozenset()
        odd = is_respelt(unfold(text.text))
        for start, end in cut(text.text):
            check()
            piece = text.text[start:end]
            reading = read(piece, self._lexicon, quotes=quotes)
            if reading.is_hot:
                yield self._window(start, end, text.role, reading, topic)
                if before is not None and before.is_hot:
                    yield Window(before_start, end, features([before, reading], text.role, topic))
            for other, how in self._otherwise(piece, reading, odd):
                respelled = read(other, self._lexicon, quotes=quotes)
                if respelled.is_hot:
                    yield self._window(start, end, text.role, respelled, (*topic, f"how:{how}"))
            if reading.concepts:
                topic |= about([reading])
            before, before_start = reading, start
        yield from self._hidden(text, check)

    def _otherwise(self, piece: str, reading: Reading, odd: bool) -> Iterator[tuple[str, str]]:
        """Other readings of *piece*; *odd* where some piece of its text may be spelt."""
        if odd:
            yield from respelt(unfold(piece), self._lexicon)
        if reading.is_strange:
            yield from turned(unfold(piece))

    def _window(self, start: int, end: int, role: Role, reading: Reading, around: Iterable[str] = ()) -> Window:
        held = tuple(broken(reading.concepts, role))
        return Window(start, end, features([reading], role, around), held)

    def _hidden(self, text: Text, check: Check) -> Iterator[Window]:
        said = smuggled(text.text)
        passages = [(passage.text, passage.start, passage.end, passage.how) for passage in peek(text.text)]
        if said:
            passages.append((said[:2_000], 0, len(text.text), "smuggled"))
        for other, start, end, how in passages:
            check()
            for first, last in cut(other):
                reading = read(other[first:last], self._lexicon, quotes=False)
                if reading.is_hot:
                    yield self._window(start, end, text.role, reading, [f"how:{how}"])

    def _finding(self, window: Window, score: float) -> Finding:
        reasons = self._model.reasons(window.features)
        weights = dict.fromkeys(FAMILIES, 0.0)
        for feature, weight in reasons:
            for concept in feature.removeprefix("first:").split(">"):
                family = _FAMILY.get(concept)
                if family is not None:
                    weights[family] += weight
        kind = window.rules[0] if window.rules else max(weights, key=lambda family: weights[family])
        named = [*(f"RULE:{family.upper()}" for family in window.rules)]
        named += [feature for feature, _ in reasons if feature.isupper()][:4]
        return Finding(kind, window.start, window.end, round(score, 4), ", ".join(named))


def _apart(seen: list[Scored]) -> list[Scored]:
    """*seen* in order, of those that overlap the likeliest."""
    kept: list[Scored] = []
    for one in sorted(seen, key=lambda one: (one[0].start, one[0].end)):
        if kept and kept[-1][0].end > one[0].start:
            if one[1] > kept[-1][1]:
                kept[-1] = one
        else:
            kept.append(one)
    return kept
