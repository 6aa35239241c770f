"""What vendors of OpenAI's dialect say, in neutral events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.core.errors import UpstreamFailed
from gateway.dialects.neutral import (
    AnswerEvent,
    Argued,
    Begin,
    Called,
    Cited,
    Counted,
    Finished,
    Refused,
    Said,
    Thought,
)
from gateway.dialects.openai_events import OpenAIReader
from gateway.wire.sse import FrameSplitter
from tests.support.notation import DONE, FIN, TC, R, T, U, chunk, data, json_answer
from tests.unit.dialects.conversations import choice_chunk


def read(*pieces: bytes) -> tuple[list[AnswerEvent], OpenAIReader]:
    """Everything said up to the end, last words included where there is one."""
    reader = OpenAIReader()
    out: list[AnswerEvent] = []
    for event in FrameSplitter(1 << 20).feed(b"".join(pieces)):
        if reader.ended:
            break
        out += reader.take(event)
    return [*out, *(reader.end() if reader.complete else ())], reader


def events(*pieces: bytes) -> list[AnswerEvent]:
    return read(*pieces)[0]


def body(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return json.dumps({"id": "c1", "object": "chat.completion", "choices": [choice], **more}).encode()


def calls_of(said: Sequence[AnswerEvent]) -> list[tuple[str, str, str]]:
    """(id, name, arguments) of each call, in the order of slots, which has to be dense."""
    out: list[tuple[str, str, str]] = []
    for event in said:
        if isinstance(event, Called):
            assert event.slot == len(out)
            out.append((event.id, event.name, ""))
        elif isinstance(event, Argued):
            out[event.slot] = (*out[event.slot][:2], out[event.slot][2] + event.text)
    return out


def fragments(*calls: dict[str, Any]) -> bytes:
    """One delta with *calls*."""
    return chunk({"tool_calls": list(calls)})


def test_the_plain_answer() -> None:
    """Beginning, words, end and usage, each once."""
    said, reader = read(R(), T("a"), T("b"), FIN("stop"), U(7, 2), DONE)

    assert said == [Begin("c1"), Said("a"), Said("b"), Counted(7, 2), Finished("stop")]
    assert (reader.complete, reader.ended, reader.note) == (True, True, None)


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        ({"reasoning_content": "hm"}, [Thought("hm")]),
        ({"reasoning": "hm"}, [Thought("hm")]),
        ({"reasoning": "hm", "content": "a"}, [Thought("hm"), Said("a")]),
        ({"refusal": "no"}, [Refused("no")]),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, [Said("a"), Said("b")]),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}, [Thought("hm")]),
        ({"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}, [Thought("hm")]),
        ({"reasoning": "h", "reasoning_details": [{"type": "reasoning.summary", "summary": "h"}]}, [Thought("h")]),
        ({"reasoning_details": [{"type": "reasoning.text", "signature": "sig"}]}, [Thought(signature="sig")]),
        (
            {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "sig"}]},
            [Thought("hm", signature="sig")],
        ),
        ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "xx"}]}, [Thought(redacted="xx")]),
        (
            {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.encrypted", "data": "xx"}]},
            [Thought("hm"), Thought(redacted="xx")],
        ),
        ({"content": ""}, []),
        ({"content": 1, "reasoning": {}, "refusal": [], "tool_calls": "x", "function_call": 7}, []),
        ({"content": None, "reasoning_details": [None, 1, {"text": 1}]}, []),
    ],
)
def test_words(delta: dict[str, Any], expected: list[AnswerEvent]) -> None:
    """Every way to send text, reasoning and refusals, the same in a stream and in a whole answer."""
    streamed = events(R(), chunk(delta), FIN("stop"))
    whole = OpenAIReader().whole(body(delta))

    assert streamed == [Begin("c1"), *expected, Finished("stop")]
    assert whole == [Begin("c1"), *expected, Finished("stop")]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param(
            [TC(0, name="f"), TC(0, '{"a"'), TC(0, ":1}"), TC(1, '{"b":2}', name="g")],
            [("call_0", "f", '{"a":1}'), ("call_1", "g", '{"b":2}')],
            id="by index",
        ),
        pytest.param(
            [TC(3, name="f"), TC(7, name="g"), TC(3, "{1}"), TC(7, "{2}")],
            [("call_3", "f", "{1}"), ("call_7", "g", "{2}")],
            id="indexes with gaps, interleaved",
        ),
        pytest.param(
            [
                fragments({"id": "a", "function": {"name": "f"}}, {"id": "b", "function": {"name": "g"}}),
                fragments({"function": {"arguments": '{"x"'}}),
                fragments({"function": {"arguments": ":1}"}}),
            ],
            [("a", "f", ""), ("b", "g", '{"x":1}')],
            id="tr-03: without index, two in one delta, then fragments",
        ),
        pytest.param(
            [
                fragments({"id": "a", "function": {"name": "f", "arguments": "{1"}}),
                fragments({"id": "b", "function": {"name": "g", "arguments": "{2"}}),
                fragments({"id": "a", "function": {"arguments": "}"}}),
                fragments({"id": "b", "function": {"name": "g", "arguments": "}"}}),
            ],
            [("a", "f", "{1}"), ("b", "g", "{2}")],
            id="without index, by id",
        ),
        pytest.param(
            [TC(0, '{"a"', name="f"), TC(0, ":1}", name="f")], [("call_0", "f", '{"a":1}')], id="id and name repeated"
        ),
        pytest.param(
            [TC(0, "{1}", name="f", id="x"), TC(0, "{2}", name="f", id="y"), TC(0, "", name="f", id="z")],
            [("x", "f", "{1}"), ("y", "f", "{2}"), ("z", "f", "")],
            id="index 0 for all",
        ),
        pytest.param(
            [
                fragments({"index": 0, "function": {"name": "f", "arguments": "{1}"}}),
                fragments({"index": 0, "function": {"name": "f", "arguments": "{2}"}}),
                fragments({"index": 0, "function": {"name": "g", "arguments": "{}"}}),
            ],
            [("call_c1_0", "f", "{1}"), ("call_c1_1", "f", "{2}"), ("call_c1_2", "g", "")],
            id="index 0 for all and no ids",
        ),
        pytest.param(
            [TC(0, "{1}", name="f", id="x"), TC(1, "{2}", name="f", id="x")],
            [("x", "f", "{1}"), ("call_c1_1", "f", "{2}")],
            id="one id for two",
        ),
        pytest.param(
            [chunk({"function_call": {"name": "f", "arguments": ""}}), chunk({"function_call": {"arguments": "{1}"}})],
            [("call_c1_0", "f", "{1}")],
            id="function_call",
        ),
        pytest.param(
            [fragments({"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": 1.50}}})],
            [("a", "f", '{"x":1.5}')],
            id="an object instead of its text",
        ),
        pytest.param([TC(0, '"{\\"x\\":1}"', name="f")], [("call_0", "f", '{"x":1}')], id="encoded twice"),
        pytest.param(
            [fragments({"index": 0, "id": "a"}), TC(0, "{"), fragments({"index": 0, "function": {"name": "f"}})],
            [("a", "f", "{")],
            id="the name last",
        ),
        pytest.param([TC(0, "{1}", name="f"), TC(0, "{1}"), TC(0, " ")], [("call_0", "f", "{1}")], id="said again"),
        pytest.param([TC(0, "{}", name="f"), TC(0, '{"x":1}')], [("call_0", "f", '{"x":1}')], id="empty, then more"),
    ],
)
def test_tr_01_tr_02_tr_03_tool_calls(pieces: list[bytes], expected: list[tuple[str, str, str]]) -> None:
    """However fragments are marked, each reaches its call, and slots count from 0."""
    said = events(R(), *pieces, FIN("tool_calls"))

    assert calls_of(said) == expected
    assert said[-1] == Finished("tool_calls")


@pytest.mark.parametrize("arguments", [None, "", " ", "{}", " { } ", "null", "[]", '""'])
def test_tr_05_calls_without_arguments(arguments: str | None) -> None:
    """Nothing is said of arguments that are not there, however the vendor says it."""
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "now", "arguments": arguments}}

    assert calls_of(events(R(), fragments(call), FIN("tool_calls"))) == [("a", "now", "")]
    assert calls_of(OpenAIReader().whole(body({"tool_calls": [call]}, "tool_calls"))) == [("a", "now", "")]


@pytest.mark.parametrize("arguments", ["x", "[1]", "7", '"x"', "true"])
def test_arguments_that_are_no_object(arguments: str) -> None:
    """What no client could take for arguments is the provider's failure, not a call with others."""
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": arguments}}

    with pytest.raises(UpstreamFailed) as streamed:
        events(R(), fragments(call))
    with pytest.raises(UpstreamFailed) as whole:
        OpenAIReader().whole(body({"tool_calls": [call]}))

    assert [caught.value.failure.reason for caught in (streamed, whole)] == ["malformed"] * 2


def test_arguments_that_were_cut_off() -> None:
    """A whole answer may end in unfinished arguments for want of tokens, and for no other reason."""
    message = {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"a":1,'}}]}

    assert calls_of(OpenAIReader().whole(body(message, "length"))) == [("a", "f", '{"a":1,')]
    with pytest.raises(UpstreamFailed):
        OpenAIReader().whole(body(message, "tool_calls"))


@pytest.mark.parametrize("call", [{"index": 128}, {"index": -1}])
def test_indexes_nobody_can_mean(call: dict[str, Any]) -> None:
    """Calls are as many as a request can have tools."""
    many = [fragments({"id": f"i{n}", "function": {"name": "f"}}) for n in range(129)]

    for pieces in ([fragments(call)], many):
        with pytest.raises(UpstreamFailed):
            events(R(), *pieces)


def test_words_of_no_call() -> None:
    """Arguments before any call, and a call that never gets a name, are noted and spoil nothing."""
    stray, nameless = read(R(), TC(0, "{}"), FIN("stop")), read(R(), fragments({"id": "a"}), FIN("stop"))

    assert [stray[0][-1], nameless[0][-1]] == [Finished("stop"), Finished("stop")]
    assert [stray[1].note, nameless[1].note] == ["stray_arguments", "nameless_tool_call"]


REASONS = [
    ("stop", False, Finished("stop")),
    ("length", False, Finished("length")),
    ("model_length", False, Finished("context_window")),
    ("tool_calls", True, Finished("tool_calls")),
    ("function_call", True, Finished("tool_calls")),
    ("content_filter", False, Finished("refusal")),
    ("brand_new", False, Finished("stop", said="brand_new")),
    ("x" * 100, False, Finished("stop", said="x" * 64)),
    ("stop", True, Finished("tool_calls")),
    ("brand_new", True, Finished("tool_calls", said="brand_new")),
    ("length", True, Finished("length")),
    ("tool_calls", False, Finished("stop", said="tool_calls")),
]


@pytest.mark.parametrize(("reason", "calls", "expected"), REASONS)
def test_tr_23_finish_reasons(reason: str, calls: bool, expected: Finished) -> None:
    """Each reason has its neutral one; a vendor's own word is kept."""
    pieces = [TC(0, "{1}", name="f")] if calls else []

    assert events(R(), *pieces, FIN(reason))[-1] == expected


def test_tr_25_a_reason_on_every_chunk() -> None:
    """Only the last reason counts: content behind one takes it back, an empty delta does not."""
    said, reader = read(R(), chunk({"content": "a"}, "stop"), chunk({"content": "b"}, "length"), DONE)
    undone = read(R(), T("a"), FIN("stop"), T("b"))[1]
    unmoved = read(R(), T("a"), FIN("stop"), chunk({"content": ""}))[1]
    thrice = read(R(), *[chunk({"content": "a"}, "stop"), T("b")] * 12, chunk({"content": "a"}, "stop"))[1]

    assert said == [Begin("c1"), Said("a"), Said("b"), Finished("length")]
    assert reader.ended
    assert [undone.complete, unmoved.complete, thrice.complete] == [False, True, True]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([FIN("stop"), U(7, 3)], [Counted(7, 3)]),
        ([FIN("stop", (7, 3))], [Counted(7, 3)]),
        ([U(7, 3), FIN("stop")], [Counted(7, 3)]),
        ([FIN("stop")], []),
        ([FIN("stop", {"prompt_tokens": 7})], [Counted(7)]),
        (
            [FIN("stop"), U(7, 3, prompt_tokens_details={"cached_tokens": 4, "cache_write_tokens": 2})],
            [Counted(7, 3, 4, 2)],
        ),
        ([FIN("stop"), U(7, 3, completion_tokens_details={"reasoning_tokens": 2})], [Counted(7, 3, None, None, 2)]),
        ([FIN("stop"), U(7, 3, prompt_cache_hit_tokens=5)], [Counted(7, 3, 5)]),
    ],
)
def test_use_01_where_usage_can_be(pieces: list[bytes], expected: list[Counted]) -> None:
    """Usage is said once, wherever the provider puts it."""
    assert [event for event in events(R(), T("a"), *pieces) if isinstance(event, Counted)] == expected


def test_use_04_usage_on_every_chunk() -> None:
    """Cumulative counts replace each other."""
    said = events(R(), T("a", (7, 1)), T("b", (7, 2)), T("c", (7, 3)), FIN("stop", (7, 3)))

    assert [event for event in said if isinstance(event, Counted)] == [Counted(7, 1), Counted(7, 2), Counted(7, 3)]


def test_use_15_absurd_counts() -> None:
    """Counts that cannot be are not said, and noted."""
    said, reader = read(R(), T("a"), FIN("stop", {"prompt_tokens": -5, "completion_tokens": "12"}))

    assert [type(event) for event in said] == [Begin, Said, Finished]
    assert reader.note == "usage_odd"


def test_other_choices() -> None:
    """Only the first choice is heard; others are noted."""
    said, reader = read(R(), choice_chunk(1, {"content": "x"}, "stop"), T("a"), FIN("stop"), DONE)

    assert said == [Begin("c1"), Said("a"), Finished("stop")]
    assert reader.note == "other_choices"


def test_what_has_no_event() -> None:
    """Audio and images are noted, and content behind a finish like any other."""
    reader = read(R(), chunk({"audio": {"data": "AAAA"}}), FIN("stop"), chunk({"images": [{}]}))[1]

    assert (reader.complete, reader.note) == (False, "unknown_content")


def test_numbers_are_no_content() -> None:
    """A number or flag of a name that we do not know says nothing: it is not noted, and takes no finish back."""
    reader = read(R(), T("a"), FIN("stop"), chunk({"token_id": 128_009, "final": True, "content": ""}))[1]

    assert (reader.complete, reader.note) == (True, None)


@pytest.mark.parametrize(
    ("piece", "reason"),
    [
        (data({"error": {"message": "boom"}}), "in_band"),
        (b"event: error\n" + data({"message": "boom"}), "in_band"),
        (chunk({}, "error"), "in_band"),
        (data({"choices": [{"index": 0, "delta": {}, "error": {"code": 502}}]}), "in_band"),
        (data("<html>"), "malformed"),
        (data('{"a":NaN}'), "malformed"),
        (DONE, "truncated"),
    ],
)
def test_failures(piece: bytes, reason: str) -> None:
    """Errors and nonsense fail the stream; behind a finish they are but noted."""
    with pytest.raises(UpstreamFailed) as caught:
        read(R(), T("a"), piece)
    late, reader = read(R(), T("a"), FIN("stop"), piece)

    assert caught.value.failure.reason == reason
    assert late[-1] == Finished("stop")
    assert reader.ended
    assert reader.note == (None if piece == DONE else f"after_finish:{reason}")


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": "none"}, {"choices": [None, 1]}, {"choices": [{"index": "0", "delta": 7, "finish_reason": 1}]},
        {"error": None, "choices": []}, {"id": [], "model": 1, "created": 1.0},
    ],
)  # fmt: skip
def test_odd_types(odd: dict[str, Any]) -> None:
    """Members of unexpected types never break a stream."""
    assert events(R(), T("a"), chunk({}, **odd), T("b"), FIN("stop"))[1:] == [Said("a"), Said("b"), Finished("stop")]


def test_words_like_the_ones_before() -> None:
    """What is read by its likeness says the same: text, reasoning and arguments, in turns."""
    thoughts = [chunk({"reasoning_content": f"t{n}"}) for n in range(12)]
    texts = [T(f"w{n}") for n in range(12)]
    first = [TC(0, '{"a":"', name="f"), *(TC(0, f"p{n}") for n in range(12)), TC(0, '"}')]
    second = [TC(0, '{"b":"', name="f", id="y"), *(TC(0, f"q{n}") for n in range(12)), TC(0, '"}')]

    said = events(R(), *thoughts, *texts, *first, *second, FIN("stop"))

    assert "".join(event.text for event in said if isinstance(event, Thought)) == "".join(f"t{n}" for n in range(12))
    assert "".join(event.text for event in said if isinstance(event, Said)) == "".join(f"w{n}" for n in range(12))
    assert [json.loads(arguments) for _, _, arguments in calls_of(said)] == [
        {"a": "".join(f"p{n}" for n in range(12))},
        {"b": "".join(f"q{n}" for n in range(12))},
    ]


NO_ANSWERS = [
    b"", b"[]", b"{}", b"<html>", b'{"choices":[]}', b'{"choices":[null]}', b'{"choices":[{"message":{}}]}',
    b'{"choices":[{"message":7,"finish_reason":"stop"}]}',
    b'{"choices":[{"index":1,"message":{},"finish_reason":"stop"}]}',
    b"[" * 99_999,
]  # fmt: skip


@pytest.mark.parametrize("answer", NO_ANSWERS, ids=[repr(body[:40]) for body in NO_ANSWERS])
def test_what_is_no_answer(answer: bytes) -> None:
    """A body that is no answer is the provider's failure."""
    with pytest.raises(UpstreamFailed) as caught:
        OpenAIReader().whole(answer)

    assert caught.value.failure.reason == "malformed"


@pytest.mark.parametrize(
    "answer",
    [
        b'{"error":{"message":"m"}}',
        b'{"choices":[{"message":{},"finish_reason":"error"}]}',
        b'{"choices":[{"message":{},"finish_reason":"stop","error":{"code":1}}]}',
    ],
)
def test_errors_inside_a_200(answer: bytes) -> None:
    """An error object is an error under any status."""
    with pytest.raises(UpstreamFailed) as caught:
        OpenAIReader().whole(answer)

    assert caught.value.failure.reason == "in_band"


def test_the_whole_answer() -> None:
    """A JSON body says what a stream of it would."""
    said = OpenAIReader().whole(json_answer("Jakarta", (7, 2), error=None).body)

    assert said == [Begin("c1"), Said("Jakarta"), Finished("stop"), Counted(7, 2)]


def test_details_are_never_read_by_likeness() -> None:
    """Where reasoning comes with details, theirs is the text that counts, in every chunk."""
    detailed = [chunk({"reasoning": word, "reasoning_details": [{"text": "a"}]}) for word in "ab"]

    assert events(R(), *detailed, FIN("stop"))[1:3] == [Thought("a"), Thought("a")]


def test_usage_in_the_choice_that_finishes() -> None:
    """It counts as any other."""
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "cached_tokens": 4}
    finish = chunk({}, choices=[{"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage}])

    said = events(R(), T("a"), finish, DONE)

    assert Counted(7, 3, cached_tokens=4) in said


def test_filter_results_behind_the_finish_do_not_end_the_answer() -> None:
    """A chunk without choices and without usage may be followed by one with the usage, also after an earlier count."""
    filters = data({"choices": [], "prompt_filter_results": []})

    said, reader = read(R(), T("a"), FIN("stop", (7, 1)), filters, U(7, 3))

    assert said[-2:] == [Counted(7, 3), Finished("stop")]
    assert reader.ended


SOURCE = {"url": "https://a.example", "title": "A", "start_index": 2, "end_index": 5, "content": "words"}
CITED = Cited(
    {
        "type": "web_search_result_location",
        "url": "https://a.example",
        "title": "A",
        "cited_text": "words",
        "encrypted_index": "",
    },
    3,
)


def test_sources_on_the_web_are_citations() -> None:
    """`url_citation` is the same as what Anthropic's own search cites; words beside it are not lost."""
    annotation = {"type": "url_citation", "url_citation": SOURCE}

    streamed, reader = read(R(), T("Once "), chunk({"content": "upon", "annotations": [annotation]}), FIN(), DONE)
    whole = OpenAIReader().whole(body({"content": "Once upon", "annotations": [annotation]}))

    assert [said for said in streamed if isinstance(said, Said | Cited)] == [Said("Once "), Said("upon"), CITED]
    assert whole[1:3] == [Said("Once upon"), CITED]
    assert reader.note is None


@pytest.mark.parametrize(
    "annotations",
    [7, [7], [{}], [{"type": "file_citation"}], [{"url_citation": {"url": 7}}], [{"url_citation": {"start_index": 1}}]],
)
def test_other_annotations_are_noted(annotations: Any) -> None:
    """What is no source on the web has no form in the other dialect: left out, with a note where it says anything."""
    said, reader = read(R(), chunk({"content": "a", "annotations": annotations}), FIN(), DONE)

    assert said[:2] == [Begin("c1"), Said("a")]
    assert reader.note == ("unknown_content" if isinstance(annotations, list) else None)


def test_a_source_may_tell_no_place() -> None:
    """Indices that are none, or run backwards, count as unknown."""
    for odd in ({"start_index": "2"}, {"start_index": 9}, {"end_index": None}):
        annotation = {"url_citation": {**SOURCE, **odd}}
        (cited,) = (e for e in events(R(), chunk({"annotations": [annotation]}), FIN(), DONE) if isinstance(e, Cited))
        assert cited.chars == 0
