"""Arguments in pieces: when they are whole, and what can be read of those that never were."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.tool_arguments import ArgumentText, is_object, read_object
from tests.support.scale import examples

WORDS = st.text(st.sampled_from('a"\\{}[],:\n北'), max_size=6)
VALUES = st.recursive(st.none() | st.integers(-9, 9) | WORDS, lambda v: st.lists(v) | st.dictionaries(WORDS, v))


@settings(max_examples=examples(300), deadline=None)
@given(st.dictionaries(WORDS, VALUES, max_size=4), st.lists(st.integers(0, 200), max_size=5), st.booleans())
def test_whole_at_the_end_and_not_before(value: dict[str, Any], cuts: list[int], ascii_only: bool) -> None:
    """However the text is cut, it is whole with its last brace and never before."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    at = sorted({0, len(text), len(text) - 1, *(cut for cut in cuts if cut < len(text))})
    arguments, seen = ArgumentText(), []

    for start, end in pairwise(at):
        arguments.add(text[start:end])
        seen.append(arguments.whole)

    assert seen == [False] * (len(seen) - 1) + [True]


@settings(max_examples=examples(300), deadline=None)
@given(st.dictionaries(WORDS, VALUES, max_size=4), st.integers(0, 200))
def test_what_is_cut_off_can_be_read(value: dict[str, Any], cut: int) -> None:
    """Any beginning of an object is an object with some of its members, and the whole of it is itself."""
    text = json.dumps(value)

    part = json.loads(bytes(read_object(text[:cut])))

    assert json.loads(bytes(read_object(text))) == value
    assert set(part) <= set(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":1,"b":"x', {"a": 1}),
        ('{"a":[1,2', {"a": [1]}),
        ('{"a":{"b":1}', {"a": {"b": 1}}),
        ('{"a":{"b":1},', {"a": {"b": 1}}),
        ('{"a"', {}),
        ("", {}),
        ("x", {}),
        ("[1,2]", {}),
        ('{"a":1}{"b":2}', {}),
        ("{'a': 1}", {}),
        ('{"a":' * 1000, {}),
        ("{" + '"' * 100_000, {}),
        ("{" + '\\"' * 100_000, {}),
        ('{"a":[' + "[]," * 100_000, {}),
    ],
    ids=lambda item: repr(item)[:30],
)
def test_beginnings(text: str, expected: dict[str, Any]) -> None:
    """The members that were whole are kept; of what is no JSON, or too much, nothing is."""
    assert json.loads(bytes(read_object(text))) == expected


@pytest.mark.parametrize(("text", "expected"), [("{}", True), (' {"a":1e999} ', True), ("[]", False), ("{", False)])
def test_objects(text: str, expected: bool) -> None:
    """An object is one whatever numbers are in it."""
    assert is_object(text) is expected
