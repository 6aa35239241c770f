"""The shipped weights are what training makes of the repository's texts, and the guard is judged by others."""

from __future__ import annotations

import hashlib

from gateway.guards.injection import InjectionEngine
from gateway.guards.injection.model import Model
from tests.guards import train
from tests.guards.corpus import evaluation, handwritten
from tests.guards.evaluate import is_frozen

SHINGLE = 5


def shingles(text: str) -> set[tuple[str, ...]]:
    """The runs of words in *text*."""
    words = "".join(char if char.isalnum() else " " for char in text.lower()).split()
    return {tuple(words[at : at + SHINGLE]) for at in range(len(words) - SHINGLE + 1)}


def test_training_is_the_same_each_time() -> None:
    """The same texts give the same weights, to the last step."""
    engine = InjectionEngine(Model({}))

    once, twice = (train.rendered(train.learn(engine, share=0.1)) for _ in range(2))

    assert once == twice


def test_weights_say_what_they_come_from() -> None:
    """The file has the digests of what it was trained on, and of itself."""
    _, sources, own, *rest = train.WEIGHTS.read_text(encoding="utf-8").split("\n")
    body = "\n".join(rest)

    assert sources.endswith(train.digest())
    assert own.endswith(hashlib.sha256(body.encode()).hexdigest())


def test_the_evaluation_set_is_frozen() -> None:
    """What the guard is judged by is what was written before anything was trained."""
    assert is_frozen()


def test_nothing_is_judged_by_what_was_trained_on() -> None:
    """Texts of the evaluation set share next to no run of five words with those that were trained on."""
    seen: set[tuple[str, ...]] = set()
    for name in train.WRITTEN:
        for sample in handwritten(name):
            seen |= shingles(sample.text)
    judged = [sample for sample in [*evaluation(), *handwritten("confirmation.txt")] if sample.kind != "encoded"]

    shared = [
        sample.text for sample in judged if len(shingles(sample.text) & seen) * 2 > len(shingles(sample.text)) > 0
    ]

    assert len(shared) <= 0.02 * len(judged)
    assert {sample.text for sample in judged}.isdisjoint(
        sample.text for name in train.WRITTEN for sample in handwritten(name)
    )
