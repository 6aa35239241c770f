"""Neutral events as an Anthropic provider would send them, and what the lane and the SDK make of that."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from pydantic import TypeAdapter

from gateway.dialects.anthropic_frames import AnthropicWriter
from gateway.dialects.anthropic_messages import read_completion
from gateway.dialects.neutral import (
    AnswerEvent,
    Argued,
    Begin,
    Called,
    Cited,
    Counted,
    Finished,
    Reason,
    Refused,
    Said,
    Thought,
)
from tests.support.scale import examples
from tests.unit.dialects.conversations import anthropic, anthropic_call, check_anthropic, hear, journey, settled

CITATION = {"type": "char_location", "cited_text": "x", "document_index": 0, "start_char_index": 0, "end_char_index": 1}
_event = TypeAdapter(RawMessageStreamEvent)


def writer() -> AnthropicWriter:
    return AnthropicWriter(journey(anthropic_call()))


def write(*events: AnswerEvent) -> list[dict[str, Any]]:
    """The frames of *events* and of the end, as JSON; their names have to be their types."""
    return [json.loads(data) for _, data in frames(*events)]


def frames(*events: AnswerEvent) -> list[tuple[str, str]]:
    made = writer()
    raw = b"".join([*map(made.write, events), made.end()]).decode("ascii")
    out = []
    for frame in raw.removesuffix("\n\n").split("\n\n"):
        name, data = frame.split("\n")
        assert name == f"event: {json.loads(data[6:])['type']}"
        out.append((name, data.removeprefix("data: ")))
    return out


def signs(items: Iterable[dict[str, Any]]) -> list[str]:
    """Frames in short: `+1 text`, `1 text_delta`, `-1`."""
    out = []
    for item in items:
        kind = item["type"].removeprefix("content_block_")
        what = item.get("content_block") or item.get("delta") or {}
        sign = {"start": "+", "stop": "-"}.get(kind, "")
        out.append(f"{sign}{item['index']} {what.get('type', '')}".rstrip() if "index" in item else kind)
    return out


def accumulated(items: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What the official SDK makes of a stream, each event being valid by its types."""
    snapshot, buffers = None, dict[int, bytes]()
    for item in items:
        snapshot = accumulate_event(event=_event.validate_python(item), current_snapshot=snapshot, json_bufs=buffers)
    assert snapshot is not None
    return json.loads(snapshot.to_json())  # type: ignore[no-any-return]  # an object


def passed(*events: AnswerEvent) -> list[dict[str, Any]]:
    """What a client reads behind the lane."""
    made = writer()
    heard = hear(anthropic(), [*(piece for piece in map(made.write, events) if piece), made.end()])
    check_anthropic(heard)
    assert heard.end == "finished"
    return heard.items


def whole(*events: AnswerEvent) -> dict[str, Any]:
    """The JSON body behind the lane's counterpart for whole answers."""
    completion = read_completion(writer().whole(events), journey(anthropic_call()))
    lane = anthropic()
    return json.loads(completion.render(settled(lane)))  # type: ignore[no-any-return]  # an object


def content(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks, without members that are null or empty where the other form has none."""
    return [{name: value for name, value in block.items() if value is not None} for block in message["content"]]


def test_tr_33_blocks_in_their_order() -> None:
    """Reasoning, text and a call: each block has its start, deltas of its type and its stop, with rising index."""
    items = write(
        Begin("c1"), Thought("h"), Thought("m"), Said("a"), Said("b"),
        Called(0, "t", "f"), Argued(0, '{"a":'), Argued(0, "1}"), Finished("tool_calls"), Counted(7, 3),
    )  # fmt: skip

    assert signs(items) == [
        "message_start",
        "+0 thinking", "0 thinking_delta", "0 thinking_delta", "0 signature_delta", "-0",
        "+1 text", "1 text_delta", "1 text_delta", "-1",
        "+2 tool_use", "2 input_json_delta", "2 input_json_delta", "2 input_json_delta", "-2",
        "message_delta", "message_stop",
    ]  # fmt: skip
    assert items[-2] == {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }


def test_the_beginning() -> None:
    """The message's id is made of the request's; the prompt's count is in it where it comes first."""
    early, late = write(Begin("c1"), Counted(7), Said("a")), write(Begin(), Said("a"), Counted(7, 1))

    assert early[0]["message"] == {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "gpt-of-ours", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 7},
    }  # fmt: skip
    assert late[0]["message"]["usage"] == {}


def test_an_answer_without_content() -> None:
    """No content is an empty list, in a stream and in a body."""
    events = (Begin("c1"), Finished("stop"), Counted(7, 0))

    assert signs(write(*events)) == ["message_start", "message_delta", "message_stop"]
    assert whole(*events)["content"] == []


def test_text_deltas_of_a_block_are_alike() -> None:
    """They differ in their text alone, so that the lane reads the later ones by likeness."""
    lane, made = anthropic(), writer()
    lane.feed(made.write(Said("a")) + made.write(Said("b")))
    lane._remember = None  # type: ignore[attr-defined]  # whatever is read in full from here on fails

    assert lane.feed(made.write(Said('c 北\n"x"'))).endswith(b'"text":"c \\u5317\\n\\"x\\""}}\n\n')


def test_tr_01_calls_in_turns() -> None:
    """Arguments that arrive interleaved reach each its own block, which ends as soon as they are whole."""
    events = (
        Called(0, "t0", "f"), Called(1, "t1", "g"), Argued(1, '{"b"'), Argued(0, '{"a":"}'), Argued(1, ":2}"),
        Said("x"), Argued(0, '"}'), Said("y"),
    )  # fmt: skip

    assert signs(write(*events))[1:-2] == [
        "+0 tool_use", "0 input_json_delta", "+1 tool_use", "1 input_json_delta",
        "1 input_json_delta", "0 input_json_delta", "1 input_json_delta", "-1",
        "+2 text", "2 text_delta", "0 input_json_delta", "-0", "2 text_delta", "-2",
    ]  # fmt: skip
    assert [block.get("input") for block in accumulated(passed(*events))["content"]] == [{"a": "}"}, {"b": 2}, None]


def test_tr_05_a_call_without_arguments() -> None:
    """Its pieces add up to `{}`, which is its input in every form."""
    events = (Called(0, "t", "now"), Finished("tool_calls"), Counted(7, 3))

    pieces = [item["delta"]["partial_json"] for item in write(*events) if item["type"] == "content_block_delta"]

    assert "".join(pieces) == "{}"
    assert accumulated(passed(*events))["content"][0]["input"] == {}
    assert whole(*events)["content"][0]["input"] == {}


def test_arguments_that_were_cut_off() -> None:
    """A body has of them what is whole, as the SDK has of a stream."""
    events = (Called(0, "t", "f"), Argued(0, '{"a":[1,{"b":"x"}],"c":"y'), Finished("length"), Counted(7, 3))

    assert whole(*events)["content"][0]["input"] == {"a": [1, {"b": "x"}]}
    assert accumulated(passed(*events))["content"][0]["input"] == {"a": [1, {"b": "x"}]}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((Thought("h"), Thought("m", signature="s")), [{"type": "thinking", "thinking": "hm", "signature": "s"}]),
        ((Thought("h"), Thought(signature="s")), [{"type": "thinking", "thinking": "h", "signature": "s"}]),
        ((Thought("h"),), [{"type": "thinking", "thinking": "h", "signature": ""}]),
        ((Thought(signature="s"),), [{"type": "thinking", "thinking": "", "signature": "s"}]),
        (
            (Thought("h", signature="s"), Thought("m")),
            [
                {"type": "thinking", "thinking": "h", "signature": "s"},
                {"type": "thinking", "thinking": "m", "signature": ""},
            ],
        ),
        (
            (Thought("h"), Thought(redacted="xx"), Said("a")),
            [
                {"type": "thinking", "thinking": "h", "signature": ""},
                {"type": "redacted_thinking", "data": "xx"},
                {"type": "text", "text": "a"},
            ],
        ),
        ((Said("a"), Cited(CITATION), Said("b")), [{"type": "text", "text": "ab", "citations": [CITATION]}]),
        ((Cited(CITATION),), [{"type": "text", "text": "", "citations": [CITATION]}]),
        ((Argued(5, "{}"), Said("a")), [{"type": "text", "text": "a"}]),
    ],
)
def test_blocks(events: tuple[AnswerEvent, ...], expected: list[dict[str, Any]]) -> None:
    """The same blocks from a stream as the SDK accumulates it and in a body."""
    ended = (*events, Finished("stop"), Counted(7, 3))

    assert content(accumulated(passed(*ended))) == expected
    assert content(whole(*ended)) == expected


STOPS: list[tuple[Reason, str]] = [
    ("stop", "end_turn"), ("stop_sequence", "stop_sequence"), ("length", "max_tokens"),
    ("context_window", "model_context_window_exceeded"), ("tool_calls", "tool_use"), ("refusal", "refusal"),
    ("pause", "pause_turn"),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "expected"), STOPS)
def test_tr_23_stop_reasons(reason: Reason, expected: str) -> None:
    """Each neutral reason has its own in Anthropic's words."""
    end = Finished(reason, "END" if reason == "stop_sequence" else None)

    for message in (accumulated(passed(Said("a"), end, Counted(1, 1))), whole(Said("a"), end)):
        assert (message["stop_reason"], message["stop_sequence"]) == (expected, end.stop_sequence)


def test_a_refusal() -> None:
    """A refusal that is told apart from the answer is text with the stop reason for it."""
    events = (Refused("I can"), Refused("not."), Finished("stop"), Counted(7, 3))

    for message in (accumulated(passed(*events)), whole(*events)):
        assert content(message) == [{"type": "text", "text": "I cannot."}]
        assert message["stop_reason"] == "refusal"


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((Counted(),), {}),
        ((Counted(10, 3),), {"input_tokens": 10, "output_tokens": 3}),
        ((Counted(10), Counted(None, 3)), {"input_tokens": 10, "output_tokens": 3}),
        (
            (Counted(10, 3, 4, 1, 2),),
            {
                "input_tokens": 5, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 1, "output_tokens": 3,
                "output_tokens_details": {"thinking_tokens": 2},
            },
        ),
        (
            (Counted(10, 3, 40, 1, 20),),
            {
                "input_tokens": 0, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 0, "output_tokens": 3,
                "output_tokens_details": {"thinking_tokens": 3},
            },
        ),
        (
            (Counted(10, 3, 0, 6, cache_write_1h_tokens=4),),
            {
                "input_tokens": 4, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 6, "output_tokens": 3,
                "cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 4},
            },
        ),
        ((Counted(None, None, 4),), {"cache_read_input_tokens": 4}),
    ],
)  # fmt: skip
def test_use_07_usage_in_anthropics_convention(counts: tuple[Counted, ...], expected: dict[str, Any]) -> None:
    """Cached and written tokens are not part of the input; what is not known is left to the lane."""
    assert write(Said("a"), *counts)[-2]["usage"] == expected
    assert json.loads(writer().whole(counts))["usage"] == expected


def test_input_stays_as_it_was_spelled() -> None:
    """Numbers in arguments keep their literals in a body."""
    body = writer().whole((Called(0, "t", "f"), Argued(0, '{"a": 1.50}')))

    assert b'"input":{"a": 1.50}' in body


# -- any answer at all --

WORDS = st.sampled_from(["a", "Once ", "北🦀é", "\u2028", "\\", "\n", '"', "{}", "\x00", "data: [DONE]"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | WORDS,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(WORDS, v),
)


@st.composite
def answers(draw: st.DrawFn) -> list[AnswerEvent]:
    """Any order of words, thoughts, citations and the pieces of up to four calls."""
    inputs = draw(st.lists(st.none() | st.dictionaries(WORDS, VALUES, min_size=1, max_size=3), max_size=4))
    pieces: list[list[AnswerEvent]] = []
    for slot, value in enumerate(inputs):
        text = "" if value is None else json.dumps(value, ensure_ascii=draw(st.booleans()))
        cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
        parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        pieces.append([Called(slot, f"t{slot}", "f"), *(Argued(slot, part) for part in parts if part)])
    prose = st.one_of(
        WORDS.map(Said), WORDS.map(Said), WORDS.map(Refused), WORDS.map(Thought), st.just(Cited(CITATION)),
        st.builds(Thought, text=WORDS | st.just(""), signature=st.none() | st.just("sig")),
        st.just(Thought(redacted="xx")), st.builds(Counted, st.integers(0, 50), st.integers(0, 50)),
    )  # fmt: skip
    out: list[AnswerEvent] = [Begin("c1")] if draw(st.booleans()) else []
    begun = 0
    for _ in range(draw(st.integers(0, 25))):
        going = [part for part in pieces[:begun] if part]
        step = draw(st.integers(0, 2))
        if step == 0 and begun < len(pieces):
            out.append(pieces[begun].pop(0))
            begun += 1
        elif step == 1 and going:
            out.append(draw(st.sampled_from(going)).pop(0))
        else:
            out.append(draw(prose))
    out += [event for part in pieces for event in part]
    return [*out, Finished(draw(st.sampled_from([reason for reason, _ in STOPS]))), Counted(40, 30, 20, 10, 5)]


@settings(max_examples=examples(150), deadline=None)
@given(answers())
def test_a_stream_and_a_body_tell_the_same(events: list[AnswerEvent]) -> None:
    """Blocks, calls, stop reason and usage are the same, and the SDK understands both."""
    streamed, body = accumulated(passed(*events)), whole(*events)

    assert content(streamed) == content(body)
    assert streamed["stop_reason"] == body["stop_reason"]
    lane_usage = {name: value for name, value in streamed["usage"].items() if value is not None}
    written = json.loads(writer().whole(events))["usage"]
    assert {name: lane_usage[name] for name in written} == written


@settings(max_examples=examples(150), deadline=None)
@given(answers())
def test_blocks_are_never_mixed(events: list[AnswerEvent]) -> None:
    """Every delta is of its block's type and inside it, indices rise by one, and everything is stopped once."""
    fitting = {
        "text": {"text_delta", "citations_delta"}, "thinking": {"thinking_delta", "signature_delta"},
        "tool_use": {"input_json_delta"}, "redacted_thinking": set(),
    }  # fmt: skip
    kinds: list[str] = []
    open_: set[int] = set()

    for item in write(*events):
        if item["type"] == "content_block_start":
            assert item["index"] == len(kinds)
            kinds.append(item["content_block"]["type"])
            open_.add(item["index"])
        elif item["type"] == "content_block_delta":
            assert item["index"] in open_
            assert item["delta"]["type"] in fitting[kinds[item["index"]]]
        elif item["type"] == "content_block_stop":
            open_.remove(item["index"])

    assert open_ == set()


def test_literals_of_citations_are_kept() -> None:
    """A citation is written with its numbers as they came."""
    assert b'"x":1.50' in writer().write(Cited({"x": Raw(b"1.50")}))
