"""A provider of OpenAI's dialect, a client of Anthropic's: reads do not matter, nor whether the answer is streamed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.errors import UpstreamFailed
from gateway.dialects.anthropic_frames import AnthropicWriter
from gateway.dialects.anthropic_messages import read_completion
from gateway.dialects.neutral import AnswerEvent, Argued, Counted, Finished, Said, Thought
from gateway.dialects.openai_events import OpenAIReader
from gateway.wire.sse import FrameSplitter
from tests.support.notation import DONE, FIN, U, chunk
from tests.support.scale import examples
from tests.unit.dialects.conversations import anthropic, anthropic_call, check_anthropic, hear, journey, settled
from tests.unit.dialects.test_anthropic_frames import accumulated, content
from tests.unit.dialects.test_lane_properties import SLOW, openai_streams

Told = tuple[list[AnswerEvent], bool, bool, str | None, str | None]


def told(pieces: Sequence[bytes]) -> Told:
    """What is said of *pieces* up to the end or a failure, and how the reader stands then."""
    reader, splitter = OpenAIReader(), FrameSplitter(1 << 20)
    out: list[AnswerEvent] = []
    failed = None
    try:
        for events in (*map(splitter.feed, pieces), splitter.close()):
            for event in events:
                if not reader.ended:
                    out += reader.take(event)
    except UpstreamFailed as exc:
        failed = exc.failure.reason
    if reader.complete:
        out += reader.end()
    return out, reader.complete, reader.ended, reader.note, failed


@settings(max_examples=examples(100), suppress_health_check=SLOW, deadline=None)
@given(st.data())
def test_reads_do_not_matter(data: st.DataObject) -> None:
    """For every way in which the bytes arrive the events are the same."""
    raw = b"".join(said.raw for said in data.draw(openai_streams()))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    expected = told([raw])

    assert told(pieces) == expected
    assert told([raw[at : at + 1] for at in range(len(raw))]) == expected


@settings(max_examples=examples(100), suppress_health_check=SLOW, deadline=None)
@given(openai_streams())
def test_likeness_changes_nothing(said: list[Any]) -> None:
    """Reading an event by its likeness to an earlier one says what reading it in full does."""
    pieces = [item.raw for item in said for _ in range(3)]

    expected = told(pieces)

    with_likeness = OpenAIReader._remember
    OpenAIReader._remember = lambda *_: None  # type: ignore[method-assign]
    try:
        assert told(pieces) == expected
    finally:
        OpenAIReader._remember = with_likeness  # type: ignore[method-assign]


@settings(max_examples=examples(100), suppress_health_check=SLOW, deadline=None)
@given(openai_streams())
def test_whatever_comes_is_a_message(said: list[Any]) -> None:
    """What a provider says, honest or not, reaches the client as whole frames that the official SDK understands."""
    events, complete, _, _, _ = told([item.raw for item in said])
    writer = AnthropicWriter(journey(anthropic_call()))

    if complete:
        heard = hear(anthropic(), [*filter(None, map(writer.write, events)), writer.end()])

        check_anthropic(heard)
        assert heard.end == "finished"
        texts = "".join(event.text for event in events if isinstance(event, Said))
        assert "".join(block.get("text", "") for block in accumulated(heard.items)["content"]) == texts


MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "content": st.sampled_from(["", "Hello", "北🦀", "\u2028"]),
        "reasoning_content": st.sampled_from(["", "hm", "é"]),
        "calls": st.lists(
            st.dictionaries(st.sampled_from(["a", "é", '"']), st.integers(-9, 9) | st.just("}{"), max_size=2),
            max_size=3,
        ),
    },
)


@settings(max_examples=examples(100), deadline=None)
@given(MESSAGES, st.sampled_from(["stop", "length", "content_filter", "brand_new"]), st.integers(1, 9))
def test_stream_and_body_are_one_answer(message: dict[str, Any], reason: str, size: int) -> None:
    """The same answer as a stream of pieces and as a body: the same blocks, calls, stop reason and usage."""
    calls = [
        {"index": at, "id": f"call_{at}", "type": "function", "function": {"name": "f", "arguments": json.dumps(value)}}
        for at, value in enumerate(message.pop("calls", []))
    ]
    pieces = []
    for name in ("reasoning_content", "content"):
        text = message.get(name, "")
        pieces += [chunk({name: text[at : at + size]}) for at in range(0, len(text), size)]
    for call in calls:
        function: Any = call["function"]
        pieces.append(chunk({"tool_calls": [{**call, "function": {**function, "arguments": ""}}]}))
        for at in range(0, len(function["arguments"]), size):
            piece = {"index": call["index"], "function": {"arguments": function["arguments"][at : at + size]}}
            pieces.append(chunk({"tool_calls": [piece]}))
    usage = {"prompt_tokens": 7, "completion_tokens": 30, "total_tokens": 37}
    choice = {"index": 0, "message": {**message, "tool_calls": calls}, "finish_reason": reason}
    body = json.dumps({"id": "c1", "choices": [choice], "usage": usage}).encode()

    streamed, _, _, _, _ = told([*pieces, FIN(reason), U(7, 30), DONE])
    whole = OpenAIReader().whole(body)

    assert _tidied(streamed) == _tidied(whole)
    assert _stream(streamed) == _body(whole)


def _tidied(events: Sequence[AnswerEvent]) -> tuple[list[Any], list[Finished], Counted | None]:
    """What *events* say, however it was cut: pieces of the same thing joined, the usage last."""
    out: list[Any] = []
    for event in events:
        if isinstance(event, Said | Thought | Argued):
            key: list[Any] = [type(event), getattr(event, "slot", 0), event.text]
            if out and out[-1][:2] == key[:2]:
                out[-1][2] += key[2]
            else:
                out.append(key)
        elif not isinstance(event, Counted | Finished):
            out.append([event, 0, ""])
    counts = [event for event in events if isinstance(event, Counted)]
    out = [key for key in out if key[0] is not Argued or key[2] != "{}"]  # as good as none
    return out, [event for event in events if isinstance(event, Finished)], counts[-1] if counts else None


def _stream(events: Sequence[AnswerEvent]) -> tuple[Any, ...]:
    writer = AnthropicWriter(journey(anthropic_call()))
    heard = hear(anthropic(), [*filter(None, map(writer.write, events)), writer.end()])
    message = accumulated(heard.items)
    usage = message["usage"]
    return content(message), message["stop_reason"], usage["input_tokens"], usage["output_tokens"]


def _body(events: Sequence[AnswerEvent]) -> tuple[Any, ...]:
    writer = AnthropicWriter(journey(anthropic_call()))
    completion = read_completion(writer.whole(events), journey(anthropic_call()))
    message = json.loads(completion.render(settled(anthropic())))
    usage = completion.usage
    return content(message), message["stop_reason"], usage.prompt_tokens, usage.completion_tokens
