"""Promises of the translation lane: reads do not matter, and no provider can break it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.scale import examples
from tests.unit.dialects.conversations import (
    hear,
)
from tests.unit.dialects.streams import SLOW, Said, anthropic_streams, cut_lists, openai_streams, pieces
from tests.unit.dialects.translated import (
    ANSWERS,
    ANTHROPIC,
    LANE,
    OPENAI,
    both_ways,
    told,
    translate,
)

# -- whatever comes --


def _same_for_every_chunking(way: str, said: list[Said], partitions: list[list[int]]) -> None:
    stream = b"".join(item.raw for item in said)
    whole = translate(way, stream)
    for parts in [*(pieces(stream, cuts) for cuts in partitions), pieces(stream, [*range(len(stream))])]:
        heard = hear(LANE[way](), parts)
        assert (heard.out, heard.end, heard.lane.measure()) == (whole.out, whole.end, whole.lane.measure())
        assert heard.lane.note == whole.lane.note


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=SLOW)
@given(said=anthropic_streams(), partitions=cut_lists)
def test_partitions_to_chat(said: list[Said], partitions: list[list[int]]) -> None:
    """However the provider's bytes are cut into reads, the client gets the same bytes."""
    _same_for_every_chunking("to_chat", said, partitions)


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=SLOW)
@given(said=openai_streams(), partitions=cut_lists)
def test_partitions_to_messages(said: list[Said], partitions: list[list[int]]) -> None:
    """However the provider's bytes are cut into reads, the client gets the same bytes."""
    _same_for_every_chunking("to_messages", said, partitions)


@both_ways
def test_partitions_of_the_whole_answer(way: str) -> None:
    """The same bytes for every third cut in two, and for single bytes."""
    stream = b"".join(ANSWERS[way])
    whole = translate(way, stream)
    for cut in range(1, len(stream), 3):
        assert hear(LANE[way](), [stream[:cut], stream[cut:]]).out == whole.out
    assert hear(LANE[way](), pieces(stream, [*range(len(stream))])).out == whole.out


VALUES: list[Any] = [None, True, -1, 0, 1.5, 10**25, "", "x", "\ud800", [], [[]], {}, {"a": 1}, [None], [{}]]
SNIPPETS = [
    b"\n\n",
    b"\r",
    b"data: ",
    b"event: x\n",
    b"{",
    b"}",
    b'"',
    b"\\",
    b"\x00",
    b"\xff",
    b"null",
    b"1e999",
    b"[DONE]",
]


@st.composite
def mutations(draw: st.DrawFn, events: list[bytes]) -> bytes:
    """*events* with some repeated, left out, moved, with members of other values, and with bytes of other kinds."""
    out = [draw(st.sampled_from(events)) if draw(st.integers(0, 9)) == 0 else each for each in events]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(out) - 1))
        out[at] = _bent(draw, out[at])
    stream = bytearray(b"".join(out))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(stream)))
        stream[at : at + draw(st.integers(0, 4))] = draw(st.sampled_from(SNIPPETS))
    return bytes(stream)


def _bent(draw: st.DrawFn, raw: bytes) -> bytes:
    """One event with another value at some place of its JSON."""
    lead, _, payload = raw.partition(b"data: ")
    if payload[:1] != b"{":
        return raw
    root = json.loads(payload)
    place = root
    while place:
        key = draw(st.sampled_from(sorted(place))) if isinstance(place, dict) else draw(st.integers(0, len(place) - 1))
        if isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
            place = place[key]
            continue
        if isinstance(place, dict) and draw(st.integers(0, 4)) == 0:
            del place[key]
        else:
            place[key] = draw(st.sampled_from(VALUES))
        break
    return lead + b"data: " + json.dumps(root).encode() + b"\n\n"


def _survives(way: str, stream: bytes) -> None:
    whole = translate(way, stream)
    if whole.end != "finished":
        assert whole.lane.failure is not None
        assert told(whole).reason is None
    by_bytes = hear(LANE[way](), pieces(stream, [*range(len(stream))]))
    assert (by_bytes.out, by_bytes.end) == (whole.out, whole.end)


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@settings(max_examples=examples(300), deadline=None, suppress_health_check=SLOW)
@given(stream=mutations(ANTHROPIC))
def test_hostile_to_chat(stream: bytes) -> None:
    """Whatever a provider sends, the lane does not raise, and ends in a finish or a failure of its client's form."""
    _survives("to_chat", stream)


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@settings(max_examples=examples(300), deadline=None, suppress_health_check=SLOW)
@given(stream=mutations(OPENAI))
def test_hostile_to_messages(stream: bytes) -> None:
    """Whatever a provider sends, the lane does not raise, and ends in a finish or a failure of its client's form."""
    _survives("to_messages", stream)
