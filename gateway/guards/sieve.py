"""What the guards of an answer find in a piece of it, what counts of that, and what it comes to in the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from gateway.core.guarding import (
    Check,
    Engine,
    Glancing,
    GuardMode,
    GuardName,
    GuardTerms,
    Status,
    Text,
    Verdict,
    never_late,
)

VALUE_CHARS = 512  # by which values are told apart
_MASKABLE: frozenset[GuardName] = frozenset(("pii", "credentials"))  # their findings are pieces, of others the whole is


class Span(NamedTuple):
    """
    A piece of a text that counts.

    Attributes:
        stops: Whether the answer ends in front of it; else it is masked.
    """

    start: int
    end: int
    kind: str
    score: float
    stops: bool


class Eye(Struct, frozen=True):
    """An engine, and what counts of what it sees."""

    engine: Engine
    threshold: float
    kinds: frozenset[str] | None
    mode: GuardMode

    @property
    def name(self) -> GuardName:
        """The guard's."""
        return self.engine.name


def make_eyes(engines: Iterable[Engine], mode: GuardMode, terms: Mapping[GuardName, GuardTerms]) -> tuple[Eye, ...]:
    """
    Those of *engines* as an answer is looked at with in *mode*.

    Args:
        terms: Their thresholds and kinds, see `Rules.sight`.
    """
    eyes = []
    for engine in engines:
        said = terms.get(engine.name, GuardTerms())
        threshold = said.threshold_of(engine.threshold)
        strict: GuardMode = "block" if mode == "redact" and engine.name not in _MASKABLE else mode
        eyes.append(Eye(engine, threshold, said.kinds, strict))
    return tuple(eyes)


class Masks:
    """
    Placeholders for what is masked: the same for the same value, with numbers of their own.

    Args:
        taken: The last number of each kind that means something else already.
    """

    def __init__(self, taken: Mapping[str, int]) -> None:
        self._known: dict[tuple[str, str], str] = {}
        self._last = dict(taken)

    def mask(self, kind: str, value: str) -> str:
        """What stands for *value*: `[EMAIL_1]`. Of long ones the beginning decides, as no more of them may be kept."""
        value = value[:VALUE_CHARS]
        known = self._known.get((kind, value))
        if known is None:
            number = self._last[kind] = self._last.get(kind, 0) + 1
            known = self._known[kind, value] = f"[{kind.upper()}_{number}]"
        return known


class Sieve:
    """
    The eyes of one answer, for all its texts, and the tally of what they saw.

    Args:
        check: Raises where the time of a long scan is over.

    Attributes:
        stopped: Whether the answer may not go on.
        failures: Guards that failed, and the type of what each raised: its text may have words of the answer. `stopped`
            too, where the answer had to pass one.
    """

    def __init__(self, eyes: Sequence[Eye], masks: Masks, check: Check = never_late) -> None:
        self._eyes = list(eyes)
        self._glances = [eye.engine.glance if isinstance(eye.engine, Glancing) else None for eye in eyes]
        self._check = check
        self._counts: dict[str, int] = {}
        self._score: float | None = None
        self._place = ""
        self._counted: Status = "redact" if any(eye.mode != "monitor" for eye in eyes) else "flag"
        self.masks = masks
        self.stopped = False
        self.failures: list[tuple[GuardName, str]] = []

    def glance(self, text: str) -> bool:
        """Whether there may be something in *text*, or in what it is a part of; True where an engine cannot tell."""
        try:
            for glance in self._glances:
                if glance is None or glance(text):
                    return True
        except Exception:
            return True  # a look will tell what has failed
        return False

    def look(self, text: str) -> list[Span]:
        """What counts in *text*, in order and apart from each other; nothing where an engine fails that must not."""
        spans: list[Span] = []
        shown = Text(text, "answer")
        for eye in self._eyes:
            try:
                findings = eye.engine.scan(shown, self._check)
            except Exception as exc:
                self._fail(eye, type(exc).__name__)
                return [] if self.stopped else self.look(text)
            if findings:
                stops = eye.mode == "block"
                spans += [
                    Span(found.start, found.end, found.kind, found.score, stops)
                    for found in findings
                    if found.score >= eye.threshold and (eye.kinds is None or found.kind in eye.kinds)
                ]
        return _apart(spans) if len(spans) > 1 else spans

    def count(self, span: Span, place: str) -> None:
        """*span* is one of the findings, once; it is masked, where the answer is not only watched."""
        self._counts[span.kind] = self._counts.get(span.kind, 0) + 1
        self._score = span.score if self._score is None else max(self._score, span.score)
        self._place = self._place or place

    def stop(self, span: Span, place: str) -> None:
        """*span* ends the answer."""
        self.count(span, place)
        self.stopped = True

    def verdict(self) -> Verdict:
        """What is to be told of the answer, as far as it has been seen."""
        return Verdict(self._status(), self._score, self._counts, self._place)

    def _status(self) -> Status:
        if self.failures:
            return "error"
        if self.stopped:
            return "block"
        return self._counted if self._counts else "pass"

    def _fail(self, eye: Eye, reason: str) -> None:
        """An engine has failed: an answer that has to pass it ends, one that is only watched goes on without it."""
        self.failures.append((eye.name, reason))
        self._eyes.remove(eye)
        if eye.mode != "monitor":
            self.stopped = True


def _apart(spans: list[Span]) -> list[Span]:
    """*spans* in order, those that overlap as one: of the kind of the first, and the strictest of them."""
    spans.sort(key=lambda span: (span.start, -span.end))
    out = [spans[0]]
    for span in spans[1:]:
        last = out[-1]
        if span.start >= last.end:
            out.append(span)
        elif span.end > last.end or span.stops > last.stops:
            out[-1] = last._replace(end=max(last.end, span.end), stops=last.stops or span.stops)
    return out
