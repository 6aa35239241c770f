"""Which calls may be continued, and what is asked then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gateway.core.call import Call, CallOptions
from gateway.core.catalog import ClientDialectName, DialectName, Model, Provider, Route
from gateway.core.money import Price, Weight
from gateway.dialects.continuation import can_go_on, continued, seam_of
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.providers.quirks import fold_max_completion_tokens, text_as_string
from gateway.providers.requests import build_request
from gateway.providers.traits import takes_prefill

ASKED = [{"role": "user", "content": "Hi"}]


def call(dialect: ClientDialectName = "openai_chat", **fields: Any) -> Call:
    body: dict[str, Any] = {"model": "m", "messages": ASKED, "stream": True}
    if dialect == "anthropic_messages":
        body["max_tokens"] = 100
    return CLIENT_DIALECTS[dialect].read_call(msgspec.json.encode(body | fields), CallOptions(), ())


def route(dialect: DialectName, model: str = "m") -> Route:
    return Route(Provider("p", dialect, "https://p.test", "cloud_direct", "US", Weight(1, 1)), model)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0.2, "stop": ["x"], "seed": 1, "user": "u", "stream_options": {"include_usage": True}},
        {"n": 1, "tools": [], "response_format": {"type": "text"}, "logprobs": False, "logit_bias": {}},
        {"n": None, "tools": None, "response_format": None, "functions": None, "audio": None},
    ],
)
def test_sound(fields: dict[str, Any]) -> None:
    """Members that do no harm, and those that ask for nothing, are no reason against going on."""
    assert seam_of(call(**fields)) is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"tools": [{"type": "function"}]},
        {"functions": [{"name": "f"}]},
        {"response_format": {"type": "json_object"}},
        {"logprobs": True},
        {"audio": {"voice": "x"}},
        {"web_search_options": {}},
        {"prediction": {"type": "content", "content": "x"}},
        {"invented_tomorrow": 0},
    ],
)
def test_not_sound(fields: dict[str, Any]) -> None:
    """Anything else is one, also what nobody here has heard of."""
    assert seam_of(call(**fields)) is None


@pytest.mark.parametrize("thinking", [{"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}])
def test_thinking(thinking: dict[str, Any]) -> None:
    """A model that thinks takes no beginning of its answer; one that was told not to does."""
    assert seam_of(call("anthropic_messages", thinking=thinking)) is None
    assert seam_of(call("anthropic_messages", thinking={"type": "disabled"}, system="Be brief.")) is not None


def test_what_is_left() -> None:
    """There has to be something left of the limit, and the beginning of the answer has to be the provider's alone."""
    begun = [*ASKED, {"role": "assistant", "content": "Well,"}]

    assert can_go_on(call(max_tokens=10), 9)
    assert not can_go_on(call(max_tokens=10), 10)
    assert not can_go_on(call(max_completion_tokens=10, max_tokens=None), 11)
    assert can_go_on(call(), 10_000)
    assert not can_go_on(call(messages=begun), 1)


@pytest.mark.parametrize(
    ("dialect", "provider", "prefix"),
    [
        ("openai_chat", "openai_chat", True),
        ("openai_chat", "anthropic_messages", False),
        ("anthropic_messages", "anthropic_messages", False),
        ("anthropic_messages", "openai_chat", False),
    ],
)
def test_what_is_asked(dialect: ClientDialectName, provider: DialectName, prefix: bool) -> None:
    """The call, byte for byte but for the limit, and the text as the assistant's turn; marked where that is native."""
    old = call(dialect, max_tokens=100, temperature=0.5)

    new = continued(old, "Once upon \n", 40, route(provider))

    (*before, last) = msgspec.json.decode(new.fields["messages"])
    assert (before, last.pop("prefix", False)) == (ASKED, prefix)
    assert last == {"role": "assistant", "content": "Once upon"}
    assert bytes(new.fields["max_tokens"]) == b"60"
    same = old.fields.keys() - {"messages", "max_tokens"}
    assert {name: bytes(new.fields[name]) for name in same} == {name: bytes(old.fields[name]) for name in same}
    assert new.slug == old.slug


@pytest.mark.parametrize(
    ("dialect", "model", "takes"),
    [
        ("openai_chat", "mistral-large-latest", True),
        ("openai_chat", "gpt-4o", False),
        ("openai_chat", "claude-haiku-4-5", False),
        ("anthropic_messages", "claude-haiku-4-5-20251001", True),
        ("anthropic_messages", "claude-3-5-sonnet-20241022", True),
        ("anthropic_messages", "claude-opus-4-20250514", True),
        ("anthropic_messages", "claude-sonnet-4-6", False),
        ("anthropic_messages", "claude-opus-5", False),
        ("anthropic_messages", "mistral-large-latest", False),
        ("bedrock_converse", "us.anthropic.claude-haiku-4-5-20251001-v1:0", True),
        ("bedrock_converse", "anthropic.claude-sonnet-4-6", False),
        ("bedrock_converse", "mistral.mistral-large-2407-v1:0", False),
        ("openai_chat", "gemini-2.5-pro", False),
        ("gemini_content", "gemini-2.5-pro", False),
    ],
)
def test_who_takes_the_beginning_of_an_answer(dialect: DialectName, model: str, takes: bool) -> None:
    """Mistral's models by their own API, Claude's up to 4.5 by Anthropic's and Amazon's; nobody else is asked."""
    assert takes_prefill(route(dialect, model)) is takes


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic_messages"])
def test_what_amazon_is_asked(dialect: ClientDialectName) -> None:
    """Claude on Bedrock gets the text so far as the last turn, and no note tells of what the client did not say."""
    where = route("bedrock_converse", "us.anthropic.claude-haiku-4-5-20251001-v1:0")
    model = Model("m", "mid", Weight(1, 1), Price(1, 1, 1, 1), (where,), context_window=1000)

    request = build_request(continued(call(dialect, max_tokens=100), "Once upon ", 40, where), where, model)

    body = msgspec.json.decode(request.body)
    assert body["messages"][-1] == {"role": "assistant", "content": [{"text": "Once upon"}]}
    assert body["inferenceConfig"]["maxTokens"] == 60
    assert not any(place.startswith("messages") for place in request.params.translated + request.params.dropped)


def test_quirks_of_the_next_vendor() -> None:
    """The next vendor gets what it takes: the rest of the limit by its older name, and texts as strings."""
    provider = replace(route("openai_chat").provider, quirks=(text_as_string, fold_max_completion_tokens))
    to = Route(provider, "m")
    asked = call(messages=[{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], max_completion_tokens=100)
    model = Model("m", "mid", Weight(1, 1), Price(1, 1, 1, 1), (to,), context_window=1, max_output_tokens=60)

    request = build_request(continued(asked, "Once ", 10, to), to, model)

    body = msgspec.json.decode(request.body)
    begun = {"role": "assistant", "content": "Once", "prefix": True}
    assert body["messages"] == [{"role": "user", "content": "Hi"}, begun]
    assert body["max_tokens"] == 60
    assert request.params.translated == ("max_completion_tokens", "messages[0].content")
