"""What becomes of a call after the traits of the model that gets it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from gateway.core.catalog import DialectName, Model, Provider, Route
from gateway.core.money import Price, Weight
from gateway.providers.presets import azure_path
from gateway.providers.requests import build_request
from gateway.providers.traits import traits_of
from tests.unit.dialects.conversations import anthropic_call
from tests.unit.dialects.prompts import translated

ONE = Weight(1, 1)


@pytest.mark.parametrize(
    ("model", "asked", "expected"),
    [
        ("qwen3.6-plus", {"type": "enabled", "budget_tokens": 4000}, {"enable_thinking": True}),
        ("qwen-plus", {"type": "adaptive"}, {"enable_thinking": True}),
        ("qwen-plus", {"type": "disabled"}, {"enable_thinking": False}),
        ("grok-3-mini", {"type": "enabled", "budget_tokens": 30_000}, {"reasoning_effort": "high"}),
        ("grok-4", {"type": "adaptive"}, {}),
        ("llama-3.3-70b-versatile", {"type": "adaptive"}, {}),
    ],
)
def test_thinking_is_asked_for_as_the_model_knows_it(model: str, asked: Any, expected: dict[str, Any]) -> None:
    """By a switch, by an effort, or not at all; and what became of it is noted."""
    body, notes = translated(model, thinking=asked)

    told = {name: body[name] for name in ("enable_thinking", "reasoning_effort", "thinking") if name in body}
    assert told == expected
    assert "thinking" in (notes.translated if expected else notes.dropped)


def test_grok_refuses_stops() -> None:
    """They are left out, and it is said; an older one takes them."""
    body, notes = translated("grok-4", stop_sequences=["END"])
    older, _ = translated("grok-3", stop_sequences=["END"])

    assert ("stop" in body, notes.dropped) == (False, ["stop_sequences"])
    assert older["stop"] == ["END"]


def test_a_default_is_not_dropped() -> None:
    """A temperature of 1 is what a reasoning model does anyway: it is not sent, and nothing was lost."""
    (default, default_notes), (other, other_notes) = (translated("o3", temperature=value) for value in (1, 0.5))

    assert ("temperature" in default, default_notes.dropped) == (False, [])
    assert ("temperature" in other, other_notes.dropped) == (False, ["temperature"])


def body_at(path: Any, model: str) -> dict[str, Any]:
    """What a provider whose paths are made by *path* gets for the slug `gpt-5`, its own name for it being *model*."""
    dialect: DialectName = "openai_chat"
    provider = Provider("p", dialect, "https://p.example", "cloud_direct", "US", ONE, path=path)
    route = Route(provider, model)
    call = structs.replace(anthropic_call(), slug="gpt-5")
    request = build_request(call, route, Model("gpt-5", "mid", ONE, Price(1, 1, 1, 1), (route,), context_window=9))
    body: dict[str, Any] = json.loads(request.body)
    return body


def test_a_deployment_is_known_by_its_slug() -> None:
    """The name of a deployment says nothing of its model: the catalogue's does. Elsewhere the slug is no evidence."""
    deployed, hosted = body_at(azure_path, "prod-eu-2"), body_at(None, "prod-eu-2")

    assert ("max_completion_tokens" in deployed, "max_tokens" in deployed) == (True, False)
    assert ("max_completion_tokens" in hosted, "max_tokens" in hosted) == (False, True)


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-opus-6", "adaptive"),
        ("eu.anthropic.claude-saga-7-v1:0", "adaptive"),
        ("claude-sonnet-4-5-20250929", "budget"),
        ("claude-opus-4-20250514", "budget"),
        ("anthropic.claude-v2:1", "budget"),
        ("claude-opus-4@20250514", "budget"),
        ("claude-3.7-sonnet", "budget"),
        ("claude-sonnet-4", "budget"),
        ("claude-opus-4", "budget"),
        ("claude-opus-4.8", "adaptive"),
    ],
)
def test_a_claude_that_nobody_knows_is_a_new_one(model: str, thinking: str) -> None:
    """It gets what the newest take, as they refuse a budget; those that take nothing else are known by name."""
    assert traits_of(model).thinking == thinking
