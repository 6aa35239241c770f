"""Two counts of the same, side by side."""

from __future__ import annotations

from gateway.core.reconciling import Counted, Difference, differences, gathered, renamed, totals

PLACE = ("2026-03-01", "gpt-4o")


def test_what_agrees() -> None:
    """What the other side does not count is not compared, and rounding to the nano-USD is no difference."""
    ours = {PLACE: Counted(3, 30, 7, 5, 1, 1_000_003)}

    assert differences(ours, {PLACE: Counted(prompt_tokens=30)}) == []
    assert differences(ours, {PLACE: Counted(3, 30, 7, 5, 1, 1_000_000)}) == []


def test_what_differs() -> None:
    """Each amount that differs is told, with how many of our requests the provider has not counted itself."""
    ours = {PLACE: Counted(3, 30, 7, 0, 0, 1_000_004, uncertain=2)}

    found = differences(ours, {PLACE: Counted(2, 30, 8, 5, 0, 1_000_000)})

    assert found == [
        Difference(PLACE, "requests", 3, 2, 2), Difference(PLACE, "completion_tokens", 7, 8, 2),
        Difference(PLACE, "cached_tokens", 0, 5, 2), Difference(PLACE, "cost_nano_usd", 1_000_004, 1_000_000, 2),
    ]  # fmt: skip


def test_what_one_side_has_not() -> None:
    """A place that only one side knows is told by all that the other side counts, and by nothing that it does not."""
    ours = {("a",): Counted(1, 5, 6, 0, 0, 9)}
    theirs = {("b",): Counted(prompt_tokens=4), ("c",): Counted(completion_tokens=2), ("d",): Counted()}

    found = differences(ours, theirs)

    assert found == [
        Difference(("a",), "prompt_tokens", 5, None, 0), Difference(("a",), "completion_tokens", 6, None, 0),
        Difference(("b",), "prompt_tokens", None, 4, 0), Difference(("c",), "completion_tokens", None, 2, 0),
        Difference(("d",), "requests", None, None, 0),
    ]  # fmt: skip


def test_a_list_of_ids_alone() -> None:
    """Where the other side counts nothing, what only we have is told by its requests."""
    assert differences({("a",): Counted(1, 5, 6)}, {("b",): Counted()}) == [
        Difference(("a",), "requests", 1, None, 0), Difference(("b",), "requests", None, None, 0)
    ]  # fmt: skip


def test_names_of_models() -> None:
    """A snapshot is the model it stood for, unless the ledger knows it, or an alias says otherwise."""
    theirs = {
        ("d", "gpt-4o-2024-08-06"): Counted(1), ("d", "gpt-4o"): Counted(2), ("d", "claude-4-20250514"): Counted(4),
        ("d", "odd-20260101"): Counted(8),
    }  # fmt: skip

    got = renamed(theirs, [("d", "gpt-4o"), ("d", "claude-4-20250514")], {"odd-20260101": "mine"})

    assert got == {
        ("d", "gpt-4o"): Counted(3), ("d", "claude-4-20250514"): Counted(4), ("d", "mine"): Counted(8)
    }  # fmt: skip


def test_sums() -> None:
    """Counts of one place add up; what nobody counted stays uncounted."""
    found = gathered([(PLACE, Counted(1, None, 2)), (PLACE, Counted(1, None, 3, uncertain=1))])

    assert found == {PLACE: Counted(2, None, 5, uncertain=1)}
    assert totals({**found, ("x",): Counted(1, 1)}) == Counted(3, 1, 5, uncertain=1)
