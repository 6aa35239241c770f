"""What a call was changed in for its provider is changed back in the answer: names, ids, the tool that answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from gateway.core.catalog import DialectName
from gateway.core.errors import GatewayError
from gateway.dialects.base import Journey
from gateway.dialects.neutral import AnswerEvent, Argued, Called, Finished, Other, Refused, Said, Target
from gateway.dialects.pairs import open_lane, read_completion, translated_body
from gateway.dialects.registry import DIALECTS
from gateway.dialects.retold import Retold
from tests.support.notation import CBD, CBJ, CBS, CBX, DONE, FIN, MD, MS, MX, TC, R, chunk
from tests.unit.dialects.conversations import (
    Heard,
    anthropic_call,
    check_anthropic,
    check_openai,
    hear,
    journey,
    openai_call,
)
from tests.unit.dialects.translated import Told, told
from tests.unit.receipts import receipt

TARGET = Target("theirs", stream=True, max_output_tokens=64_000)
LONG = "mcp__a_server_with_a_rather_long_name__and_a_tool_with_an_even_longer_one"
DOTTED = "files.read"
HI = [{"role": "user", "content": "Hi"}]
JSON_MODE = {"type": "json_object"}
FUNCTION = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}


def functions(*names: str) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": name}} for name in names]


def tools(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "input_schema": {"type": "object"}} for name in names]


def sent(dialect: DialectName, speaks: DialectName, **fields: Any) -> tuple[dict[str, Any], Journey, tuple[str, ...]]:
    """What the provider gets of a call, the journey of its answer, and the places that were translated."""
    call = openai_call(**fields) if dialect == "openai_chat" else anthropic_call(**fields)
    body, params = translated_body(call, DIALECTS[speaks], TARGET)
    way = structs.replace(journey(call, speaks=speaks), tools=params.tools)
    return json.loads(body), way, params.translated


def to_openai(**fields: Any) -> tuple[dict[str, Any], Journey, tuple[str, ...]]:
    return sent("anthropic_messages", "openai_chat", **fields)


def to_anthropic(**fields: Any) -> tuple[dict[str, Any], Journey, tuple[str, ...]]:
    return sent("openai_chat", "anthropic_messages", **fields)


def heard(way: Journey, *pieces: bytes) -> Heard:
    out = hear(open_lane(way), pieces)
    (check_openai if way.call.dialect == "openai_chat" else check_anthropic)(out)
    return out


# -- names --


def test_a_name_too_long_goes_and_comes_back() -> None:
    """The provider gets one that fits, in the tool, the choice and the history; the client hears its own."""
    call = {"type": "tool_use", "id": "toolu_1", "name": LONG, "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
    turns = [*HI, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    body, way, translated = to_openai(
        tools=tools("now", LONG), tool_choice={"type": "tool", "name": LONG}, messages=turns
    )

    short = body["tools"][1]["function"]["name"]
    answer = heard(way, R(), TC(0, name=short, id="call_1"), TC(1, name="now", id="call_2"), FIN("tool_calls"), DONE)

    assert len(short) <= 64
    assert short.startswith("mcp__a_server")
    assert body["tools"][0]["function"]["name"] == "now"
    assert body["tool_choice"]["function"]["name"] == short
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == short
    assert "tools[1]" in translated
    assert [call[1] for call in told(answer).calls.values()] == [LONG, "now"]


def test_a_name_with_other_characters() -> None:
    """The same towards Anthropic, whose names may be longer: and one name always becomes the same other one."""
    body, way, translated = to_anthropic(tools=functions(DOTTED, LONG))
    again, _, _ = to_anthropic(tools=functions("other", DOTTED))

    short = body["tools"][0]["name"]
    answer = heard(way, MS(5), CBS(0, "tool_use", name=short), CBJ(0, "{}"), CBX(0), MD("tool_use", 3), MX)

    assert body["tools"][1]["name"] == LONG
    assert again["tools"][1]["name"] == short
    assert [call[1] for call in told(answer).calls.values()] == [DOTTED]
    assert "tools[0]" in translated


# Names of tools in a body, and what each vendor's reference says of them.
NAMES: dict[DialectName, tuple[Callable[[Any], list[str]], str]] = {
    "openai_chat": (lambda body: [tool["function"]["name"] for tool in body["tools"]], r"[a-zA-Z0-9_-]{1,64}"),
    "bedrock_converse": (
        lambda body: [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"]],
        r"[a-zA-Z0-9_-]{1,64}",
    ),
    "gemini_content": (
        lambda body: [tool["name"] for tool in body["tools"][0]["functionDeclarations"]],
        r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}",
    ),
}


@pytest.mark.parametrize("provider", NAMES)
@given(st.lists(st.text(min_size=1, max_size=90), min_size=1, max_size=5, unique=True))
@example(["a" * 65, "mcp.tool", "naïve", "1password", "-dash"])
def test_any_name_fits(provider: DialectName, names: list[str]) -> None:
    """Whatever tools are called: every name fits there, no two become one, and each is found again."""
    find, form = NAMES[provider]

    body, way, _ = sent("anthropic_messages", provider, tools=tools(*names))

    given_names = find(body)
    assert all(re.fullmatch(form, name) for name in given_names)
    assert [way.tools.get(name, name) for name in given_names] == names
    assert len(set(given_names)) == len(names)


def test_gemini_takes_dots_and_colons() -> None:
    """Names that it takes are left alone; one that begins with a digit gets an underscore in front."""
    body, _, translated = sent("anthropic_messages", "gemini_content", tools=tools("files.read:all", "1password"))

    first, second = NAMES["gemini_content"][0](body)
    assert (first, second[:11], len(second)) == ("files.read:all", "_1password-", 19)
    assert translated == ("tools[1]",)


# -- ids --


def test_ids_that_no_provider_gives_are_never_the_same_twice() -> None:
    """Two turns whose provider gives neither ids of calls nor of answers: every call has an id of its own."""
    ids = []
    for number in range(2):
        _, way, _ = to_openai()
        way = structs.replace(way, request_id=f"req_{number}")
        calls = [{"index": at, "function": {"name": "f", "arguments": "{}"}} for at in (0, 1)]
        out = heard(way, chunk({"tool_calls": calls}, id=None), chunk({}, "tool_calls", id=None), DONE)
        ids += [call[0] for call in told(out).calls.values()]

    assert ids == ["call_0_0", "call_0_1", "call_1_0", "call_1_1"]


@pytest.mark.parametrize(
    ("events", "hears", "note"),
    [
        ([Said("I will "), Said("not."), Finished("stop")], [Refused("I will not."), Finished("stop")], None),
        (
            [Said("Here: "), Called(0, "", "json"), Argued(0, "{}"), Finished("tool_calls")],
            [Said("{}"), Finished("stop")],
            "text_beside_json",
        ),
        (
            [Called(0, "", "json"), Argued(0, "{}"), Said("So."), Finished("tool_calls")],
            [Said("{}"), Finished("stop")],
            "text_beside_json",
        ),
        (
            [Said("Let me see."), Called(0, "c", "look"), Finished("tool_calls")],
            [Called(0, "c", "look"), Finished("tool_calls")],
            "text_beside_json",
        ),
        ([Said("x" * 70_000), Said("y"), Finished("stop")], [Said("x" * 70_000), Said("y"), Finished("stop")], None),
        ([Said('{"a":'), Finished("length")], [Said('{"a":'), Finished("length")], None),
        ([Finished("stop")], [Finished("stop")], None),
        ([Said('{"a":'), Said(" 1}"), Finished("stop")], [Said('{"a": 1}'), Finished("stop")], None),
    ],
    ids=["alone", "before", "behind", "beside a call", "many", "cut short", "none", "json in words"],
)  # fmt: skip
def test_words_where_json_was_wanted(events: list[AnswerEvent], hears: list[AnswerEvent], note: str | None) -> None:
    """
    A model that was made to call the tool that takes the answer, and did not, has refused; its words are told. Those
    that are not told are noted.
    """
    retold = Retold("req_1", {"json": None})

    assert [each for event in events for each in retold.tell(event)] == hears
    assert retold.note == note


def test_several_answers_are_told_apart() -> None:
    """Where several were asked for, each has its own slots, ids and names."""
    retold = Retold("req_1", {"short": LONG})
    said = [Other(1, Called(0, "", "short")), Called(0, "", "now"), Other(1, Argued(0, "{}")), Other(1, Said("a"))]

    told = [each for event in said for each in retold.tell(event)]

    assert told == [
        Other(1, Called(0, "call_1_1_0", LONG)),
        Called(0, "call_1_0", "now"),
        Other(1, Argued(0, "{}")),
        Other(1, Said("a")),
    ]


# -- the tool that answers --


def json_mode(**fields: Any) -> tuple[dict[str, Any], Journey, tuple[str, ...]]:
    return to_anthropic(response_format=JSON_MODE, **fields)


def test_json_mode_is_enforced_by_a_tool() -> None:
    """`json_object` is never ignored: the model has to call a tool that takes any object, and nothing else."""
    body, _, translated = json_mode()

    (tool,) = body["tools"]
    assert tool["input_schema"] == {"type": "object"}
    assert body["tool_choice"] == {"type": "tool", "name": tool["name"], "disable_parallel_tool_use": True}
    assert "response_format" in translated


def test_json_mode_beside_tools() -> None:
    """Tools may be called instead of answering; where none may, or one must, that holds."""
    auto, none, one = (
        json_mode(tools=[FUNCTION], **({"tool_choice": choice} if choice else {}))[0]
        for choice in (None, "none", "required")
    )

    assert [[tool["name"] for tool in body["tools"]] for body in (auto, none)] == [["now", "give_answer"]] * 2
    assert (auto["tool_choice"]["type"], none["tool_choice"]["name"]) == ("any", "give_answer")
    assert ([tool["name"] for tool in one["tools"]], one["tool_choice"]) == (["now"], {"type": "any"})


def test_json_mode_rules_out_thinking() -> None:
    """A call that has to be made and thinking exclude each other; the wish gives way, and it is said."""
    call = openai_call(response_format=JSON_MODE, reasoning_effort="high")

    body, params = translated_body(call, DIALECTS["anthropic_messages"], TARGET)

    assert b"thinking" not in body
    assert "reasoning_effort" in params.dropped


def test_a_tool_of_the_answers_name_is_refused() -> None:
    """The two could not be told apart."""
    with pytest.raises(GatewayError) as caught:
        json_mode(tools=functions("give_answer"))

    assert caught.value.param == "response_format"


def answered(*blocks: bytes, stop: str = "tool_use", **fields: Any) -> Heard:
    return heard(json_mode(**fields)[1], MS(5), *blocks, MD(stop, 3), MX)


def test_the_arguments_are_the_answer() -> None:
    """They stream as text as they come, the end is a plain stop, and there is no call."""
    pieces = [CBJ(0, ""), CBJ(0, '{"a": '), CBJ(0, "1.50}")]

    out = answered(CBS(0, "tool_use", name="give_answer"), *pieces, CBX(0))

    assert told(out) == Told(text='{"a": 1.50}', reason="stop")
    assert sum(b'"content":"' in frame for frame in out.frames) == 3  # the role's, and each piece at once


@pytest.mark.parametrize(
    ("blocks", "stop", "expected"),
    [
        pytest.param([CBX(0)], "tool_use", Told(text="{}", reason="stop"), id="empty"),
        pytest.param([CBX(0)], "end_turn", Told(text="{}", reason="stop"), id="empty, and no word of a call"),
        pytest.param([CBJ(0, '{"a"')], "max_tokens", Told(text='{"a"', reason="length"), id="cut"),
        pytest.param(
            [CBJ(0, "{}"), CBX(0), CBS(1, "tool_use", name="give_answer"), CBJ(1, "{}"), CBX(1)],
            "tool_use",
            Told(text="{}", reason="stop"),
            id="twice",
        ),
        pytest.param(
            [CBJ(0, "{}"), CBX(0), CBS(1), CBD(1, "So."), CBX(1)],
            "tool_use",
            Told(text="{}", reason="stop"),
            id="text",
        ),
    ],
)
def test_the_answer_is_one_json_text(blocks: list[bytes], stop: str, expected: Told) -> None:
    """No arguments are an empty object; one that is cut is cut; neither a second one nor words come beside it."""
    assert told(answered(CBS(0, "tool_use", name="give_answer"), *blocks, stop=stop)) == expected


def test_a_call_instead_of_an_answer() -> None:
    """A tool of the client is a call as ever, with the first index, whatever came before it."""
    blocks = [CBS(0, "tool_use", name="give_answer"), CBJ(0, "{}"), CBX(0)]
    blocks += [CBS(1, "tool_use", name="now", id="toolu_7"), CBJ(1, '{"b":1}'), CBX(1)]

    out = told(answered(*blocks, tools=[FUNCTION]))

    assert (out.calls, out.reason) == ({0: ["toolu_7", "now", '{"b":1}']}, "tool_calls")


def test_a_call_that_the_last_word_does_not_tell_of() -> None:
    """A client that goes by the finish reason makes the call too."""
    _, way, _ = to_anthropic(tools=[FUNCTION])

    out = told(heard(way, MS(5), CBS(0, "tool_use", name="now"), CBX(0), MD("end_turn", 3), MX))

    assert (len(out.calls), out.reason) == (1, "tool_calls")


def test_a_whole_answer() -> None:
    """The same without streaming."""
    body, way, _ = json_mode()
    name = body["tools"][0]["name"]
    content = [{"type": "tool_use", "id": "toolu_1", "name": name, "input": {"city": "Jakarta"}}]
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content}
    message |= {"stop_reason": "tool_use", "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 3}}

    completion = read_completion(json.dumps(message).encode(), way)
    choice = json.loads(completion.render(receipt()))["choices"][0]

    assert (choice["message"]["content"], choice["finish_reason"]) == ('{"city":"Jakarta"}', "stop")
    assert "tool_calls" not in choice["message"]


def test_calls_without_changes_are_told_as_they_are() -> None:
    """Where nothing was changed, nothing is: text passes by, and so do the provider's ids."""
    _, way, _ = to_anthropic(tools=[FUNCTION])

    call = [CBS(1, "tool_use", name="now", id="toolu_9"), CBX(1)]
    out = heard(way, MS(5), CBS(0), CBD(0, "a"), CBX(0), *call, MD("tool_use", 3), MX)

    assert (told(out).text, told(out).calls) == ("a", {0: ["toolu_9", "now", "{}"]})
    assert way.tools == {}
