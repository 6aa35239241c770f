"""The names of tests, on which the processes that run them have to agree."""

from __future__ import annotations

import gzip

import pytest

from tests.conftest import pytest_make_parametrize_id

NOW, LATER = (gzip.compress(b"the same", mtime=epoch_s) for epoch_s in (1, 2))


@pytest.mark.parametrize("data", [NOW, LATER, b"line\r\n", b"\xff", "é".encode()])
def test_bytes_that_are_no_words(data: bytes, request: pytest.FixtureRequest) -> None:
    """They give no name: two processes that compress the same at different times have different ones."""
    assert pytest_make_parametrize_id(None, data, "data") == "data"
    assert request.node.name in [f"test_bytes_that_are_no_words[data{number}]" for number in range(5)]


@pytest.mark.parametrize("value", [b"", b"plain words", "line\r\n", 7, None])
def test_whatever_else(value: object) -> None:
    """It is named as usual."""
    assert pytest_make_parametrize_id(None, value, "value") is None
