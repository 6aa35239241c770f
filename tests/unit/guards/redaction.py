"""Masks over what an engine finds, as the gateway puts them."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.guarding import Engine, Finding, Text


def counted(engine: Engine, text: str) -> list[Finding]:
    """What counts by the engine's own threshold."""
    return [finding for finding in scan(engine, text) if finding.score >= engine.threshold]


def scan(engine: Engine, text: str) -> Sequence[Finding]:
    """All that *engine* finds, with all the time in the world."""
    return engine.scan(Text(text), lambda: None)


def redact(engine: Engine, text: str) -> str:
    """*text* with a placeholder for each finding that counts; the same one for the same value."""
    pieces, last, numbers = [], 0, dict[tuple[str, str], int]()
    for finding in counted(engine, text):
        value = (finding.kind, text[finding.start : finding.end])
        number = numbers.setdefault(value, 1 + sum(kind == finding.kind for kind, _ in numbers))
        pieces += [text[last : finding.start], f"[{finding.kind.upper()}_{number}]"]
        last = finding.end
    return "".join([*pieces, text[last:]])


def assert_in_order(findings: Sequence[Finding], length: int) -> None:
    """Findings are inside a text of *length* characters, in order, apart and not empty."""
    places = [place for finding in findings for place in (finding.start, finding.end)]
    assert places == sorted(places)
    assert all(0 <= finding.start < finding.end <= length for finding in findings)
