"""Calls of Anthropic clients, understood: every form of every member, and a place for all that is refused or left."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from gateway.core.call import CallOptions
from gateway.core.errors import GatewayError
from gateway.dialects.anthropic_messages import read_call
from gateway.dialects.anthropic_prompt import read_prompt
from gateway.dialects.errors import error_body
from gateway.dialects.neutral import (
    MAX_NOTES,
    Document,
    Image,
    Message,
    Prompt,
    Reasoning,
    ResponseFormat,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)

MARK = {"type": "ephemeral"}
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0="}
WORDS = {"type": "text", "media_type": "text/plain", "data": "words"}
HI = [{"role": "user", "content": "Hi"}]


def understood(**fields: Any) -> Prompt:
    """A call with *fields*, as a prompt."""
    body = {"model": "m", "max_tokens": 100, "messages": HI, **fields}
    return read_prompt(read_call(json.dumps(body).encode(), CallOptions(), ()))


def refusal(**fields: Any) -> GatewayError:
    """The 400 that a call with *fields* gets."""
    with pytest.raises(GatewayError) as caught:
        understood(**fields)
    assert caught.value.kind.status == 400
    return caught.value


def user(*content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(content)}]


def answered(*content: Any) -> list[dict[str, Any]]:
    """A turn of the assistant between two of the user."""
    return [*HI, {"role": "assistant", "content": list(content)}, *HI]


def test_a_plain_call() -> None:
    """Strings are texts, and numbers stay as they were spelled."""
    body = b'{"model":"m","max_tokens":9,"temperature":0.70,"top_k":5,"messages":[{"role":"user","content":"Hi"}]}'

    prompt = read_prompt(read_call(body, CallOptions(), ()))

    assert prompt.messages == (Message("user", (Text("Hi"),), "messages[0]", places=("messages[0].content",)),)
    assert prompt.max_tokens == 9
    assert {name: bytes(value) for name, value in prompt.sampling.items()} == {"temperature": b"0.70", "top_k": b"5"}
    assert (prompt.translated, prompt.dropped, prompt.others) == ((), (), {})


def test_tr_12_instructions_keep_their_order_wherever_they_stand() -> None:
    """Top-level blocks first, then the entries among the messages, one after the other."""
    system = [{"type": "text", "text": "A", "cache_control": MARK}, {"type": "text", "text": "B"}]
    later = [{"role": "system", "content": "C"}, *HI, {"role": "system", "content": [{"type": "text", "text": "D"}]}]

    prompt = understood(system=system, messages=later)

    assert prompt.system == (Text("A", MARK), Text("B"), Text("C"), Text("D"))
    assert [message.place for message in prompt.messages] == ["messages[1]"]


BLOCKS: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
    ({"type": "text", "text": "x", "cache_control": MARK}, (Text("x", MARK),)),
    ({"type": "text", "text": ""}, ()),
    ({"type": "image", "source": PNG}, (Image(media_type="image/png", data="iVBORw0="),)),
    ({"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}, (Image("https://x.test/a.png"),)),
    (
        {"type": "document", "title": "T", "source": {"type": "base64", "media_type": "application/pdf", "data": "JV"}},
        (Document(media_type="application/pdf", data="JV", name="T"),),
    ),
    (
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}, "context": "C"},
        (Text("C"), Document(media_type="text/plain", data="words")),
    ),
    ({"type": "document", "source": {"type": "url", "url": "https://x.test"}}, (Document(url="https://x.test"),)),
    ({"type": "document", "title": "T", "source": {"type": "content", "content": "in"}}, (Text("T"), Text("in"))),
    (
        {"type": "document", "source": {"type": "content", "content": [{"type": "image", "source": PNG}]}},
        (Image(media_type="image/png", data="iVBORw0="),),
    ),
    (
        {"type": "search_result", "title": "T", "source": "S", "content": [{"type": "text", "text": "x"}]},
        (Text("T\nS\nx"),),
    ),
    ({"type": "tool_result", "tool_use_id": "c"}, (ToolResult("c", ()),)),
    ({"type": "tool_result", "tool_use_id": "c", "content": "x"}, (ToolResult("c", (Text("x"),)),)),
    (
        {
            "type": "tool_result", "tool_use_id": "c", "is_error": True, "cache_control": MARK,
            "content": [{"type": "text", "text": "x"}, {"type": "image", "source": PNG}],
        },
        (ToolResult("c", (Text("x"), Image(media_type="image/png", data="iVBORw0=")), is_error=True, cache=MARK),),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("block", "parts"), BLOCKS)
def test_blocks_of_users(block: dict[str, Any], parts: tuple[Any, ...]) -> None:
    """Every documented form of what a user may send."""
    text = {"type": "text", "text": "."}

    prompt = understood(messages=user(block, text))

    assert prompt.messages[0].parts == (*parts, Text("."))
    assert prompt.dropped == ()


ANSWERS: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
    ({"type": "thinking", "thinking": "Hm", "signature": "s"}, (Thinking("Hm", "s"),)),
    ({"type": "thinking", "thinking": "", "signature": "s"}, (Thinking("", "s"),)),
    ({"type": "redacted_thinking", "data": "x"}, (Thinking(redacted="x"),)),
    ({"type": "text", "text": "x", "citations": None}, (Text("x"),)),
    ({"type": "compaction", "content": "So far"}, (Text("So far"),)),
    (
        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": [1, "ü"]}, "caller": {"type": "direct"}},
        (ToolCall("c", "f", '{"a":[1,"ü"]}'),),
    ),
]


@pytest.mark.parametrize(("block", "parts"), ANSWERS)
def test_blocks_of_the_assistant(block: dict[str, Any], parts: tuple[Any, ...]) -> None:
    """Every documented form of what a model has said."""
    prompt = understood(messages=answered(block))

    assert prompt.messages[1].parts == parts
    assert prompt.dropped == ()


@pytest.mark.parametrize("nothing", [{}, "", None])
def test_tr_05_a_call_without_arguments_has_an_empty_object(nothing: Any) -> None:
    """Whatever a client makes of an empty input, the arguments are JSON."""
    block = {"type": "tool_use", "id": "c", "name": "now", "input": nothing}

    prompt = understood(messages=answered(block))

    assert prompt.messages[1].parts == (ToolCall("c", "now", "{}"),)


def test_numbers_in_arguments_stay_as_they_were_spelled() -> None:
    """A model that sees its own call again sees the same number."""
    body = (
        b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":'
        b'[{"type":"tool_use","id":"c","name":"f","input":{"a":1.50e3}}]}]}'
    )

    prompt = read_prompt(read_call(body, CallOptions(), ()))

    assert prompt.messages[1].parts == (ToolCall("c", "f", '{"a":1.50e3}'),)


def test_what_a_providers_own_tools_said_is_noted_by_place() -> None:
    """It cannot be carried, and the rest of the turn stays; later parts keep their places."""
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    said = {"type": "text", "text": "x", "citations": [{"type": "web_search_result_location"}]}

    prompt = understood(messages=answered(search, found, said))

    assert prompt.messages[1].parts == (Text("x"),)
    assert prompt.messages[1].places == ("messages[1].content[2]",)
    assert prompt.dropped == (
        "messages[1].content[0]", "messages[1].content[1]", "messages[1].content[2].citations",
    )  # fmt: skip


def test_tr_38_members_that_nobody_knows_are_noted() -> None:
    """They are never a reason to refuse."""
    messages = [{"role": "user", "content": "Hi", "agent": "cli"}]

    prompt = understood(messages=messages, context_management={"edits": []}, speed="fast", fallbacks=[])

    assert prompt.dropped == ("messages[0].agent",)
    assert prompt.others == {"context_management": Raw(b'{"edits": []}'), "speed": Raw(b'"fast"')}


def test_tools() -> None:
    """Schemas are untouched, and what only tunes a tool is noted."""
    schema = {"type": "object", "properties": {"a": {"type": "number", "minimum": 0.50}}}
    tools = [
        {"name": "f", "description": "D", "input_schema": schema, "strict": True, "cache_control": MARK},
        {"type": "custom", "name": "g", "input_schema": {"type": "object"}, "eager_input_streaming": True},
    ]

    prompt = understood(tools=tools)

    assert prompt.tools == (
        Tool("f", "D", Raw(json.dumps(schema).encode()), strict=True, cache=MARK),
        Tool("g", None, Raw(b'{"type": "object"}')),
    )
    assert prompt.dropped == ("tools[1].eager_input_streaming",)


@pytest.mark.parametrize(
    "kind",
    ["web_search_20250305", "bash_20250124", "text_editor_20250728", "computer_toolset_20260801", "memory_20250818", 7],
)
def test_tools_that_only_one_vendor_knows_are_refused(kind: Any) -> None:
    """The model would never call them, and the provider cannot run them."""
    error = refusal(tools=[{"name": "f", "input_schema": {}}, {"type": kind, "name": "x"}])

    assert error.param == "tools[1].type"


CHOICES: list[tuple[dict[str, Any], ToolChoice, bool | None]] = [
    ({"type": "auto"}, ToolChoice("auto"), None),
    ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("required"), False),
    ({"type": "tool", "name": "f", "disable_parallel_tool_use": False}, ToolChoice("tool", "f"), True),
    ({"type": "none"}, ToolChoice("none"), None),
]


@pytest.mark.parametrize(("given", "choice", "parallel"), CHOICES)
def test_tool_choices(given: dict[str, Any], choice: ToolChoice, parallel: bool | None) -> None:
    """All four forms, and whether several tools may be called at once."""
    prompt = understood(tool_choice=given)

    assert (prompt.tool_choice, prompt.parallel_tools) == (choice, parallel)


REASONING: list[tuple[dict[str, Any], Reasoning | None, str | None]] = [
    ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, Reasoning("budget", budget_tokens=2000), "thinking"),
    ({"thinking": {"type": "adaptive"}}, Reasoning("adaptive"), "thinking"),
    ({"thinking": {"type": "disabled"}, "output_config": {"effort": None}}, Reasoning("off"), "thinking"),
    ({"output_config": {"effort": "xhigh"}}, Reasoning("effort", "xhigh"), "output_config.effort"),
    (
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
        Reasoning("effort", "low"),
        "output_config.effort",
    ),
    ({"thinking": None, "output_config": None}, None, None),
]


@pytest.mark.parametrize(("fields", "reasoning", "name"), REASONING)
def test_thinking(fields: dict[str, Any], reasoning: Reasoning | None, name: str | None) -> None:
    """An effort says more than that there is to be thinking, and names go by what was said."""
    prompt = understood(**fields)

    assert (prompt.reasoning, prompt.names.get("reasoning")) == (reasoning, name)
    assert prompt.dropped == ()


@pytest.mark.parametrize("fields", [{"output_format": ...}, {"output_config": {"format": ...}}])
def test_a_format_is_always_kept_to(fields: dict[str, Any]) -> None:
    """The schema of an answer binds in this dialect, under its name of today and that of its beta."""
    wanted = {"type": "json_schema", "schema": {"type": "object"}}
    given = {"output_format": wanted} if "output_format" in fields else {"output_config": {"format": wanted}}

    prompt = understood(**given)

    assert prompt.response_format == ResponseFormat("json_schema", schema=Raw(b'{"type": "object"}'), strict=True)
    assert prompt.names["response_format"] in ("output_format", "output_config.format")


def test_tr_28_the_user_is_carried_and_nothing_else_of_the_metadata() -> None:
    """Other keys are no provider's business."""
    prompt = understood(metadata={"user_id": "user_1", "team": "x"}, service_tier="standard_only")

    assert (prompt.user, prompt.names["user"]) == ("user_1", "metadata.user_id")
    assert prompt.dropped == ("metadata.team", "service_tier")


def test_tr_26_stop_sequences_come_as_sent() -> None:
    """Whether there are too many of them, the target knows."""
    prompt = understood(stop_sequences=["a", "", "\n", "d", "e"])

    assert (prompt.stop, prompt.names["stop"]) == (("a", "", "\n", "d", "e"), "stop_sequences")


@pytest.mark.parametrize(
    ("fields", "unsupported"),
    [
        ({"thread": {"type": "create"}}, ("thread",)),
        ({"previous_message_id": "msg_1", "thread": {}}, ("thread", "previous_message_id")),
    ],
)
def test_conversations_kept_by_the_server_are_refused_in_the_words_of_the_sdk(
    fields: dict[str, Any], unsupported: tuple[str, ...]
) -> None:
    """Its tool runner then sends the whole history; without the code it would give up."""
    error = refusal(**fields)

    details = json.loads(error_body("anthropic_messages", error, "req_1"))["error"]["details"]
    assert details == {"error_code": "thread_unsupported_request", "unsupported": list(unsupported)}


def test_other_errors_have_no_list_of_unsupported_members() -> None:
    """`details` says no more than before."""
    error = refusal(container="c")

    details = json.loads(error_body("anthropic_messages", error, "req_1"))["error"]["details"]
    assert details == {"error_code": "invalid_request"}


def test_a_thread_that_is_null_is_none() -> None:
    """SDKs send members that were not set as null."""
    assert understood(thread=None, container=None, mcp_servers=[], inference_geo="global").others == {}


def test_optional_members_may_be_null() -> None:
    """A client that serialises what it did not set says nothing by it."""
    document = {"type": "document", "source": WORDS, "title": None, "context": None}
    result = {"type": "tool_result", "tool_use_id": "c", "is_error": None}

    prompt = understood(
        messages=user(document, result),
        tools=[{"name": "f", "description": None, "strict": None}],
        tool_choice={"type": "auto", "disable_parallel_tool_use": None},
    )

    assert prompt.messages[0].parts == (Document(media_type="text/plain", data="words"), ToolResult("c", ()))
    assert (prompt.tools, prompt.tool_choice, prompt.parallel_tools) == ((Tool("f"),), ToolChoice("auto"), None)


IMAGE = {"type": "image", "source": {"type": "file", "file_id": "f"}}
CALL = {"type": "tool_use", "id": "c", "name": "f"}
RESULT = {"type": "tool_result", "tool_use_id": "c"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"container": "c"}, "container"),
    ({"mcp_servers": [{"type": "url"}]}, "mcp_servers"),
    ({"inference_geo": "us"}, "inference_geo"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": {}}]}, "messages[0].content"),
    ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
    ({"messages": [{"role": "user", "content": ""}]}, "messages"),
    ({"messages": user("x")}, "messages[0].content[0].type"),
    ({"messages": user({"type": 7})}, "messages[0].content[0].type"),
    ({"messages": user({"type": "text", "text": 7})}, "messages[0].content[0].text"),
    ({"messages": user(IMAGE)}, "messages[0].content[0].source"),
    ({"messages": user({"type": "image"})}, "messages[0].content[0].source"),
    ({"messages": user({"type": "image", "source": {"type": "x"}})}, "messages[0].content[0].source.type"),
    ({"messages": user({"type": "image", "source": {**PNG, "data": 1}})}, "messages[0].content[0].source.data"),
    ({"messages": user({**IMAGE, "type": "document"})}, "messages[0].content[0].source"),
    ({"messages": user({"type": "tool_result"})}, "messages[0].content[0].tool_use_id"),
    ({"messages": user({"type": "tool_use", "id": "c", "name": "f", "input": {}})}, "messages[0].content[0]"),
    ({"messages": user({"type": "tool_result", "tool_use_id": "c", "content": 7})}, "messages[0].content[0].content"),
    (
        {"messages": user({"type": "tool_result", "tool_use_id": "c", "content": [IMAGE]})},
        "messages[0].content[0].content[0].source",
    ),
    ({"messages": answered({"type": "tool_result", "tool_use_id": "c"})}, "messages[1].content[0]"),
    ({"messages": answered({"type": "tool_use", "id": "c", "name": 7})}, "messages[1].content[0].name"),
    (
        {"messages": answered({"type": "tool_use", "id": "c", "name": "f", "input": "x"})},
        "messages[1].content[0].input",
    ),
    *[
        ({"messages": answered({**CALL, "input": given})}, "messages[1].content[0].input")
        for given in ([], 0, False, 0.5)
    ],
    *[
        ({"messages": user({**RESULT, "is_error": given})}, "messages[0].content[0].is_error")
        for given in ("true", 1, "", {})
    ],
    *[
        ({"messages": user({"type": "document", "source": source, name: 7})}, f"messages[0].content[0].{name}")
        for name in ("title", "context")
        for source in (WORDS, {"type": "content", "content": "x"})
    ],
    *[
        ({"messages": user({"type": "search_result", "content": "x", name: [7]})}, f"messages[0].content[0].{name}")
        for name in ("title", "source")
    ],
    ({"messages": answered({"type": "thinking", "thinking": 7})}, "messages[1].content[0].thinking"),
    ({"system": [{"text": "x"}]}, "system[0].type"),
    ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
    ({"tools": [{"name": "f", "input_schema": "x"}]}, "tools[0].input_schema"),
    ({"tools": [{"name": "f", "description": 7}]}, "tools[0].description"),
    ({"tools": [{"name": "f", "description": []}]}, "tools[0].description"),
    ({"tools": [{"name": "f", "strict": "true"}]}, "tools[0].strict"),
    ({"tools": [{"name": "f", "strict": 0}]}, "tools[0].strict"),
    ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}}, "tool_choice.disable_parallel_tool_use"),
    ({"tool_choice": {"type": "any", "disable_parallel_tool_use": ""}}, "tool_choice.disable_parallel_tool_use"),
    ({"tool_choice": {"type": "x"}}, "tool_choice.type"),
    ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"thinking": "on"}, "thinking.type"),
    ({"thinking": {"type": []}}, "thinking.type"),
    ({"thinking": {"type": "enabled", "budget_tokens": True}}, "thinking.budget_tokens"),
    ({"output_config": "x"}, "output_config"),
    ({"output_config": {"effort": "very"}}, "output_config.effort"),
    ({"output_config": {"effort": 7}}, "output_config.effort"),
    ({"output_config": {"format": {"type": "x"}}}, "output_config.format.type"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
    ({"output_format": "json"}, "output_format.type"),
    ({"metadata": {"user_id": 7}}, "metadata.user_id"),
    ({"top_p": "x"}, "top_p"),
    ({"top_k": [1]}, "top_k"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "place"), REFUSED)
def test_refusals_name_the_place(fields: dict[str, Any], place: str) -> None:
    """What is malformed, or must not be ignored, is a 400 about its own place."""
    assert refusal(**fields).param == place


def test_notes_are_bounded() -> None:
    """A call may hold more that nobody knows than an answer should repeat."""
    blocks = [{"type": f"unknown_{n}"} for n in range(5_000)]

    prompt = understood(messages=[*user(*blocks), *HI], **{"x" * 5_000: 1})

    assert len(prompt.dropped) == MAX_NOTES
