"""
Letters as a reader sees them: what is invisible goes, what looks like a letter of ours becomes it.

Only for looking. Nothing here keeps offsets, so it is done to one piece of a text at a time, whose place is known.
"""

from __future__ import annotations

import unicodedata

import re2

from gateway.guards.lookalikes import BOXED, LOOKALIKES

_INVISIBLE = (
    0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180E, 0x3164, 0xFEFF, 0xFFA0,
    *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), *range(0x180B, 0x180E),
    *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), *range(0xE0000, 0xE0080),
)  # fmt: skip
_MARKS = (
    *range(0x300, 0x370), *range(0x483, 0x488), *range(0x1AB0, 0x1B00), *range(0x1DC0, 0x1E00), *range(0x20D0, 0x2100),
)  # fmt: skip
_MARKED = {
    "’": "'", "‘": "'", "ʼ": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "‐": "-", "‑": "-",
}  # fmt: skip
_UNSEEN = dict.fromkeys(_INVISIBLE)
_PLAIN = {**{ord(mark): look for mark, look in (LOOKALIKES | _MARKED).items()}, **dict.fromkeys(_MARKS), **_UNSEEN}
_TAGS = {0xE0000 + code: chr(code) for code in range(0x20, 0x7F)}

_BETWEEN_LETTERS = re2.compile(r"[A-Za-z][\x{200B}-\x{200F}\x{2060}-\x{2064}\x{FEFF}\x{AD}]+[A-Za-z]")
_TAGGED = re2.compile(r"[\x{E0020}-\x{E007E}]{4,}")
_SELECTORS = re2.compile(r"[\x{FE00}-\x{FE0F}\x{E0100}-\x{E01EF}]{4,}")
_MIXED = re2.compile(r"[A-Za-z][\x{370}-\x{5FF}]|[\x{370}-\x{5FF}][A-Za-z]")


def unfold(text: str) -> str:
    """*text* in lower case and as it looks: no marks, no invisible characters, one form of every letter."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKD", text.translate(BOXED).translate(_UNSEEN))
    return text.lower().translate(_PLAIN)


def smuggled(text: str) -> str:
    """What *text* says in characters that nobody sees: tags that stand for ASCII, selectors that stand for bytes."""
    if text.isascii():
        return ""
    said = [run.group().translate(_TAGS) for run in _TAGGED.finditer(text)]
    for run in _SELECTORS.finditer(text):
        octets = bytes(code - 0xFE00 if code < 0xE0100 else code - 0xE0100 + 16 for code in map(ord, run.group()))
        said.append(octets.decode("utf-8", "replace"))
    return " ".join(said)


def disguises(text: str) -> tuple[str, ...]:
    """How *text* was made hard to read for machines alone: `unseen` between letters, `mixed` alphabets in a word."""
    if text.isascii():
        return ()
    unseen = ("unseen",) if _BETWEEN_LETTERS.search(text) else ()
    return (*unseen, "mixed") if _MIXED.search(text) else unseen
