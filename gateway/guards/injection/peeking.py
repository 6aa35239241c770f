"""
What a text says in another writing: base64, hexadecimal, percent and other escapes, rot13, backwards, spelt, with
digits for letters.

Bounded: a few passages of each text, each up to a few thousand characters. What stands in a data URL is a picture or a
file, and is never decoded.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

import re2
from msgspec import Struct

from gateway.guards.injection.words import Lexicon

PASSAGES = 8
LONGEST = 2_000
_MOST_LOOKED_AT = 64
_WORDLIKE = 0.7
_PRINTED = 0.92

_BASE64 = re2.compile(r"(?:data:[a-z0-9.+/-]{1,80};base64,)?[A-Za-z0-9+/_-]{20,}(?:\r?\n[A-Za-z0-9+/_-]{8,})*={0,2}")
_HEX = re2.compile(r"(?:\b|\\x|\\u00)(?:(?:0x|\\x|%|\\u00|&#x)?[0-9A-Fa-f]{2}[\s:,;]{0,2}){12,}")
_DECIMAL = re2.compile(r"(?:(?:&#)?[0-9]{2,3}[\s,;]{1,2}){11,}[0-9]{2,3}")
_PAIR = re.compile(r"(?:0x|\\x|%|\\u00|&#x)?([0-9A-Fa-f]{2})")
_NUMBER = re.compile(r"[0-9]{2,3}")
_ESCAPED = re2.compile(r"(?:%[0-9A-Fa-f]{2}[^%\s]{0,12}){4,}")
_SPELT = re2.compile(r"\b(?:[A-Za-z0-9@$](?:[ .*_|~,-]{1,4}|\s{2,4})){7,}[A-Za-z0-9@$]\b")
_APART = re.compile(r"\s{2,}|\s+[.*_|~,-]\s+")
_BETWEEN = re.compile(r"[^a-z0-9@$]+")
_DIGITS = re2.compile(r"[a-z][0-9@$!|]+[a-z]|\b[0-9@$][a-z]{2}")
_WORD = re.compile(r"[a-z0-9@$!|]+")
_LETTERS = str.maketrans("013457890@$!|", "oieastbgoasil")
_OTHER_LETTERS = str.maketrans("013457890@$!|", "oleastbgoasil")


class Passage(Struct, frozen=True, gc=False):
    """
    What a place says in another writing.

    Attributes:
        how: Which writing, as the model's feature says it.
    """

    text: str
    start: int
    end: int
    how: str


def peek(text: str) -> Iterator[Passage]:
    """Passages of *text* that say something in another writing, at most `PASSAGES` of each kind."""
    for pattern, decode, how in (
        (_BASE64, _from_base64, "base64"),
        (_HEX, _from_hex, "hex"),
        (_DECIMAL, _from_decimal, "decimal"),
        (_ESCAPED, _from_percent, "percent"),
    ):
        given = 0
        for looked_at, found in enumerate(pattern.finditer(text)):
            if looked_at >= _MOST_LOOKED_AT or given >= PASSAGES:
                break
            said = decode(found.group()[:LONGEST])
            if said:
                given += 1
                yield Passage(said, found.start(), found.end(), how)


def _from_base64(run: str) -> str:
    if run.startswith("data:"):
        return ""
    run = "".join(run.split()).rstrip("=").translate({45: 43, 95: 47})
    try:
        return _legible(base64.b64decode(run[: len(run) // 4 * 4] + _padded(run[len(run) // 4 * 4 :])))
    except (binascii.Error, ValueError):
        return ""


def _padded(rest: str) -> str:
    return rest + "=" * (4 - len(rest)) if len(rest) > 1 else ""


def _from_hex(run: str) -> str:
    return _legible(bytes(int(pair, 16) for pair in _PAIR.findall(run)))


def _from_decimal(run: str) -> str:
    codes = [int(number) for number in _NUMBER.findall(run)]
    return _legible(bytes(codes)) if max(codes) < 256 else ""


def _from_percent(run: str) -> str:
    return _legible(unquote_to_bytes(run.replace("+", " ")))


def _legible(octets: bytes) -> str:
    """*octets* as text, or nothing where no person wrote them."""
    text = octets.decode("utf-8", "replace")
    if len(text) < 12 or sum(map(str.isprintable, text)) < _PRINTED * len(text) or "\ufffd" in text[:-1]:
        return ""
    return text if sum(char.isalpha() or char.isspace() for char in text) >= _WORDLIKE * len(text) else ""


def is_respelt(text: str) -> bool:
    """Whether any piece of *text*, in lower case, can be spelt: one look for all of them."""
    return any(pattern.search(text) for pattern in (_SPELT, _DIGITS))


def respelt(piece: str, lexicon: Lexicon) -> Iterator[tuple[str, str]]:
    """Other readings of a *piece* of at most a few hundred characters, in lower case, each with how it came about."""
    joined = _SPELT.sub(lambda found: _joined(found.group(), lexicon), piece)
    if joined != piece:
        yield joined, "spelt"
    if _DIGITS.search(joined):
        lettered = _WORD.sub(lambda found: _lettered(found.group(), lexicon), joined)
        if lettered != joined:
            yield lettered, "digits"


def turned(piece: str) -> Iterator[tuple[str, str]]:
    """What a *piece* in no language that is known here would be in one of two puzzles, each with its name."""
    yield codecs.encode(piece, "rot13"), "rot13"
    yield piece[::-1], "backwards"


def _lettered(word: str, lexicon: Lexicon) -> str:
    """*word* with letters for digits, where that makes a word that means something."""
    bare = word.rstrip("!|")
    if len(word) > 30 or bare.isalpha() or bare.isdigit():
        return word
    tried = [bare.translate(_LETTERS), bare.translate(_OTHER_LETTERS)]
    for form in tried:
        if lexicon.meaning(form)[1]:
            return form
    return tried[0] if any(char.isalpha() for char in bare) and len(bare) > 2 else word


def _joined(run: str, lexicon: Lexicon) -> str:
    """The words of letters that stand apart; where nothing parts the words, the lexicon's are looked for."""
    words = []
    for part in _APART.split(run):
        word = _BETWEEN.sub("", part)
        words.append(word if len(word) < 14 or lexicon.meaning(word)[1] else lexicon.parted(word.translate(_LETTERS)))
    return " ".join(words)
