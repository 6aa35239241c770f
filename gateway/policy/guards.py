"""What becomes of what guards have found: verdicts, refusals, and placeholders in the place of what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TypeAlias

from msgspec import Struct

from gateway.core.errors import CONTENT_VIOLATION, PII_BLOCKED, PROMPT_INJECTION, ErrorKind, GatewayError
from gateway.core.guarding import Finding, GuardMode, GuardName, GuardTerms, Status, Verdict, effective_mode

KINDS_TOLD = 8  # in a message

REFUSALS: Mapping[GuardName, ErrorKind] = {
    "injection": PROMPT_INJECTION,
    "pii": PII_BLOCKED,
    "credentials": PII_BLOCKED,
    "content": CONTENT_VIOLATION,
    "moderation": CONTENT_VIOLATION,
}
_STATUSES: Mapping[GuardMode, Status] = {"off": "off", "monitor": "flag", "redact": "redact", "block": "block"}

Spot: TypeAlias = tuple[int, int]
"""A text of a call: the number of its piece, and its own in there."""


class Found(Struct, frozen=True, gc=False):
    """A finding in the text at *spot*; `is_fixed` where nothing can stand in its place."""

    spot: Spot
    finding: Finding
    is_fixed: bool = False


class Judged(Struct, frozen=True):
    """
    What a guard's findings come to under its terms.

    Attributes:
        counted: The findings that count, in order.
    """

    verdict: Verdict
    counted: tuple[Found, ...] = ()


def judge(name: GuardName, found: Sequence[Found], terms: GuardTerms, own_threshold: float) -> Judged:
    """
    The verdict of the guard *name* on what it has *found*, whose engine's threshold is *own_threshold*.

    It is `block` where the call is to be refused: also where something is to be redacted that nothing can stand for.
    """
    score = max((one.finding.score for one in found), default=0.0)
    counted = tuple([one for one in found if terms.counts(one.finding, own_threshold)])
    status: Status = _STATUSES[effective_mode(name, terms.mode)] if counted else "pass"
    if status == "redact" and any(one.is_fixed for one in counted):
        status = "block"
    return Judged(Verdict(status, score, Counter(one.finding.kind for one in counted)), counted)


def refusal(name: GuardName, verdict: Verdict, place: str) -> GatewayError:
    """The error of a call that is refused for *verdict*; *place* is where the first finding stands."""
    kind = REFUSALS[name]
    kinds = sorted(verdict.findings, key=lambda one: (-verdict.findings[one], one))[:KINDS_TOLD]
    return GatewayError(kind, f"{kind.message[:-1]} ({', '.join(kinds)}).", param=place or None)


class Placeholders:
    """
    What stands in the place of values that must not leave: `[NIK_1]` for the first NIK, and for it again.

    Args:
        taken: Placeholders that stand for something else already.

    Attributes:
        originals: The value of each placeholder that is to be put back into the answer.
    """

    def __init__(self, taken: Container[str] = ()) -> None:
        self.originals: dict[str, str] = {}
        self._taken = taken
        self._known: dict[str, dict[str, str]] = {}
        self._numbers: dict[str, Iterator[int]] = {}

    def redact(self, text: str, findings: Iterable[tuple[Finding, bool]]) -> str:
        """
        *text* with a placeholder for each of *findings*, those that overlap taken together.

        Args:
            findings: Each with whether its original is to be put back.
        """
        parts: list[str] = []
        behind = 0
        for kind, start, end, is_reversible in _apart(findings):
            parts += (text[behind:start], self._put(kind, text[start:end], is_reversible=is_reversible))
            behind = end
        return "".join((*parts, text[behind:]))

    def _put(self, kind: str, value: str, *, is_reversible: bool) -> str:
        known = self._known.setdefault(kind, {})
        placeholder = known.get(value)
        if placeholder is None:
            numbers = self._numbers.setdefault(kind, count(1))
            placeholder = next(name for at in numbers if (name := f"[{kind.upper()}_{at}]") not in self._taken)
            known[value] = placeholder
        if is_reversible:
            self.originals[placeholder] = value
        return placeholder


def _apart(findings: Iterable[tuple[Finding, bool]]) -> list[tuple[str, int, int, bool]]:
    """Kind, start, end and whether it comes back, of findings that overlap as of one: its kind is the longest's."""
    spans: list[tuple[str, int, int, bool, int]] = []
    for finding, is_reversible in sorted(findings, key=lambda one: (one[0].start, -one[0].end)):
        kind, start, end, length = finding.kind, finding.start, finding.end, finding.end - finding.start
        if spans and start < spans[-1][2]:
            last_kind, start, last_end, last_reversible, last_length = spans.pop()
            if length <= last_length:
                kind, length = last_kind, last_length
            end, is_reversible = max(end, last_end), is_reversible and last_reversible
        spans.append((kind, start, end, is_reversible, length))
    return [span[:4] for span in spans]
