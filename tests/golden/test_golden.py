"""Exchanges in the shapes that the providers document: what they are asked, what clients of either dialect get."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.providers.presets import PRESETS
from tests.golden.replay import CASES, CLIENTS, FIXTURES, replay

OTHERS = {"openai": "request.anthropic.json", "anthropic": "request.openai.json"}
BOTH = {*OTHERS.values()}
INPUTS = {"source.txt", "request.json", *BOTH}
ANSWERS = {"upstream.sse", "upstream.events", "upstream.json", "upstream_error.json"}
KINDS = {
    "openai": {"text", "tools", "reasoning", "length", "cached", "refusal", "content_filter", "error_midstream"},
    "anthropic": {
        "text", "tools", "thinking", "max_tokens", "cached", "refusal", "error_midstream", "json_mode",
        "json_json_mode", "names",
    },
    "deepseek": {"text", "tools", "reasoning", "length", "cached", "cut", "parts"},
    "gemini": {
        "text", "tools", "reasoning", "budget", "length", "cached", "refusal", "blocked", "recited", "picture",
        "schema", "choices", "malformed_call", "tool_result_unsigned", "cut", "rate_limited", "bad_key",
    },
    "groq": {"text", "tools", "reasoning", "length", "cached", "error_midstream", "parts"},
    "azure": {"text", "tools", "filtered"},
    "bedrock": {"text", "tools", "thinking", "max_tokens", "cached", "guardrail", "error_midstream", "cut"},
    "cerebras": {"text", "tools", "reasoning"},
    "fireworks": {"text", "tools"},
    "mistral": {"text", "tools", "reasoning", "model_length", "older_names"},
    "moonshot": {"text", "tools", "reasoning", "json_text"},
    "ollama": {"text", "tools", "parts"},
    "openrouter": {"text", "tools", "error_midstream"},
    "qwen": {"text", "tools", "reasoning", "older_names"},
    "together": {"text", "tools", "parts"},
    "vllm": {"text", "tools"},
    "xai": {"text", "tools", "reasoning", "json_reasoning"},
}

# What a client asks for whose dialect is not its provider's: each as a stream, and as JSON by the same name.
PAIRED = {
    "openai": {"text", "tool", "tools", "tool_result", "image", "reasoning", "refusal", "length"},
    "anthropic": {"text", "tool", "tools", "tool_result", "image", "thinking", "refusal", "max_tokens"},
    "gemini": {"text", "tool", "tools", "tool_result", "image", "reasoning", "refusal", "length", "picture", "blocked"},
    "bedrock": {"text", "tool", "tools", "tool_result", "image", "thinking", "guardrail", "max_tokens"},
}
# By what a client asks whose dialect is not its provider's: both, where the provider's is none of clients'.
ASKING = {**{name: {request} for name, request in OTHERS.items()}, "gemini": BOTH, "bedrock": BOTH}
ERRORS = {"error_first", "error_midstream", "json_error"}


@pytest.mark.parametrize("case", CASES, ids=[f"{case.parent.name}-{case.name}" for case in CASES])
def test_golden(case: Path) -> None:
    """For clients of both dialects the derived files are, byte for byte, what is derived today; no others are there."""
    derived = replay(case)

    files = {path.name: path.read_bytes() for path in case.iterdir()}
    given = {name: files.pop(name) for name in [*files] if name in INPUTS | ANSWERS}
    assert {name: _text(derived[name]) for name in derived} == {name: _text(files[name]) for name in files}
    assert set(given) >= _asking(case)
    assert len(set(given) & ANSWERS) == 1
    assert given["source.txt"].strip()


def _asking(case: Path) -> set[str]:
    """The requests by which clients of both dialects get the answer of *case*."""
    own = CLIENT_DIALECTS.get(PRESETS[case.parent.name].dialect)
    client = next((client for client, dialect in CLIENTS.items() if own is not None and dialect == own.name), None)
    return BOTH if client is None else {"request.json", OTHERS[client]}


def _text(content: bytes) -> str:
    """*content* as text, some of which is binary."""
    return content.decode("utf-8", "backslashreplace")


def test_every_kind_is_recorded() -> None:
    """Each provider has the kinds of answers that it can give."""
    recorded = {provider: {case.name for case in CASES if case.parent.name == provider} for provider in KINDS}

    assert {case.parent.name for case in CASES} == set(KINDS)
    assert [provider for provider in KINDS if not recorded[provider] >= KINDS[provider]] == []


def test_every_kind_is_translated() -> None:
    """Clients of the other dialect ask for every kind of answer, streamed and whole."""
    wanted = {name: kinds | {f"json_{kind}" for kind in kinds} | ERRORS for name, kinds in PAIRED.items()}
    there = {
        (name, request): {path.parent.name for path in (FIXTURES / name).glob(f"*/{request}")}
        for name in PAIRED
        for request in ASKING[name]
    }

    assert {place: wanted[place[0]] - cases for place, cases in there.items() if wanted[place[0]] - cases} == {}


def test_the_documents_example() -> None:
    """The stream of the documents: their very chunks, 44 weighted tokens, 0.000041 USD, their terminator."""
    frames = (FIXTURES / "openai/documents_example/client.sse").read_text().split("\n\n")
    envelope = '"id":"chatcmpl-abc","object":"chat.completion.chunk","created":1709876543,"model":"claude-sonnet-4-6"'
    texts = ("Once ", "upon a ", "time...")
    deltas = ['{"role":"assistant","content":""}', *(f'{{"content":"{text}"}}' for text in texts)]

    assert frames[:4] == [
        f'data: {{{envelope},"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}' for delta in deltas
    ]
    assert frames[4] == (
        f'data: {{{envelope},"choices":[{{"index":0,"delta":{{}},"finish_reason":"stop"}}],'
        '"usage":{"prompt_tokens":7,"completion_tokens":4,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":0}}}'
    )
    assert frames[5].startswith('data: {"_anoman":{"guardrails":')
    assert frames[5].endswith(
        '},"id":"chatcmpl-abc","object":"anoman.metadata","created":1709876543,"model":"claude-sonnet-4-6",'
        '"choices":[{"index":0,"delta":{},"finish_reason":null}]}'
    )
    extension = json.loads(frames[5][6:])["_anoman"]
    assert (extension["cost_usd"], extension["weighted_tokens"]) == ("0.000041", 44)
    assert extension["routing"]["mode"] == "realtime"
    assert frames[6:] == ["data: [DONE]", ""]
