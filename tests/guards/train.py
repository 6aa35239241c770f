"""
Trains the injection guard's weights: `python -m tests.guards.train` writes them into the package.

A logistic regression by hand, so that every machine comes to the same weights: no threads, no libraries, one order.
Attacks are whole texts, of which one window is what makes them attacks; which one, the model of the round before says.
"""

from __future__ import annotations

import hashlib
import math
import random
import sys
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from pathlib import Path

from gateway.core.guarding import never_late
from gateway.guards.injection import InjectionEngine, model
from tests.guards.corpus import DATA, Sample, drawn, handwritten

WEIGHTS = Path(model.__file__).parent / "weights.tsv"
TEMPLATES = "training.txt"
WRITTEN = ("development.txt", "practice.txt", "rehearsal.txt")
PROSE = "prose.txt"
TERMS = "terms.txt"
SOURCES = (TEMPLATES, *WRITTEN, PROSE, TERMS)
SEED = 5
WRITTEN_COUNTS = 5.0
"""How much more a text written by hand counts than one drawn from templates: no two of them are alike."""
TERMS_SHARE = 0.5
TERMS_COUNT = 0.3
"""Terms and manuals: enough to be known for what they are. More of them cost attacks, on which see the document."""
ROUNDS = 2
EPOCHS = 7
AVERAGED = 4
RATE = 0.15
PULL = 4e-4
WORD_PULL = 2e-3
RAREST = 2
LEAST_STEPS = 1

Windows = list[Set[str]]


def windows(samples: Iterable[Sample], engine: InjectionEngine) -> list[tuple[Windows, bool]]:
    """What the model is asked about each of *samples*."""
    return [
        ([window.features for window in engine.windows(sample.asked, never_late)], sample.is_attack)
        for sample in samples
    ]


def train(seen: Sequence[tuple[Windows, bool]], weight: Sequence[float] | None = None) -> dict[str, float]:
    """Weights by feature, for windows and whether one of them is an attack's."""
    often = Counter(feature for asked, _ in seen for feature in set().union(*asked))
    kept = {feature for feature, times in often.items() if times >= RAREST}
    texts = [([[f for f in sorted(one) if f in kept] for one in asked], attack) for asked, attack in seen if asked]
    heavy = [weight[at] if weight else 1.0 for at, (asked, _) in enumerate(seen) if asked]
    weights: dict[str, float] = {"(bias)": -1.0}
    for _ in range(ROUNDS):
        examples = []
        for (asked, attack), size in zip(texts, heavy, strict=True):
            if attack:
                examples.append((max(asked, key=lambda one: _margin(weights, one)), 1.0, size))
            else:
                examples += [(one, 0.0, size) for one in asked]
        weights = _fit(examples)
    return weights


def _margin(weights: dict[str, float], features: Sequence[str]) -> float:
    return weights["(bias)"] + sum(weights.get(feature, 0.0) for feature in features)


def _fit(examples: list[tuple[list[str], float, float]]) -> dict[str, float]:
    """Adagrad with a pull towards zero, which is stronger for words: concepts are what carries over to new texts."""
    chance = random.Random(SEED)
    weights: dict[str, float] = {"(bias)": -1.0}
    mean: dict[str, float] = {}
    slopes: dict[str, float] = {}
    for epoch in range(EPOCHS):
        if epoch >= EPOCHS - AVERAGED:
            for feature, weight in weights.items():
                mean[feature] = mean.get(feature, 0.0) + weight / AVERAGED
        chance.shuffle(examples)
        for features, label, size in examples:
            margin = max(-30.0, min(30.0, _margin(weights, features)))
            error = (1 / (1 + math.exp(-margin)) - label) * size
            for feature in ("(bias)", *features):
                old = weights.get(feature, 0.0)
                is_word = feature[0] == "=" or " " in feature
                slope = error + old * (WORD_PULL if is_word else PULL) * 20
                total = slopes.get(feature, 1e-2) + slope * slope
                slopes[feature] = total
                weights[feature] = old - RATE * (0.4 if is_word else 1.0) * slope / math.sqrt(total)
    return mean


def digest(names: Iterable[str] = SOURCES) -> str:
    """Of what is trained on."""
    total = hashlib.sha256()
    for name in names:
        total.update((DATA / name).read_bytes())
    return total.hexdigest()


def rendered(weights: dict[str, float]) -> str:
    """The file of *weights*."""
    steps = {feature: round(weight / model.STEP) for feature, weight in weights.items()}
    lines = [f"{name}\t{steps[name]}" for name in sorted(steps) if abs(steps[name]) >= LEAST_STEPS or name == "(bias)"]
    body = "\n".join(lines) + "\n"
    return (
        "# Weights of the injection guard in steps of 1/32, written by `make train-guards`.\n"
        f"# trained on sha256 {digest()}\n# weights sha256 {hashlib.sha256(body.encode()).hexdigest()}\n{body}"
    )


def pasted(samples: Iterable[Sample]) -> list[Sample]:
    """What tools brought in *samples* as users' words too: people paste documents."""
    return [replace(sample, role="user") for sample in samples if sample.role == "tool"]


def learn(engine: InjectionEngine, share: float = 1.0) -> dict[str, float]:
    """Weights from everything there is to train on, or from a *share* of it."""
    templates = drawn(TEMPLATES, SEED, share)
    written = [sample for name in WRITTEN for sample in handwritten(name)][:: round(1 / share)]
    prose = handwritten(PROSE)[:: round(1 / share)]
    terms = drawn(TERMS, SEED, share * TERMS_SHARE)
    terms += pasted(terms)
    samples = [*terms, *templates, *prose, *written, *pasted([*prose, *written])]
    plain = len(templates) + len(prose)
    counts = [TERMS_COUNT] * len(terms) + [1.0] * plain
    counts += [WRITTEN_COUNTS] * (len(samples) - len(counts))
    return train(windows(samples, engine), counts)


def main() -> None:
    """Train on everything and write the weights."""
    WEIGHTS.write_text(rendered(learn(InjectionEngine(model.Model({})))), encoding="utf-8")
    sys.stdout.write(f"{WEIGHTS.name}: {len(WEIGHTS.read_text().splitlines()) - 3} weights\n")


if __name__ == "__main__":
    main()
