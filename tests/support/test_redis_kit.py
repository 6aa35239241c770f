"""The throwaway Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.redis import Redis, server


@pytest.fixture
def mine() -> Iterator[Redis]:
    with server() as running:
        yield running


def test_it_forgets_and_keeps_its_port(mine: Redis) -> None:
    """A restart is empty and on the same port; in between nothing answers."""
    mine.command("SET", "one", "1")
    before = mine.keys()
    mine.stop()
    with pytest.raises(OSError, match=r"."):
        mine.command("PING")
    mine.start()

    assert (before, mine.keys(), mine.command("PING")) == (["one"], [], "PONG")


def test_replies_of_every_kind(mine: Redis) -> None:
    """Numbers, nothing, lists and errors come back as what they are."""
    found = [mine.command("INCR", "n"), mine.command("GET", "none"), mine.command("MGET", "n", "none")]

    assert found == [1, None, ["1", None]]
    with pytest.raises(RuntimeError, match="unknown command"):
        mine.command("NONSENSE")
