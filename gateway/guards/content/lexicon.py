"""The content guard's words and rules, read from the files beside this one.

A file has groups of terms and rules; `context.toml` has the groups that all files share, every other file is a kind of
finding by its name. Groups of one name in two files are two groups: a file's own comes before a shared one.
"""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from typing import Any, Final

from msgspec import Struct

from gateway.guards.folding import fold

KINDS: Final = ("minors", "self_harm", "weapons", "violence", "hate", "illegal_trade", "sexual")
"""From grave to less so: where two findings are of one place and score, the first is told."""

LANGUAGES: Final = ("en", "id")
_CONTEXT = "context"
_SAYINGS = "sayings"
_NEED = re.compile(r"(?P<groups>[a-z_]+(?:\|[a-z_]+)*)(?P<side>[<>~])(?P<chars>[0-9]+)")
_GROUP_KEYS = {*LANGUAGES, "patterns"}


class Term(Struct, frozen=True):
    """
    Words to look for, folded, one blank between two.

    Attributes:
        is_open: Whether any letters may follow.
        language: Whose endings may follow.
        groups: The numbers of the groups that it stands in.
    """

    text: str
    is_open: bool
    language: str
    groups: tuple[int, ...]


class Need(Struct, frozen=True):
    """
    What has to stand near a rule's core.

    Attributes:
        groups: A term of any of these.
        before: The most characters between the term and the core behind it; -1 where it may not be there.
        behind: The same for a term behind the core.
    """

    groups: tuple[int, ...]
    before: int
    behind: int


class Rule(Struct, frozen=True):
    """
    A finding: a term of the core, whose place it has, and what it needs.

    Attributes:
        score: Without excuses.
        excuses: The groups whose terms near it make it harmless.
    """

    kind: str
    reason: str
    core: int
    needs: tuple[Need, ...]
    score: float
    excuses: tuple[int, ...]


class Lexicon(Struct, frozen=True):
    """
    All kinds together.

    Attributes:
        patterns: Expressions, each with its group's number.
        hiding: The groups of sayings: no term counts that stands inside of one.
    """

    terms: tuple[Term, ...]
    patterns: tuple[tuple[str, int], ...]
    rules: tuple[Rule, ...]
    hiding: frozenset[int]


def load_lexicon() -> Lexicon:
    """The lexicon of this package; raises ValueError for a group that is not there or a rule that says nothing."""
    return build_lexicon({name: _read(name) for name in (_CONTEXT, *KINDS)})


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def build_lexicon(sources: dict[str, dict[str, Any]]) -> Lexicon:
    """A lexicon of files by their names, each as TOML has it."""
    builder = _Builder()
    for name, source in sources.items():
        for group, members in source.get("groups", {}).items():
            builder.add_group(f"{name}.{group}", members)
    for name, source in sources.items():
        for rule in source.get("rules", ()):
            builder.add_rule(name, rule)
    return builder.lexicon()


class _Builder:
    """Groups get numbers by their order, terms the groups in which they stand."""

    def __init__(self) -> None:
        self._groups: dict[str, int] = {}
        self._terms: dict[tuple[str, bool, str], set[int]] = {}
        self._patterns: list[tuple[str, int]] = []
        self._rules: list[Rule] = []

    def add_group(self, name: str, members: dict[str, Any]) -> None:
        """A group with its terms by language, and its patterns."""
        unknown = members.keys() - _GROUP_KEYS
        if unknown:
            raise ValueError(f"group {name} has {', '.join(sorted(unknown))}")
        number = self._groups[name] = len(self._groups)
        for language in LANGUAGES:
            for term in members.get(language, "").split(","):
                text = plain(" ".join(term.split()))
                if text:
                    key = (text.removesuffix("*"), text.endswith("*"), language)
                    self._terms.setdefault(key, set()).add(number)
        self._patterns += [(pattern, number) for pattern in members.get("patterns", ())]

    def add_rule(self, kind: str, rule: dict[str, Any]) -> None:
        """A rule of *kind*, with the names of its groups resolved."""
        self._rules.append(
            Rule(
                kind=kind,
                reason=rule["reason"],
                core=self._number(kind, rule["core"]),
                needs=tuple(self._need(kind, need) for need in rule["needs"]),
                score=float(rule["score"]),
                excuses=tuple(self._number(kind, name) for name in rule["excuses"]),
            )
        )

    def _number(self, kind: str, name: str) -> int:
        for full in (f"{kind}.{name}", f"{_CONTEXT}.{name}"):
            if full in self._groups:
                return self._groups[full]
        raise ValueError(f"a rule of {kind} names the group {name}, which is nowhere")

    def _need(self, kind: str, need: str) -> Need:
        parts = _NEED.fullmatch(need)
        if parts is None:
            raise ValueError(f"a rule of {kind} needs {need!r}, which says nothing")
        side, chars = parts["side"], int(parts["chars"])
        return Need(
            groups=tuple(self._number(kind, name) for name in parts["groups"].split("|")),
            before=chars if side in "<~" else -1,
            behind=chars if side in ">~" else -1,
        )

    def lexicon(self) -> Lexicon:
        """What was added."""
        return Lexicon(
            terms=tuple(Term(*key, tuple(sorted(groups))) for key, groups in self._terms.items()),
            patterns=tuple(self._patterns),
            rules=tuple(self._rules),
            hiding=frozenset(number for name, number in self._groups.items() if name.endswith(f".{_SAYINGS}")),
        )


_JOINTS = str.maketrans(dict.fromkeys("-\n\r\t_/", " "))
_DIGITS = re.compile(r"[013457$](?<=[a-z].)(?=[a-z])")  # one that stands in a word for a letter
_LETTERS = {"0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t", "$": "s"}


def plain(text: str) -> str:
    """*text* as its terms are looked for: as many characters as `fold` makes of it."""
    return joined(fold(text).text)


def joined(folded: str) -> str:
    """A folded text with a blank for each hyphen, line end, tab, underline or slash, and digits in words as letters."""
    return _DIGITS.sub(_letter, folded.translate(_JOINTS))


def _letter(digit: re.Match[str]) -> str:
    return _LETTERS[digit[0]]
