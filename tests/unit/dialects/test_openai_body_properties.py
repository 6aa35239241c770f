"""Whatever an Anthropic client sends: a body that strict vendors of chat completions take, or a 400 about a place."""

from __future__ import annotations

import json
import re
from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.errors import GatewayError
from tests.support.scale import examples
from tests.unit.dialects.prompts import (
    PNG,
    THOUGHT,
    assistant,
    messages_of,
    result,
    text,
    translated,
    use,
    user,
)

_ids = st.sampled_from(["a", "b", "c", "x" * 50])
_words = st.sampled_from(["", " ", "x", "y\n"])
_texts = st.builds(text, _words)
_images = st.just({"type": "image", "source": PNG})
_uses = st.builds(use, _ids, n=st.integers(-9, 9))


def _result(call_id: str) -> st.SearchStrategy[dict[str, Any]]:
    content = st.none() | _words | st.lists(_texts | _images, max_size=2)
    return st.builds(result, st.just(call_id), content, is_error=st.booleans())


@st.composite
def _histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Turns in any order; most often calls have their results, somewhere in the turn that follows."""
    turns = []
    called: list[str] = []
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            blocks = draw(st.lists(_texts | _uses | st.just(THOUGHT), max_size=4))
            called += [block["id"] for block in blocks if block["type"] == "tool_use"]
            turns.append(assistant(*blocks))
            continue
        ids = draw(st.sampled_from([called, called, called[1:], []]) | st.lists(_ids, max_size=3))
        blocks = [draw(_result(call_id)) for call_id in ids] + draw(st.lists(_texts | _images, max_size=3))
        turns.append(user(*draw(st.permutations(blocks))))
        called = []
    return turns


def _match(turns: list[dict[str, Any]]) -> bool:
    """Whether every call but one at the very end has one result right behind it, and no result is without its call."""
    speaking = [
        turn
        for turn in turns
        if any(block["type"] != "thinking" and block.get("text") != "" for block in turn["content"])
    ]
    called: list[str] = []
    for role, same in groupby(speaking, lambda turn: turn["role"]):
        blocks = [block for turn in same for block in turn["content"]]
        gave = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if role == "user" and sorted(gave) != sorted(called):
            return False
        called = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if len(set(called)) < len(called):
            return False
    return not called or turns[-1]["role"] == "assistant"


def _said(node: Any) -> str:
    """Every text under *node*, in some order."""
    if isinstance(node, dict):
        return str(node.get("text", "")) + _said(node.get("content"))
    if isinstance(node, list):
        return "".join(map(_said, node))
    return node if isinstance(node, str) else ""


@pytest.mark.fuzz
@given(_histories(), st.sampled_from(["m", "o3", "deepseek-v4-pro", "mistral-small-2603"]))
@settings(max_examples=examples(200), deadline=None)
def test_any_history_becomes_one_that_strict_vendors_take(turns: list[dict[str, Any]], model: str) -> None:
    """Roles alternate, no content is "" but a tool's, results follow their calls, and nothing said is lost."""
    try:
        messages, _ = messages_of(*turns, model=model)
    except GatewayError:
        nothing_said = not _said([turn["content"] for turn in turns])
        assert not _match(turns) or (
            nothing_said and not re.search(r'"(image|tool_use|tool_result)"', json.dumps(turns))
        )
        return

    assert _match(turns)
    for before, message in pairwise([{"role": "system"}, *messages]):
        assert before["role"] != message["role"] or message["role"] == "tool"
        assert (before["role"], message["role"]) != ("user", "tool")
        assert message["content"] or message.get("tool_calls") or message["role"] == "tool"
        assert message["content"] != "" or message["role"] == "tool"
    sent, came = json.dumps(messages), json.dumps(turns)
    assert sent.count('"type": "function"') == came.count('"tool_use"')
    assert sent.count('"type": "image_url"') == came.count('"type": "image"')
    assert sent.count('"role": "tool"') == came.count('"tool_result"')
    assert _said(messages).count("y") == _said(turns).count("y")


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | st.sampled_from(["", "x", "text", "base64"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "content", "source", "data", "name", "x"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
_BLOCK_MEMBERS = (
    "text", "source", "content", "thinking", "signature", "data", "id", "name", "input", "tool_use_id", "is_error",
    "title", "context", "cache_control",
)  # fmt: skip
_MEMBERS = (
    "system", "tools", "tool_choice", "thinking", "output_config", "output_format", "metadata", "stop_sequences",
    "temperature", "top_k", "service_tier", "inference_geo", "thread", "user",
)  # fmt: skip
_block = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["text", "image", "document", "search_result", "thinking", "redacted_thinking", "compaction", "tool_use",
             "tool_result", "server_tool_use"]
        )
    },
    optional=dict.fromkeys(_BLOCK_MEMBERS, _json),
)  # fmt: skip
_hostile = st.fixed_dictionaries(
    {},
    optional={
        "messages": st.lists(
            st.fixed_dictionaries(
                {"role": st.sampled_from(["user", "assistant", "system", "x"])},
                optional={"content": _json | st.lists(_block, max_size=3), "x": _json},
            ),
            min_size=1,
            max_size=3,
        ),
        **dict.fromkeys(_MEMBERS, _json),
    },
)  # fmt: skip


@pytest.mark.fuzz
@given(_hostile, st.sampled_from(["m", "gpt-5.4", "deepseek-v4-pro", "mistral-small-2603"]))
@settings(max_examples=examples(300), deadline=None)
def test_whatever_comes_is_refused_by_its_place_or_written(fields: dict[str, Any], model: str) -> None:
    """Wrong types anywhere are a 400 about something, never a crash."""
    try:
        body, _ = translated(model, **fields)
    except GatewayError as error:
        refused = error.kind.status, bool(error.param)
        assert refused == (400, True)
    else:
        assert body["messages"]
