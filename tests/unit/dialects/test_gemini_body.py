"""What a Gemini provider is asked for a call of either dialect, but for its turns."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.errors import GatewayError
from tests.unit.dialects.gemini import BUDGETS, HI, LEVELS, NEWEST, TOOL, of_chat, of_messages, refusal


def config(model: str = NEWEST, **fields: Any) -> Any:
    return of_chat(model=model, **fields)[0].get("generationConfig")


def test_a_bare_call_says_nothing_needless() -> None:
    """A call of one message is that message: the model and the stream are in the path."""
    body, notes = of_chat()

    assert body == {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    assert (notes.translated, notes.dropped) == ([], [])


def test_instructions_stand_apart() -> None:
    """Instructions are the system instruction, in order, each a part."""
    body, _ = of_chat({"role": "system", "content": "A"}, {"role": "developer", "content": "B"}, HI)

    assert body["systemInstruction"] == {"parts": [{"text": "A"}, {"text": "B"}]}


def test_instructions_alone_are_what_the_user_says() -> None:
    """Contents must not be empty: instructions alone are asked as a question, which is noted."""
    body, notes = of_chat({"role": "system", "content": "A"})

    assert body == {"contents": [{"role": "user", "parts": [{"text": "A"}]}]}
    assert notes.translated == ["messages"]


def test_sampling() -> None:
    """Numbers keep their literal, under Google's names; what it has no name for is dropped."""
    body, notes = of_chat(
        model=LEVELS, temperature=1.50, top_p=0.9, top_k=4, seed=7, frequency_penalty=0.5, presence_penalty=1, min_p=0.1
    )

    assert body["generationConfig"] == {
        "temperature": 1.5,
        "topP": 0.9,
        "topK": 4,
        "seed": 7,
        "frequencyPenalty": 0.5,
        "presencePenalty": 1,
    }
    assert notes.dropped == ["min_p"]


def test_sampling_of_models_that_do_not_look_at_it() -> None:
    """From Gemini 3.6 on temperature and its kin is not looked at, and will be refused: it is dropped."""
    body, notes = of_chat(temperature=0.2, top_p=0.9, seed=1)

    assert body["generationConfig"] == {"seed": 1}
    assert notes.dropped == ["temperature", "top_p"]


@pytest.mark.parametrize("seed", [2**31, -(2**31) - 1, 2**63])
def test_seeds_that_do_not_fit(seed: int) -> None:
    """A seed of more than 32 bits is dropped: Google's field has no room for it."""
    body, notes = of_chat(seed=seed)

    assert "generationConfig" not in body
    assert notes.dropped == ["seed"]


def test_length_and_stops() -> None:
    """Empty stop sequences are left out, the limit is the model's at most."""
    body, notes = of_chat(max_completion_tokens=50, stop=["END", ""])

    assert body["generationConfig"] == {"maxOutputTokens": 50, "stopSequences": ["END"]}
    assert notes.dropped == ["stop"]


def test_too_many_stops() -> None:
    """More than five stop sequences are refused: the answer would go on where it should have ended."""
    with pytest.raises(GatewayError) as caught:
        of_messages(stop_sequences=[str(n) for n in range(6)])

    assert caught.value.param == "stop_sequences"


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        (LEVELS, "minimal", {"thinkingLevel": "minimal", "includeThoughts": True}),
        (NEWEST, "minimal", {"thinkingLevel": "low", "includeThoughts": True}),
        ("gemini-3-pro-preview", "medium", {"thinkingLevel": "low", "includeThoughts": True}),
        ("gemini-3.1-pro-preview", "medium", {"thinkingLevel": "medium", "includeThoughts": True}),
        ("gemini-4-argon", "xhigh", {"thinkingLevel": "high", "includeThoughts": True}),
        ("gemini-4-hydrogen", "xhigh", {"thinkingLevel": "xhigh", "includeThoughts": True}),
        (NEWEST, "none", {"thinkingLevel": "low"}),
        (BUDGETS, "none", {"thinkingBudget": 0}),
        ("gemini-2.5-pro", "none", {"thinkingBudget": 128}),
        (BUDGETS, "medium", {"thinkingBudget": 8192, "includeThoughts": True}),
        (BUDGETS, "max", {"thinkingBudget": 24576, "includeThoughts": True}),
    ],
)
def test_efforts(model: str, effort: str, thinking: dict[str, Any]) -> None:
    """An effort is the nearest level, or a budget, that the model takes; no model gets both."""
    body, notes = of_chat(model=model, reasoning_effort=effort)

    assert body["generationConfig"] == {"thinkingConfig": thinking}
    assert notes.translated == ["reasoning_effort"]


@pytest.mark.parametrize(
    ("model", "budget", "thinking"),
    [
        (NEWEST, 4_000, {"thinkingLevel": "low", "includeThoughts": True}),
        (NEWEST, 31_999, {"thinkingLevel": "high", "includeThoughts": True}),
        (BUDGETS, 31_999, {"thinkingBudget": 24576, "includeThoughts": True}),
        ("gemini-2.5-flash-lite", 100, {"thinkingBudget": 512, "includeThoughts": True}),
    ],
)
def test_budgets(model: str, budget: int, thinking: dict[str, Any]) -> None:
    """A budget in tokens is a level where the model has levels, else the nearest budget that it takes."""
    body, notes = of_messages(model=model, thinking={"type": "enabled", "budget_tokens": budget}, max_tokens=32_000)

    assert body["generationConfig"]["thinkingConfig"] == thinking
    assert notes.translated == ["thinking"]


def test_adaptive_thinking() -> None:
    """Thinking as the model finds right is a dynamic budget, or the middle level."""
    bodies = [of_messages(model=model, thinking={"type": "adaptive"})[0] for model in (BUDGETS, NEWEST)]

    assert [body["generationConfig"]["thinkingConfig"] for body in bodies] == [
        {"thinkingBudget": -1, "includeThoughts": True},
        {"thinkingLevel": "medium", "includeThoughts": True},
    ]


def test_models_that_do_not_think() -> None:
    """A model that refuses `thinkingConfig` is not sent any, and the wish is noted."""
    body, notes = of_chat(model="gemini-2.0-flash", reasoning_effort="high")

    assert "generationConfig" not in body
    assert notes.dropped == ["reasoning_effort"]


def test_unknown_efforts() -> None:
    """An effort that nobody knows is refused by name."""
    assert refusal(reasoning_effort="enormous").param == "reasoning_effort"


@pytest.mark.parametrize(
    ("choice", "calling"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ({"type": "function", "function": {"name": "f"}}, {"mode": "ANY", "allowedFunctionNames": ["f"]}),
    ],
)
def test_tool_choice(choice: Any, calling: dict[str, Any]) -> None:
    """Every form of `tool_choice` is a mode, the one function the only one that is allowed."""
    body, _ = of_chat(tools=[TOOL], tool_choice=choice)

    assert body["toolConfig"] == {"functionCallingConfig": calling}


def test_tools_as_they_are() -> None:
    """A schema is passed on untouched, and is no schema where there is none."""
    schema = {"$schema": "x", "type": "object", "properties": {"a": {"const": 1.50}}, "additionalProperties": False}
    tools = [
        {"type": "function", "function": {"name": "f", "description": "Does f.", "parameters": schema}},
        {"type": "function", "function": {"name": "g"}},
    ]

    body, notes = of_chat(tools=tools)

    assert body["tools"] == [
        {
            "functionDeclarations": [
                {"name": "f", "description": "Does f.", "parametersJsonSchema": schema},
                {"name": "g"},
            ]
        }
    ]
    assert "toolConfig" not in body
    assert (notes.translated, notes.dropped) == ([], [])


def test_what_is_not_enforced_of_strict_tools() -> None:
    """Keywords that Google does not look at are noted of a tool that is strict, and of no other."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}}
    loose = {"type": "function", "function": {"name": "f", "parameters": schema}}
    strict = {"type": "function", "function": {"name": "g", "parameters": schema, "strict": True}}

    _, notes = of_chat(tools=[loose, strict])

    assert notes.dropped == ["tools[1].pattern"]


def test_strict_tools() -> None:
    """Where a tool is strict the model has to keep to the schemas, whether or not it has to call."""
    strict = {"type": "function", "function": {**TOOL["function"], "strict": True}}  # type: ignore[dict-item]

    free, forced = of_chat(tools=[strict])[0], of_chat(tools=[strict], tool_choice="required")[0]

    assert free["toolConfig"] == {"functionCallingConfig": {"mode": "VALIDATED"}}
    assert forced["toolConfig"] == {"functionCallingConfig": {"mode": "ANY"}}


def test_one_call_at_a_time_cannot_be_asked_for() -> None:
    """Parallel calls cannot be forbidden: that is noted by either client's name, unless no tool may be called."""
    by_chat = of_chat(tools=[TOOL], parallel_tool_calls=False)[1]
    by_messages = of_messages(
        tools=[{"name": "f", "input_schema": {"type": "object"}}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )[1]
    unneeded = of_chat(tools=[TOOL], parallel_tool_calls=False, tool_choice="none")[1]

    assert by_chat.dropped == ["parallel_tool_calls"]
    assert by_messages.dropped == ["tool_choice.disable_parallel_tool_use"]
    assert unneeded.dropped == []


def test_json() -> None:
    """Any JSON is a media type, a schema stands beside it, and what nobody enforces of it is noted by keyword."""
    schema = {"type": "object", "properties": {"pattern": {"type": "string", "maxLength": 3}}, "enum": [{"not": 1}]}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}

    loose, _ = of_chat(response_format={"type": "json_object"})
    strict, notes = of_chat(response_format=wanted)

    assert loose["generationConfig"] == {"responseMimeType": "application/json"}
    assert strict["generationConfig"] == {"responseMimeType": "application/json", "responseJsonSchema": schema}
    assert notes.translated == ["response_format"]
    assert notes.dropped == ["response_format.maxLength"]


def test_several_answers_and_likelihoods() -> None:
    """Several answers are candidates; likelihoods have the same two members under other names."""
    body, notes = of_chat(n=3, logprobs=True, top_logprobs=2)

    assert body["generationConfig"] == {"candidateCount": 3, "responseLogprobs": True, "logprobs": 2}
    assert (notes.translated, notes.dropped) == (["n"], [])


def test_modalities() -> None:
    """Text and images can be asked for, sound cannot."""
    assert config(modalities=["text", "image"]) == {"responseModalities": ["TEXT", "IMAGE"]}
    assert refusal(modalities=["text", "audio"]).param == "modalities"


@pytest.mark.parametrize(
    "fields",
    [
        {"audio": {"voice": "x"}},
        {"cachedContent": "cachedContents/a"},
    ],
)
def test_what_must_not_be_ignored(fields: dict[str, Any]) -> None:
    """What an answer without it would be wrong about is refused by name; what is cached is the account's."""
    assert refusal(**fields).param == next(iter(fields))


def test_the_rest_is_noted() -> None:
    """Safety settings go on by either spelling; markers, users and what Google has no word for are noted."""
    settings = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]
    message = {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}

    body, notes = of_chat(message, safety_settings=settings, user="u", store=True)

    assert body["safetySettings"] == settings
    assert sorted(notes.dropped) == ["cache_control", "store", "user"]


def test_the_catalogues_limit() -> None:
    """No more is asked for than the model can write, and that is noted."""
    body, notes = of_chat(max_tokens=100_000, limit=65_536)

    assert body["generationConfig"] == {"maxOutputTokens": 65_536}
    assert notes.translated == ["max_tokens"]
