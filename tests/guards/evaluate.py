"""
How good the injection guard is: `python -m tests.guards.evaluate` prints recall and false positives as tables.

The set is frozen: `FROZEN` is its digest, and nothing is trained or tuned on it. With `confirmation` as argument the
tables are of a second frozen set, which was written after the first had been looked at; with `development`, of the
texts that were trained on, which says how well they fit and nothing else.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Iterable, Sequence

from gateway.core.guarding import never_late
from gateway.guards.injection import InjectionEngine
from tests.guards.corpus import DATA, Sample, evaluation, handwritten
from tests.guards.train import WRITTEN

FROZEN = {
    "evaluation_attacks.txt": "229723740457d0bfcbedaef9c07cc24bbca7672710dbb8010b757bdce49b5139",
    "evaluation_buried.txt": "8e1e4352dc20333df3b002bf7af09acb0d9f75bae775e6c046549968b56c31c0",
    "evaluation_hard.txt": "de0d791eca5c56a332791da5815f1fca024f3beb37c49206242052f0b12d161d",
    "evaluation_ordinary.txt": "d7fd3637fc69fa62380fde8cf26d45133af33e42aa3b14b3f4285b6384e9043f",
    "confirmation.txt": "8403b16cf578c5d6adb73f442b64cd53a74cc6da77fce6a3e4e9b13ac6012888",
}
LANGUAGES = {"en": "English", "id": "Indonesian"}
_Z = 1.959964


def is_frozen() -> bool:
    """Whether the evaluation set is the one that was written before anything was trained."""
    return all(hashlib.sha256((DATA / name).read_bytes()).hexdigest() == digest for name, digest in FROZEN.items())


def wilson(hits: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share, after Wilson: it holds for few texts and near 0 and 1 too."""
    share = hits / total
    middle = share + _Z * _Z / (2 * total)
    reach = _Z * math.sqrt(share * (1 - share) / total + _Z * _Z / (4 * total * total))
    scale = 1 + _Z * _Z / total
    return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)


def score(engine: InjectionEngine, sample: Sample) -> float:
    """The highest of any finding in *sample*."""
    return max((finding.score for finding in engine.scan(sample.asked, never_late)), default=0.0)


Scored = Sequence[tuple[Sample, float]]


def share(scored: Scored, threshold: float, wanted: Callable[[Sample], bool]) -> tuple[int, int]:
    """Of the samples that are *wanted*, how many are above *threshold*, and how many there are."""
    mine = [one >= threshold for sample, one in scored if wanted(sample)]
    return sum(mine), len(mine)


def rows(scored: Scored, threshold: float) -> Iterable[tuple[str, str, int, int]]:
    """What is measured, the language, how many were found and how many there are."""
    for code, language in LANGUAGES.items():
        mine = [(sample, one) for sample, one in scored if sample.language == code]
        attacks = [(sample, one) for sample, one in mine if sample.is_attack]
        benign = [(sample, one) for sample, one in mine if not sample.is_attack]
        yield "attacks, direct", language, *share(attacks, threshold, lambda sample: sample.kind == "direct")
        yield "attacks, all", language, *share(attacks, threshold, lambda _: True)
        for kind in ("direct", "buried", "switched", "encoded"):
            families = dict.fromkeys(sample.family for sample, _ in attacks if sample.kind == kind)
            for family in families:
                yield (
                    f"{kind}: {family}",
                    language,
                    *share(attacks, threshold, lambda s, k=kind, f=family: s.kind == k and s.family == f),  # type: ignore[misc]
                )
        yield "benign, ordinary", language, *share(benign, threshold, lambda sample: sample.kind == "ordinary")
        yield "benign, hard", language, *share(benign, threshold, lambda sample: sample.kind == "hard")
        for family in dict.fromkeys(sample.family for sample, _ in benign if sample.kind == "hard"):
            yield f"hard: {family}", language, *share(benign, threshold, lambda s, f=family: s.family == f)  # type: ignore[misc]


def table(scored: Scored, threshold: float) -> str:
    """The rows as a table for a document."""
    lines = ["| texts | language | flagged | share | 95 % interval |", "|---|---|---|---|---|"]
    for name, language, hits, total in rows(scored, threshold):
        if total:
            low, high = wilson(hits, total)
            lines.append(f"| {name} | {language} | {hits} of {total} | {hits / total:.1%} | {low:.1%} to {high:.1%} |")
    return "\n".join(lines)


SETS: dict[str, Callable[[], list[Sample]]] = {
    "evaluation": evaluation,
    "confirmation": lambda: handwritten("confirmation.txt"),
    "development": lambda: [sample for name in WRITTEN for sample in handwritten(name)],
}


def main() -> None:
    """Print the tables."""
    engine = InjectionEngine()
    which = sys.argv[1] if sys.argv[1:] else "evaluation"
    samples = SETS[which]()
    sys.stdout.write(f"{which}, {'as frozen' if is_frozen() else 'CHANGED since it was frozen'}\n")
    scored = [(sample, score(engine, sample)) for sample in samples]
    sys.stdout.write(f"threshold {engine.threshold}, engine version {engine.version}\n\n")
    sys.stdout.write(table(scored, engine.threshold) + "\n")


if __name__ == "__main__":
    main()
