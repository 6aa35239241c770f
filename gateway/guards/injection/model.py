"""
A linear model: a weight for each feature that training found to matter, and one for what is always there.

The weights are kept by the names of their features, not by a digest of them: two never share one, and a person can read
why a text was taken for an attack. Each is a whole number of `STEP`s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib.resources import files

STEP = 1 / 32
_BIAS = "(bias)"


class Model:
    """How likely a set of features is an attack's."""

    def __init__(self, weights: dict[str, float]) -> None:
        self._weights = dict(weights)
        self._bias = self._weights.pop(_BIAS, 0.0)

    def margin(self, features: Iterable[str]) -> float:
        """The sum of the weights of *features*: above 0 for what is likelier an attack than not."""
        return self._bias + math.fsum(filter(None, map(self._weights.get, features)))

    def reasons(self, features: Iterable[str]) -> list[tuple[str, float]]:
        """The features that speak for an attack, the heaviest first."""
        weighed = [(name, self._weights.get(name, 0.0)) for name in features]
        return sorted((pair for pair in weighed if pair[1] > 0), key=lambda pair: (-pair[1], pair[0]))


def likelihood(margin: float) -> float:
    """*margin* as a score from 0 to 1."""
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, margin))))


def load() -> Model:
    """The model that is shipped."""
    return parse(files(__package__).joinpath("weights.tsv").read_text(encoding="utf-8"))


def parse(text: str) -> Model:
    """A model from its file's *text*: feature, tab and number of steps in each line but those that begin with #."""
    weights: dict[str, float] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            feature, _, steps = line.rpartition("\t")
            weights[feature] = int(steps) * STEP
    return Model(weights)
