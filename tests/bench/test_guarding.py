"""What `tests.bench.guarding` measures are calls that every guard lets pass; nothing here looks at a clock."""

from __future__ import annotations

import itertools
import random

import pytest

from gateway.dialects.spoken import pieces_of
from gateway.guards.table import ENGINES

from .guarding import KINDS, all_rules, measure, measure_served, told


@pytest.mark.parametrize("kind", KINDS)
async def test_the_stage(kind: str) -> None:
    """Each kind of call passes under each of the rules."""
    took = await measure(all_rules(), KINDS[kind](random.Random(1)), rounds=2)

    assert list(took) == ["no rules", *ENGINES, "all guards"]
    assert {len(took_ms) for took_ms in took.values()} == {2}


async def test_served() -> None:
    """Whole calls of both keys are answered."""
    took = await measure_served(rounds=2)

    assert [len(took_ms) for took_ms in took.values()] == [2, 2]


def test_new_turns() -> None:
    """A chat that has grown is what it was but for its oldest and its newest turn; a new prompt is new."""
    chats, prompts = (
        [{bytes(piece.raw) for piece in pieces_of(call)} for call in itertools.islice(KINDS[name](random.Random(1)), 2)]
        for name in ("a chat of 20 KB, a turn more", "a new prompt of 1 KB")
    )

    assert len(chats[1] - chats[0]) == 2
    assert prompts[0].isdisjoint(prompts[1])


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """A line has how many there were, their middle, the 99th of a hundred, and what that is more than the first's."""
    told("title", {"none": [1.0] * 100, "all": [1.5] * 100})

    assert capsys.readouterr().out.split() == [
        "title", "none", "100", "1.000", "1.000", "+0.000", "all", "100", "1.500", "1.500", "+0.500",
    ]  # fmt: skip
