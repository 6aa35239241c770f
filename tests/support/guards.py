"""Engines and their surroundings for tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from gateway.core.guarding import Check, Finding, GuardName, Text

KINDS: tuple[tuple[str, str], ...] = (
    ("key", r"-----BEGIN KEY-----(?:[^-]|-(?!----END))*(?:-----END KEY-----)?"),
    ("email", r"(?<![\w.+-])[\w.+-]{1,24}@[a-z0-9-]{1,16}(?:\.[a-z]{2,8})+(?![\w-])"),
    ("card", r"(?<!\d)\d{4}(?:[ -]?\d{4}){3}(?!\d)"),
    ("violence", r"\bkill you all\b"),
)
PATTERN = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in KINDS))


SEED = re.compile(r"@|\d{4}|-----BEGIN|kill")


class Spotter:
    """An engine. Whatever it is asked for, it finds the same; `kinds` are what it finds at all."""

    version = "1"
    threshold = 0.5

    def __init__(self, name: GuardName = "pii", kinds: Sequence[str] = (), window_chars: int | None = 48) -> None:
        self.name: GuardName = name
        self.window_chars = window_chars
        self.seen_chars = 0
        self._kinds = frozenset(kinds or dict(KINDS))

    def glance(self, text: str) -> bool:
        """Whether something may be in *text*."""
        return SEED.search(text) is not None

    def scan(self, text: Text, check: Check) -> Sequence[Finding]:
        """What is in *text*."""
        self.seen_chars += len(text.text)
        found = PATTERN.finditer(text.text)
        return [Finding(one.lastgroup or "", *one.span()) for one in found if one.lastgroup in self._kinds]


class Faulty(Spotter):
    """One that fails at the first text that it is shown."""

    def glance(self, text: str) -> bool:
        """It fails."""
        raise ValueError

    def scan(self, text: Text, check: Check) -> Sequence[Finding]:
        """Nothing: it fails."""
        raise ValueError


class Words:
    """
    An engine that finds words, each with a score: `found` is what it was given to read.

    Args:
        kinds: Patterns and their scores by kind.
    """

    version = "1"
    window_chars = 16

    def __init__(self, name: GuardName = "pii", threshold: float = 0.5, **kinds: tuple[str, float]) -> None:
        self.name: GuardName = name
        self.threshold = threshold
        self.read: list[Text] = []
        self._kinds = {kind: (re.compile(pattern), score) for kind, (pattern, score) in kinds.items()}

    def scan(self, text: Text, check: Check) -> Sequence[Finding]:
        check()
        self.read.append(text)
        return sorted(
            (
                Finding(kind, found.start(), found.end(), score, f"like {kind}")
                for kind, (pattern, score) in self._kinds.items()
                for found in pattern.finditer(text.text)
            ),
            key=lambda finding: finding.start,
        )


class Broken(Words):
    """An engine that has a bug, and tells of the text in its complaint."""

    def scan(self, text: Text, check: Check) -> Sequence[Finding]:
        raise ValueError(text.text)


class Endless(Words):
    """An engine that is never done, but looks whether it still has time."""

    def scan(self, text: Text, check: Check) -> Sequence[Finding]:
        self.read.append(text)
        while True:
            check()


class Now(Executor):
    """Threads of which each has done its work before anybody waits for it."""

    def __init__(self) -> None:
        self.asked = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.asked += 1
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as exc:  # as an executor's own threads do
            done.set_exception(exc)
        return done
