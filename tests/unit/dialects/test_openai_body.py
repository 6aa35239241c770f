"""Prompts as chat completions: what the strictest vendors accept, and a note for all that they would not."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec import Raw

from gateway.core.errors import GatewayError
from gateway.dialects.neutral import Image, Message, Notes, Prompt, ResponseFormat, Target, Text, Tool
from gateway.dialects.openai_body import write_body
from tests.unit.dialects.prompts import (
    FUNCTION,
    MARK,
    NOW,
    THOUGHT,
    assistant,
    called,
    refusal,
    result,
    text,
    translated,
    use,
    user,
    written,
)


def test_a_plain_call() -> None:
    """Nothing is sent that was not asked for."""
    body, notes = translated()

    assert body == {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100}
    assert (notes.translated, notes.dropped) == ([], [])


def test_use_01_a_stream_is_asked_for_its_usage() -> None:
    """Providers of this dialect send none unless told to."""
    body, _ = written(Prompt((Message("user", (Text("Hi"),), "messages[0]"),), {}), stream=True)

    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


def test_tr_34_empty_lists_are_left_out() -> None:
    """Strict vendors refuse them."""
    body, _ = translated(tools=[], stop_sequences=[])

    assert body.keys() == {"model", "messages", "max_tokens"}


def test_tr_05_a_tool_without_parameters_has_an_empty_object_of_them() -> None:
    """OpenAI refuses an object schema without properties."""
    tools = [*NOW, {"name": "b"}, {"name": "c", "input_schema": {}}, {"name": "d", "input_schema": {"$ref": "#"}}]

    body, _ = translated(tools=tools)

    empty = {"type": "object", "properties": {}}
    assert [tool["function"]["parameters"] for tool in body["tools"]] == [empty, empty, empty, {"$ref": "#"}]


def test_schemas_are_untouched() -> None:
    """Down to the spelling of numbers and the order of members."""
    schema = b'{"type":"object","properties":{"b":{"minimum":1.50},"a":{}},"required":["b"]}'
    tool = Tool("f", "D", Raw(schema), strict=True)
    prompt = Prompt((Message("user", (Text("Hi"),), "messages[0]"),), {}, tools=(tool,))

    body = write_body(prompt, Target("m", stream=False), Notes())

    assert b'{"name":"f","description":"D","parameters":' + schema + b',"strict":true}' in body


CHOICES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"type": "auto"}, {"tool_choice": "auto"}),
    ({"type": "any"}, {"tool_choice": "required"}),
    ({"type": "tool", "name": "now"}, {"tool_choice": {"type": "function", "function": {"name": "now"}}}),
    ({"type": "auto", "disable_parallel_tool_use": True}, {"tool_choice": "auto", "parallel_tool_calls": False}),
    ({"type": "auto", "disable_parallel_tool_use": False}, {"tool_choice": "auto"}),
    ({"type": "none"}, {"tool_choice": "none"}),
    ({"type": "none", "disable_parallel_tool_use": True}, {"tool_choice": "none"}),
]


@pytest.mark.parametrize(("choice", "members"), CHOICES)
def test_tr_19_tool_choices(choice: dict[str, Any], members: dict[str, Any]) -> None:
    """None makes the parallel flag invalid, and a flag that is the default needs not be said."""
    body, _ = translated(tools=NOW, tool_choice=choice)

    assert body["tools"] == [FUNCTION]
    assert {name: body[name] for name in ("tool_choice", "parallel_tool_calls") if name in body} == members


def test_tr_19_without_tools_nothing_is_said_of_their_use() -> None:
    """Vendors refuse a choice among no tools."""
    body, _ = translated(tool_choice={"type": "auto", "disable_parallel_tool_use": True})

    assert body.keys() == {"model", "messages", "max_tokens"}


@pytest.mark.parametrize(
    ("model", "member"),
    [("m", "max_tokens"), ("deepseek-chat", "max_tokens"), ("gpt-4o", "max_tokens"), ("openai/gpt-5", "max_tokens"),
     ("gpt-5-mini", "max_completion_tokens"), ("o3", "max_completion_tokens"), ("gpt-5.6", "max_completion_tokens")],
)  # fmt: skip
def test_tr_22_the_limit_of_tokens_has_the_models_own_name(model: str, member: str) -> None:
    """The old name is the one that all vendors take, but for OpenAI's reasoning models."""
    body, notes = translated(model)

    assert {name: value for name, value in body.items() if "tokens" in name} == {member: 100}
    assert notes.translated == []


@pytest.mark.parametrize(("limit", "sent", "noted"), [(50, 50, ["max_tokens"]), (100, 100, []), (None, 100, [])])
def test_tr_22_a_limit_above_the_models_is_lowered(limit: int | None, sent: int, noted: list[str]) -> None:
    """It would be refused; the client is told."""
    prompt = Prompt((Message("user", (Text("Hi"),), "messages[0]"),), {}, max_tokens=100)

    body, notes = written(prompt, max_output_tokens=limit)

    assert (body["max_tokens"], notes.translated) == (sent, noted)


def test_tr_26_stop_sequences() -> None:
    """Four at most, by the client's name; empty ones would be refused, and end nothing."""
    body, notes = translated(stop_sequences=["a", "", "\n", "b", "c"])

    assert body["stop"] == ["a", "\n", "b", "c"]
    assert (notes.translated, notes.dropped) == (["stop_sequences"], ["stop_sequences"])
    assert refusal(stop_sequences=["a", "b", "c", "d", "e"]).param == "stop_sequences"


def test_tr_37_what_the_dialect_does_not_know_is_noted() -> None:
    """By the client's own names."""
    body, notes = translated(top_k=5, temperature=0.5, context_management={"edits": []}, cache_control=MARK)

    assert body.keys() == {"model", "messages", "max_tokens", "temperature"}
    assert notes.dropped == ["top_k", "context_management", "cache_control"]


def test_what_was_noted_in_reading_comes_first() -> None:
    """A place that was left out before is told like one that is left out here."""
    found = {"type": "search_result", "title": "T", "source": "S", "content": []}

    _, notes = translated(messages=[user(found, {"type": "container_upload"})], top_k=5)

    assert notes.translated == ["messages[0].content[0]"]
    assert notes.dropped == ["messages[0].content[1]", "top_k"]


def test_reasoning_models_are_not_sent_what_they_refuse() -> None:
    """A 400 for a temperature helps nobody; the note tells."""
    body, notes = translated("o3", temperature=0.5, tools=NOW, tool_choice={"type": "auto"}, top_p=0.5)

    assert body.keys() == {"model", "messages", "max_completion_tokens", "tools", "tool_choice"}
    assert notes.dropped == ["temperature", "top_p"]


@pytest.mark.parametrize("place", ["system", "tools", "content", "result", "inner"])
def test_cache_marks_are_noted_once(place: str) -> None:
    """They change what a call costs, not what it means."""
    marks = {name: {"cache_control": MARK} if name == place else {} for name in ("system", "content", "inner")}
    turns = [
        user({**text("a"), **marks["content"]}),
        assistant(use("1")),
        user(result("1", [{**text("b"), **marks["inner"]}], **({"cache_control": MARK} if place == "result" else {}))),
    ]
    tools = [{**NOW[0], **({"cache_control": MARK} if place == "tools" else {})}]

    _, notes = translated(messages=turns, tools=tools, system=[{**text("s"), **marks["system"]}])

    assert notes.dropped == ["cache_control"]


BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 10_000}}
ADAPTIVE = {"thinking": {"type": "adaptive"}}
OFF = {"thinking": {"type": "disabled"}}
XHIGH = {"output_config": {"effort": "xhigh"}}
EFFORTS: list[tuple[str, dict[str, Any], dict[str, Any], list[str], list[str]]] = [
    ("m", BUDGET, {}, [], ["thinking"]),
    ("m", ADAPTIVE, {}, [], ["thinking"]),
    ("m", XHIGH, {}, [], ["output_config.effort"]),
    ("o3", BUDGET, {"reasoning_effort": "medium"}, ["thinking"], []),
    ("o3", {"thinking": {"type": "enabled", "budget_tokens": 4000}}, {"reasoning_effort": "low"}, ["thinking"], []),
    ("o3", {"thinking": {"type": "enabled", "budget_tokens": 31_999}}, {"reasoning_effort": "high"}, ["thinking"], []),
    ("o3", ADAPTIVE, {"reasoning_effort": "medium"}, ["thinking"], []),
    ("o3", OFF, {"reasoning_effort": "low"}, ["thinking"], []),
    ("gpt-5", OFF, {"reasoning_effort": "minimal"}, ["thinking"], []),
    ("gpt-5.1", OFF, {"reasoning_effort": "none"}, ["thinking"], []),
    ("gpt-5.1", XHIGH, {"reasoning_effort": "high"}, ["output_config.effort"], []),
    ("gpt-5.4", XHIGH, {"reasoning_effort": "xhigh"}, ["output_config.effort"], []),
    ("gpt-5.4", {**XHIGH, "tools": NOW}, {"reasoning_effort": "none"}, [], ["output_config.effort"]),
    ("gpt-5.4", {"tools": NOW}, {"reasoning_effort": "none"}, [], []),
    ("gpt-5.4", {**OFF, "tools": NOW}, {"reasoning_effort": "none"}, ["thinking"], []),
    ("gpt-5.1", {**XHIGH, "tools": NOW}, {"reasoning_effort": "high"}, ["output_config.effort"], []),
    ("deepseek-v4-pro", OFF, {"thinking": {"type": "disabled"}}, [], []),
    ("gpt-6-sol", {**XHIGH, "tools": NOW}, {"reasoning_effort": "none"}, [], ["output_config.effort"]),
    ("gpt-6.1-terra", {"output_config": {"effort": "max"}}, {"reasoning_effort": "max"}, ["output_config.effort"], []),
    ("gpt-6.1-sol", {**XHIGH, "tools": NOW}, {"reasoning_effort": "xhigh"}, ["output_config.effort"], []),
    ("gpt-6.2-astra", OFF, {"reasoning_effort": "low"}, ["thinking"], []),
    ("deepseek-flash", BUDGET, {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}, ["thinking"], []),
    ("deepseek-v4-pro", BUDGET, {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}, ["thinking"], []),
    (
        "deepseek-v4-pro",
        {"output_config": {"effort": "max"}},
        {"thinking": {"type": "enabled"}, "reasoning_effort": "max"},
        ["output_config.effort"],
        [],
    ),
    ("kimi-k2.6", BUDGET, {"thinking": {"type": "enabled"}}, ["thinking"], []),
]


@pytest.mark.parametrize(("model", "fields", "members", "translated_names", "dropped"), EFFORTS)
def test_how_much_to_think(
    model: str, fields: dict[str, Any], members: dict[str, Any], translated_names: list[str], dropped: list[str]
) -> None:
    """In the words of each family, or a note where it has none; tools go before thinking where both cannot be had."""
    body, notes = translated(model, **fields)

    assert {name: body[name] for name in ("thinking", "reasoning_effort") if name in body} == members
    assert (notes.translated, notes.dropped) == (translated_names, dropped)


def test_a_format_is_passed_on() -> None:
    """The provider enforces it, or says 400."""
    schema = {"type": "object", "properties": {}}

    body, notes = translated(output_config={"format": {"type": "json_schema", "schema": schema}})

    wanted = {"name": "answer", "schema": schema, "strict": True}
    assert body["response_format"] == {"type": "json_schema", "json_schema": wanted}
    assert notes.translated == ["output_config.format"]


@pytest.mark.parametrize(
    ("user_id", "sent"),
    [("user_1", "user_1"), ("u" * 64, "u" * 64), ("u" * 65, None)],
)
def test_tr_28_users_are_carried_and_long_names_are_digested(user_id: str, sent: str | None) -> None:
    """OpenAI takes 64 characters, Claude Code sends 150; the same user is always the same."""
    body, notes = translated(metadata={"user_id": user_id})
    again, _ = translated(metadata={"user_id": user_id})

    assert body["user"] == again["user"]
    assert body["user"] == sent or (sent is None and re.fullmatch("[0-9a-f]{64}", body["user"]))
    assert notes.translated == ["metadata.user_id"]


def test_what_mistral_does_not_know() -> None:
    """A member that is not in its reference is a 422; the seed is there under another name."""
    prompt = Prompt(
        (Message("user", (Text("Hi"),), "messages[0]"),), {}, sampling={"seed": Raw(b"7")}, user="u",
    )  # fmt: skip

    body, notes = written(prompt, "mistral-large-latest")

    assert body.keys() == {"model", "messages", "random_seed"}
    assert notes.dropped == ["user"]


def test_members_of_openai_clients() -> None:
    """The provider's side of the dialect serves them too: everything neutral, and what only this dialect has."""
    prompt = Prompt(
        messages=(Message("user", (Text("Hi"), Image(url="https://x.test", detail="low")), "messages[0]", "Ada"),),
        names={"x": "x"},
        n=2,
        sampling={name: Raw(b"0.50") for name in ("top_p", "frequency_penalty", "presence_penalty", "seed", "min_p")},
        response_format=ResponseFormat("json_object"),
        others={"logprobs": Raw(b"true"), "x": Raw(b"1")},
    )

    body, notes = written(prompt)

    picture = {"type": "image_url", "image_url": {"url": "https://x.test", "detail": "low"}}
    assert body.pop("messages") == [{"role": "user", "content": [text("Hi"), picture], "name": "Ada"}]
    assert body == {
        "model": "m", "n": 2, "top_p": 0.5, "frequency_penalty": 0.5, "presence_penalty": 0.5, "seed": 0.5,
        "response_format": {"type": "json_object"},
    }  # fmt: skip
    assert (notes.translated, notes.dropped) == ([], ["min_p", "logprobs", "x"])


def test_the_shape_of_claude_code() -> None:
    """Its marks, thinking and beta members cost a note each, and the rest arrives."""
    system = [{**text("You are Claude Code."), "cache_control": MARK}, {**text("Be brief."), "cache_control": MARK}]
    tool = {"name": "Read", "description": "D", "input_schema": {"type": "object", "properties": {"p": {}}}}
    turns = [
        user(text("<system-reminder>"), {**text("Fix it"), "cache_control": MARK}),
        {"role": "system", "content": "Plan mode is on."},
        assistant(THOUGHT, text("I look."), use("toolu_1", "Read", p="a")),
        user({**result("toolu_1", [text("1: x")]), "cache_control": MARK}, text("<system-reminder>")),
    ]

    body, notes = translated(
        messages=turns, system=system, tools=[tool], max_tokens=32_000, temperature=1,
        thinking={"type": "adaptive"}, output_config={"effort": "high"}, metadata={"user_id": "user_1"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    )  # fmt: skip

    assert body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "You are Claude Code.\n\nBe brief.\n\nPlan mode is on."},
            {"role": "user", "content": "<system-reminder>\nFix it"},
            {"role": "assistant", "content": "I look.", "tool_calls": [called("toolu_1", "Read", '{"p":"a"}')]},
            {"role": "tool", "tool_call_id": "toolu_1", "content": "1: x"},
            {"role": "user", "content": "<system-reminder>"},
        ],
        "max_tokens": 32_000,
        "temperature": 1,
        "tools": [{"type": "function", "function": {
            "name": "Read", "description": "D", "parameters": tool["input_schema"],
        }}],
        "user": "user_1",
    }  # fmt: skip
    assert notes.translated == ["messages[1]", "metadata.user_id"]  # the instruction among the turns moved to the front
    assert notes.dropped == ["output_config.effort", "context_management", "cache_control", "messages[2].content[0]"]


@pytest.mark.parametrize(("name", "value"), [("modalities", ["text", "audio"]), ("modalities", 7), ("audio", {})])
def test_answers_in_sound_are_refused(name: str, value: Any) -> None:
    """They could not be passed on to a client of the other dialect: 400 by the member's name."""
    with pytest.raises(GatewayError) as caught:
        translated(**{name: value or {"voice": "alloy"}})

    assert (caught.value.kind.status, caught.value.param) == (400, name)


def test_probabilities_are_dropped() -> None:
    """Anthropic's answers have no place for them; text alone is what answers are anyway."""
    body, notes = translated(logprobs=True, top_logprobs=3, modalities=["text"], web_search_options={"x": 1})

    assert not {"logprobs", "top_logprobs", "modalities"} & set(body)
    assert notes.dropped == ["logprobs", "top_logprobs"]
    assert body["web_search_options"] == {"x": 1}
