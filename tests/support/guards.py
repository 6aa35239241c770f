"""A guard of the tests: it finds e-mail addresses, cards, a phrase and blocks of keys, each as real guards do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gateway.core.guarding import Check, Finding, GuardName, Text

KINDS: tuple[tuple[str, str], ...] = (
    ("key", r"-----BEGIN KEY-----(?:[^-]|-(?!----END))*(?:-----END KEY-----)?"),
    ("email", r"(?<![\w.+-])[\w.+-]{1,24}@[a-z0-9-]{1,16}(?:\.[a-z]{2,8})+(?![\w-])"),
    ("card", r"(?<!\d)\d{4}(?:[ -]?\d{4}){3}(?!\d)"),
    ("violence", r"\bkill you all\b"),
)
PATTERN = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in KINDS))


class Spotter:
    """An engine. Whatever it is asked for, it finds the same; `kinds` are what it finds at all."""

    version = "1"
    threshold = 0.5

    def __init__(self, name: GuardName = "pii", kinds: Sequence[str] = (), window_chars: int | None = 48) -> None:
        self.name: GuardName = name
        self.window_chars = window_chars
        self.seen_chars = 0
        self._kinds = frozenset(kinds or dict(KINDS))

    def scan(self, text: Text, check: Check) -> Sequence[Finding]:
        """What is in *text*."""
        self.seen_chars += len(text.text)
        found = PATTERN.finditer(text.text)
        return [Finding(one.lastgroup or "", *one.span()) for one in found if one.lastgroup in self._kinds]


class Faulty(Spotter):
    """One that fails at the first text that it is shown."""

    def scan(self, text: Text, check: Check) -> Sequence[Finding]:
        """Nothing: it fails."""
        raise ValueError
