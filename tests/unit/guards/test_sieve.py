"""What counts of what guards see in answers."""

from __future__ import annotations

import pytest

from gateway.core.guarding import GuardTerms
from gateway.guards.sieve import make_eyes
from tests.support.guards import Spotter


@pytest.mark.parametrize(
    ("terms", "threshold"),
    [
        (GuardTerms("monitor"), 0.5),
        (GuardTerms("monitor", 0.9), 0.9),
        (GuardTerms("monitor", 0.9, or_own=True), 0.5),
        (GuardTerms("monitor", 0.2, or_own=True), 0.2),
    ],
)
def test_thresholds(terms: GuardTerms, threshold: float) -> None:
    """The policy's counts, or the engine's own where that is lower and another policy left it at that."""
    (eye,) = make_eyes([Spotter()], "block", {"pii": terms})

    assert eye.threshold == threshold
