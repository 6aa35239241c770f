"""Promises of lanes from Bedrock: reads do not matter, and neither its death nor its malice breaks a client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.catalog import ClientDialectName
from gateway.wire.eventstream import MessageSplitter
from tests.support.bedrock import START, argues, begins, closes, metadata, stop, text
from tests.support.eventstream import event, exception
from tests.support.reads import bytewise, cut
from tests.support.scale import examples
from tests.unit.dialects.conversations import RESET, hear
from tests.unit.dialects.converse import ANSWER, CLIENTS, each_client, lane, thinks, translate
from tests.unit.dialects.streams import SLOW
from tests.unit.dialects.translated import told

VALUES: list[Any] = [None, True, -1, 0, 1.5, 10**25, "", "x", [], [[]], {}, {"a": 1}, [None], [{}]]
indexes = st.integers(0, 3)
words = st.sampled_from(["a", "Once ", "北🦀é", "\u2028", '"', "\\", "\n", "", "\x00", "data: [DONE]"])
honest = st.one_of(
    st.just(START),
    st.builds(text, words, indexes),
    st.builds(lambda word, index: thinks({"text": word}, index), words, indexes),
    st.builds(lambda word, index: thinks({"signature": word}, index), words, indexes),
    st.builds(lambda index: begins(f"c{index}", "f", index), indexes),
    st.builds(argues, st.sampled_from(['{"a":', "1}", ""]), indexes),
    st.builds(closes, indexes),
    st.builds(stop, st.sampled_from(["end_turn", "tool_use", "max_tokens", "guardrail_intervened", "new"])),
    st.builds(metadata, st.integers(0, 9), st.integers(0, 9)),
)
ODD = [*VALUES, {"delta": {"text": 1}}, {"start": {"toolUse": None}}, {"usage": {"inputTokens": "x"}}]
NAMES = ["contentBlockDelta", "contentBlockStart", "messageStop", "metadata", "new"]
odd = st.one_of(
    st.builds(event, st.sampled_from(NAMES), st.sampled_from(ODD)),
    st.builds(exception, st.sampled_from(["throttlingException", "newException"]), st.just({"message": "m"})),
    st.binary(max_size=40),
)
streams = st.lists(honest | odd, max_size=12).map(b"".join)
clients = st.sampled_from(CLIENTS)


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=SLOW)
@given(client=clients, stream=streams, places=st.lists(st.integers(0, 3000), max_size=8))
def test_partitions(client: ClientDialectName, stream: bytes, places: list[int]) -> None:
    """However Bedrock's bytes are cut into reads, honest or not, the client gets the same bytes."""
    whole = translate(client, stream)
    for parts in (cut(stream, places), bytewise(stream)):
        heard = hear(lane(client), parts)
        assert (heard.out, heard.end, heard.lane.measure()) == (whole.out, whole.end, whole.lane.measure())
        assert heard.lane.note == whole.lane.note


@each_client
def test_partitions_of_the_whole_answer(client: ClientDialectName) -> None:
    """The same bytes for every third cut in two, and for single bytes."""
    stream = b"".join(ANSWER)
    whole = translate(client, stream)

    assert whole.end == "finished"
    for at in range(1, len(stream), 3):
        assert hear(lane(client), [stream[:at], stream[at:]]).out == whole.out
    assert hear(lane(client), bytewise(stream)).out == whole.out


@each_client
@pytest.mark.parametrize("reset", [True, False], ids=["reset", "end"])
def test_death_at_every_byte(client: ClientDialectName, reset: bool) -> None:
    """
    Before content a plain error is still possible; after it the words so far, one error frame, and the dialect's end;
    once the model has said how it stopped the answer is whole. No half message is ever taken for one.
    """
    stream = b"".join(ANSWER)
    stopped = len(b"".join(ANSWER[:-1]))
    spoken = len(b"".join(ANSWER[:2]))
    full = told(translate(client, stream))

    for at in range(len(stream)):
        heard = hear(lane(client), [stream[:at]] if at else [], RESET if reset else None)
        expected = "refused" if at < spoken else "interrupted" if at < stopped else "finished"
        got = told(heard)
        assert heard.end == expected, at
        assert full.text.startswith(got.text)
        assert sum("error" in item for item in heard.items if isinstance(item, dict)) == (expected == "interrupted")
        assert (got.reason is None) == (expected != "finished")


def _bent(draw: st.DrawFn, raw: bytes) -> bytes:
    """An event with another value at some place of its JSON."""
    (whole,) = MessageSplitter(1 << 20).feed(raw)
    place = payload = json.loads(whole.data)
    while place:
        key = draw(st.sampled_from(sorted(place)))
        if isinstance(place[key], dict) and place[key] and draw(st.booleans()):
            place = place[key]
            continue
        place[key] = draw(st.sampled_from(VALUES))
        break
    return event(whole.name.decode(), payload)


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """The whole answer with some events repeated, left out, moved, or with members of other values."""
    out = [draw(st.sampled_from(ANSWER)) if draw(st.integers(0, 9)) == 0 else each for each in ANSWER]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(out) - 1))
        out[at] = _bent(draw, out[at])
    return b"".join(out)


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=SLOW)
@given(client=clients, stream=mutations())
def test_hostile(client: ClientDialectName, stream: bytes) -> None:
    """Whatever Bedrock sends, the lane does not raise, and ends in a finish or a failure of its client's form."""
    whole = translate(client, stream)

    if whole.end != "finished":
        assert whole.lane.failure is not None
        assert told(whole).reason is None
    assert hear(lane(client), bytewise(stream)).out == whole.out
