"""What must be called has to be there, whoever asks whom."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.catalog import ClientDialectName, DialectName
from gateway.core.errors import GatewayError
from gateway.dialects.neutral import Target
from gateway.dialects.pairs import translated_body
from gateway.dialects.registry import CLIENT_DIALECTS, DIALECTS
from tests.unit.dialects.conversations import anthropic_call, openai_call

CALLS = {"openai_chat": openai_call, "anthropic_messages": anthropic_call}
PAIRS = [(client, provider) for client in CLIENT_DIALECTS for provider in DIALECTS if client != provider]
TOOLS: dict[str, Any] = {
    "openai_chat": [{"type": "function", "function": {"name": "now"}}],
    "anthropic_messages": [{"name": "now", "input_schema": {"type": "object"}}],
}
NAMED: dict[str, Any] = {
    "openai_chat": {"type": "function", "function": {"name": "then"}},
    "anthropic_messages": {"type": "tool", "name": "then"},
}
ANY: dict[str, Any] = {"openai_chat": "required", "anthropic_messages": {"type": "any"}}


def refusal(client: ClientDialectName, provider: DialectName, **fields: Any) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        translated_body(CALLS[client](**fields), DIALECTS[provider], Target("m", stream=False))
    assert caught.value.kind.status == 400
    return caught.value


@pytest.mark.parametrize(("client", "provider"), PAIRS)
def test_what_must_be_called_is_there(client: ClientDialectName, provider: DialectName) -> None:
    """A choice of a tool that is not there, or of any where there is none, is refused by its place."""
    missing = refusal(client, provider, tools=TOOLS[client], tool_choice=NAMED[client])
    none = [refusal(client, provider, tool_choice=choice[client]) for choice in (NAMED, ANY)]

    assert missing.message == "tool_choice: there is no tool of that name among the tools."
    assert [each.message for each in none] == ["tool_choice asks for a tool, but there are no tools."] * 2
    assert {each.param for each in (missing, *none)} == {"tool_choice"}


def test_the_deprecated_choice_is_told_by_its_own_name() -> None:
    """A client that sends `function_call` hears of that."""
    error = refusal("openai_chat", "anthropic_messages", functions=[{"name": "now"}], function_call={"name": "then"})

    assert error.param == "function_call"
