"""Calls as Converse gets them: members, turns, tools, thinking; and what is refused. By AWS's API reference."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.call import CallOptions
from gateway.core.errors import GatewayError
from gateway.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from gateway.dialects.bedrock_converse import BEDROCK_CONVERSE, upstream_path
from gateway.dialects.neutral import Target
from gateway.dialects.pairs import translated_body
from gateway.providers.traits import traits_of
from tests.unit.dialects.converse import ADAPTIVE, CLAUDE, CLIENTS, OTHER, each_client, written

PNG = "iVBORw0="
MARK = {"type": "ephemeral"}
TOOL = {"type": "function", "function": {"name": "f", "description": "Does f.", "parameters": {"type": "object"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1.50}'}}
CALLED: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "done"},
]
SPEC = {"toolSpec": {"name": "f", "description": "Does f.", "inputSchema": {"json": {"type": "object"}}}}


def user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def refused(client: Any, model: str = CLAUDE, **fields: Any) -> tuple[str | None, str]:
    with pytest.raises(GatewayError) as caught:
        written(client, model, **fields)
    assert caught.value.kind.status == 400
    return caught.value.param, caught.value.message


@pytest.mark.parametrize(
    ("model", "segment"),
    [
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", "anthropic.claude-3-5-sonnet-20241022-v2%3A0"),
        ("us.anthropic.claude-sonnet-4-6", "us.anthropic.claude-sonnet-4-6"),
        (
            "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.x",
            "arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Fus.x",
        ),
        ("../a?b#c d", "..%2Fa%3Fb%23c%20d"),
    ],
)
def test_the_model_is_one_segment_of_the_path(model: str, segment: str) -> None:
    """Ids, profiles and ARNs alike; no name leads anywhere else."""
    assert upstream_path(model, stream=False) == f"/model/{segment}/converse"
    assert upstream_path(model, stream=True) == f"/model/{segment}/converse-stream"


def test_members() -> None:
    """What Converse has members for goes there, in its own names; the model's name does not."""
    got = written(
        "openai_chat",
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        max_tokens=50,
        temperature=0.5,
        stop=["END", " "],
        service_tier="flex",
    )

    assert got.body == {
        "system": [{"text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"text": "Hi"}]}],
        "inferenceConfig": {"maxTokens": 50, "temperature": 0.5, "stopSequences": ["END"]},
        "additionalModelResponseFieldPaths": ["/stop_sequence"],
        "serviceTier": {"type": "flex"},
    }
    assert (got.translated, got.dropped) == (["stop", "service_tier"], ["stop[1]"])


@pytest.mark.parametrize(
    ("asked", "limit", "sent"),
    [(None, 64_000, None), (100_000, 64_000, 64_000), (50, 64_000, 50), (None, None, None), (50, None, 50)],
)
@pytest.mark.parametrize("model", [CLAUDE, OTHER])
def test_max_tokens(model: str, asked: int | None, limit: int | None, sent: int | None) -> None:
    """What was asked for, never above the model's limit; where nothing was, Bedrock has a default of its own."""
    fields = {} if asked is None else {"max_tokens": asked}

    got = written("openai_chat", model, limit, **fields)

    assert (got.get("inferenceConfig") or {}).get("maxTokens") == sent
    assert ("max_tokens" in got.translated) == (asked != sent)


def test_what_is_only_the_models_own() -> None:
    """`top_k` and a user: the one goes to the model itself, for the other there is no place."""
    got = written("anthropic_messages", temperature=1, top_k=7, metadata={"user_id": "u"})

    assert got["inferenceConfig"] == {"maxTokens": 100, "temperature": 1}
    assert got["additionalModelRequestFields"] == {"top_k": 7}
    assert got.dropped == ["metadata.user_id"]


def test_models_of_others() -> None:
    """They are told neither members of another vendor nor what Converse's own limits forbid."""
    got = written("openai_chat", OTHER, temperature=1.5, top_p=0.9, top_k=3, seed=1, reasoning_effort="low")

    assert got["inferenceConfig"] == {"temperature": 1, "topP": 0.9}
    assert "additionalModelRequestFields" not in got.body
    assert got.translated == ["temperature"]
    assert sorted(got.dropped) == ["reasoning_effort", "seed", "top_k"]


def test_content() -> None:
    """Pictures and documents by their data, documents under names that Bedrock takes and no two alike."""
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    plain = {"type": "document", "title": "a.b?", "source": {"type": "text", "media_type": "text/plain", "data": "é"}}
    paper = {
        "type": "document",
        "title": "a b",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
    }

    got = written("anthropic_messages", **user(picture, plain, paper, {"type": "text", "text": "What?"}))

    assert got["messages"][0]["content"] == [
        {"image": {"format": "png", "source": {"bytes": PNG}}},
        {"document": {"format": "txt", "name": "a b", "source": {"bytes": "w6k="}}},
        {"document": {"format": "pdf", "name": "a b (2)", "source": {"bytes": "JVBERi0="}}},
        {"text": "What?"},
    ]


def test_a_document_has_a_text_beside_it() -> None:
    """Bedrock refuses a turn of documents alone."""
    paper = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}

    got = written("anthropic_messages", **user(paper))

    assert [[*block] for block in got["messages"][0]["content"]] == [["document"], ["text"]]
    assert got["messages"][0]["content"][0]["document"]["name"] == "document"


def test_a_conversation_with_tools() -> None:
    """Calls and results under their ids, arguments as an object with its numbers as they were, failures marked."""
    messages = [*CALLED[:2], {**CALLED[2], "content": ""}]

    got = written("openai_chat", messages=messages, tools=[TOOL])

    assert got["messages"] == [
        {"role": "user", "content": [{"text": "Hi"}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "f", "input": {"a": 1.5}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "No content."}]}}]},
    ]
    assert got["toolConfig"] == {"tools": [SPEC]}


def test_a_result_with_a_picture_that_failed() -> None:
    """`is_error` becomes the result's status, its picture is one of its blocks."""
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/webp", "data": PNG}}
    use = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "is_error": True,
        "content": [{"type": "text", "text": "x"}, picture],
    }
    messages = [*user({"type": "text", "text": "Hi"})["messages"], {"role": "assistant", "content": [use]}]

    got = written(
        "anthropic_messages", messages=[*messages, *user(result)["messages"]], tools=[{"name": "f", "input_schema": {}}]
    )

    assert got["messages"][2]["content"] == [
        {
            "toolResult": {
                "toolUseId": "t1",
                "content": [{"text": "x"}, {"image": {"format": "webp", "source": {"bytes": PNG}}}],
                "status": "error",
            }
        }
    ]


NAMED = {"tool_choice": {"type": "function", "function": {"name": "f"}}}
NONE = {"type": "none"}
ONE = {"parallel_tool_calls": False}
ALONE = {"disable_parallel_tool_use": True}


@pytest.mark.parametrize(
    ("fields", "choice", "own", "common", "dropped"),
    [
        ({}, None, None, None, []),
        ({"tool_choice": "auto"}, {"auto": {}}, None, {"auto": {}}, []),
        ({"tool_choice": "required"}, {"any": {}}, None, {"any": {}}, []),
        (NAMED, {"tool": {"name": "f"}}, None, {"tool": {"name": "f"}}, []),
        (ONE, None, {"type": "auto", **ALONE}, None, [*ONE]),
        ({"tool_choice": "required", **ONE}, None, {"type": "any", **ALONE}, {"any": {}}, [*ONE]),
        ({"tool_choice": "none"}, None, NONE, "no tools", []),
    ],
)  # fmt: skip
def test_tool_choice(fields: dict[str, Any], choice: Any, own: Any, common: Any, dropped: list[str]) -> None:
    """
    Converse's own forms; what it has none for goes to a Claude itself, in one place only since Bedrock refuses two.
    Of other models tools that may not be called are withheld, and calls may be parallel.
    """
    claude = written("openai_chat", CLAUDE, tools=[TOOL], **fields)
    other = written("openai_chat", OTHER, tools=[TOOL], **fields)

    assert claude["toolConfig"].get("toolChoice") == choice
    assert (claude.get("additionalModelRequestFields") or {}).get("tool_choice") == own
    assert claude["toolConfig"]["tools"] == [SPEC]
    assert claude.dropped == []
    if common == "no tools":
        assert "toolConfig" not in other.body
    else:
        assert other["toolConfig"].get("toolChoice") == common
    assert (other.dropped, "additionalModelRequestFields" in other.body) == (dropped, False)


def test_calls_of_tools_that_are_gone() -> None:
    """Bedrock wants tools where the conversation has calls: they are named, and a Claude may not call them."""
    claude, other = (written("openai_chat", model, messages=CALLED) for model in (CLAUDE, OTHER))

    for got in (claude, other):
        (tool,) = got["toolConfig"]["tools"]
        assert tool["toolSpec"] == {
            "name": "f",
            "description": "Not available any more.",
            "inputSchema": {"json": {"type": "object", "properties": {}}},
        }
        assert got.dropped == []
    assert claude["additionalModelRequestFields"] == {"tool_choice": NONE}
    assert "additionalModelRequestFields" not in other.body


def test_a_choice_of_none_that_cannot_be_kept() -> None:
    """Where another model's conversation has calls its tools must stay, and that they may be called is told."""
    got = written("openai_chat", OTHER, messages=CALLED, tools=[TOOL], tool_choice="none")

    assert got["toolConfig"] == {"tools": [SPEC]}
    assert got.dropped == ["tool_choice"]


def test_thinking() -> None:
    """A Claude's budget goes to it in its own words, and so does the history of its thoughts, signed or encrypted."""
    thoughts = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "QUJD"},
        {"type": "text", "text": "Hello"},
    ]
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": thoughts},
        {"role": "user", "content": "Go on"},
    ]
    fields = {"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 2000}, "messages": turns}

    claude, other = (written("anthropic_messages", model, **fields) for model in (CLAUDE, OTHER))

    assert claude["additionalModelRequestFields"] == {"thinking": {"type": "enabled", "budget_tokens": 2000}}
    assert claude["messages"][1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}},
        {"reasoningContent": {"redactedContent": "QUJD"}},
        {"text": "Hello"},
    ]
    assert other["messages"][1]["content"] == [{"text": "Hello"}]
    assert other.dropped == ["messages[1].content[0]", "messages[1].content[1]", "thinking"]


def test_efforts() -> None:
    """Of a Claude that decides by itself, of a model of OpenAI's, of one that has none."""
    adaptive = written("openai_chat", ADAPTIVE, reasoning_effort="high")
    open_weight = written("openai_chat", "openai.gpt-oss-120b-1:0", reasoning_effort="minimal")

    assert adaptive["outputConfig"] == {"effort": "high"}
    assert adaptive["additionalModelRequestFields"]["thinking"]["type"] == "adaptive"
    assert open_weight["additionalModelRequestFields"] == {"reasoning_effort": "low"}
    assert open_weight.translated == ["reasoning_effort"]


def test_a_budget_is_below_something() -> None:
    """Where nobody says how long an answer may be, a call that thinks by a budget says so; no other does."""
    got, unknown = (written("openai_chat", CLAUDE, limit, reasoning_effort="low") for limit in (64_000, None))
    adaptive = written("openai_chat", ADAPTIVE, reasoning_effort="low")
    forced = written("openai_chat", CLAUDE, reasoning_effort="low", tools=[TOOL], tool_choice="required")

    assert got["additionalModelRequestFields"]["thinking"]["budget_tokens"] == 4096
    assert [each["inferenceConfig"] for each in (got, unknown)] == [{"maxTokens": 64_000}, {"maxTokens": 32_000}]
    assert got.translated == ["reasoning_effort", "max_tokens"]
    assert ("inferenceConfig" in adaptive.body, "inferenceConfig" in forced.body) == (False, False)


def test_marks_of_the_cache() -> None:
    """A marker becomes a point behind what it marks, with its time to live, in each place that can have one."""
    use = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    inner = {"type": "text", "text": "x", "cache_control": MARK}
    fields: dict[str, Any] = {
        "system": [{"type": "text", "text": "s", "cache_control": {**MARK, "ttl": "1h"}}],
        "tools": [{"name": "f", "input_schema": {}, "cache_control": MARK}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {**MARK, "ttl": "5m"}}]},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [inner]}]},
        ],
    }
    point = {"cachePoint": {"type": "default"}}

    claude, other = (written("anthropic_messages", model, **fields) for model in (CLAUDE, OTHER))

    assert claude["system"] == [{"text": "s"}, {"cachePoint": {"type": "default", "ttl": "1h"}}]
    assert claude["toolConfig"]["tools"][1:] == [point]
    assert claude["messages"][0]["content"][1:] == [{"cachePoint": {"type": "default", "ttl": "5m"}}]
    assert claude["messages"][2]["content"][1:] == [point]
    assert "cachePoint" not in json.dumps(other.body)
    assert (claude.dropped, other.dropped) == ([], ["cache_control"])


def test_betas() -> None:
    """Of the client's header a Claude gets what Bedrock knows; it would refuse the rest, and other models all of it."""
    known = "interleaved-thinking-2025-05-14,context-1m-2025-08-07"
    headers = (("anthropic-beta", f"claude-code-20250219, {known}"), ("anthropic-beta", f" ,{known}"))

    claude, other = (written("anthropic_messages", model, headers=headers) for model in (CLAUDE, OTHER))
    all_known = written("anthropic_messages", CLAUDE, headers=headers[1:])

    assert claude["additionalModelRequestFields"] == {
        "anthropic_beta": ["interleaved-thinking-2025-05-14", "context-1m-2025-08-07"]
    }
    assert "additionalModelRequestFields" not in other.body
    assert (claude.dropped, other.dropped, all_known.dropped) == (["anthropic-beta"], ["anthropic-beta"], [])


def test_betas_that_must_not_be_left_out() -> None:
    """A client that insists on all of its call is refused, by the header's name."""
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}).encode()
    headers = (("anthropic-beta", "claude-code-20250219"),)
    call = ANTHROPIC_MESSAGES.read_call(body, CallOptions(strict_params=True), headers)

    with pytest.raises(GatewayError) as caught:
        translated_body(call, BEDROCK_CONVERSE, Target(CLAUDE, stream=False, traits=traits_of(CLAUDE)))

    assert caught.value.param == "anthropic-beta"


@each_client
@pytest.mark.parametrize("model", [CLAUDE, OTHER])
def test_a_schema(client: Any, model: str) -> None:
    """A schema is kept by Bedrock itself, as text."""
    schema = {"type": "object", "properties": {"n": {"maximum": 1.50}}}
    chat = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
    fields = chat if client == CLIENTS[0] else {"output_config": {"format": {"type": "json_schema", "schema": schema}}}

    got = written(client, model, **fields)

    form = got["outputConfig"]["textFormat"]
    assert form["type"] == "json_schema"
    assert form["structure"]["jsonSchema"].get("name") == ("x" if client == CLIENTS[0] else None)
    assert json.loads(form["structure"]["jsonSchema"]["schema"]) == schema


PICTURE = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        (user({"type": "text", "text": "a"}, PICTURE), "messages[0].content[1]"),
        (user({"type": "image_url", "image_url": {"url": "data:image/bmp;base64,QUJD"}}), "messages[0].content[0]"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], param: str) -> None:
    """What no answer may ignore, and what Bedrock would have to fetch, or to understand, before it is asked."""
    assert refused("openai_chat", **fields)[0] == param


def test_json_mode() -> None:
    """A Claude has to call the tool that takes the answer, as at Anthropic's own API; no other can be made to."""
    got = written("openai_chat", CLAUDE, response_format={"type": "json_object"})

    (tool,) = got["toolConfig"]["tools"]
    assert tool["toolSpec"]["inputSchema"] == {"json": {"type": "object"}}
    assert tool["toolSpec"]["description"].startswith("Give the whole answer")
    assert got["additionalModelRequestFields"]["tool_choice"]["name"] == tool["toolSpec"]["name"]
    assert refused("openai_chat", OTHER, response_format={"type": "json_object"})[0] == "response_format"


def test_a_document_by_url() -> None:
    """Inside the result of a tool too."""
    paper = {"type": "document", "source": {"type": "url", "url": "https://x.test/a.pdf"}}
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [paper]}]},
    ]

    assert refused("anthropic_messages", messages=turns)[0] == "messages[2].content[0]"
