"""Catalogue and length, seen from outside: what is listed, what is suggested, what is refused before it is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.acts import status
from tests.support.config import model
from tests.support.gateway import CHAT, MESSAGES
from tests.support.notation import data, json_answer
from tests.wire.desk import BOTH, Desk, error_of, open_desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROSE = "The quick brown fox jumps over the lazy dog. "  # 11 tokens


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    """A file of two models beside what is shipped; the small ones have 2,000 tokens of context."""
    small = {
        "small": model("fake-openai/small", context_window=2_000),
        "small-claude": model("fake-anthropic/small-claude", context_window=2_000),
        "gpt-4o": {"class": "budget"},
    }
    async with open_desk(catalogue={"shipped": True}, models=small) as desk:
        yield desk


async def test_shipped_models_are_listed(desk: Desk) -> None:
    """`GET /v1/models` has the shipped models of the configured presets, with what the file changed."""
    models = (await desk.gateway.client().request("GET", "/v1/models")).json["data"]

    facts = {entry["id"]: entry["_anoman"] for entry in models}
    assert (facts["gpt-4o"]["class"], facts["gpt-4o-mini"]["class"]) == ("budget", "budget")
    assert (facts["claude-sonnet-4-6"]["class"], facts["claude-sonnet-4-6"]["batch"]) == ("mid", True)
    assert "grok-4.7" not in facts


async def test_a_shipped_model_is_called(desk: Desk) -> None:
    """It is asked at the provider of its preset, by the vendor's name, and costs the shipped price."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010}

    reply = await desk.ask([json_answer("Hi", usage=usage)], model="gpt-4o", stream=False)

    assert reply.status == 200
    assert desk.provider.requests[-1].json["model"] == "gpt-4o"
    assert reply.json["_anoman"]["cost_usd"] == "0.002600"  # 1000 x 2.50 + 10 x 10.00 USD per million


@pytest.mark.parametrize("path", BOTH)
async def test_a_near_name_is_suggested(desk: Desk, path: str) -> None:
    """A misspelt model is refused with the name that was meant."""
    reply = await desk.ask(path=path, model="claude-sonet-4.6")

    assert (reply.status, error_of(reply)["code"]) == (400, "model_not_found")
    assert "Did you mean claude-sonnet-4-6" in error_of(reply)["message"]


@pytest.mark.parametrize(("path", "name"), [(CHAT, "small"), (MESSAGES, "small-claude")])
async def test_too_long_before_the_call(desk: Desk, path: str, name: str) -> None:
    """A prompt that surely exceeds the window is refused in the endpoint's envelope, and nobody is asked."""
    asked = len(desk.provider.requests)
    answer = json_answer("Hi", dialect="openai" if path == CHAT else "anthropic")

    refused = await desk.ask([answer], path=path, model=name, text=PROSE * 1_000, stream=False)
    passed = await desk.ask([answer], path=path, model=name, text=PROSE * 300, stream=False)

    assert (refused.status, error_of(refused)["code"]) == (400, "context_length_exceeded")
    assert error_of(refused)["message"].startswith("prompt is too long: at least ")
    assert (passed.status, len(desk.provider.requests)) == (200, asked + 1)


@pytest.mark.parametrize(("path", "name"), [(CHAT, "small-claude"), (MESSAGES, "small")])
async def test_too_long_after_the_call(desk: Desk, path: str, name: str) -> None:
    """A provider's refusal has the same code by the endpoint of the other dialect too."""
    words = "This model's maximum prompt length is 131072 but the request contains 537812 tokens."

    reply = await desk.ask([status(400, (), {"error": {"message": words}})], path=path, model=name)

    assert (reply.status, error_of(reply)["code"]) == (400, "context_length_exceeded")
    assert words in error_of(reply)["message"]


@pytest.mark.parametrize(("path", "name"), [(CHAT, "small"), (MESSAGES, "small")])
async def test_too_long_inside_a_200(desk: Desk, path: str, name: str) -> None:
    """An error in the first event of a stream is a plain 400 as well when it is about the prompt's length."""
    words = "This endpoint's maximum context length is 8192 tokens. However, you requested about 9000 tokens."

    reply = await desk.ask([data({"error": {"message": words, "code": 400}})], path=path, model=name)

    assert (reply.status, error_of(reply)["code"]) == (400, "context_length_exceeded")
