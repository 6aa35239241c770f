"""Texts to train and to judge the injection guard with, as the files under `data/injection` have them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from gateway.core.guarding import Role, Text

DATA = Path(__file__).parent / "data" / "injection"
_SLOT = re.compile(r"\{([a-z]+_[a-z]+)\}")
_ROLES = {"tool": "tool", "system": "system", "buried": "tool"}


@dataclass(frozen=True)
class Sample:
    """
    A text and what it is.

    Attributes:
        kind: `direct`, `buried`, `switched` or `encoded` for attacks; `ordinary`, `hard`, ... for what is none.
        family: What an attack is after, or what a benign text is about.
    """

    text: str
    language: str
    kind: str
    family: str
    role: Role = "user"

    @property
    def is_attack(self) -> bool:
        """Whether it should be found."""
        return self.kind in ("direct", "buried", "pasted", "switched", "encoded")

    @property
    def asked(self) -> Text:
        """The sample as an engine gets it."""
        return Text(self.text, self.role, "messages[0].content")


def _lines(name: str) -> Iterator[tuple[list[str], str]]:
    header: list[str] = []
    for line in (DATA / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            header = line[3:].split()
        elif line and not line.startswith(("#  ", "# Templates")):
            yield header, line


def _role(kind: str, family: str) -> Role:
    return cast(Role, _ROLES.get(family, _ROLES.get(kind, "user")))


def handwritten(name: str) -> list[Sample]:
    """The samples of a file with one text in each line, `\\n` for the end of a line."""
    found = []
    for (language, kind, family), line in _lines(name):
        found.append(Sample(line.replace("\\n", "\n"), language, kind, family, _role(kind, family)))
    return found


def drawn(name: str, seed: int, share: float = 1.0) -> list[Sample]:
    """Samples drawn from a file of templates: the same for the same seed, without repetitions."""
    chance = random.Random(seed)
    slots: dict[str, list[str]] = {}
    found: dict[str, Sample] = {}
    for header, line in _lines(name):
        if line.startswith("$"):
            slot, _, words = line[1:].partition(" = ")
            slots[slot] = [word.strip() for word in words.split(" | ")]
            continue
        language, kind, family, times = header
        for _ in range(max(1, round(int(times[1:]) * share))):
            text = line
            while _SLOT.search(text):
                text = _SLOT.sub(lambda found: chance.choice(slots[found[1]]), text)
            text = re.sub(r" {2,}", " ", text).strip().replace("\\n", "\n")
            if chance.random() < 0.5:
                text = text[:1].upper() + text[1:]
            found.setdefault(text, Sample(text, language, kind, family, _role(kind, family)))
    return list(found.values())


def evaluation() -> list[Sample]:
    """The set that the guard is judged by: nothing is trained or tuned on it."""
    direct = handwritten("evaluation_attacks.txt")
    benign = handwritten("evaluation_hard.txt")
    plain: list[Sample] = []
    frames: dict[str, list[str]] = {}
    for (language, kind, *rest), line in _lines("evaluation_ordinary.txt"):
        if rest:
            plain.append(Sample(line.replace("\\n", "\n"), language, kind, rest[0], _role(kind, rest[0])))
        else:
            frames.setdefault(f"{language} {kind}", []).append(line)
    for language in ("en", "id"):
        for frame in frames[f"{language} frame"]:
            plain += [
                Sample(frame.replace("{}", topic), language, "ordinary", "topic")
                for topic in frames[f"{language} topic"]
            ]
    return [*direct, *_buried(), *_encoded(direct), *benign, *plain]


def _buried() -> list[Sample]:
    """Each payload in two carriers: as what a tool brought, and as what a user pastes."""
    parts: dict[str, list[str]] = {}
    for (language, kind), line in _lines("evaluation_buried.txt"):
        parts.setdefault(f"{language} {kind}", []).append(line.replace("\\n", "\n"))
    asks = {"en": "Please summarise this for me:\n\n", "id": "Tolong ringkas ini untuk saya:\n\n"}
    found = []
    for language in ("en", "id"):
        carriers = parts[f"{language} carrier"]
        for at, payload in enumerate(parts[f"{language} payload"]):
            shown = carriers[at % len(carriers)].format(payload)
            pasted = asks[language] + carriers[(at + 3) % len(carriers)].format(payload)
            found.append(Sample(shown, language, "buried", "tool", "tool"))
            found.append(Sample(pasted, language, "buried", "pasted"))
    return found


def _encoded(direct: list[Sample]) -> list[Sample]:
    """Every second direct attack in another writing, in turn."""
    from tests.guards.disguise import DISGUISES

    found = []
    for language in ("en", "id"):
        mine = [sample for sample in direct if sample.language == language and sample.kind == "direct"][::2]
        for at, sample in enumerate(mine):
            name = list(DISGUISES)[at % len(DISGUISES)]
            found.append(replace(sample, text=DISGUISES[name](sample.text), kind="encoded", family=name))
    return found
