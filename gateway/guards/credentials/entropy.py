"""Whether characters were drawn by a machine, or written by somebody who shows what a key looks like."""

from __future__ import annotations

import re
from collections import Counter
from math import log2

import re2

MEASURED_CHARS = 64
"""No more of a value is looked at, so that a stream and a whole text say the same of it."""

# Nobody draws these: words for what belongs there, rows of one sign, rows of the alphabet and of digits.
_DUMMY = re2.compile(
    r"(?i)xxxx|\*\*\*|\.\.\.|___|[<>{}]|\$\(|%s|example|your|place.?holder|change.?me|dummy|sample|redacted|fake|insert"
    r"|secret_?here|key_?here|token_?here|abcdef|qwerty|0123456|1234567|9876543"
)
# What stands where a password does in examples and in programs as they are shipped.
_DUMMY_WORDS = (
    "password|passwd|pass|pwd|secret|user|username|root|admin|guest|test|postgres|mysql|mongo|redis|none|null|true"
    "|false|string|str|undefined|nil|required|optional|hidden|masked|changeme|kosong|rahasia|sandi|foo|bar|tiger"
)
_DUMMY_PASSWORDS = frozenset(_DUMMY_WORDS.split("|"))
_HAS_BOTH = re.compile("(?=.*[0-9]).*[A-Za-z]", re.DOTALL)
_BITS = [0.0] + [count * log2(count) for count in range(1, MEASURED_CHARS + 1)]


def is_dummy(value: str) -> bool:
    """Whether *value* only shows where a key or a password would be."""
    piece = value[:MEASURED_CHARS]
    return piece.lower() in _DUMMY_PASSWORDS or _DUMMY.search(piece.encode("utf-8", "replace")) is not None


def entropy(value: str) -> float:
    """Bits per character of *value*, by how often its characters are in it: about 3 for words, more for random ones."""
    piece = value[:MEASURED_CHARS]
    return log2(len(piece)) - sum([_BITS[count] for count in Counter(piece).values()]) / len(piece)


def is_random(value: str, least: float = 3.0) -> bool:
    """Whether *value* looks drawn: *least* bits per character, letters and digits both, and no sign of a dummy."""
    return _HAS_BOTH.match(value, 0, MEASURED_CHARS) is not None and entropy(value) >= least and not is_dummy(value)
