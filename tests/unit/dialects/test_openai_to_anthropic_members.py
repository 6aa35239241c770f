"""Members of chat calls as Anthropic's: tools, limits, sampling, reasoning, the form of the answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from gateway.core.errors import GatewayError
from gateway.dialects.anthropic_body import DEFAULT_MAX_TOKENS
from gateway.dialects.neutral import Target
from gateway.dialects.traits import Traits
from tests.support.scale import examples
from tests.unit.dialects.translating import CALLED, GAVE, HI, TARGET, TOOL, attempt, prompt_of, refusal, text, written

ADAPTIVE = Target("claude-y", stream=True, max_output_tokens=64_000, traits=Traits(thinking="adaptive"))
SCHEMA = {"type": "object", "properties": {"a": {"type": "number", "multipleOf": 0.50}}, "additionalProperties": False}


def test_a_plain_call() -> None:
    """Model, limit and turns, and nothing that was not asked for."""
    out = written()

    assert out.body == {
        "model": "claude-x",
        "max_tokens": 64_000,
        "messages": [{"role": "user", "content": [text("Hi")]}],
    }
    assert (out.translated, out.dropped) == (["max_tokens"], [])


def test_a_stream_is_asked_for() -> None:
    """By the target; what the client says about its own stream is ours."""
    assert written(target=ADAPTIVE, stream=True, stream_options={"include_usage": True})["stream"] is True


def test_tools() -> None:
    """Schemas are untouched down to their literals; none is an empty object; strictness is kept where it is wanted."""
    schema = '{"type":"object","x":1.50}'
    out = written(tools=[TOOL, {"type": "function", "function": {"name": "g", "strict": True, "parameters": None}}])
    raw = prompt_of(tools=[TOOL]).tools[0].parameters

    assert out["tools"] == [
        {"name": "f", "description": "Does f.", "input_schema": TOOL["function"]["parameters"]},
        {"name": "g", "input_schema": {"type": "object", "properties": {}}, "strict": True},
    ]
    assert raw is not None
    assert json.loads(bytes(raw)) == TOOL["function"]["parameters"]
    assert json.loads(schema)["x"] == 1.5
    assert "tool_choice" not in out.body


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ({"type": "function", "function": {"name": "f"}}, {"type": "tool", "name": "f"}),
        ({"type": "auto"}, {"type": "auto"}),
    ],
)
def test_tool_choice(choice: Any, expected: dict[str, Any]) -> None:
    """In all its forms."""
    assert written(tools=[TOOL], tool_choice=choice)["tool_choice"] == expected


def test_allowed_tools_are_the_only_ones() -> None:
    """Having only those allowed is the same; the choice is noted as put differently."""
    other = {"type": "function", "function": {"name": "g"}}
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "g"}}]}
    out = written(tools=[TOOL, other], tool_choice={"type": "allowed_tools", "allowed_tools": allowed})

    assert [tool["name"] for tool in out["tools"]] == ["g"]
    assert out["tool_choice"] == {"type": "any"}
    assert "tool_choice" in out.translated


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        ({"tools": [TOOL, {"type": "web_search_20250305"}]}, "tools[1].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": 7}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": 7}}]}, "tools[0].function.name"),
        ({"tools": [{"function": {"name": "f", "parameters": []}}]}, "tools[0].function.parameters"),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": 1}}]}, "tools[0].function.strict"),
        ({"functions": 7}, "functions"),
        ({"tools": [TOOL], "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "custom", "custom": {"name": "f"}}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": 7}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}},
         "tool_choice.allowed_tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [7]}}},
         "tool_choice.allowed_tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": []}}, "tool_choice.allowed_tools"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": 7}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": 7}}},
         "response_format.json_schema.schema"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"modalities": ["text", "audio"], "audio": {"voice": "alloy"}}, "modalities"),
        ({"reasoning_effort": "ultra"}, "reasoning_effort"),
        ({"reasoning_effort": 7}, "reasoning_effort"),
        ({"reasoning": "high"}, "reasoning"),
        ({"reasoning": {"max_tokens": -1}}, "reasoning.max_tokens"),
        ({"thinking": {"type": "enabled"}}, "thinking"),
        ({"top_k": "many"}, "top_k"),
        ({"safety_identifier": 7}, "safety_identifier"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)  # fmt: skip
def test_what_must_not_be_ignored_is_refused(fields: dict[str, Any], param: str) -> None:
    """TR-22, TR-36, TR-37 and the like: 400 by the client's own name."""
    assert refusal(**fields).param == param


@pytest.mark.parametrize("tools", [{}, {"tools": []}, {"tools": [TOOL]}])
def test_tr_19_a_choice_of_none_says_nothing_of_parallel_calls(tools: dict[str, Any]) -> None:
    """With tools a choice of none alone; without any, no choice at all."""
    out = written(tool_choice="none", parallel_tool_calls=False, **tools)

    assert out.body.get("tool_choice") == ({"type": "none"} if tools.get("tools") else None)
    assert out.dropped == []


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({}, {"type": "auto", "disable_parallel_tool_use": True}),
        ({"tool_choice": "required"}, {"type": "any", "disable_parallel_tool_use": True}),
    ],
)
def test_one_call_at_a_time(choice: dict[str, Any], expected: dict[str, Any]) -> None:
    """`parallel_tool_calls` false is a member of the choice; true is what the provider does anyway."""
    assert written(tools=[TOOL], parallel_tool_calls=False, **choice)["tool_choice"] == expected
    assert "tool_choice" not in written(tools=[TOOL], parallel_tool_calls=True).body


def test_tools_that_were_called_are_defined() -> None:
    """A conversation with calls whose tools are gone has them in name, and none may be called."""
    out = written(HI, CALLED, GAVE)

    assert out["tools"] == [{"name": "f", "input_schema": {"type": "object", "properties": {}}}]
    assert out["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize(
    ("fields", "limit", "expected", "noted"),
    [
        ({}, 64_000, 64_000, ["max_tokens"]),
        ({}, None, DEFAULT_MAX_TOKENS, ["max_tokens"]),
        ({"max_completion_tokens": 50}, 64_000, 50, []),
        ({"max_tokens": 70, "max_completion_tokens": 50}, 64_000, 50, []),
        ({"max_tokens": 40, "max_completion_tokens": 50}, 64_000, 40, []),
        ({"max_tokens": 10_000_000}, 64_000, 64_000, ["max_tokens"]),
        ({"max_completion_tokens": 90_000}, 64_000, 64_000, ["max_completion_tokens"]),
        ({"max_tokens": 90_000}, None, 90_000, []),
    ],
)
def test_tr_21_tr_22_max_tokens(fields: dict[str, Any], limit: int | None, expected: int, noted: list[str]) -> None:
    """The smaller of the client's two, within the model's limit; the limit where nothing was said."""
    out = written(target=Target("m", stream=False, max_output_tokens=limit), **fields)

    assert out["max_tokens"] == expected
    assert out.translated == noted


@pytest.mark.parametrize(
    ("stop", "expected", "translated", "dropped"),
    [
        ("END", ["END"], ["stop"], []),
        (["a", "\n", "b"], ["a", "b"], ["stop"], ["stop[1]"]),
        (["\n"], None, [], ["stop"]),
        ("", None, [], ["stop"]),
        ([], None, [], []),
    ],
)
def test_tr_26_stop(stop: Any, expected: Any, translated: list[str], dropped: list[str]) -> None:
    """A text or a list; blank ones, which the provider refuses, are dropped and noted."""
    out = written(stop=stop, max_tokens=9)

    assert out.body.get("stop_sequences") == expected
    assert (out.translated, out.dropped) == (translated, dropped)


@pytest.mark.parametrize("user", ["ani@example.test", "Ani <ani@example.test>", "+62 812-3456-7890", "x" * 300])
def test_tr_28_a_user_that_tells_a_person_is_hashed(user: str) -> None:
    """The hash is stable; no other metadata goes upstream."""
    out = written(user=user, metadata={"team": "x"})

    assert list(out["metadata"]) == ["user_id"]
    assert len(out["metadata"]["user_id"]) == 64
    assert out["metadata"] == written(user=user)["metadata"]
    assert user not in out.text
    assert "user" in out.translated
    assert out.dropped == ["metadata"]


def test_a_user_without_a_face_is_kept() -> None:
    """An opaque name is what the provider wants; the successor of the member is read as well."""
    assert written(user="u-77e1")["metadata"] == {"user_id": "u-77e1"}
    assert written(safety_identifier="s-1")["metadata"] == {"user_id": "s-1"}
    assert "metadata" not in written(user="").body
    assert written(user="").dropped == []


def test_tr_37_seed_and_penalties_are_dropped_with_a_note() -> None:
    """By name; the values that mean nothing are no loss."""
    out = written(seed=1, frequency_penalty=1, presence_penalty=0, logit_bias={"1": 1}, repetition_penalty=1.0)

    assert out.dropped == ["frequency_penalty", "seed", "logit_bias"]
    assert set(out.body) == {"model", "max_tokens", "messages"}


def test_what_the_provider_does_anyway_is_not_noted() -> None:
    """Null and defaults that clients spell out are no parameters."""
    out = written(
        n=1, logprobs=False, top_logprobs=None, store=False, service_tier="auto", modalities=["text"], stop=None,
        verbosity="medium", response_format={"type": "text"}, logit_bias={}, metadata={}, tools=None, top_p=1,
        presence_penalty=0.0, parallel_tool_calls=True, max_tokens=9, reasoning_effort=None, audio=None,
    )  # fmt: skip

    assert (out.translated, out.dropped) == ([], [])
    assert set(out.body) == {"model", "max_tokens", "messages"}


def test_the_rest_is_dropped_with_a_note() -> None:
    """What only OpenAI has, by name, in the client's order."""
    rest: dict[str, Any] = {
        "store": True, "service_tier": "flex", "prediction": {"type": "content", "content": "x"},
        "web_search_options": {}, "verbosity": "low", "prompt_cache_key": "k", "brand_new": 1,
    }  # fmt: skip

    assert written(**rest).dropped == list(rest)


def test_the_standard_tier_has_a_name_here_too() -> None:
    """OpenAI's default tier is the one without priority."""
    out = written(service_tier="default")

    assert out["service_tier"] == "standard_only"
    assert "service_tier" in out.translated


@pytest.mark.parametrize(
    ("fields", "expected", "translated", "dropped"),
    [
        ({"temperature": 0.5}, {"temperature": 0.5}, [], []),
        ({"temperature": 1.5}, {"temperature": 1}, ["temperature"], []),
        ({"temperature": 0.2, "top_p": 0.9}, {"temperature": 0.2}, [], ["top_p"]),
        ({"temperature": 1, "top_p": 0.9}, {"top_p": 0.9}, [], []),
        ({"top_p": 0.9, "top_k": 40}, {"top_p": 0.9, "top_k": 40}, [], []),
    ],
)
def test_sampling(fields: Any, expected: Any, translated: list[str], dropped: list[str]) -> None:
    """Temperatures are cut at 1, and beside one there is no `top_p`."""
    out = written(max_tokens=9, **fields)

    assert {name: out.body[name] for name in ("temperature", "top_p", "top_k") if name in out.body} == expected
    assert (out.translated, out.dropped) == (translated, dropped)


def test_numbers_keep_their_spelling() -> None:
    """A literal is passed on as it was sent."""
    body = prompt_of(temperature=0.1).sampling["temperature"]

    assert bytes(body) == b"0.1"
    assert '"temperature":0.1' in written(temperature=0.1).text


def enabled(tokens: int) -> dict[str, Any]:
    return {"type": "enabled", "budget_tokens": tokens}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"reasoning_effort": "minimal"}, enabled(1_024)),
        ({"reasoning_effort": "high"}, enabled(16_384)),
        ({"reasoning_effort": "max"}, enabled(32_000)),
        ({"reasoning_effort": "high", "max_completion_tokens": 4_000}, enabled(2_000)),
        ({"reasoning_effort": "none"}, {"type": "disabled"}),
        ({"reasoning": {"effort": "low"}}, enabled(4_096)),
        ({"reasoning": {"max_tokens": 3_000}, "max_tokens": 4_000}, enabled(3_000)),
        ({"reasoning": {"max_tokens": 5_000}, "max_tokens": 4_000}, enabled(2_000)),
        ({"reasoning": {"max_tokens": 10}}, enabled(1_024)),
        ({"reasoning": {"enabled": True}}, enabled(8_192)),
        ({"reasoning": {"enabled": False}}, {"type": "disabled"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 2_048}}, enabled(2_048)),
        ({"thinking": {"type": "disabled"}}, {"type": "disabled"}),
    ],
)
def test_reasoning_is_a_budget(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    """By effort or by number, below `max_tokens` with room for the answer, and noted."""
    out = written(**fields)

    assert out["thinking"] == expected
    assert next(iter(fields)) in out.translated
    assert out.dropped == []


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({"reasoning_effort": "minimal"}, "low"),
        ({"reasoning_effort": "xhigh"}, "xhigh"),
        ({"reasoning": {"max_tokens": 5_000}}, "medium"),
        ({"reasoning": {"max_tokens": 500_000}}, "max"),
        ({"thinking": {"type": "adaptive"}}, None),
    ],
)
def test_reasoning_is_an_effort_for_models_that_budget_themselves(fields: dict[str, Any], effort: str | None) -> None:
    """Those refuse a budget in tokens."""
    out = written(target=ADAPTIVE, response_format=schema(), **fields)

    assert out["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert out["output_config"].get("effort") == effort
    assert out["output_config"]["format"]["schema"] == SCHEMA


@pytest.mark.parametrize(
    "reason",
    [
        {"max_tokens": 2_000},
        {"tools": [TOOL], "tool_choice": "required"},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"messages": [HI, {"role": "assistant", "content": "So"}]},
        {"messages": [HI, CALLED, GAVE]},
    ],
)
def test_reasoning_gives_way(reason: dict[str, Any]) -> None:
    """Too small a limit, a call that has to be made, an answer begun, a call made without thought: dropped, noted."""
    messages = reason.pop("messages", [])
    out = written(*messages, reasoning_effort="high", temperature=0.5, **reason)

    assert "thinking" not in out.body
    assert out["temperature"] == 0.5
    assert out.dropped == ["reasoning_effort"]


def test_reasoning_goes_on_after_a_call_with_its_thought() -> None:
    """And for models that budget themselves also after one without."""
    thought = {"reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "signature": "s"}]}

    assert written(HI, {**CALLED, **thought}, GAVE, reasoning_effort="low")["thinking"] == enabled(4_096)
    assert "thinking" in written(HI, CALLED, GAVE, reasoning_effort="low", target=ADAPTIVE).body


def test_sampling_gives_way_to_reasoning() -> None:
    """Only a high `top_p` may stand beside it; a temperature of 1 is none."""
    out = written(reasoning_effort="low", temperature=0.5, top_k=5, top_p=0.5, max_tokens=9_000)
    kept = written(reasoning_effort="low", temperature=1, top_p=0.95, max_tokens=9_000)

    assert out.dropped == ["temperature", "top_p", "top_k"]
    assert kept.dropped == []
    assert kept["top_p"] == 0.95
    assert "temperature" not in kept.body


def test_one_word_on_reasoning_counts() -> None:
    """The most exact of several; the others are noted as dropped, and so is what is none of it."""
    out = written(reasoning_effort="high", reasoning={"max_tokens": 2_000, "exclude": True})

    assert out["thinking"] == enabled(2_000)
    assert out.dropped == ["reasoning.exclude", "reasoning_effort"]


def schema() -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}


def test_a_schema_is_the_providers_own_feature() -> None:
    """Untouched, and noted as put differently."""
    out = written(response_format=schema(), max_tokens=9)

    assert out["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
    assert out.translated == ["response_format"]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(0, 2) | st.sampled_from(["", " ", "x", "text", "auto"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["type", "text", "role", "content", "id", "function", "name", "arguments", "image_url", "url", "file",
             "file_data", "tool_calls", "tool_call_id", "function_call", "reasoning_details", "cache_control", "schema",
             "json_schema", "allowed_tools", "mode", "tools", "effort", "refusal", "signature", "parameters"]
        ),
        inner | st.sampled_from(["function", "image_url", "json_schema", "allowed_tools", "reasoning.text", "{}"]),
        max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip
MEMBERS = st.sampled_from(
    ["tools", "tool_choice", "functions", "function_call", "parallel_tool_calls", "stop", "response_format", "user",
     "reasoning_effort", "reasoning", "thinking", "top_k", "logprobs", "modalities", "service_tier", "x"]
)  # fmt: skip
ROLES = st.sampled_from(["system", "user", "assistant", "tool", "function"])


@pytest.mark.fuzz
@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.tuples(ROLES, st.dictionaries(st.sampled_from(
        ["content", "name", "tool_calls", "tool_call_id", "function_call", "reasoning_details", "reasoning_content",
         "refusal", "cache_control", "agent"]), ANYTHING, max_size=4)), max_size=4),
    st.dictionaries(MEMBERS, ANYTHING, max_size=4),
)  # fmt: skip
def test_anything_is_translated_or_refused(messages: list[tuple[str, dict[str, Any]]], fields: dict[str, Any]) -> None:
    """Whatever is sent, the provider gets a body of its form, or the client a 400 that names a place."""
    out = attempt(*({"role": role, **members} for role, members in messages), **fields)

    if isinstance(out, GatewayError):
        assert out.kind.status == 400
        assert out.param
        return
    roles = [turn["role"] for turn in out["messages"]]
    assert roles == (["user", "assistant"] * len(roles))[: len(roles)]
    blocks = [block for turn in out["messages"] for block in turn["content"]]
    assert all(turn["content"] for turn in out["messages"])
    assert all(block["text"].strip() for block in blocks if block["type"] == "text")


WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@pytest.mark.fuzz
@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), WORDS), min_size=1, max_size=8), WORDS)
def test_every_word_arrives_in_order(messages: list[tuple[str, str]], last: str) -> None:
    """Texts are neither lost nor changed nor moved within their kind, but for blank ones."""
    said = [*messages, ("user", f"x{last}")]
    out = written(*({"role": role, "content": words} for role, words in said))

    spoken = [block["text"] for turn in out["messages"] for block in turn["content"]]
    expected = [words for role, words in said if role != "system" and words.strip()]
    first = next(role for role, words in said if role != "system" and words.strip())
    assert spoken == ["Hello."] * (first == "assistant") + expected
    told = [words for role, words in said if role == "system" and words.strip()]
    assert [block["text"] for block in out.body.get("system", [])] == told


def test_the_target_names_the_model() -> None:
    """The client's name for it does not go upstream."""
    assert '"ours"' not in written().text
    assert written(target=TARGET)["model"] == "claude-x"


def test_a_full_body_is_one_of_the_vendors_own_types() -> None:
    """Everything at once has the shape that the vendor's library declares for version 2023-06-01."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    thought = {"reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "signature": "s"}]}
    document = {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}}
    out = written(
        {"role": "system", "content": "A", "cache_control": {"type": "ephemeral"}},
        {"role": "user", "content": [text("Look"), image, document]},
        {**CALLED, **thought},
        {**GAVE, "content": [text("seen"), image]},
        tools=[TOOL], tool_choice="auto", parallel_tool_calls=False, stop="END", user="u", service_tier="default",
        reasoning_effort="high", top_p=0.99, response_format=schema(),
    )  # fmt: skip

    declared = set(MessageCreateParamsNonStreaming.__annotations__) | {
        "top_p"
    }  # gone from the library, not from the API
    adapter = TypeAdapter(MessageCreateParamsNonStreaming)  # it has to outlive what it validates lazily
    drain(adapter.validate_python(out.body))
    assert set(out.body) == declared & set(out.body)
    assert len(out["messages"]) == 3
    assert out.dropped == []


def drain(value: Any) -> None:
    """Read all of *value*: what the library declares as iterable is validated as it is read."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, Iterable) and not isinstance(value, str):
        for inner in value:
            drain(inner)
