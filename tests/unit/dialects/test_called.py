"""The calls of a whole answer, and what is told of a denied one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from gateway.core.guarding import ArgumentRule, ToolTerms
from gateway.dialects.called import anthropic_calls, denied_call, openai_calls

TERMS = ToolTerms(deny=("drop",), arguments=(ArgumentRule("pay", "amount", maximum=100),))


def told(calls: Any) -> list[str]:
    return [f"{one.place}: {' '.join(one.tool.names)} {one.arguments}" for one in calls]


def test_openai() -> None:
    """Every call of every choice, by whichever form it has; missing arguments are none."""
    message = {
        "tool_calls": [
            {"function": {"name": "a", "arguments": '{"x":1}'}},
            {"function": {"name": "b"}},
            {"type": "custom", "custom": {"name": "c", "input": "free"}},
            {"function": {"name": "d", "arguments": {"x": 1}}},
            {"type": "function", "name": "flat", "arguments": "{}"},
            {"type": "mcp", "mcp": {"name": "m"}, "extra_content": {"google": {}}},
            {"function": {"name": ["n"], "arguments": "{}", "input": "{}"}},
        ]
    }
    choices = [{"message": message}, {"message": {"content": "Hi", "function_call": {"name": "e", "arguments": "{}"}}}]

    assert told(openai_calls(choices)) == [
        'choices[0].message.tool_calls[0]: a {"x":1}',
        "choices[0].message.tool_calls[1]: b ",
        "choices[0].message.tool_calls[2]: c free",
        'choices[0].message.tool_calls[3]: d {"x":1}',
        "choices[0].message.tool_calls[4]: flat {}",
        "choices[0].message.tool_calls[5]: m ",
        "choices[0].message.tool_calls[6]:  {}{}",
        "choices[1].message.function_call: e {}",
    ]


def test_anthropic() -> None:
    """Every block that uses a tool, whoever runs it; its input as it was spelled, with keys that are there twice."""
    content = b"""[{"type":"text","text":"Hi"},{"type":"tool_use","name":"a","input":{"x": 1,"x":2}},
        {"type":"server_tool_use","name":"b","input":{}},
        {"type":"mcp_tool_use","name":"c","server_name":"hub","input":{}},{"type":"tool_use","name":7},
        {"type":"tool_use ","name":"d","input":{}}]"""

    assert told(anthropic_calls(Raw(content))) == [
        'content[1]: a {"x": 1,"x":2}',
        "content[2]: b {}",
        "content[3]: c mcp__hub__c {}",
        "content[4]:  {}",
        "content[5]: d {}",
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("read", "{}", None),
        ("", "{}", "A tool that the answer calls is not allowed: it has no name that could be judged."),
        ("pay", '{"amount":7}', None),
        ("drop", "{}", "The tool drop that the answer calls is not allowed: the policy denies its name."),
        ("Drop", "{}", "The tool Drop that the answer calls is not allowed: the policy denies its name."),
        ("d\u200brop", "{}", "A tool that the answer calls is not allowed: the policy denies its name."),
        (
            "pay",
            '{"amount":100.00000000000000000001}',
            "The tool pay that the answer calls is not allowed: its argument amount is more than the policy allows.",
        ),
    ],
)
def test_what_is_told(name: str, arguments: str, expected: str | None) -> None:
    """The rule, the place, and a name that looks like one; no argument, and nothing that could be a sentence."""
    calls = openai_calls([{"message": {"tool_calls": [{"function": {"name": name, "arguments": arguments}}]}}])

    failure = denied_call(calls, TERMS)

    assert (failure and failure.public_message) == expected
    if failure is not None:
        assert (failure.told.code, failure.param) == ("tool_denied", "choices[0].message.tool_calls[0]")


STRANGE: list[list[Any]] = [[{"message": {"tool_calls": [7]}}], [{"message": {"tool_calls": 7}}], [7], [{"message": 7}]]


@pytest.mark.parametrize("choices", STRANGE, ids=range(4))
def test_what_cannot_be_read(choices: list[Any]) -> None:
    """It is denied: a client may read it otherwise."""
    assert denied_call(openai_calls(choices), TERMS) is not None


def test_content_that_cannot_be_read() -> None:
    """The same of a message."""
    assert denied_call(anthropic_calls(Raw(b"[7]")), TERMS) is not None
