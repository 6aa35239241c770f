from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def steady(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests that measure time run without the collector: a full pass over a long session's heap takes 0.15 s."""
    if request.node.get_closest_marker("alone") is None:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
