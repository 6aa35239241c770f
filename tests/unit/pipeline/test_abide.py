"""A call that offers a denied tool is refused before a provider is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gateway.core.call import CallOptions
from gateway.core.errors import GatewayError
from gateway.core.exchange import Exchange
from gateway.core.guarding import Rules, ToolTerms, Verdict
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.pipeline.stages.abide import Abide
from tests.unit.pipeline.scene import Scene, turns_during


def exchange(tools: list[Any], terms: ToolTerms) -> Exchange:
    asked = Scene().exchange
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    asked.call = CLIENT_DIALECTS["openai_chat"].read_call(msgspec.json.encode(body), CallOptions(), ())
    asked.key = replace(asked.key, rules=Rules({}, tools=terms))
    return asked


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


async def test_a_denied_tool() -> None:
    """The error names the first place and the kind of rule, and nothing that the caller wrote."""
    asked = exchange([function("read"), function("drop_all")], ToolTerms(deny=("drop_*",)))

    with pytest.raises(GatewayError) as caught:
        await Abide().admit(asked)

    error = caught.value
    assert (error.kind.code, error.kind.status, error.param) == ("tool_denied", 403, "tools[1]")
    assert error.message == "tools[1]: The tool is not allowed: the policy denies its name."
    assert asked.verdicts == {"policy": Verdict("block", place="tools[1]")}


@pytest.mark.parametrize("terms", [ToolTerms(), ToolTerms((("read",),)), ToolTerms(deny=("drop_*",))])
async def test_allowed_tools(terms: ToolTerms) -> None:
    """What the policy allows passes, and all where it says nothing."""
    asked = exchange([function("read")], terms)

    assert await Abide().admit(asked) is None
    assert asked.verdicts == ({} if terms.is_open else {"policy": Verdict("pass")})


async def test_others_are_served_meanwhile() -> None:
    """Thousands of tools are judged in pieces, between which the loop turns."""
    tools = [function(f"read_{number}") for number in range(5_000)]

    turns = await turns_during(Abide().admit(exchange(tools, ToolTerms((("read_*",),)))))

    assert turns > 20
