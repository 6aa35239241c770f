"""Lanes from Bedrock to a client of either dialect, a whole answer of it, and calls as it gets them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.core.call import CallOptions
from gateway.core.catalog import ClientDialectName
from gateway.dialects.base import Lane
from gateway.dialects.bedrock_converse import BEDROCK_CONVERSE
from gateway.dialects.neutral import Notes, Target
from gateway.dialects.pairs import open_lane
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.providers.traits import traits_of
from tests.support.bedrock import START, argues, begins, closes, metadata, stop, text
from tests.support.eventstream import event
from tests.unit.dialects.conversations import (
    Heard,
    anthropic_call,
    check_anthropic,
    check_openai,
    hear,
    journey,
    openai_call,
)

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
ADAPTIVE = "global.anthropic.claude-opus-4-6-v1"
OTHER = "meta.llama3-3-70b-instruct-v1:0"
CLIENTS: tuple[ClientDialectName, ...] = ("openai_chat", "anthropic_messages")
each_client = pytest.mark.parametrize("client", CLIENTS)


def lane(client: ClientDialectName, **rules: Any) -> Lane:
    """A lane from Bedrock to a *client*."""
    call = openai_call() if client == "openai_chat" else anthropic_call()
    return open_lane(journey(call, speaks="bedrock_converse", **rules))


def translate(client: ClientDialectName, *reads: bytes, **rules: Any) -> Heard:
    """What the client hears, checked for everything that must hold of any output."""
    heard = hear(lane(client, **rules), reads)
    (check_openai if client == "openai_chat" else check_anthropic)(heard)
    return heard


def thinks(piece: dict[str, str], index: int = 0) -> bytes:
    """A piece of reasoning, its signature, or ciphertext."""
    return event("contentBlockDelta", {"contentBlockIndex": index, "delta": {"reasoningContent": piece}})


# One answer with all there is: reasoning, text, two calls, counts.
ANSWER = [
    START,
    thinks({"text": "hm"}),
    thinks({"signature": "sig"}),
    closes(0),
    text("Once ", 1),
    text("北🦀", 1),
    closes(1),
    begins("c1", "f", 2),
    argues('{"a":', 2),
    argues("1}", 2),
    closes(2),
    begins("c2", "now", 3),
    closes(3),
    stop("tool_use"),
    metadata(14, 30, cacheReadInputTokens=4, cacheWriteInputTokens=2),
]


@dataclass
class Written:
    """What Bedrock gets, and what the client is told of it."""

    body: dict[str, Any]
    translated: list[str]
    dropped: list[str]

    def __getitem__(self, name: str) -> Any:
        return self.body[name]

    def get(self, name: str) -> Any:
        """A member that may not be there."""
        return self.body.get(name)


def written(
    client: ClientDialectName,
    model: str = CLAUDE,
    limit: int | None = 64_000,
    headers: tuple[tuple[str, str], ...] = (),
    **fields: Any,
) -> Written:
    """A call of a *client* with *fields* and *headers*, as the body for *model*."""
    base: dict[str, Any] = {"model": "ours", "messages": [{"role": "user", "content": "Hi"}]}
    if client == "anthropic_messages":
        base["max_tokens"] = 100
    dialect = CLIENT_DIALECTS[client]
    call = dialect.read_call(json.dumps({**base, **fields}).encode(), CallOptions(), headers)
    notes = Notes()
    target = Target(model, stream=False, max_output_tokens=limit, traits=traits_of(model))
    body = BEDROCK_CONVERSE.write_body(dialect.read_prompt(call), target, notes)
    return Written(json.loads(body), notes.translated, notes.dropped)
