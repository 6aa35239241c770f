"""Conversations of chat calls as Anthropic's: roles, content, tool calls and reasoning."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from tests.unit.dialects.translating import CALLED, GAVE, HI, TOOL, refusal, text, turns, written

PIXEL = "iVBORw0KGgo="
MARK = {"type": "ephemeral"}


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def assistant(content: Any = None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def call(call_id: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def data_url(media_type: str, data: str = PIXEL) -> str:
    return f"data:{media_type};base64,{data}"


def test_tr_12_all_instructions_stand_in_front_in_order() -> None:
    """System and developer messages are all kept, in order; one from the middle is noted, since it moves."""
    out = written(
        {"role": "system", "content": "A"},
        {"role": "developer", "content": [text("B", cache_control=MARK)]},
        HI,
        {"role": "system", "content": "C"},
    )

    assert out["system"] == [text("A"), text("B", cache_control=MARK), text("C")]
    assert out["messages"] == [{"role": "user", "content": [text("Hi")]}]
    assert (out.translated, out.dropped) == (["messages[3]", "max_tokens"], [])


def test_instructions_alone_are_what_the_user_says() -> None:
    """A call of instructions only is answered: they become the user's turn."""
    out = written({"role": "system", "content": "Write a poem."})

    assert "system" not in out.body
    assert out["messages"] == [{"role": "user", "content": [text("Write a poem.")]}]
    assert "messages" in out.translated


def test_neighbours_of_one_role_are_one_turn() -> None:
    """Turns alternate, whatever the client sent."""
    said = turns(user("a"), user([text("b")]), assistant("c"), assistant([text("d")]), user("e"))

    assert said == [("user", [text("a"), text("b")]), ("assistant", [text("c"), text("d")]), ("user", [text("e")])]


def test_the_user_speaks_first() -> None:
    """A conversation that the assistant began gets a minimal turn of the user before it, noted."""
    out = written(assistant("How can I help?"), HI)

    assert [turn["role"] for turn in out["messages"]] == ["user", "assistant", "user"]
    assert out["messages"][0]["content"] == [text("Hello.")]
    assert "messages[0]" in out.translated


def test_an_answer_begun_goes_on_without_its_blanks() -> None:
    """The assistant's last turn is a prefill, which may not end with white space."""
    out = written(HI, assistant("Once \n"))

    assert out["messages"][-1] == {"role": "assistant", "content": [text("Once")]}
    assert "messages[1].content" in out.translated


def test_tr_09_an_empty_text_beside_a_call_is_left_out() -> None:
    """No empty text block goes upstream; the call is kept, and nothing is noted since nothing was said."""
    out = written(HI, {**CALLED, "content": ""}, GAVE, tools=[TOOL])

    assert [block["type"] for block in out["messages"][1]["content"]] == ["tool_use"]
    assert out.dropped == []


@pytest.mark.parametrize("blank", ["", " ", "\n\t", [text("")], [text(" ")]])
def test_tr_10_a_blank_turn_is_left_out(blank: Any) -> None:
    """What is left of the neighbours goes together."""
    assert turns(user(blank), HI) == [("user", [text("Hi")])]
    assert turns(HI, assistant(blank), user("b")) == [("user", [text("Hi"), text("b")])]


def test_tr_10_a_blank_that_is_dropped_is_noted() -> None:
    """By its place."""
    assert written(user([text("Hi"), text(" ")])).dropped == ["messages[0].content[1]"]


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([user(" ")], "messages[0]"),
        ([{"role": "system", "content": "A"}, user("")], "messages[1]"),
        ([HI, assistant("a"), user(" ")], "messages[2]"),
    ],
)
def test_tr_10_nothing_left_is_refused_by_index(messages: list[dict[str, Any]], place: str) -> None:
    """Where the user's last words are blank there is nothing to answer, nor should the assistant's be continued."""
    assert refusal(*messages).param == place


def test_calls_and_results() -> None:
    """Arguments go as their own literals; results come first in the turn after, matched by id."""
    both = assistant("Wait.", tool_calls=[call("a", "f", '{"x":1.50, "y":1e2}'), call("b", "g", "")])
    gave = [{"role": "tool", "tool_call_id": "b", "content": "2"}, {"role": "tool", "tool_call_id": "a", "content": ""}]
    out = written(HI, both, gave[0], user("And?"), gave[1], tools=[TOOL])

    assert out["messages"][1]["content"] == [
        text("Wait."),
        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1.5, "y": 100}},
        {"type": "tool_use", "id": "b", "name": "g", "input": {}},
    ]
    assert '"input":{"x":1.50, "y":1e2}' in out.text
    assert out["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "b", "content": [text("2")]},
        {"type": "tool_result", "tool_use_id": "a"},
        text("And?"),
    ]


def test_tr_05_a_call_without_arguments_has_an_empty_object() -> None:
    """Nothing, blanks and null are all no arguments."""
    for none in ("", "  ", None):
        said = turns(HI, assistant(tool_calls=[call("c1", arguments=none)]), GAVE)  # type: ignore[arg-type]  # null

        assert said[1][1][0]["input"] == {}


@pytest.mark.parametrize("bad", ["{", "[]", "1", '{"a":}', '{"a":1}x', "[" * 5000, '{"a":' * 300 + "1" + "}" * 300, 7])
def test_arguments_that_are_no_object_are_refused_by_place(bad: Any) -> None:
    """Half a JSON would be half a call; the place is named."""
    caught = refusal(HI, assistant(tool_calls=[call("x"), call("c1", arguments=bad)]), GAVE)

    assert caught.param == "messages[1].tool_calls[1].function.arguments"


def test_arguments_share_one_bound() -> None:
    """JSON inside strings is bounded like the body, however it is spread; long texts in it are no elements."""
    dense = '{"a":[' + "[]," * 30_000 + "[]]}"
    long = '{"a":"' + "[]," * 60_000 + '"}'

    assert "too many" in (
        refusal(HI, assistant(tool_calls=[call(f"c{n}", arguments=dense) for n in range(8)])).message or ""
    )
    assert "too many" in (refusal(HI, assistant(tool_calls=[call("c", arguments=dense * 4)])).message or "")
    calls = [assistant(tool_calls=[call(f"c{n}", arguments=long)]) for n in range(4)]
    gave = [{**GAVE, "tool_call_id": f"c{n}"} for n in range(4)]
    assert len(turns(HI, *(turn for pair in zip(calls, gave, strict=True) for turn in pair))) == 9


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([HI, GAVE], "messages[1]"),
        ([HI, CALLED, GAVE, GAVE], "messages[3]"),
        ([HI, CALLED, {**GAVE, "tool_call_id": "other"}], "messages[2]"),
        ([HI, CALLED], "messages[1].tool_calls[0]"),
        ([HI, CALLED, HI, assistant("x"), HI], "messages[1].tool_calls[0]"),
        ([HI, assistant(tool_calls=[call("a"), call("a")])], "messages[1].tool_calls[1]"),
        ([HI, CALLED, {"role": "tool", "content": "x"}], "messages[2].tool_call_id"),
    ],
)
def test_calls_and_results_that_do_not_match_are_refused(messages: list[dict[str, Any]], place: str) -> None:
    """The provider would refuse them too, in words that name none of the client's places."""
    assert refusal(*messages).param == place


def test_ids_that_the_provider_refuses_are_replaced() -> None:
    """Ids of other vendors and ids used twice are rewritten, calls and results alike, the same each time."""
    once = [assistant(tool_calls=[call("functions.f:0")]), {**GAVE, "tool_call_id": "functions.f:0"}]
    again = [CALLED, GAVE, CALLED, GAVE]

    said = turns(HI, *once, *again)
    ids = [block["id"] for role, blocks in said for block in blocks if block["type"] == "tool_use"]

    assert ids == ["call_0", "c1", "call_2"]
    assert [blocks[0].get("tool_use_id") for role, blocks in said if role == "user"] == [None, *ids]
    assert turns(HI, *once, CALLED, GAVE) == said[:5]


def test_an_id_that_looks_like_ours_is_used_once() -> None:
    """A client may call with the very ids that we would make up."""
    messages: list[dict[str, Any]] = [HI]
    for call_id in ("call_2", "call_2", "call_2", "x.y", "call_3"):
        messages += [assistant(tool_calls=[call(call_id)]), {**GAVE, "tool_call_id": call_id}]
    ids = [block["id"] for _, blocks in turns(*messages) for block in blocks if block["type"] == "tool_use"]

    assert len(set(ids)) == len(ids) == 5


def test_tr_34_an_empty_list_of_calls_is_none() -> None:
    """Neither it nor an empty list of tools goes upstream."""
    out = written(HI, assistant("a", tool_calls=[]), HI, tools=[])

    assert "tools" not in out.body
    assert out["messages"][1]["content"] == [text("a")]
    assert out.dropped == []


def test_deprecated_functions_are_tools() -> None:
    """`functions`, `function_call` and the role function have the form of calls and results."""
    function = {"name": "f", "parameters": {"type": "object"}}
    called = assistant(function_call={"name": "f", "arguments": '{"a":1}'})
    out = written(
        HI, called, {"role": "function", "name": "f", "content": "1"}, functions=[function], function_call={"name": "f"}
    )

    assert out["messages"][1]["content"][0]["input"] == {"a": 1}
    assert out["messages"][1]["content"][0]["id"] == out["messages"][2]["content"][0]["tool_use_id"]
    assert out["tools"] == [{"name": "f", "input_schema": {"type": "object"}}]
    assert out["tool_choice"] == {"type": "tool", "name": "f"}
    assert refusal(HI, {"role": "function", "name": "g", "content": "1"}).param == "messages[1].name"


def test_tr_17_a_result_keeps_its_image() -> None:
    """Text and image both stand in the result."""
    content = [text("seen"), {"type": "image_url", "image_url": {"url": data_url("image/png")}}]
    said = turns(HI, CALLED, {**GAVE, "content": content})

    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    assert said[2][1] == [{"type": "tool_result", "tool_use_id": "c1", "content": [text("seen"), image]}]


def test_images_and_files() -> None:
    """Data and public URLs, PDFs and texts; a wish for detail is noted, and the default one is none."""
    note = b64encode("Selamat ☕".encode()).decode()
    out = written(
        user(
            [
                {"type": "image_url", "image_url": {"url": "https://x.test/a.png", "detail": "high"}},
                {"type": "image_url", "image_url": {"url": data_url("image/jpg"), "detail": "auto"}},
                {"type": "file", "file": {"file_data": data_url("application/pdf"), "filename": "a.pdf"}},
                {"type": "file", "file": {"file_data": data_url("text/csv;charset=utf-8", note)}},
                {"type": "file", "file": {"file_data": "https://x.test/a.pdf"}, "cache_control": MARK},
            ]
        )
    )

    assert out["messages"][0]["content"] == [
        {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": PIXEL}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PIXEL},
            "title": "a.pdf",
        },
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Selamat ☕"}},
        {"type": "document", "source": {"type": "url", "url": "https://x.test/a.pdf"}, "cache_control": MARK},
    ]
    assert out.dropped == ["messages[0].content[0].image_url.detail"]


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ({"type": "file", "file": {"file_id": "file-1"}}, "file.file_id"),
        ({"type": "file", "file": {"file_data": data_url("application/zip")}}, "file.file_data"),
        ({"type": "file", "file": {"file_data": data_url("text/plain", "//79")}}, "file.file_data"),
        ({"type": "file", "file": {"file_data": "AAAA"}}, "file.file_data"),
        ({"type": "file", "file": {}}, "file.file_data"),
        ({"type": "file"}, "file"),
        ({"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}, "type"),
        ({"type": "video_url"}, "type"),
        ({"type": ["text"]}, "type"),
        ({"text": "x"}, "type"),
        ({"type": "text", "text": 7}, "text"),
        ({"type": "image_url", "image_url": 7}, "image_url"),
        ({"type": "image_url", "image_url": {"url": ""}}, "image_url.url"),
        ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "image_url.url"),
        ({"type": "image_url", "image_url": {"url": data_url("image/png", "!!!!")}}, "image_url.url"),
        ({"type": "image_url", "image_url": {"url": "data:image/png,abc"}}, "image_url.url"),
        ({"type": "image_url", "image_url": {"url": data_url("text/html")}}, "image_url.url"),
        ({"type": "image_url", "image_url": {"url": "https://x.test", "detail": 7}}, "image_url.detail"),
    ],
)
def test_parts_that_cannot_be_had_are_refused_by_place(part: dict[str, Any], place: str) -> None:
    """What the user shows must not be ignored."""
    assert refusal(user([part])).param == f"messages[0].content[0].{place}"


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([{"role": "critic", "content": "x"}], "messages[0].role"),
        ([user(None)], "messages[0].content"),
        ([user(7)], "messages[0].content"),
        ([user(["x"])], "messages[0].content[0]"),
        ([HI, assistant(tool_calls="x")], "messages[1].tool_calls"),
        ([HI, assistant(tool_calls=[7])], "messages[1].tool_calls[0]"),
        ([HI, assistant(tool_calls=[{"id": "a", "type": "custom"}])], "messages[1].tool_calls[0]"),
        ([HI, assistant(tool_calls=[{"id": "a"}])], "messages[1].tool_calls[0].function"),
        ([HI, assistant(tool_calls=[{"function": {"name": "f"}}])], "messages[1].tool_calls[0].id"),
        ([HI, assistant(function_call=7)], "messages[1].function_call"),
        ([HI, assistant(refusal=7)], "messages[1].refusal"),
        ([HI, assistant(reasoning_content=[7])], "messages[1].reasoning_content"),
        ([user("x", name=7)], "messages[0].name"),
        (
            [{"role": "system", "content": [{"type": "image_url", "image_url": "https://x"}]}],
            "messages[0].content[0].type",
        ),
    ],
)
def test_messages_of_wrong_types_are_refused_by_place(messages: list[dict[str, Any]], place: str) -> None:
    """With the documented error, whatever was sent."""
    assert refusal(*messages).param == place


def test_tr_38_unknown_members_are_dropped_with_a_note() -> None:
    """Clients add fields of their own to messages; that is never a refusal, and what is empty says nothing."""
    out = written(
        user([text("Hi", index=0, x=1)], agent="cli", name="ani"),
        assistant("a", annotations=[], audio=None, id="m"),
        HI,
        context_management={},
    )

    assert out["messages"][0] == {"role": "user", "content": [text("Hi")]}
    assert out.dropped == [
        "messages[0].agent", "messages[0].content[0].index", "messages[0].content[0].x", "messages[1].id",
        "messages[0].name", "context_management",
    ]  # fmt: skip


def test_notes_are_bounded() -> None:
    """Thousands of unknown members, or endless names, do not swell the answer."""
    out = written(user("Hi", **{f"{n}" + "x" * 300: 1 for n in range(2_000)}))

    assert len(out.dropped) == 64
    assert max(map(len, out.dropped)) == 128


def test_caching_markers_are_kept() -> None:
    """On parts, on whole messages, on results and on tools; one that is no object is noted."""
    out = written(
        user("a", cache_control=MARK),
        {**CALLED, "cache_control": MARK},
        {**GAVE, "cache_control": MARK},
        user([text("b", cache_control="yes")]),
        tools=[{**TOOL, "cache_control": MARK}],
        cache_control=MARK,
    )

    blocks = [block for turn in out["messages"] for block in turn["content"]]
    assert [block.get("cache_control") for block in blocks] == [MARK, MARK, MARK, None]
    assert out["tools"][0]["cache_control"] == MARK
    assert out["cache_control"] == MARK
    assert out.dropped == ["messages[3].content[0].cache_control"]


def test_refusals_are_text() -> None:
    """As a member and as a part."""
    said = turns(HI, assistant([{"type": "refusal", "refusal": "No."}], refusal="Never."), HI)

    assert said[1] == ("assistant", [text("No."), text("Never.")])


def thinking(words: str, signature: str = "sig") -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": signature}


SIGNED = {"type": "reasoning.text", "text": "Hm.", "signature": "sig", "index": 0}
UNTOLD = {"type": "reasoning.text", "text": "", "signature": "sig", "index": 0}
HIDDEN = {"type": "reasoning.encrypted", "data": "xyz", "index": 1}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"reasoning_details": [SIGNED, HIDDEN]}, [thinking("Hm."), {"type": "redacted_thinking", "data": "xyz"}]),
        ({"reasoning_details": [SIGNED], "reasoning_content": "Hm."}, [thinking("Hm.")]),
        ({"reasoning_details": [UNTOLD], "reasoning_content": "Hm."}, [thinking("Hm.")]),
        ({"reasoning_details": [UNTOLD, HIDDEN], "reasoning": "Hm."},
         [thinking("Hm."), {"type": "redacted_thinking", "data": "xyz"}]),
        ({"reasoning_details": [UNTOLD]}, [thinking("")]),
        ({"reasoning_details": [{**SIGNED, "signature": None}, {**UNTOLD}]}, [thinking("Hm.")]),
        ({"reasoning_details": [{**SIGNED, "text": "a"}, {**SIGNED, "text": "b", "index": 1, "signature": "s2"}]},
         [thinking("a"), thinking("b", "s2")]),
        ({"reasoning_details": [{**SIGNED, "format": "anthropic-claude-v1"}]}, [thinking("Hm.")]),
        ({"reasoning_details": [{**SIGNED, "signature": None}, {**SIGNED, "text": "b", "index": 1}]}, [thinking("b")]),
    ],
)  # fmt: skip
def test_reasoning_keeps_its_signature(members: dict[str, Any], expected: list[Any]) -> None:
    """In every form in which clients send back what they got, joined or in pieces; it stands before the text."""
    assert turns(HI, assistant("So.", **members), HI)[1][1] == [*expected, text("So.")]


@pytest.mark.parametrize(
    ("members", "dropped"),
    [
        ({"reasoning_content": "Hm."}, "messages[1].reasoning_content"),
        ({"reasoning": "Hm."}, "messages[1].reasoning"),
        ({"reasoning_details": [{**SIGNED, "signature": None}]}, "messages[1].reasoning_details[0]"),
        ({"reasoning_details": [{**SIGNED, "format": "google-gemini-v1"}]}, "messages[1].reasoning_details[0]"),
        ({"reasoning_details": [{**HIDDEN, "format": "openai-responses-v1"}]}, "messages[1].reasoning_details[0]"),
        ({"reasoning_details": [{"type": "reasoning.summary", "summary": "s"}]}, "messages[1].reasoning_details[0]"),
        ({"reasoning_details": [UNTOLD, {**UNTOLD, "index": 1}], "reasoning_content": "ab"},
         "messages[1].reasoning_content"),
        ({"reasoning_details": [7]}, "messages[1].reasoning_details[0]"),
        ({"reasoning_details": "x"}, "messages[1].reasoning_details"),
    ],
)  # fmt: skip
def test_reasoning_without_a_signature_is_dropped_with_a_note(members: dict[str, Any], dropped: str) -> None:
    """The provider takes none that it cannot verify, nor another's."""
    out = written(HI, assistant("So.", **members), HI)

    assert out["messages"][1]["content"] == [text("So.")]
    assert out.dropped == [dropped]


def test_a_turn_does_not_end_with_thinking() -> None:
    """A turn of thoughts only is left out, noted; thoughts behind the last text too."""
    alone = written(HI, assistant(reasoning_details=[SIGNED]), HI)
    behind = written(HI, assistant("a"), assistant("", reasoning_details=[SIGNED]), HI)

    assert alone["messages"] == [{"role": "user", "content": [text("Hi"), text("Hi")]}]
    assert behind["messages"][1]["content"] == [text("a")]
    assert alone.dropped == ["messages[1].reasoning_details[0]"]
    assert behind.dropped == ["messages[2].reasoning_details[0]"]
