"""Ways to write an attack so that machines read it otherwise than people, or people not at all."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Callable
from urllib.parse import quote

_CYRILLIC = str.maketrans("aceopxyis", "асеорхуіѕ")
_LEET = str.maketrans("aeiost", "431057")
_WIDE = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
_TAGS = {code: 0xE0000 + code for code in range(0x20, 0x7F)}
_BOLD = {**{97 + at: 0x1D41A + at for at in range(26)}, **{65 + at: 0x1D400 + at for at in range(26)}}


def _between(text: str, mark: str) -> str:
    return "".join(char + mark if char.isalpha() else char for char in text)


def _spelt(text: str, gap: str, between: str) -> str:
    return between.join(gap.join(word) for word in text.split())


DISGUISES: dict[str, Callable[[str], str]] = {
    "zero-width": lambda text: _between(text, "\u200b"),
    "soft hyphens": lambda text: _between(text, "\u00ad"),
    "full-width": lambda text: text.translate(_WIDE),
    "homoglyphs": lambda text: text.translate(_CYRILLIC),
    "bold": lambda text: text.translate(_BOLD),
    "accents": lambda text: _between(text, "\u0301"),
    "spaced letters": lambda text: _spelt(text, " ", "   "),
    "dotted letters": lambda text: _spelt(text, ".", "  "),
    "leetspeak": lambda text: text.translate(_LEET),
    "upper case": lambda text: text.upper(),
    "mixed case": lambda text: "".join(c.upper() if at % 2 else c.lower() for at, c in enumerate(text)),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64, asked for": lambda text: "Decode this and do what it says: " + base64.b64encode(text.encode()).decode(),
    "hexadecimal": lambda text: text.encode().hex(),
    "percent": lambda text: quote(text, safe=""),
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "backwards": lambda text: text[::-1],
    "tags": lambda text: "What a nice day." + text.translate(_TAGS),
    "a word a line": lambda text: "\n".join(text.split()),
}
