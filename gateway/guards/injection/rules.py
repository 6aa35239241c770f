"""
What an attack says in so many words, as concepts in order: the rules for which no model is asked.

A rule is concepts and, between them, the most words that may stand between. They are the lexicon's, so that one rule is
for both languages. None holds for what stands in quotes, for what is not to be done, or where the text is about
attacks, bots or translations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gateway.core.guarding import Role

SURE = 3.0
"""The margin of a text for which a rule holds: a score of 0.95."""

_RULES = {
    "override": (
        "IGNORE 3 PRIOR|GIVEN|SYSTEM|YOU 4 INSTR|PROMPT",
        "IGNORE 4 INSTR|PROMPT 3 PRIOR|GIVEN|SYSTEM|YOU|ABOVE",
        "NOFOLLOW 5 INSTR|PROMPT|SYSTEM",
        "INSTR 3 YOU 4 IGNORE",
        "IGNORE 3 TASK 2 YOU",
        "IGNORE 4 ASKED",
        "IGNORE 3 SYSTEM",
        "MINE 5 IGNORE|AUTH",
        "PRIOR 4 INSTR|PROMPT 4 FALSE|IGNORE",
        "OBEY 2 ONLY 3 ME",
    ),
    "extraction": (
        "REVEAL|SHOW 4 YOU 4 PROMPT",
        "REVEAL|SHOW 4 PROMPT 2 YOU",
        "REVEAL|SHOW 6 HIDDEN 3 PROMPT|INSTR",
        "REVEAL|SHOW 6 PROMPT|INSTR 3 HIDDEN",
        "REVEAL 5 PROMPT",
        "REVEAL|SHOW 3 YOU 3 INSTR",
        "REVEAL|SHOW 5 PRIOR 3 PROMPT|INSTR",
        "REVEAL|SHOW 5 INSTR|PROMPT 5 VERBATIM",
        "PROMPT 6 VERBATIM",
        "TALK 5 YOU 3 GIVEN",
        "WHATARE 4 PROMPT",
        "REVEAL|SHOW 3 DATA 3 YOU",
    ),
    "jailbreak": (
        "PERSONA 8 AI 8 FREE",
        "YOU 5 FREE",
        "PERSONA 6 FREE",
        "PERSONA 6 NEG 3 INSTR|SAFETY|REFUSE",
        "YOU 3 NEG 3 REFUSE",
        "ACTIVATE|DISABLE|PERSONA 4 MODE",
        "MODE 5 FREE|DISABLE|REFUSE|SAFETY",
        "DISABLE 4 YOU 3 INSTR|SAFETY",
        "DISABLE 4 INSTR|SAFETY 2 YOU",
        "YOU 4 JAIL",
    ),
    "exfiltration": (
        "SEND 8 DATA 10 MAILTO|LINK|NUMBER|IMAGE",
        "IMAGE 6 DATA|HIDDEN",
        "SEND 8 DATA 8 CONCEAL",
        "SEND|SHOW 6 KEYFILE",
    ),
    "tools": (
        "EXEC 8 TOOL|DANGER 12 CONCEAL|SKIPOK",
        "DANGER 12 CONCEAL|SKIPOK",
        "EXEC 8 DANGER",
    ),
    "turns": (
        "SETUP 12 IGNORE|FREE|OBEY|DISABLE|REVEAL",
        "SETUP 8 SAFETY|REFUSE|AUTH|INSTR|ACCESS",
        "SETUP 10 YOU",
    ),
    "document": (
        "ADDRESS 10 SAY|EXEC|SEND|MUST|IGNORE|CONCEAL|SHOW",
        "CONCEAL 4 DOCHIDE",
        "OUTPUT 6 MUST|LINK",
        "COMMENT 6 AI|SAY|EXEC|SEND",
    ),
}
_EXCUSED = frozenset(["SECTOPIC", "TRANSL", "OURBOT", "STORY", "CODE", "WORK", "MAKE"])

Step = tuple[int, frozenset[str]]


def _written(rule: str) -> tuple[list[str], list[Step]]:
    first, *rest = rule.split()
    steps = [(int(gap), frozenset(names.split("|"))) for gap, names in zip(rest[::2], rest[1::2], strict=True)]
    return first.split("|"), steps


_TABLE = [
    (family, first, steps)
    for family, rules in _RULES.items()
    for firsts, steps in map(_written, rules)
    for first in firsts
]


def broken(concepts: Sequence[tuple[int, str, bool]], role: Role) -> Iterable[str]:
    """
    The families of which a rule holds.

    Args:
        concepts: Place among the words, name, and whether within quotes.
        role: Whose words they are. The owner's break no rule; only what a tool brings is a document.
    """
    if role == "system":
        return ()
    plain = [(at, name) for at, name, inside in concepts if not inside]
    names = {name for _, name in plain}
    if names & _EXCUSED:
        return ()
    return dict.fromkeys(
        family
        for family, first, steps in _TABLE
        if first in names
        and (family != "document" or role in ("tool", "definition"))
        and all(names & wanted for _, wanted in steps)
        and _holds(plain, first, steps)
    )


def _holds(plain: Sequence[tuple[int, str]], first: str, steps: Sequence[Step]) -> bool:
    denied = {at + 1 for at, name in plain if name == "NEG"}
    reached = {at for at, name in plain if name == first and at not in denied}
    for gap, wanted in steps:
        reached = {at for at, name in plain if name in wanted and any(0 <= at - one <= gap + 1 for one in reached)}
    return bool(reached)
