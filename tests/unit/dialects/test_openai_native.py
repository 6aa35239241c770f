"""What is changed in every body that stays in OpenAI's dialect: empty lists, and limits above the model's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.call import CallOptions
from gateway.core.catalog import Provider
from gateway.core.money import parse_weight
from gateway.dialects.neutral import Target
from gateway.dialects.openai_chat import read_call
from gateway.dialects.pairs import native_body

PROVIDER = Provider("p", "openai_chat", "https://p.test", "cloud_direct", "US", parse_weight("1"))
HI = {"role": "user", "content": "Hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f"}}


def sent(limit: int | None = None, **fields: Any) -> tuple[Any, tuple[str, ...]]:
    """What the provider is asked, without `model`, and what is noted as translated."""
    call = read_call(json.dumps({"model": "m", "messages": [HI], **fields}).encode(), CallOptions(), ())
    body, params = native_body(call, PROVIDER, Target("theirs", stream=False, max_output_tokens=limit))
    assert params.dropped == ()
    out = json.loads(body)
    assert out.pop("model") == "theirs"
    return out, params.translated


@pytest.mark.parametrize("nothing", [[], None])
@pytest.mark.parametrize("name", ["tools", "functions"])
def test_no_tools(name: str, nothing: object) -> None:
    """TR-34: an empty list of tools goes, and with it what would have been said of their use; it said nothing."""
    uses = {"tool_choice": "auto", "function_call": "none", "parallel_tool_calls": True}

    assert sent(**{name: nothing}, **uses) == ({"messages": [HI]}, ())


def test_tools_of_the_other_kind() -> None:
    """With tools by the other name, or a wish for one that is not there, the rest stays as it was said."""
    named = {"type": "function", "function": {"name": "f"}}

    assert sent(functions=[], tools=[TOOL], tool_choice="auto") == (
        {"messages": [HI], "tools": [TOOL], "tool_choice": "auto"},
        (),
    )
    assert sent(tools=[], tool_choice=named) == ({"messages": [HI], "tool_choice": named}, ())
    assert sent(tools=[], tool_choice="required") == ({"messages": [HI], "tool_choice": "required"}, ())
    assert sent(tool_choice="auto") == ({"messages": [HI], "tool_choice": "auto"}, ())


@pytest.mark.parametrize("nothing", [b"[]", b"[ \n ]", b"null"])
def test_no_calls(nothing: bytes) -> None:
    """TR-34: empty `tool_calls` of a message go; its other members, and other messages, keep their bytes."""
    said = b'{"role":"assistant","content" : "\\u00e9 \\"tool_calls\\":[]","x":1.50'
    body = b'{"model":"m","messages":[ {"role":"user","content":"a" } ,%b,"tool_calls" :%b}]}' % (said, nothing)
    call = read_call(body, CallOptions(), ())

    out, params = native_body(call, PROVIDER, Target("theirs", stream=False))

    kept = b'{"role":"assistant","content":"\\u00e9 \\"tool_calls\\":[]","x":1.50}'
    assert out == b'{"model":"theirs","messages":[{"role":"user","content":"a" },%b]}' % kept
    assert params.translated == ()


def test_calls() -> None:
    """Messages with calls are not touched: the very bytes of all messages go on."""
    messages = b'[ {"role" : "assistant", "tool_calls" : [%b]}, {"role":"tool","content":"","tool_call_id":"c"} ]'
    messages %= json.dumps(CALL).encode()
    call = read_call(b'{"model":"m","messages":%b}' % messages, CallOptions(), ())

    out, _ = native_body(call, PROVIDER, Target("theirs", stream=False))

    assert messages in out


@pytest.mark.parametrize("odd", [7, "x", {}, [7], [None], [[]], [{}], False])
def test_odd_calls(odd: object) -> None:
    """What is neither calls nor nothing is for the provider to refuse."""
    message = {"role": "assistant", "content": "a", "tool_calls": odd}

    assert sent(messages=[message, HI]) == ({"messages": [message, HI]}, ())


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_limits(name: str) -> None:
    """TR-22: a limit above the model's is lowered to it and noted; any other goes on as it is."""
    assert sent(16, **{name: 10_000_000}) == ({"messages": [HI], name: 16}, (name,))
    assert sent(16, **{name: 16}) == ({"messages": [HI], name: 16}, ())
    assert sent(16, **{name: None}) == ({"messages": [HI], name: None}, ())
    assert sent(None, **{name: 10_000_000}) == ({"messages": [HI], name: 10_000_000}, ())


def test_both_limits() -> None:
    """Each of two limits is lowered by itself."""
    assert sent(16, max_tokens=99, max_completion_tokens=7) == (
        {"messages": [HI], "max_tokens": 16, "max_completion_tokens": 7},
        ("max_tokens",),
    )
