"""Reading an event by its likeness to an earlier one changes nothing but the cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.errors import Failure
from gateway.core.usage import Basis, Usage
from gateway.dialects.base import Lane
from gateway.dialects.lane import PassthroughLane
from gateway.dialects.template import MAX_LEARN_BYTES, learn
from tests.support.notation import CBD, CBS, DONE, FIN, MS, R, T, chunk
from tests.support.scale import examples
from tests.unit.dialects.conversations import anthropic, openai
from tests.unit.dialects.streams import SLOW, Said, anthropic_streams, openai_streams

FRAME = b'data: {"id":"1","model":"ours","choices":[{"delta":{"content":"Once "}}]}\n\n'
PAYLOAD = b'{"id":"1","model":"theirs","choices":[{"delta":{"content":"Once "}}]}'


@dataclass(frozen=True)
class Told:
    """Everything that can be seen of a lane."""

    out: bytes
    usage: tuple[Usage, Basis]
    failure: Failure | None
    flags: tuple[bool, bool, bool, bool]
    progress: int


def tell(lane: Lane, said: list[Said]) -> Told:
    out = b"".join(lane.feed(event.raw) for event in said)
    flags = (lane.started, lane.complete, lane.ended, lane.talking)
    return Told(out, lane.measure(), lane.failure, flags, lane.progress)


def without_likeness(lane: Lane) -> Lane:
    """The same lane, reading every event in full."""
    lane._remember = lambda *_: None  # type: ignore[attr-defined]
    return lane


def repeated(said: list[Said]) -> list[Said]:
    """Each event three times: likeness is the rule then, and so is what follows a finish."""
    return [event for event in said for _ in range(3)]


@pytest.mark.parametrize(("streams", "make"), [(openai_streams, openai), (anthropic_streams, anthropic)])
@settings(max_examples=examples(150), suppress_health_check=SLOW, deadline=None)
@given(data=st.data())
def test_likeness_changes_nothing(
    streams: Callable[[], st.SearchStrategy[list[Said]]], make: Callable[[], Lane], data: st.DataObject
) -> None:
    """A lane that learns and one that does not say the same, of any stream, and of one full of repetition."""
    said = data.draw(streams())

    for variant in (said, repeated(said)):
        assert tell(make(), variant) == tell(without_likeness(make()), variant)


def test_a_count_is_never_passed_over() -> None:
    """Chunks alike down to their usage are each counted: the last says how many tokens the answer has."""
    lane = openai()
    for piece in (R(), T("a", (7, 1)), T("b", (7, 1)), T("c", (7, 1)), FIN(), DONE):
        lane.feed(piece)

    assert lane.measure() == (Usage(7, 1), "provider_final")


@pytest.mark.parametrize(
    ("lane", "opening", "make"),
    [(openai(), [R(), T("a")], T), (anthropic(), [MS(7), CBS(0), CBD(0, "a")], lambda text: CBD(0, text))],
    ids=["openai", "anthropic"],
)
def test_likeness_is_used(lane: PassthroughLane, opening: list[bytes], make: Callable[[str], bytes]) -> None:
    """The common case takes the short way: from the second content event on nothing is decoded in full."""
    for event in opening:
        lane.feed(event)
    lane._take = None  # type: ignore[assignment,method-assign]  # whoever calls it fails
    short = lane._like_before

    found = short(make("Once upon").split(b"data: ", 1)[1].rstrip())

    assert found is not None
    assert b"Once upon" in found


def test_match() -> None:
    """Another text in the same place becomes another frame."""
    template = learn(PAYLOAD, FRAME, b'"content":', "Once ")
    assert template is not None

    found = template.match(PAYLOAD.replace(b"Once ", rb"a \"b\" \u00e9"))

    assert found == ('a "b" é', FRAME.replace(b"Once ", rb"a \"b\" \u00e9"))


@pytest.mark.parametrize(
    "literal",
    [
        b'""', b'"a', b'a"', b"7", b"null", b'"a","x":"b"', b'"a"}},{"delta":{"content":"b"', b'"\\"', rb'"\ud83d"',
        '"é"'.encode(), b'"\xff"', b'"\x0b"', b'"a" "b"', b"",
    ],
)  # fmt: skip
def test_no_match(literal: bytes) -> None:
    """What is not exactly one string of ASCII text is read in full."""
    template = learn(PAYLOAD, FRAME, b'"content":', "Once ")
    assert template is not None

    assert template.match(PAYLOAD.replace(b'"Once "', literal)) is None


@pytest.mark.parametrize(
    "payload",
    [
        b'{"content":"Once ","delta":{"content":"Once "}}',  # which of the two?
        b'{"delta":{"text":"Once "}}',
        b'{"delta":{"content":"other"}}',
        b'{"delta":{"content":7}}',
    ],
)
def test_not_learned(payload: bytes) -> None:
    """Where the place of the text is not beyond doubt nothing is learned."""
    assert learn(payload, b"data: " + payload + b"\n\n", b'"content":', "Once ") is None


@pytest.mark.parametrize("text", ["a" * 1_000_000, '\\"' * 500_000], ids=["plain", "escapes"])
def test_a_long_event_is_read_once(text: str) -> None:
    """Nothing is learned from an event far longer than content events are; a megabyte of text holds up nobody."""
    payload = PAYLOAD.replace(b'"Once "', msgspec.json.encode(text))
    start_s = time.perf_counter()

    learned = learn(payload, b"data: " + payload + b"\n\n", b'"content":', text)

    assert learned is None
    assert time.perf_counter() - start_s < 0.05


def test_the_longest_event_is_learned_fast() -> None:
    """The place of a text is found in one pass, with escapes as without, and in none when the text has no end."""
    text = '\\"' * (MAX_LEARN_BYTES // 5)
    payload = PAYLOAD.replace(b'"Once "', msgspec.json.encode(text))
    cut = payload[: payload.rindex(b'"')] + b"}]}"

    assert learn(payload, b"data: " + payload + b"\n\n", b'"content":', text) is not None
    assert learn(cut, b"data: " + cut + b"\n\n", b'"content":', text) is None


def test_padding_is_not_learned_every_time() -> None:
    """A provider that pads each event differently is not compared and learned from again and again."""
    lane = openai()
    lane.feed(R())
    for number in range(100):
        lane.feed(chunk({"content": "a"}, obfuscation="x" * (number % 7 + 1)))

    assert isinstance(lane, PassthroughLane)
    assert lane._misfits <= 9
