"""Two promises of the codec: reads do not matter, and a death at any byte leaves what clients understand."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.notation import AERR, CBD, CBJ, CBS, CBX, DONE, FIN, MD, MS, MX, PING, TC, U, chunk, data, event
from tests.support.scale import examples
from tests.unit.dialects.conversations import (
    RESET,
    Heard,
    anthropic,
    check_anthropic,
    check_openai,
    choice_chunk,
    hear,
    openai,
    texts,
)

PARTITIONS = 8  # cuts tried per stream besides the whole and the single bytes
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)  # on purpose: many runs per example

# -- what providers say --

WORDS = ["a", "Once ", "北🦀é", "\u2028", "\u0085", '"model":"m"', "\\", "\n", "", "data: [DONE]", "\ufeff"]
ESCAPED = {"LONE": rb"\ud83d", "TAIL": rb"\udf78", "RAW": b"\x0b"}  # what json.dumps would not write
ENVELOPES: list[dict[str, Any]] = [
    {}, {}, {}, {"id": "other"}, {"created": "1"}, {"created": 1.0}, {"object": None}, {"model": "vendor-2024"},
    {"system_fingerprint": "é"}, {"usage": None}, {"error": None}, {"x": {"model": "m"}},
]  # fmt: skip
ODD: list[dict[str, Any]] = [
    {"choices": "x"}, {"choices": [None]}, {"choices": []},
    {"choices": [{"index": "0", "delta": 7, "finish_reason": 1}]},
]  # fmt: skip
KINDS = ["text", "text", "text", "role", "tool", "thought", "odd", "usage", "content + finish"]
FINAL_USAGES: list[int | dict[str, Any]] = [5, {}, {"output_tokens": 5, "x": None}]
NOISE = [b": keep-alive\n\n", b"retry: 5\n\n", b"data:\n\n", b"id: 1\n\n", b"event: message\n", b"\n", b": x\n"]


@dataclass
class Said:
    """One event: its bytes, and what it means by the contract, for the oracle of the death property."""

    raw: bytes
    opens: int | None = None
    finishes: int | None = None
    adds: bool = False
    text: str = ""
    ends: bool = False
    breaks: bool = False


@st.composite
def spellings(draw: st.DrawFn, raw: bytes) -> bytes:
    """*raw*, one event, in one of the forms that the standard allows."""
    lead, _, payload = raw.rstrip(b"\n").partition(b"data: ")
    how = draw(st.sampled_from(["plain", "plain", "plain", "no space", "spaced", "spread", "escaped"]))
    if payload[:1] == b"{" and how == "spaced":
        payload = json.dumps(json.loads(payload)).encode()
    if payload[:1] == b"{" and how == "spread":
        payload = json.dumps(json.loads(payload), indent=1, ensure_ascii=False).replace("\n", "\ndata: ").encode()
    if payload[:1] == b"{" and how == "escaped":
        payload = json.dumps(json.loads(payload), separators=(",", ":")).encode()
    for name, odd in ESCAPED.items():
        payload = payload.replace(name.encode(), odd)
    end = draw(st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"]))
    noise = draw(st.sampled_from([b"", b"", b"", *NOISE]))
    if noise and not noise.endswith(b"\n\n") and lead:
        noise = b""  # it would name an event that has a name
    out = noise + lead + (b"data:" if how == "no space" else b"data: ") + payload + b"\n\n"
    return out.replace(b"\n", end)


def mended(word: str) -> str:
    """What a client may make of *word*."""
    return word.replace("LONE", "\ufffd").replace("TAIL", "\ufffd").replace("RAW", "\x0b")


@st.composite
def openai_streams(draw: st.DrawFn) -> list[Said]:
    """A stream of one or two choices, honest or not, with its meaning."""
    choices = draw(st.sampled_from([1, 1, 1, 2]))
    indexes = draw(st.lists(st.integers(0, choices - 1), max_size=7))
    out = [draw(_openai_events(index, choices)) for index in indexes]
    usage = draw(st.sampled_from(["none", "own chunk", "on finish"]))
    for index in range(choices) if draw(st.booleans()) else ():
        tokens = {"usage": {"prompt_tokens": 7, "completion_tokens": 3}} if usage == "on finish" else {}
        out.append(Said(choice_chunk(index, {}, "stop", **tokens), opens=index, finishes=index))
    if usage == "own chunk":
        out.append(Said(U(7, 3)))
    if draw(st.booleans()):
        out.append(Said(DONE, ends=True))
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(out)))
        out.insert(at, Said(data({"error": {"message": "m"}}), breaks=True))
    return [_respelled(draw, said) for said in out]


def _respelled(draw: st.DrawFn, said: Said) -> Said:
    return Said(draw(spellings(said.raw)), said.opens, said.finishes, said.adds, said.text, said.ends, said.breaks)


@st.composite
def _openai_events(draw: st.DrawFn, index: int, choices: int) -> Said:
    envelope = draw(st.sampled_from(ENVELOPES))
    kind = draw(st.sampled_from(KINDS))
    word = draw(st.sampled_from([*WORDS, *ESCAPED]))
    if kind == "role":
        return Said(choice_chunk(index, {"role": "assistant", "content": ""}, **envelope), opens=index)
    if kind == "tool":
        call = [{"index": draw(st.integers(0, 1)), "id": "c", "function": {"name": "f", "arguments": ""}}]
        return Said(choice_chunk(index, {"tool_calls": call}, **envelope), opens=index, adds=True)
    if kind == "thought":
        return Said(choice_chunk(index, {"reasoning_content": "hm"}, **envelope), opens=index, adds=True)
    if kind == "odd":
        odd = draw(st.sampled_from(ODD))
        opens = 0 if isinstance(odd["choices"], list) and odd["choices"] not in ([], [None]) else None
        return Said(chunk({}, None, None, **{**envelope, **odd}), opens=opens)
    if kind == "content + finish":
        raw = choice_chunk(index, {"content": word}, "stop", **envelope)
        return Said(raw, opens=index, finishes=index, adds=bool(word), text=mended(word))
    if kind == "usage":
        envelope = {**envelope, "usage": {"prompt_tokens": 7, "completion_tokens": 1}}
    raw = choice_chunk(index, {"content": word}, **envelope)
    return Said(raw, opens=index, adds=bool(word), text=mended(word))


@st.composite
def anthropic_streams(draw: st.DrawFn) -> list[Said]:
    """A message, honest or not, with its meaning."""
    out = [Said(MS(25, 1, cache_read_input_tokens=draw(st.integers(0, 3))))]
    for index in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["text", "tool_use", "thinking"]))
        out.append(Said(CBS(index, kind)))
        for _ in range(draw(st.integers(0, 3))):
            word = draw(st.sampled_from([*WORDS, *ESCAPED]))
            out.append(Said(CBD(index, word) if kind == "text" else CBJ(index, word), adds=True))
        out.append(Said(CBX(index)))
        if draw(st.booleans()):
            out.append(Said(draw(st.sampled_from([PING, event("new", {"type": "new", "é": 1}), MD(None, 1)]))))
    if draw(st.booleans()):
        out.append(Said(MD("end_turn", draw(st.sampled_from(FINAL_USAGES)))))
    if draw(st.booleans()):
        out.append(Said(MX, ends=True))
    if draw(st.integers(0, 9)) == 0:
        out.insert(draw(st.integers(0, len(out))), Said(AERR("overloaded_error"), breaks=True))
    return [_respelled(draw, said) for said in out]


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    """*stream* cut at *cuts*, which may repeat: empty reads are reads too."""
    places = sorted(min(cut, len(stream)) for cut in cuts)
    return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]


cut_lists = st.lists(st.lists(st.integers(0, 3000), max_size=12), min_size=PARTITIONS, max_size=PARTITIONS)


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
