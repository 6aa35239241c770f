"""Lanes whose two ends speak different dialects, a whole answer of each provider, and what a client makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.dialects.base import Lane
from gateway.dialects.pairs import open_lane
from tests.support.notation import (
    CBD,
    CBJ,
    CBS,
    CBX,
    DONE,
    FIN,
    MD,
    MS,
    MX,
    PING,
    TC,
    R,
    T,
    U,
    chunk,
    event,
)
from tests.unit.dialects.conversations import (
    Heard,
    anthropic_call,
    check_anthropic,
    check_openai,
    hear,
    journey,
    openai_call,
)


def to_chat(**rules: Any) -> Lane:
    """A lane from an Anthropic provider to a client of OpenAI's dialect."""
    return open_lane(journey(openai_call(), speaks="anthropic_messages", **rules))


def to_messages(**rules: Any) -> Lane:
    """A lane from an OpenAI provider to a client of Anthropic's dialect."""
    return open_lane(journey(anthropic_call(), speaks="openai_chat", **rules))


WAYS = {"to_chat": (to_chat, check_openai), "to_messages": (to_messages, check_anthropic)}
LANE = {"to_chat": to_chat, "to_messages": to_messages}


def translate(way: str, *reads: bytes, **rules: Any) -> Heard:
    """What the client hears, checked for everything that must hold of any output."""
    heard = hear(LANE[way](**rules), reads)
    WAYS[way][1](heard)
    return heard


@dataclass
class Told:
    """What a client makes of its frames: texts by kind, calls by place, how it ended."""

    text: str = ""
    thought: str = ""
    refusal: str = ""
    calls: dict[int, list[str]] = field(default_factory=dict)
    reason: str | None = None


def told(heard: Heard) -> Told:
    """*heard* put together as an SDK would."""
    out = Told()
    for item in heard.items:
        if isinstance(item, dict):
            (_tell_chunk if "choices" in item else _tell_event)(out, item)
    return out


def _tell_chunk(out: Told, item: dict[str, Any]) -> None:
    for choice in item["choices"]:
        delta = choice["delta"]
        out.text += delta.get("content") or ""
        out.thought += delta.get("reasoning_content") or ""
        out.refusal += delta.get("refusal") or ""
        for call in delta.get("tool_calls") or ():
            name = call["function"].get("name")
            if name is not None:
                assert call["index"] == len(out.calls)
                out.calls[call["index"]] = [call["id"], name, ""]
            out.calls[call["index"]][2] += call["function"]["arguments"]
        out.reason = choice.get("finish_reason") or out.reason


def _tell_event(out: Told, item: dict[str, Any]) -> None:
    block, delta = item.get("content_block") or {}, item.get("delta") or {}
    if block.get("type") == "tool_use":
        out.calls[item["index"]] = [block["id"], block["name"], ""]
    out.text += delta.get("text") or ""
    out.thought += delta.get("thinking") or ""
    if "partial_json" in delta:
        out.calls[item["index"]][2] += delta["partial_json"]
    out.reason = delta.get("stop_reason") or out.reason


# One answer of each provider with all there is: thinking, text, two calls, counts.
ANTHROPIC = [
    MS(20, 1, cache_read_input_tokens=4, cache_creation_input_tokens=2),
    PING,
    CBS(0, "thinking"),
    event("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": {"thinking": "hm"}}),
    event("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": {"signature": "sig"}}),
    CBX(0),
    CBS(1),
    CBD(1, "Once "),
    CBD(1, "北🦀"),
    CBX(1),
    CBS(2, "tool_use", name="f"),
    CBJ(2, '{"a":'),
    CBJ(2, "1}"),
    CBX(2),
    CBS(3, "tool_use", name="now"),
    CBX(3),
    MD("tool_use", {"output_tokens": 30, "output_tokens_details": {"thinking_tokens": 8}}),
    MX,
]
OPENAI = [
    R(),
    chunk({"reasoning_content": "hm"}),
    T("Once "),
    T("北🦀"),
    TC(0, name="f"),
    TC(0, '{"a":'),
    TC(0, "1}"),
    TC(1, name="now"),
    FIN("tool_calls"),
    U(26, 30, prompt_tokens_details={"cached_tokens": 4}, completion_tokens_details={"reasoning_tokens": 8}),
    DONE,
]
ANSWERS = {"to_chat": ANTHROPIC, "to_messages": OPENAI}
LAST = {"to_chat": MX, "to_messages": FIN("tool_calls")}  # what makes the answer complete

both_ways = pytest.mark.parametrize("way", ["to_chat", "to_messages"])
