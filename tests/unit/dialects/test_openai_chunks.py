"""Neutral events as chunks and completions: what a client of OpenAI's dialect gets of them through its own lane."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from gateway.core.usage import Usage
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
from gateway.dialects.openai_chat import read_completion
from gateway.dialects.openai_chunks import OpenAIWriter
from tests.support.scale import examples
from tests.unit.dialects.conversations import SLUG, Heard, check_openai, hear, journey, openai, openai_call, settled
from tests.unit.receipts import receipt

COUNTED = Counted(7, 3)
URL_CITATION = {"type": "web_search_result_location", "url": "https://a.test", "title": "A", "cited_text": "c"}


def writer(slug: str = SLUG) -> OpenAIWriter:
    """A writer for the call that `openai` opens a lane for."""
    return OpenAIWriter(journey(structs.replace(openai_call(), slug=slug)))


def chunks(*events: AnswerEvent) -> list[Any]:
    """The data of what a writer says of *events*, before any lane."""
    out = writer()
    frames = b"".join(map(out.write, events)).split(b"\n\n")[:-1]
    return [json.loads(frame.removeprefix(b"data: ")) for frame in frames]


def deltas(*events: AnswerEvent) -> list[Any]:
    """The deltas of those."""
    return [chunk["choices"][0]["delta"] for chunk in chunks(*events)]


def heard(events: Iterable[AnswerEvent]) -> Heard:
    """What a client hears of a stream of *events*, checked for everything that must hold of any output."""
    out = writer()
    conversation = hear(openai(), [*map(out.write, events), out.end()])
    check_openai(conversation)
    return conversation


def rendered(events: Iterable[AnswerEvent]) -> Any:
    """What a client gets of *events* as a JSON answer."""
    completion = read_completion(writer().whole(events), journey(openai_call(stream=False)))
    return json.loads(completion.render(receipt(usage=completion.usage, usage_basis=completion.basis)))


def message(items: Iterable[Any]) -> dict[str, Any]:
    """The message that a client puts together from the parsed frames of a stream, texts joined and calls by index."""
    out: dict[str, Any] = {"content": ""}
    calls: dict[int, dict[str, str]] = {}
    for item in items:
        if not isinstance(item, dict) or item.get("object") != "chat.completion.chunk":
            continue
        for name, value in item["choices"][0]["delta"].items():
            if name == "tool_calls":
                for piece in value:
                    call = calls.setdefault(piece["index"], {"id": "", "name": "", "arguments": ""})
                    call["id"] += piece.get("id", "")
                    for member, text in piece["function"].items():
                        call[member] += text
            elif name != "role":
                out[name] = out[name] + value if name in out else value
    return {**out, "calls": [calls[index] for index in sorted(calls)]}


def whole_message(body: Any) -> dict[str, Any]:
    """The message of a JSON answer in the same form."""
    said = {name: value for name, value in body["choices"][0]["message"].items() if value is not None}
    assert said.pop("role") == "assistant"
    calls = [{"id": call["id"], **call["function"]} for call in said.pop("tool_calls", [])]
    return {"content": "", **said, "calls": calls}


def test_the_plain_stream() -> None:
    """Role chunk, pieces, finish with the usage, metadata, terminator: in the envelope that the lane would give."""
    said = [Begin("msg_1"), Said("a"), Said("é\n"), Finished("stop"), Counted(7, 2, 1)]

    conversation = heard(said)

    assert [item["choices"][0]["delta"] for item in conversation.items[:-1]] == [
        {"role": "assistant", "content": ""}, {"content": "a"}, {"content": "é\n"}, {}, {},
    ]  # fmt: skip
    finish = conversation.items[-3]
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert finish["usage"] == {
        "prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9, "prompt_tokens_details": {"cached_tokens": 1},
    }  # fmt: skip
    assert (finish["id"], finish["created"]) == ("chatcmpl-req_1", 1_700_000_000)
    assert conversation.lane.measure() == (Usage(7, 2, 1), "provider_final")


def test_the_lane_passes_our_text_as_it_is() -> None:
    """A piece of text is the very bytes that leave, so that all of a stream but its first piece fits the template."""
    lane, out = openai(), writer()
    lane.feed(out.write(Begin()) + out.write(Said("a")))

    passed = [(lane.feed(out.write(event)), OpenAIWriter.write(out, event)) for event in (
        Said("b"), Said("北🦀"), Thought("hm"), Called(0, "i", "f"), Argued(0, '{"x":'), Argued(0, "1}"),
    )]  # fmt: skip

    assert [sent for sent, _ in passed] == [written for _, written in passed]


@pytest.mark.parametrize("slug", ["100%d", 'a"b\\', "北", "{}"])
def test_any_slug(slug: str) -> None:
    """The name of a model is no format and no JSON."""
    out = writer(slug)

    frames = out.write(Begin()) + out.write(Said("a")) + out.write(Argued(0, "b")) + out.write(COUNTED)

    assert frames.isascii()
    assert {json.loads(frame[6:])["model"] for frame in frames.split(b"\n\n")[:-1]} == {slug}


def test_tr_01_tr_02_parallel_calls() -> None:
    """Each call has its index; id, type and name come once, with its first delta, and arguments as they came."""
    said = deltas(Called(0, "a", "f"), Argued(0, '{"x":'), Called(1, "b", "g"), Argued(0, "1}"), Argued(1, "{}"))

    assert [piece["tool_calls"] for piece in said] == [
        [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}],
        [{"index": 0, "function": {"arguments": '{"x":'}}],
        [{"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": ""}}],
        [{"index": 0, "function": {"arguments": "1}"}}],
        [{"index": 1, "function": {"arguments": "{}"}}],
    ]


def test_tr_05_a_call_without_arguments_has_an_empty_object() -> None:
    """Once, in the stream and in the JSON answer."""
    said = [Begin(), Called(0, "a", "f"), Called(1, "b", "g"), Argued(1, '{"x":1}'), Finished("tool_calls"), COUNTED]
    calls = [{"id": "a", "name": "f", "arguments": "{}"}, {"id": "b", "name": "g", "arguments": '{"x":1}'}]

    assert message(heard(said).items)["calls"] == calls
    assert whole_message(json.loads(writer().whole(said)))["calls"] == calls
    assert whole_message(rendered(said))["calls"] == calls


REASONS: list[tuple[Reason, str, str | None]] = [
    ("stop", "stop", None),
    ("stop_sequence", "stop", None),
    ("length", "length", None),
    ("context_window", "length", None),
    ("tool_calls", "tool_calls", None),
    ("refusal", "content_filter", None),
    ("pause", "stop", "paused"),
]


@pytest.mark.parametrize(("reason", "word", "note"), REASONS)
def test_tr_23_finish_reasons(reason: Reason, word: str, note: str | None) -> None:
    """Every reason has OpenAI's nearest word, on one chunk and in the body; a pause is noted."""
    said, out = [Begin(), Said("a"), Finished(reason), COUNTED], writer()

    stream, whole = heard(said), rendered(said)
    out.write(Finished(reason))

    assert [c["finish_reason"] for i in stream.items[:-2] for c in i["choices"]] == [None, None, word]
    assert whole["choices"][0]["finish_reason"] == word
    assert out.note == note


def test_thinking_can_be_sent_back() -> None:
    """The text is `reasoning_content`; signatures and ciphertexts are `reasoning_details`, in order."""
    said = [Begin(), Thought("h"), Thought("m"), Thought(signature="sig"), Thought(redacted="xyz"), Said("a")]
    said += [Finished("stop"), COUNTED]
    expected = {
        "content": "a",
        "reasoning_content": "hm",
        "reasoning_details": [
            {"type": "reasoning.text", "text": "", "signature": "sig", "text_length": 2, "index": 0},
            {"type": "reasoning.encrypted", "data": "xyz", "index": 1},
        ],
        "calls": [],
    }

    assert message(heard(said).items) == expected
    assert whole_message(rendered(said)) == expected


def test_refusals_are_apart_from_the_text() -> None:
    """The text of a refusal is `refusal`, and there is no content then."""
    said = [Begin(), Refused("N"), Refused("o."), Finished("refusal"), COUNTED]

    assert message(heard(said).items) == {"content": "", "refusal": "No.", "calls": []}
    assert rendered(said)["choices"][0]["message"] == {"role": "assistant", "content": None, "refusal": "No."}


def test_citations_with_an_address_are_annotations() -> None:
    """They say which part of the text they are for."""
    said = [Begin(), Said("ab"), Said("cde"), Cited(URL_CITATION, 3), Cited({**URL_CITATION, "title": None}, 3)]
    said += [Finished("stop"), COUNTED]
    source = {"url": "https://a.test", "title": "A", "content": "c", "start_index": 2, "end_index": 5}
    expected = [
        {"index": 0, "type": "url_citation", "url_citation": source},
        {"index": 1, "type": "url_citation", "url_citation": {**source, "title": ""}},
    ]

    assert message(heard(said).items)["annotations"] == expected
    assert whole_message(rendered(said))["annotations"] == expected


def test_a_citation_for_more_than_was_said_is_for_all_of_it() -> None:
    """No part of a text begins before it."""
    annotation = deltas(Said("ab"), Cited(URL_CITATION, 9))[1]["annotations"][0]

    assert (annotation["url_citation"]["start_index"], annotation["url_citation"]["end_index"]) == (0, 2)


@pytest.mark.parametrize("citation", [{"type": "char_location", "cited_text": "c"}, {"url": 7}, {"url": ""}, "x", None])
def test_citations_without_an_address_are_left_out(citation: Any) -> None:
    """With a note."""
    out = writer()

    written = out.write(Said("a")) and out.write(Cited(citation))

    assert (written, out.note) == (b"", "citation_dropped")


def test_use_02_counts_never_reach_the_client_as_a_chunk() -> None:
    """Counts that come on the way are merged: per member the last explicit value, and one usage at the end."""
    said = [Begin(), Counted(7, cached_tokens=2), Said("a"), Counted(completion_tokens=1), Finished("stop")]
    said.append(Counted(completion_tokens=5, reasoning_tokens=4, cache_write_tokens=3))

    written, stream = chunks(*said), heard(said)

    assert [chunk["usage"] for chunk in written if not chunk["choices"]][-1] == {
        "prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }  # fmt: skip
    assert all(item["choices"] for item in stream.items[:-1])
    assert stream.lane.measure()[0].prompt_tokens == rendered(said)["usage"]["prompt_tokens"] == 7


def test_unknown_counts_are_left_to_the_lane() -> None:
    """What the provider did not count is not told as 0, so that it is estimated."""
    said = [Begin(), Counted(7), Said("a"), Finished("stop"), Counted(7)]

    assert chunks(Counted(7))[0]["usage"] == {"prompt_tokens": 7}
    assert heard(said).lane.measure() == (Usage(7, 1), "estimated")
    assert rendered(said)["usage"]["completion_tokens"] == 1


def test_a_whole_body() -> None:
    """Every member that OpenAI always has, in its order, by the id and the time of the request."""
    body = json.loads(writer().whole([Begin("msg_1"), Said("a"), Said("b"), Finished("length"), COUNTED]))

    assert body == {
        "id": "chatcmpl-req_1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "gpt-of-ours",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "ab", "refusal": None},
                "logprobs": None,
                "finish_reason": "length",
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }


def test_an_empty_answer() -> None:
    """An answer that says nothing has no text, but is one."""
    said = [Begin(), Finished("stop"), COUNTED]

    assert message(heard(said).items) == {"content": "", "calls": []}
    assert rendered(said)["choices"][0]["message"]["content"] == ""


def test_openai_s_own_library_puts_the_pieces_together() -> None:
    """Its accumulator needs an index for every list, also for those that it does not know."""
    said = [Begin(), Thought("hm"), Thought(signature="s"), Thought(redacted="x"), Said("a"), Cited(URL_CITATION, 1)]
    said += [Cited(URL_CITATION, 1), Called(0, "i", "f"), Argued(0, "{}"), Finished("tool_calls"), COUNTED]
    state: ChatCompletionStreamState[Any] = ChatCompletionStreamState()

    for item in heard(said).items[:-2]:
        state.handle_chunk(ChatCompletionChunk.model_validate(item))

    whole = state.get_final_completion().choices[0].message.model_dump(exclude_none=True)
    assert [detail["type"] for detail in whole["reasoning_details"]] == ["reasoning.text", "reasoning.encrypted"]
    assert len(whole["annotations"]) == 2
    assert (whole["content"], whole["reasoning_content"]) == ("a", "hm")
    assert whole["tool_calls"][0]["function"]["arguments"] == "{}"


# -- properties --

texts = st.text(max_size=6)
names = st.text(min_size=1, max_size=6)
pieces = st.one_of(
    st.builds(Said, texts),
    st.builds(Refused, texts),
    st.builds(Thought, texts, st.none() | texts, st.none() | texts),
    st.builds(Cited, st.sampled_from([URL_CITATION, {"type": "page_location"}]), st.integers(0, 9)),
    st.builds(Counted, st.integers(1, 9), st.none() | st.integers(1, 9)),
)


@st.composite
def answers(draw: st.DrawFn) -> list[AnswerEvent]:
    """A whole answer: any pieces, up to three calls with arguments anywhere behind their beginnings."""
    said = draw(st.lists(pieces, max_size=8))
    for slot in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(said)))
        openings = [i for i, event in enumerate(said) if isinstance(event, Called)]
        at = max([at, *(i + 1 for i in openings)])
        said.insert(at, Called(slot, draw(names), draw(names)))
        for text in draw(st.lists(texts, max_size=3)):
            at = draw(st.integers(at + 1, len(said)))
            said.insert(at, Argued(slot, text))
    cached = draw(st.none() | st.integers(0, 7))
    counted = Counted(draw(st.integers(7, 9)), draw(st.integers(1, 99)), cached, None, draw(st.none() | st.just(1)))
    return [Begin(), *said, Finished(draw(st.sampled_from(["stop", "tool_calls", "length"]))), counted]


@given(answers())
@settings(max_examples=examples(200), deadline=None)
def test_stream_and_body_tell_the_same(said: list[AnswerEvent]) -> None:
    """Texts, calls, annotations, finish reason and usage are the same in both, and what the events say."""
    stream, whole = heard(said), rendered(said)

    assert message(stream.items) == whole_message(whole)
    assert message(stream.items)["content"] == "".join(event.text for event in said if isinstance(event, Said))
    assert stream.items[-3]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert stream.items[-3]["usage"] == whole["usage"]
    assert settled(stream.lane).usage_basis == "provider_final"
    for slot, call in enumerate(message(stream.items)["calls"]):
        arguments = "".join(event.text for event in said if isinstance(event, Argued) and event.slot == slot)
        assert call["arguments"] == (arguments or "{}")
