"""What vendors do differently on the OpenAI lane, and what a client must not notice of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.notation import DONE, FIN, R, T, U, chunk, crlf, data
from tests.unit.dialects.conversations import (
    choice_chunk,
    hear_openai,
    openai,
    shape,
    texts,
)

# -- the envelope --


def test_a_role_chunk_is_made_once_per_choice() -> None:
    """A provider that sends no role gets one put in front, for every choice."""
    second = choice_chunk(1, {"content": "c"})

    heard = hear_openai(T("a"), T("b"), second, FIN("stop"), choice_chunk(1, {}, "stop"), DONE)

    assert shape(heard) == ["0:R", "0:a", "0:b", "1:R", "1:c", "0:", "0:FIN(stop)", "1:FIN(stop)", "META", "[DONE]"]


def test_sse_18_chunks_without_choices() -> None:
    """Filter results without a choice are not passed on, and fix nothing of the envelope."""
    azure = data({"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": [{}]})

    heard = hear_openai(azure, R(), T("a"), FIN("stop"), U(7, 1), DONE)

    assert shape(heard) == ["0:R", "0:a", "0:FIN(stop)", "META", "[DONE]"]
    assert heard.items[0]["id"] == "c1"


def test_sse_33_missing_members_are_filled() -> None:
    """id, object, created, model and the choice's index are there whatever the provider leaves out."""
    bare = data({"choices": [{"delta": {"content": "a"}}]})

    heard = hear_openai(bare, bare, data({"choices": [{"finish_reason": "stop"}]}), DONE)

    assert shape(heard) == ["0:R", "0:a", "0:a", "0:FIN(stop)", "META", "[DONE]"]
    assert (heard.items[0]["id"], heard.items[0]["created"]) == ("chatcmpl-req_1", 1_700_000_000)


@pytest.mark.parametrize(
    "envelope",
    [
        {"id": "other"},
        {"created": 2},
        {"created": 1.0},
        {"created": "1"},
        {"created": None},
        {"created": 10**30},
        {"object": "text_completion"},
        {"model": "m-2024"},
        {"model": None},
        {"id": None, "object": None},
    ],
)
def test_an_envelope_that_changes(envelope: dict[str, Any]) -> None:
    """What changes in mid-stream, or has a wrong type from the start, is constant for the client."""
    later = hear_openai(R(), chunk({"content": "a"}, None, None, **envelope), FIN("stop"), DONE)
    from_the_start = hear_openai(
        chunk({"role": "assistant"}, None, None, **envelope), chunk({"content": "a"}, "stop", None, **envelope), DONE
    )

    assert texts(later.items) == texts(from_the_start.items) == {0: "a"}


@pytest.mark.parametrize("envelope", [{}, {"created": 2}, {"object": None}])
def test_a_usage_of_null_stays(envelope: dict[str, Any]) -> None:
    """Chunks that pass as they are and chunks that are rewritten have the same members."""
    heard = hear_openai(R(), chunk({"content": "a"}, None, None, usage=None, **envelope), FIN("stop"), DONE)

    assert "usage" in heard.items[1]
    assert heard.items[1]["usage"] is None


def test_a19_the_provider_calls_the_model_something_else() -> None:
    """The client reads the name it asked for, whatever name the provider answers under."""
    heard = hear_openai(*(event.replace(b'"m"', b'"vendor-model-2024-08-06"') for event in (R(), T("a"), FIN("stop"))))

    assert b"vendor-model" not in heard.out


def test_the_models_name_in_the_content() -> None:
    """Only the member is renamed: text that looks like it, nested members and other places stay."""
    spelled = '"model":"m" {"model":"m"}'
    nested = chunk({"content": "a", "model": "m"}, None, None, x={"model": "m"})

    heard = hear_openai(R(), T(spelled), nested, FIN("stop"), DONE)

    assert texts(heard.items)[0] == spelled + "a"
    assert heard.items[2]["x"] == {"model": "m"}
    assert heard.items[2]["choices"][0]["delta"]["model"] == "m"


@pytest.mark.parametrize("where", ["before", "after"])
def test_nested_model_beside_a_spaced_one(where: str) -> None:
    """A nested member in compact spelling is not taken for the outer one in another."""
    outer, nested = '"model": "m"', '"x":{"model":"m"}'
    both = f"{nested},{outer}" if where == "before" else f"{outer},{nested}"
    choices = '"choices":[{"index":0,"delta":{"content":"a"}}]'
    event = data('{"id":"c1","object":"chat.completion.chunk","created":1,' + f"{both},{choices}}}")

    heard = hear_openai(R(), event, FIN("stop"), DONE)

    assert heard.items[1]["x"] == {"model": "m"}


def test_spaces_after_colons() -> None:
    """Frames in the spelling of Python's json module are understood and rewritten."""
    spaced = [data(json.dumps(json.loads(event[6:]))) for event in (R(), T("a"), FIN("stop", (7, 1)))]

    heard = hear_openai(*spaced, DONE)

    assert shape(heard) == ["0:R", "0:a", "0:FIN(stop)", "META", "[DONE]"]


def test_an_event_of_several_data_lines() -> None:
    """JSON spread over several data lines becomes one line, in content and in the held-back finish chunk."""

    def spread(event: bytes) -> bytes:
        text = json.dumps(json.loads(event[6:]), indent=1)
        return "".join(f"data: {line}\n" for line in text.split("\n")).encode() + b"\n"

    halves = T("b").replace(b',"choices"', b',\ndata: "choices"')

    heard = hear_openai(spread(R()), spread(T("a")), halves, spread(FIN("stop", (7, 2))), DONE)

    assert shape(heard) == ["0:R", "0:a", "0:b", "0:FIN(stop)", "META", "[DONE]"]


@pytest.mark.parametrize("place", [b'"X"\ndata: }', b'\ndata: "X"}'])
def test_a_line_end_beside_the_text(place: bytes) -> None:
    """The same when only the text's neighbourhood is spread, after events that were not."""
    alike = [T("a") for _ in range(12)]

    heard = hear_openai(R(), *alike, T("X").replace(b'"X"}', place), *alike, FIN("stop"), DONE)

    assert texts(heard.items) == {0: "a" * 12 + "X" + "a" * 12}


def test_crlf_changes_nothing() -> None:
    """Line ends of another kind give the same bytes."""
    stream = R() + T("a") + FIN("stop") + U(7, 1) + DONE

    assert hear_openai(crlf(stream)).out == hear_openai(stream).out == hear_openai(stream.replace(b"\n", b"\r")).out


# -- what vendors add --


@pytest.mark.parametrize(
    ("delta", "tokens"),
    [
        ({"reasoning_content": "hm"}, 1),
        ({"reasoning": "hm"}, 1),
        ({"refusal": "no"}, 1),
        ({"function_call": {"name": "f", "arguments": ""}}, 1),
        ({"audio": {"data": "AAAA"}}, 1),
        ({"content": [{"type": "text", "text": "hm"}]}, 1),
        ({"images": [{"image_url": {"url": "data:"}}]}, 1),
        ({"reasoning_details": [{"data": "x"}]}, 1),
    ],
)
def test_every_kind_of_content_is_content(delta: dict[str, Any], tokens: int) -> None:
    """Text is not all a model says: everything that moves the answer on starts the stream and counts as progress."""
    lane = openai()
    lane.feed(R())
    before = lane.progress

    out = lane.feed(chunk(delta))

    assert json.loads(out.split(b"\n\n")[1][6:])["choices"][0]["delta"] == delta
    assert lane.talking
    assert lane.progress == before + 1
    assert lane.measure()[0].completion_tokens == tokens


@pytest.mark.parametrize(
    "delta",
    [{}, {"content": ""}, {"content": None, "tool_calls": []}, {"role": "assistant"}, {"token_id": 7, "content": ""}],
)
def test_hollow_chunks_are_no_progress(delta: dict[str, Any]) -> None:
    """A provider that only keeps the line warm does not hold off the idle timer."""
    lane = openai()
    lane.feed(R() + T("a"))
    before = lane.progress

    lane.feed(chunk(delta))

    assert lane.progress == before


def pieces_of(*calls: dict[str, Any]) -> bytes:
    """A chunk with pieces of tool *calls*."""
    return chunk({"tool_calls": [*calls]})


@pytest.mark.parametrize("none", [{}, {"index": None}, {"index": "0"}])
@pytest.mark.parametrize("ids", [("x", "y"), ("", ""), None])
def test_tr_03_tool_calls_without_an_index(none: dict[str, Any], ids: tuple[str, str] | None) -> None:
    """Clients put the pieces of a call together by its index, and SDKs raise where there is none: so each has one."""
    first, second = ({"id": one, "type": "function"} for one in ids) if ids else ({}, {})
    openings = [
        {**none, **first, "function": {"name": "f"}},
        {**none, **second, "function": {"name": "f", "arguments": "{"}},
    ]
    going_on = [
        {**none, "function": {"arguments": '"a":'}},
        {**none, **(second if second.get("id") else {}), "function": {"arguments": "1}"}},
    ]

    for begun in (pieces_of(*openings), b"".join(map(pieces_of, openings))):
        heard = hear_openai(R(), begun, *map(pieces_of, going_on), FIN("tool_calls"), DONE)

        arguments = {0: "", 1: ""}
        for item in heard.items[:-1]:
            for call in item["choices"][0]["delta"].get("tool_calls", ()):
                arguments[call["index"]] += call["function"].get("arguments", "")
        assert arguments == {0: "{}", 1: '{"a":1}'}


def test_comments_and_control_fields_are_dropped() -> None:
    """Comments, `retry:`, `id:` and empty data reach nobody."""
    heard = hear_openai(
        b": PROCESSING\n\n", b"retry: 1000\n\n", R(), b"data:\n\n", b": x\n\n", T("a"), b"id: 5\n\n", FIN("stop"), DONE
    )

    assert shape(heard) == ["0:R", "0:a", "0:FIN(stop)", "META", "[DONE]"]


def test_named_events() -> None:
    """An event named `error` is an error whatever its data; other names say nothing."""
    named = b"event: message\n" + T("a")
    error = b"event: error\n" + data({"message": "boom"})

    assert shape(hear_openai(R(), named, error)) == ["0:R", "0:a", "ERRF(1, upstream_error)", "[DONE]"]


def test_a_gateway_behind_us() -> None:
    """The metadata of another gateway of this kind is not passed on as ours."""
    metadata = data({"_anoman": {"cost_usd": "1"}, "object": "anoman.metadata", "choices": [{"index": 0, "delta": {}}]})

    heard = hear_openai(R(), T("a"), FIN("stop", (7, 1)), metadata, DONE)

    assert heard.out.count(b'"_anoman"') == 1


ODD = [
    {"choices": "none"},
    {"choices": {}},
    {"choices": [None, 1, {"index": 0, "delta": {"content": "x"}, "finish_reason": None}]},
    {"choices": [{"index": "0", "delta": {"content": "x"}}]},
    {"choices": [{"index": None, "delta": {"content": "x"}, "finish_reason": 0}]},
    {"choices": [{"index": 0, "delta": "text"}]},
    {"choices": [{"index": 0, "delta": {"content": 1, "role": []}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": "x"}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [None, {"index": "0", "function": "f"}]}}]},
    {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": {}}]},
    {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": True}], "model": 7, "id": [], "object": 1},
]


@pytest.mark.parametrize("odd", ODD, ids=[json.dumps(item)[:60] for item in ODD])
def test_odd_types(odd: dict[str, Any]) -> None:
    """Members of unexpected types never break a stream nor the shape of what a client gets."""
    heard = hear_openai(R(), T("a"), chunk({}, **odd), T("b"), FIN("stop", (7, 2)), DONE)

    assert heard.end == "finished"


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"1" * 400])
@pytest.mark.parametrize(
    "place",
    [b'"delta":{"content":"x","n":%b}', b'"n":%b,"delta":{}', b'"delta":{},"finish_reason":"stop","n":%b'],
)
def test_numbers_nobody_can_hold(number: bytes, place: bytes) -> None:
    """A number beyond 64 bits passes untouched or ends the stream; it never ends the gateway."""
    body = b'data: {"id":"c1","choices":[{"index":0,' + place % number + b"}]}\n\n"

    heard = hear_openai(R(), T("a"), body, FIN("stop"), DONE)

    assert heard.end in ("finished", "interrupted")


def test_nesting_nobody_can_follow() -> None:
    """An event of endless nesting ends the stream."""
    heard = hear_openai(R(), T("a"), b"data: " + b"[" * 100_000 + b"\n\n", FIN("stop"), DONE)

    assert shape(heard)[-2:] == ["ERRF(1, upstream_error)", "[DONE]"]


@pytest.mark.parametrize("junk", [b"hello", b"<html>", b"{", b'{"a":NaN}', b"[1]", b"7", b'"x"', b"null", b"\xff\xfe"])
def test_what_is_no_json_object(junk: bytes) -> None:
    """Data that is no JSON object ends the stream with the error frame, and is not passed on."""
    heard = hear_openai(R(), T("a"), b"data: " + junk + b"\n\n", T("b"), FIN("stop"), DONE)

    assert shape(heard) == ["0:R", "0:a", "ERRF(1, upstream_error)", "[DONE]"]


def test_sse_28_lone_surrogates() -> None:
    """Half a surrogate pair becomes a replacement character; its chunk is not lost, nor the rest of the stream."""
    halves = [T("X").replace(b"X", half) for half in (rb"\ud83d", rb"\udf78")]

    heard = hear_openai(R(), *halves, T("ok"), FIN("stop"), DONE)

    assert texts(heard.items)[0] == "\ufffd\ufffdok"


def test_lone_surrogates_beside_odd_types() -> None:
    """Two oddities in one event are mended both."""
    event = chunk({"content": "X"}, None, None, created="1").replace(b"X", rb"\ud83d")

    heard = hear_openai(R(), event, FIN("stop"), DONE)

    assert texts(heard.items)[0] == "\ufffd"


def test_sse_15_characters_that_are_line_ends_elsewhere() -> None:
    """U+2028, U+0085, VT and FS inside JSON cut nothing, escaped or raw."""
    text = "a\u2028b\u0085c\u000bd\x1ce\u2029"

    heard = hear_openai(R(), T(text).replace(b"\\u000b", b"\x0b"), FIN("stop", (7, 1)), DONE)

    assert texts(heard.items)[0] == text


def test_words_of_every_script_are_ascii_on_the_wire() -> None:
    """Characters outside ASCII leave as escapes, and come out the same."""
    text = "北🦀é \u202e עברית"

    heard = hear_openai(R(), T(text), FIN("stop"), DONE)

    assert texts(heard.items)[0] == text


def test_nothing_follows_the_end() -> None:
    """After its end or failure a lane takes nothing more."""
    ended, failed = openai(), openai()
    ended.feed(R() + T("a") + FIN("stop", (7, 1)) + DONE)
    failed.feed(R() + T("a") + data("<html>"))

    assert (ended.feed(T("b")), failed.feed(T("b"))) == (b"", b"")
    assert (ended.end(), failed.end()) == (b"", b"")
    assert ended.failure is None
    assert failed.failure is not None
