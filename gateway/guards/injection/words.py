"""What words mean: the concepts of the lexicon, found by a word's stem or by a phrase of up to four words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files

# The standard library's: 30 µs a KB where re2's Python binding takes 1,300, and this one has nothing to backtrack into.
TOKEN = re.compile(r"[a-z]+(?:['-][a-z]+)*")
_PHRASE_WORDS = 5
_LONGEST_WORD = 14
_MEMORY = 20_000
"""Words whose stem is remembered; behind it each is worked out anew, so that strangers' words fill no memory."""

_ENGLISH = (
    ("ies", "y"), ("es", ""), ("es", "e"), ("s", ""), ("ied", "y"), ("ed", ""), ("ed", "e"), ("ing", ""), ("ing", "e"),
    ("ly", ""),
)  # fmt: skip
_CLITICS = ("nya", "mu", "ku", "lah", "kah", "pun", "-nya", "-mu", "-ku")
_SUFFIXES = ("kanlah", "kan", "in", "i", "an")
_PREFIXES = (
    ("menge", ""), ("meny", "s"), ("meng", ""), ("meng", "k"), ("mem", "p"), ("mem", ""), ("men", "t"), ("men", ""),
    ("me", ""), ("di", ""), ("ber", ""), ("ter", ""), ("ku", ""), ("kau", ""), ("nge", ""), ("ng", ""), ("ny", "s"),
    ("n", "t"), ("se", ""), ("per", ""),
)  # fmt: skip
_OWNED = ("mu", "-mu")
_NOT_OWNED = ("temu", "tamu", "laku", "buku", "suku", "baku", "kaku", "beku")

Concepts = tuple[str, ...]
Meaning = tuple[str, Concepts]
"""A word's stem, and what it stands for."""


class Lexicon:
    """
    The concepts of words, by stem; pure but for what it remembers.

    Attributes:
        phrases: By the word that they begin with.
        known: The meanings of words that were met before.
    """

    def __init__(self, text: str) -> None:
        self._words: dict[str, Concepts] = {}
        self.phrases: dict[str, dict[tuple[str, ...], Concepts]] = {}
        self.known: dict[str, Meaning] = {}
        for line in text.splitlines():
            name, _, words = line.partition(":")
            if not line.startswith("#"):
                for entry in words.split():
                    self._add(name, entry)
        phrased = {word for phrases in self.phrases.values() for phrase in phrases for word in phrase}
        simple = {word for word in phrased | set(self._words) if len(word) > 1}
        self._all = frozenset(simple | {word + "s" for word in simple})

    def _add(self, name: str, entry: str) -> None:
        parts = tuple(TOKEN.findall(entry.replace("_", " ")))
        if len(parts) == 1:
            self._words[parts[0]] = _joined(self._words.get(parts[0], ()), name)
        elif parts:
            phrases = self.phrases.setdefault(parts[0], {})
            phrases[parts] = _joined(phrases.get(parts, ()), name)

    def meaning(self, word: str) -> Meaning:
        """The stem of *word* and its concepts."""
        known = self.known.get(word)
        if known is None:
            known = self._work_out(word)
            if len(self.known) < _MEMORY and len(word) < 30:
                self.known[word] = known
        return known

    def phrase(self, words: Sequence[str], at: int) -> tuple[int, Concepts]:
        """How many of *words* from *at* on are the longest phrase that stands there, and its concepts; 0 for none."""
        phrases = self.phrases.get(words[at])
        if phrases is not None:
            for size in range(min(_PHRASE_WORDS, len(words) - at), 1, -1):
                concepts = phrases.get(tuple(words[at : at + size]))
                if concepts is not None:
                    return size, concepts
        return 0, ()

    def parted(self, run: str) -> str:
        """*run*, letters without a gap, as words: the longest of the lexicon each time, one after another."""
        words, at, rest = [], 0, ""
        while at < len(run):
            sizes = range(min(_LONGEST_WORD, len(run) - at), 1, -1)
            size = next((size for size in sizes if run[at : at + size] in self._all), 0)
            if not size:
                rest += run[at]
                at += 1
                continue
            words += [rest, run[at : at + size]] if rest else [run[at : at + size]]
            rest = ""
            at += size
        return " ".join([*words, rest] if rest else words)

    def _work_out(self, word: str) -> Meaning:
        for stem in _stems(word):
            concepts = self._words.get(stem)
            if concepts is not None:
                owned = word != stem and word.endswith(_OWNED) and not stem.endswith("mu")
                return stem, (*concepts, "YOU") if owned and "YOU" not in concepts else concepts
        if "-" in word:
            parts = [self.meaning(part) for part in word.split("-")[:4]]
            return word, tuple(dict.fromkeys(concept for _, concepts in parts for concept in concepts))
        if len(word) > 6 and word.endswith(("mu", "ku")) and not word.endswith(_NOT_OWNED):
            return word[:24], ("YOU",) if word[-2] == "m" else ("ME",)
        return word[:24], ()


def _joined(concepts: Concepts, name: str) -> Concepts:
    return concepts if name in concepts else (*concepts, name)


def _stems(word: str) -> Mapping[str, None]:
    """Every form that *word* may be one of, the likelier ones first."""
    found: dict[str, None] = {word: None}
    if len(word) > 30:
        return found
    for ending, instead in _ENGLISH:
        if word.endswith(ending) and len(word) - len(ending) > 2:
            stem = word[: -len(ending)] + instead
            found[stem] = None
            if len(stem) > 3 and stem[-1] == stem[-2]:
                found[stem[:-1]] = None
    for form in [word, *_without(word, _CLITICS)]:
        ends = [form, *_without(form, _SUFFIXES)]
        for end in ends:
            found[end] = None
            for prefix, instead in _PREFIXES:
                if end.startswith(prefix) and len(end) - len(prefix) > 2:
                    found[instead + end[len(prefix) :]] = None
    return found


def _without(word: str, endings: Sequence[str]) -> list[str]:
    return [word[: -len(end)] for end in endings if word.endswith(end) and len(word) - len(end) > 2]


def load() -> Lexicon:
    """The lexicon that is shipped."""
    return Lexicon(files(__package__).joinpath("lexicon.txt").read_text(encoding="utf-8"))
