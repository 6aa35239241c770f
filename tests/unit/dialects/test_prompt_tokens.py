"""Our own count of a prompt: what counts, and what does not."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.call import Call, CallOptions
from gateway.dialects.families import ANY_FAMILY, Family
from gateway.dialects.prompt_tokens import PAGE_TOKENS, prompt_tokens
from gateway.dialects.registry import DIALECTS
from gateway.dialects.tokens import count_prompt

SEEN: Family = Family(2.0, lambda width, height, detail: 1000 * width + height + 100_000 * (detail == "low"), tools=346)
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 40, 30) + bytes(500_000)).decode()
JPEG = base64.b64encode(
    b"\xff\xd8\xff\xe1\x40\x00" + bytes(0x3FFE) + b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", 30, 40) + bytes(9000)
).decode()
ANTHROPIC_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
LINKED = {"type": "image", "source": {"type": "url", "url": "https://pictures.example/1.png"}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "A" * 200_000}}
Json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "text", "content", "source", "data", "image_url", "url", "file", "input", "name"]),
        inner | st.sampled_from(["image", "image_url", "document", "file", "base64", "content", "text"]),
        max_size=4,
    ),
    max_leaves=12,
)


def call(content: Any, **fields: Any) -> Call:
    body = {"model": "m", "messages": [{"role": "user", "content": content}], **fields}
    return DIALECTS["openai_chat"].read_call(json.dumps(body).encode(), CallOptions(), ())


def tokens(content: Any, family: Family = ANY_FAMILY, **fields: Any) -> int:
    return prompt_tokens(call(content, **fields), family)


def test_texts_of_all_kinds_are_counted() -> None:
    """Instructions, turns, thoughts, calls and results: each text once, by the family's factor."""
    said = [
        {"type": "text", "text": "one"},
        {"type": "thinking", "thinking": "two", "signature": "c2ln"},
        {"type": "tool_use", "id": "toolu_1", "name": "three", "input": {"city": "Jakarta"}},
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "four"}]},
        {"type": "search_result", "title": "five", "source": "https://x.example", "content": []},
    ]
    texts = ["system", "one", "two", "three", '{"city":"Jakarta"}', "four", "five"]

    assert tokens(said, system="system") == count_prompt(texts)
    assert tokens(said, Family(2.0), system="system") == 2 * count_prompt(texts)


def test_calls_of_openai_are_counted() -> None:
    """Name and arguments of a call; not its id, nor the name of a message's author."""
    turn = {"role": "assistant", "name": "ani", "content": None, "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}]}  # fmt: skip

    assert tokens("x", messages=[turn]) == count_prompt(["{}", "now"])


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        pytest.param(ANTHROPIC_IMAGE, 40_030, id="source"),
        pytest.param(LINKED, 1000 * 1024 + 1024, id="linked"),
        pytest.param({"type": "image", "source": {"type": "file", "file_id": "f"}}, 1000 * 1024 + 1024, id="kept"),
        pytest.param({"type": "image"}, 1000 * 1024 + 1024, id="nothing"),
        pytest.param({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}, 40_030, id="data"),
        pytest.param({"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{JPEG}"}}, 40_030, id="jpeg"),
        pytest.param({"type": "image_url", "image_url": f"data:image/png;base64,{PNG}"}, 40_030, id="bare url"),
        pytest.param(
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}},
            140_030,
            id="rough",
        ),
        pytest.param(
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": ["low"]}},
            40_030,
            id="no detail",
        ),
        pytest.param({"type": "image_url", "image_url": {"url": "data:image/png;base64,!!"}}, 1_025_024, id="odd"),
    ],
)
def test_a_picture_counts_by_its_size(part: dict[str, Any], expected: int) -> None:
    """The family's rule decides, by the size in the header; one that cannot be read stands for 1024 x 1024."""
    assert tokens([part], SEEN) == expected


def test_a_picture_in_a_tool_result_counts() -> None:
    """Wherever it stands."""
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [ANTHROPIC_IMAGE]}

    assert tokens([result], SEEN) == 40_030


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (PDF, 4 * PAGE_TOKENS),
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}}, PAGE_TOKENS),
        ({"type": "file", "file": {"file_id": "f"}}, PAGE_TOKENS),
        ({"type": "document", "source": {"type": "url", "url": "https://x.example/a.pdf"}}, PAGE_TOKENS),
        ({"type": "document", "source": {"type": "text", "data": "words"}, "title": "T"}, count_prompt(["T", "words"])),
        ({"type": "document", "source": {"type": "content", "content": "words"}}, count_prompt(["words"])),
    ],
)
def test_documents_count(part: dict[str, Any], expected: int) -> None:
    """A PDF by its length, at least a page; a text by its words."""
    assert tokens([part]) == expected


def test_tools_count_with_their_instructions() -> None:
    """Definitions are text; the family's own instructions for calling come with the first of them."""
    tools = [{"type": "function", "function": {"name": "now"}}]
    sent = json.dumps(tools)

    assert tokens("x", SEEN, tools=tools) == 2 * count_prompt(["x", sent]) + 346
    assert tokens("x", SEEN, functions=tools) == tokens("x", SEEN, tools=tools)
    assert tokens("x", SEEN, tools=[]) == tokens("x", SEEN)


@given(Json)
def test_h_nothing_is_believed(content: Any) -> None:
    """Content of any shape is counted as far as it says anything; none raises."""
    assert tokens(content) >= 0
