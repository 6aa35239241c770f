"""
What a piece of a text is, as the model knows it: a set of features, none of which is a length or a count.

The features are the concepts of the lexicon, alone and in order with those close behind, the stems of words and pairs
of them, whose words the text is, and what the text around it is about. What stands in quotes is told apart: to talk
about an attack is no attack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise

from msgspec import Struct

from gateway.core.guarding import Role
from gateway.guards.injection.lettering import disguises, unfold
from gateway.guards.injection.marks import CLOSED, ENDED, OPENED, ended, quoted, worded
from gateway.guards.injection.words import TOKEN, Lexicon

NEAR = 7
"""How many words behind a concept another one is still taken for part of the same thought."""

_DAN = re.compile(r"\bDAN\b")
_BETWEEN_SENTENCES = 3
_MARKERS = frozenset((OPENED, CLOSED, ENDED))
_MOST_GROUPS = 12
_MOST_CONCEPTS = 48
_MOST_WORDS = 90
_GROUPS = {
    "UNDO": "IGNORE NOFOLLOW DISABLE",
    "AMEND": "REPLACE",
    "LAW": "INSTR PROMPT SAFETY",
    "TOLD": "GIVEN PRIOR ABOVE",
    "TELL": "REVEAL SHOW WHATARE",
    "SECRET": "HIDDEN VERBATIM",
    "YOURS": "YOU AI MODEL",
    "MINE": "ME MINE AUTH",
    "OWNER": "SYSTEM",
    "ROLE": "PERSONA MODE JAIL ACTIVATE",
    "LOOSE": "FREE REFUSE HARM",
    "GIVE": "SEND ACCESS",
    "GOODS": "DATA KEYFILE",
    "PLACE": "LINK MAILTO NUMBER IMAGE",
    "DO": "EXEC TOOL DANGER",
    "STEALTH": "CONCEAL SKIPOK UNSEEN COMMENT",
    "FAKE": "SETUP TURN ADDRESS",
    "READER": "USER",
    "DUTY": "OBEY MUST",
    "TURN": "NOW NEW TASK",
    "NOT": "NEG",
    "ANSWER": "SAY ONLY",
    "STUDY": "TALK TRANSL SECTOPIC MAKE STORY CODE OURBOT COND",
    "THING": "DOCOBJ WORK DOCHIDE",
    "WISH": "ASKED OUTPUT",
    "FALSE": "FALSE REGARDLESS STOP",
    "SELF": "BEHAVE MEMORY",
}
_GROUP = {concept: group for group, concepts in _GROUPS.items() for concept in concepts.split()}
_HARMLESS = frozenset(
    [
        "TALK",
        "TRANSL",
        "STORY",
        "CODE",
        "DOCOBJ",
        "MAKE",
        "WORK",
        "POLITE",
        "ONLY",
        "NEG",
        "QUOTEIN",
        "NOW",
        "NEW",
        "ALL",
        "PRIOR",
        "ME",
        "YOU",
        "SAY",
        "MUST",
        "TASK",
    ]
)
"""Concepts that no attack consists of alone."""

_TELLING = frozenset(
    (
        "FREE", "JAIL", "MODE", "PROMPT", "SETUP", "ADDRESS", "CONCEAL", "REGARDLESS", "OUTPUT", "DANGER", "KEYFILE",
        "NOFOLLOW", "MINE",
    )
)  # fmt: skip
"""Concepts that an attack may consist of alone."""

_COMMON = frozenset(
    (
        "the", "an", "to", "of", "and", "is", "in", "for", "it", "be", "are", "was", "that", "this", "with", "as",
        "from", "have", "has", "my", "your", "you", "or", "all", "yang", "di", "ke", "dari", "ini", "itu", "untuk",
        "dengan", "saya", "aku", "kamu", "anda", "tidak", "jangan", "apa", "semua", "saja", "tanpa", "atau", "dalam",
        "pada", "adalah", "tolong", "please", "can", "if", "by", "at", "what", "lo", "gue", "not", "me", "do", "so",
    )
)  # fmt: skip

ABOUT = frozenset(["TALK", "TRANSL", "STORY", "SECTOPIC", "CODE", "OURBOT", "MAKE", "WORK"])
"""Concepts of what a text is about, which the pieces around are asked for too."""


class Reading(Struct, frozen=True, gc=False):
    """
    One piece, read.

    Attributes:
        words: Stems, in order.
        concepts: Where among the words, which, and whether within quotes.
        signs: What else was noticed, as features.
    """

    words: tuple[str, ...]
    concepts: tuple[tuple[int, str, bool], ...]
    signs: tuple[str, ...] = ()

    @property
    def is_hot(self) -> bool:
        """Whether there can be an attack in it."""
        told = {concept for _, concept, _ in self.concepts}
        return (len(told) > 1 and not told <= _HARMLESS) or not _TELLING.isdisjoint(told)

    @property
    def is_strange(self) -> bool:
        """Whether it is neither English nor Indonesian, as far as the commonest words tell."""
        return len(self.words) > 2 and _COMMON.isdisjoint(self.words)


def read(piece: str, lexicon: Lexicon, *, quotes: bool) -> Reading:
    """*piece* with its concepts; *quotes* where what it quotes is to be told apart."""
    if "DAN" in piece and not piece.isupper():
        piece = _DAN.sub("xdanx", piece)  # in Indonesian, and in lower case, it is nothing but "and"
    text = ended(worded(unfold(piece)))
    marked = quoted(text) if quotes else text
    words = TOKEN.findall(marked)[: 2 * _MOST_WORDS]
    reading = _understood(words, lexicon)
    if marked is not text and not any(not inside for _, _, inside in reading.concepts):
        reading = _understood(TOKEN.findall(text)[: 2 * _MOST_WORDS], lexicon)
    signs = [*(f"how:{disguise}" for disguise in disguises(piece))]
    if "?" in piece:
        signs.append("sign:question")
    return Reading(reading.words, reading.concepts, tuple(signs))


def _understood(words: Sequence[str], lexicon: Lexicon) -> Reading:
    stems: list[str] = []
    concepts: list[tuple[int, str, bool]] = []
    inside, at, gap = False, 0, 0
    begun, known = lexicon.phrases, lexicon.known
    while at < len(words):
        word = words[at]
        at += 1
        if word in _MARKERS:
            inside = word == OPENED or (inside and word == ENDED)
            gap += _BETWEEN_SENTENCES if word == ENDED else 0
            continue
        size, meant = lexicon.phrase(words, at - 1) if word in begun else (0, ())
        if size:
            at += size - 1
            stems.append("_".join(words[at - size : at]))
        else:
            stem, meant = known.get(word) or lexicon.meaning(word)
            stems.append(stem)
        if meant:
            place = len(stems) + gap
            concepts += [(place, concept, inside) for concept in meant]
    return Reading(tuple(stems), tuple(concepts))


def features(pieces: Sequence[Reading], role: Role, around: Iterable[str] = ()) -> set[str]:
    """
    What the model is asked about neighbouring *pieces*, taken together.

    Args:
        around: The concepts of `ABOUT` that stand in the pieces in front, and features that are known otherwise.
    """
    found: set[str] = {name if ":" in name else f"around:{name}" for name in around}
    concepts: list[tuple[int, str, bool]] = []
    words: list[str] = []
    for piece in pieces:
        base = len(words)
        concepts += [(base + at, concept, inside) for at, concept, inside in piece.concepts]
        words += piece.words
        found.update(piece.signs)
    del concepts[_MOST_CONCEPTS:], words[_MOST_WORDS:]
    named = [(at, f"'{concept}" if inside else concept) for at, concept, inside in concepts]
    whose = "" if role == "user" else f"{role[:3]}:"
    if named:
        found.add(f"first:{named[0][1]}")
    for index, (at, name) in enumerate(named):
        found.add(name)
        if whose:
            found.add(whose + name)
        for near, other in named[index + 1 :]:
            if near - at > NEAR:
                break
            found.add(f"{name}>{other}")
    told = {"QUOTED" if inside else _GROUP[name] for _, name, inside in concepts if name in _GROUP}
    if role in ("tool", "definition"):
        told.add("DOCUMENT")
    groups = sorted(told)
    found.update(map("&".join, combinations(groups, 2)))
    found.update(map("&".join, combinations(groups[:_MOST_GROUPS], 3)))
    found.update(map(" ".join, pairwise(words)))
    found.update(f"={word}" for word in words)
    return found


def about(pieces: Iterable[Reading]) -> frozenset[str]:
    """What *pieces* are about."""
    return frozenset(concept for piece in pieces for _, concept, _ in piece.concepts if concept in ABOUT)
