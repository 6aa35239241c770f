"""Two promises of the codec: reads do not matter, and a death at any byte leaves what clients understand."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.notation import FIN, TC
from tests.support.scale import examples
from tests.unit.dialects.conversations import (
    RESET,
    Heard,
    anthropic,
    check_anthropic,
    check_openai,
    hear,
    openai,
    texts,
)
from tests.unit.dialects.streams import SLOW, Said, anthropic_streams, cut_lists, openai_streams, pieces

# -- reads do not matter --


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=SLOW)
@given(said=openai_streams(), partitions=cut_lists, n=st.sampled_from([None, 1, 2]))
def test_partitions_openai(said: list[Said], partitions: list[list[int]], n: int | None) -> None:
    """However the provider's bytes are cut into reads, the client gets the same bytes."""
    stream = b"".join(item.raw for item in said)
    whole = hear(openai(n=n), [stream])

    check_openai(whole)
    for parts in [*(pieces(stream, cuts) for cuts in partitions), pieces(stream, [*range(len(stream))])]:
        heard = hear(openai(n=n), parts)
        assert (heard.out, heard.end, heard.lane.measure()) == (whole.out, whole.end, whole.lane.measure())


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=SLOW)
@given(said=anthropic_streams(), partitions=cut_lists)
def test_partitions_anthropic(said: list[Said], partitions: list[list[int]]) -> None:
    """However the provider's bytes are cut into reads, the client gets the same bytes."""
    stream = b"".join(item.raw for item in said)
    whole = hear(anthropic(), [stream])

    check_anthropic(whole)
    for parts in [*(pieces(stream, cuts) for cuts in partitions), pieces(stream, [*range(len(stream))])]:
        heard = hear(anthropic(), parts)
        assert (heard.out, heard.end, heard.lane.measure()) == (whole.out, whole.end, whole.lane.measure())


# -- a death at any byte --


@dataclass
class Oracle:
    """What the contract says of the events that came whole."""

    asked: int = 1
    seen: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)
    held: bool = False
    complete: bool = False
    over: bool = False
    said: bool = False
    text: str = ""

    def hear(self, said: Said, *, counted: bool) -> None:
        """Take one whole event; *counted*: it is a chunk of nothing but usage."""
        if self.over:
            return
        if said.breaks:
            self.over = True
        elif said.ends:
            self.complete |= self.held
            self.over = True
        elif counted:
            self.over = self.complete
        elif said.opens is not None:
            self._chunk(said, said.opens)

    def _chunk(self, said: Said, index: int) -> None:
        self.said |= said.adds
        self.text += said.text
        if self.held and (said.adds or said.finishes is not None or index not in self.seen):
            self.held = self.complete = False
            self.finished.discard(index)
        if said.adds:
            self.finished.discard(index)
        self.seen.add(index)
        if said.finishes is not None:
            self.finished.add(index)
            self.held = self.finished >= self.seen
            self.complete = self.held and len(self.seen) >= self.asked


def whole_events(said: list[Said], cut: int, *, tail: bool) -> list[Said]:
    """The events that are whole in the first *cut* bytes; with *tail*, also one that lacks but its line ends."""
    out, end = [], 0
    for item in said:
        end += len(item.raw)
        line_ends = len(item.raw) - len(item.raw.rstrip(b"\r\n"))
        needless = line_ends if tail else int(item.raw.endswith(b"\r\n"))
        if cut >= end - needless:
            out.append(item)
    return out


def all_text(heard: Heard) -> str:
    return "".join(texts(heard.items).values())


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@settings(max_examples=examples(5), deadline=None, suppress_health_check=SLOW)
@given(said=openai_streams(), n=st.sampled_from([None, 2]))
def test_death_at_every_byte_openai(said: list[Said], n: int | None) -> None:
    """Whole valid frames, then one error frame and the terminator, or the normal end if the answer was complete."""
    stream = b"".join(item.raw for item in said)
    for cut in range(len(stream) + 1):
        for failure in (None, RESET):
            heard = hear(openai(n=n), [stream[:cut]], failure)
            oracle = Oracle(asked=n or 1)
            for item in whole_events(said, cut, tail=failure is None):
                oracle.hear(item, counted=b'"choices":[],"usage":{"prompt' in re.sub(rb"\s|data:", b"", item.raw))
            check_openai(heard)
            assert heard.end == ("finished" if oracle.complete else "interrupted" if oracle.said else "refused")
            if heard.end == "interrupted":
                assert heard.out.count(b'data: {"error"') == 1
                assert sorted(all_text(heard)) == sorted(oracle.text)


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@settings(max_examples=examples(5), deadline=None, suppress_health_check=SLOW)
@given(said=anthropic_streams())
def test_death_at_every_byte_anthropic(said: list[Said]) -> None:
    """Whole valid events, then `event: error` and nothing more, or the normal end if `message_stop` was seen."""
    stream = b"".join(item.raw for item in said)
    for cut in range(len(stream) + 1):
        for failure in (None, RESET):
            heard = hear(anthropic(), [stream[:cut]], failure)
            whole = whole_events(said, cut, tail=failure is None)
            kinds = ["breaks" if item.breaks else "ends" for item in whole if item.breaks or item.ends]
            before = whole[: next((at for at, item in enumerate(whole) if item.breaks), len(whole))]
            started = any(item.adds for item in before)
            check_anthropic(heard)
            assert heard.end == ("finished" if kinds[:1] == ["ends"] else "interrupted" if started else "refused")


def test_the_kit_knows_tools_and_finishes() -> None:
    """The oracle agrees with a conversation whose end is known, so that it can disagree with others."""
    oracle = Oracle()
    for said in (Said(TC(0, name="f"), opens=0, adds=True), Said(FIN("tool_calls"), opens=0, finishes=0)):
        oracle.hear(said, counted=False)

    assert (oracle.complete, oracle.said, oracle.over) == (True, True, False)
