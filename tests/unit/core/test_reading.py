"""Questions to the books, as they are put."""

from __future__ import annotations

import pytest

from gateway.core.reading import read_dimensions


def test_dimensions() -> None:
    """One or two, in the order in which they are named."""
    assert [read_dimensions(text) for text in ("day", "user,model")] == [("day",), ("user", "model")]


@pytest.mark.parametrize("text", ["", "colour", "day,", "day,day", "day,model,user", " day"])
def test_no_dimensions(text: str) -> None:
    """Whatever else is refused, and told what there is."""
    with pytest.raises(ValueError, match="one or two of day, model, key"):
        read_dimensions(text)
