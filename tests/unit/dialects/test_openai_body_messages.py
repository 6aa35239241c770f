"""Turns as messages that the strictest vendors of chat completions accept."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.unit.dialects.prompts import (
    HI,
    PICTURE,
    PNG,
    THOUGHT,
    assistant,
    called,
    messages_of,
    refusal,
    result,
    text,
    use,
    user,
)


def test_tr_12_there_is_one_system_message() -> None:
    """All instructions in order, a blank line between them."""
    turns = [{"role": "system", "content": "C"}, *HI]

    messages, _ = messages_of(*turns, system=[text("A"), text("B")])

    assert messages == [{"role": "system", "content": "A\n\nB\n\nC"}, *HI]


def test_tr_15_text_is_always_one_string() -> None:
    """Of users, of the assistant and of tools."""
    turns = [
        user(text("a"), text("b")),
        assistant(text("c"), text("d"), use("1")),
        user(result("1", [text("e"), text("f")])),
    ]

    messages, _ = messages_of(*turns)

    assert [message["content"] for message in messages] == ["a\nb", "c\nd", "e\nf"]


def test_parts_only_where_there_is_a_picture() -> None:
    """Then texts are parts beside it, in the user's order."""
    messages, _ = messages_of(user(text("a"), {"type": "image", "source": PNG}, text("b")))

    assert messages[0]["content"] == [text("a"), PICTURE, text("b")]


def test_documents() -> None:
    """A PDF is a file, a plain text is text under its title."""
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JV"}}
    plain = {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}

    with_file, _ = messages_of(user(pdf, plain))
    without, _ = messages_of(user(plain))

    file = {"filename": "document.pdf", "file_data": "data:application/pdf;base64,JV"}
    assert with_file[0]["content"] == [{"type": "file", "file": file}, text("T\nx")]
    assert without[0]["content"] == "T\nx"


def test_a_document_by_url_is_refused_by_its_place() -> None:
    """The dialect has no form for it, and an answer without it would be a guess."""
    document = {"type": "document", "source": {"type": "url", "url": "https://x.test/a.pdf"}}

    assert refusal(messages=[user(text("a"), document)]).param == "messages[0].content[1]"


def test_tr_09_a_turn_of_calls_alone_has_no_text() -> None:
    """The content is null: some vendors refuse "", others refuse a message without the member."""
    messages, _ = messages_of(*HI, assistant(text(""), use("1")), user(result("1", "x")))

    assert messages[1] == {"role": "assistant", "content": None, "tool_calls": [called("1")]}


def test_tool_results_follow_the_calls_in_their_order() -> None:
    """Whatever the user said besides comes after them, even where it was said before or in a turn of its own."""
    turns = [
        *HI,
        assistant(text("Let me see"), use("a", "f", x=1)),
        assistant(use("b", "g")),
        user(text("first"), result("b", "B")),
        user(result("a", "A"), text("second")),
    ]

    messages, _ = messages_of(*turns)

    assert messages == [
        *HI,
        {"role": "assistant", "content": "Let me see", "tool_calls": [called("a", "f", '{"x":1}'), called("b", "g")]},
        {"role": "tool", "tool_call_id": "a", "content": "A"},
        {"role": "tool", "tool_call_id": "b", "content": "B"},
        {"role": "user", "content": "first\nsecond"},
    ]


@pytest.mark.parametrize(
    ("block", "content"),
    [
        (result("1"), ""),
        (result("1", "no such file", is_error=True), "The tool failed.\nno such file"),
        (result("1", is_error=True), "The tool failed."),
    ],
)
def test_results_without_text_and_failures(block: dict[str, Any], content: str) -> None:
    """An empty result stays empty; a failure is said, as there is no member for it."""
    messages, notes = messages_of(*HI, assistant(use("1")), user(block))

    assert messages[-1] == {"role": "tool", "tool_call_id": "1", "content": content}
    assert [name for name in notes.translated if "is_error" in name] == (
        ["messages[2].content[0].is_error"] if "failed" in content else []
    )


def test_tr_17_a_picture_in_a_tool_result_is_carried_by_the_user() -> None:
    """With a line that says whose it is, since a tool's message takes only text."""
    picture = {"type": "image", "source": PNG}
    turns = [*HI, assistant(use("1", "shoot")), user(result("1", [picture]), text("And?"))]

    messages, notes = messages_of(*turns)

    assert messages[2:] == [
        {"role": "tool", "tool_call_id": "1", "content": "The result is in the next message."},
        {"role": "user", "content": [text("The result of tool call 1 of shoot:"), PICTURE, text("And?")]},
    ]
    assert notes.translated == ["messages[2].content[0]"]


@pytest.mark.parametrize("model", ["m", "mistral-large-latest", "gpt-5.1", "moonshotai/kimi-k2", "deepseek-ai/V3"])
def test_thinking_is_left_out_where_it_would_be_refused(model: str) -> None:
    """Most vendors answer 4xx to a `reasoning_content` in history."""
    messages, notes = messages_of(*HI, assistant(THOUGHT, text("x")), *HI, model=model)

    assert messages[1] == {"role": "assistant", "content": "x"}
    assert notes.dropped == ["messages[1].content[0]"]


@pytest.mark.parametrize("model", ["deepseek-v4-pro", "deepseek-reasoner", "kimi-k2.6"])
def test_thinking_goes_back_to_those_who_want_it(model: str) -> None:
    """They refuse a turn with calls without it, so that there it is sent even where none came."""
    turns = [*HI, assistant(THOUGHT, use("1")), user(result("1")), assistant(use("2")), user(result("2"))]

    messages, notes = messages_of(*turns, model=model)

    assert [messages[1]["reasoning_content"], messages[3]["reasoning_content"]] == ["Hm", ""]
    assert (notes.translated, notes.dropped) == (["messages[1].content[0]"], [])


def test_ciphertext_is_left_out_everywhere() -> None:
    """Only the provider that made it can read it; a turn of nothing else is no message."""
    messages, notes = messages_of(*HI, assistant({"type": "redacted_thinking", "data": "x"}), *HI, model="kimi-k2.6")

    assert messages == [{"role": "user", "content": "Hi\nHi"}]
    assert notes.dropped == ["messages[1].content[0]"]


@pytest.mark.parametrize(
    ("model", "given_id", "form"),
    [
        ("m", "toolu_01D7FLrfh4GYq7yT1ULFeyMV", "toolu_01D7FLrfh4GYq7yT1ULFeyMV"),
        ("m", "x" * 41, "[0-9a-f]{40}"),
        ("mistral-large-latest", "toolu_01D7FLrfh4GYq7yT1ULFeyMV", "[A-Za-z0-9]{9}"),
        ("mistral-large-latest", "abcDEF123", "abcDEF123"),
    ],
)
def test_ids_of_calls_are_such_as_the_vendor_takes(model: str, given_id: str, form: str) -> None:
    """Another id stands for one that it would refuse, in the call and in its result."""
    messages, _ = messages_of(*HI, assistant(use(given_id)), user(result(given_id, "x")), model=model)

    call_id = messages[1]["tool_calls"][0]["id"]
    assert re.fullmatch(form, call_id)
    assert messages[2]["tool_call_id"] == call_id


@pytest.mark.parametrize(("model", "extra"), [("m", {}), ("mistral-small-latest", {"prefix": True})])
def test_the_beginning_of_an_answer(model: str, extra: dict[str, Any]) -> None:
    """It is the last message; those who can continue it are told to, and otherwise the client is told."""
    messages, notes = messages_of(*HI, assistant(text("{")), model=model)

    assert messages[-1] == {"role": "assistant", "content": "{", **extra}
    assert notes.translated == ([] if extra else ["messages[1]"])


def test_nothing_left_to_say_is_refused() -> None:
    """A provider would refuse a body without messages, in words about something the client did not send."""
    thought = [assistant({"type": "redacted_thinking", "data": "x"})]

    assert refusal(messages=thought).param == "messages"


NO_CALL = "no tool call of the turn before waits for this result."
NO_RESULT = "the messages that follow have no result for this tool call."
TWICE = "two calls of one turn have the same id."
UNMATCHED: list[tuple[list[dict[str, Any]], str, str]] = [
    ([user(text("Hi"), result("z", "Z"))], "messages[0].content[1]", NO_CALL),
    ([*HI, assistant(use("a")), user(text("x"), result("z"), result("a"))], "messages[2].content[1]", NO_CALL),
    ([*HI, assistant(use("a")), user(result("a"), result("a"))], "messages[2].content[1]", NO_CALL),
    ([*HI, assistant(use("a")), user(result("a")), user(result("a"))], "messages[3].content[0]", NO_CALL),
    (
        [*HI, assistant(use("a")), user(result("a")), assistant(text("x")), user(result("a"))],
        "messages[4].content[0]",
        NO_CALL,
    ),
    ([*HI, assistant(text("x"), use("a")), *HI, assistant(text("y")), *HI], "messages[1].content[1]", NO_RESULT),
    ([*HI, assistant(use("a")), *HI, assistant(text("y"))], "messages[1].content[0]", NO_RESULT),
    ([*HI, assistant(use("a"), use("b")), user(result("a"))], "messages[1].content[1]", NO_RESULT),
    ([*HI, assistant(use("a")), *HI], "messages[1].content[0]", NO_RESULT),
    ([*HI, assistant(use("a")), user(text(""))], "messages[1].content[0]", NO_RESULT),
    ([*HI, assistant(use("a"), use("a")), user(result("a"))], "messages[1].content[1]", TWICE),
]


@pytest.mark.parametrize(("turns", "place", "words"), UNMATCHED)
def test_calls_and_results_that_do_not_match_are_refused(turns: list[dict[str, Any]], place: str, words: str) -> None:
    """By the place of the half whose other half is missing: moved or sent alone, it would say what nobody said."""
    error = refusal(messages=turns)

    assert (error.param, error.message) == (place, f"{place}: {words}")


def test_an_id_may_come_again_in_a_later_turn() -> None:
    """A result belongs to the call of the turn before it, whatever was answered earlier."""
    turns = [*HI, assistant(use("a")), user(result("a", "1")), assistant(use("a")), user(result("a", "2"))]

    messages, _ = messages_of(*turns)

    assert [message["content"] for message in messages if message["role"] == "tool"] == ["1", "2"]


def test_calls_at_the_very_end_are_left_to_the_provider() -> None:
    """Nothing follows that could have had their results."""
    messages, _ = messages_of(*HI, assistant(use("a")))

    assert messages[-1] == {"role": "assistant", "content": None, "tool_calls": [called("a")]}
