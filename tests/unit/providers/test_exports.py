"""Usage exports of providers, by their documented forms, and our own neutral table."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.reconciling import Counted
from gateway.providers.exports import BadExport, read_export

# The example of OpenAI's API reference, "Usage: completions", asked for with group_by=model.
OPENAI: dict[str, Any] = {
    "object": "page",
    "data": [
        {
            "object": "bucket", "start_time": 1730419200, "end_time": 1730505600,
            "results": [
                {
                    "object": "organization.usage.completions.result", "input_tokens": 1000, "output_tokens": 500,
                    "input_cached_tokens": 800, "input_audio_tokens": 0, "output_audio_tokens": 0,
                    "num_model_requests": 5, "project_id": None, "user_id": None, "api_key_id": None,
                    "model": "gpt-4o-2024-08-06", "batch": None,
                }
            ],
        }
    ],
    "has_more": True, "next_page": "page_x",
}  # fmt: skip
# That of Anthropic's, "Get Messages Usage Report".
ANTHROPIC: dict[str, Any] = {
    "data": [
        {
            "starting_at": "2025-08-01T00:00:00Z", "ending_at": "2025-08-02T00:00:00Z",
            "results": [
                {
                    "uncached_input_tokens": 1500,
                    "cache_creation": {"ephemeral_1h_input_tokens": 1000, "ephemeral_5m_input_tokens": 500},
                    "cache_read_input_tokens": 200, "output_tokens": 500,
                    "server_tool_use": {"web_search_requests": 10},
                    "api_key_id": None, "workspace_id": None, "model": "claude-sonnet-4-20250514",
                    "service_tier": "standard", "context_window": "0-200k",
                }
            ],
        }
    ],
    "has_more": False, "next_page": None,
}  # fmt: skip
OF_OPENAI = (("2024-11-01", "gpt-4o-2024-08-06"), Counted(5, 1000, 500, 800))
OF_ANTHROPIC = (("2025-08-01", "claude-sonnet-4-20250514"), Counted(None, 3200, 500, 200, 1500))


@pytest.mark.parametrize(("page", "counts"), [(OPENAI, OF_OPENAI), (ANTHROPIC, OF_ANTHROPIC)])
def test_vendors(page: Any, counts: Any) -> None:
    """A page, pages on lines, and a list of pages: prompt tokens as we count them, the cached ones included."""
    assert read_export(json.dumps(page, indent=2).encode()) == [counts]
    assert read_export(b"\n".join([json.dumps(page).encode()] * 2)) == [counts, counts]
    assert read_export(json.dumps([page, page]).encode()) == [counts, counts]


def test_the_neutral_table() -> None:
    """By id, or by day and model; a cell that is empty is not compared; amounts are exact to the nano-USD."""
    by_id = b"\xef\xbb\xbfid,prompt_tokens,cost_usd\r\nchatcmpl-1,11,0.0000975\r\nreq_2,,1e-05\r\n"
    by_day = b"day,model,requests,completion_tokens\n2026-03-01,gpt-4o,2,7\n"

    assert read_export(by_id) == [
        (("chatcmpl-1",), Counted(prompt_tokens=11, cost_nano_usd=97_500)),
        (("req_2",), Counted(cost_nano_usd=10_000)),
    ]
    assert read_export(by_day) == [(("2026-03-01", "gpt-4o"), Counted(2, completion_tokens=7))]


def test_the_neutral_lines() -> None:
    """The same as JSON lines."""
    lines = b'{"id":"a","prompt_tokens":11,"cost_usd":0.1}\n\n{"id":"b","cost_usd":"0.1234567895"}\n'

    assert read_export(lines) == [
        (("a",), Counted(prompt_tokens=11, cost_nano_usd=10**8)),
        (("b",), Counted(cost_nano_usd=123_456_790)),
    ]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no rows"), (b"\xff\xfe", "UTF-8"), (b"id\n", "no rows"), (b"{}", "Row 1: there is no 'day'"),
        (b"[]", "no rows"), (b"[1]", "Row 1: this is no object"), (b'{"id":"a"}\n{', "Line 2 is no JSON"),
        (b"id,colour\na,red\n", "'colour'"), (b"id,prompt_tokens\na,1,2\n", "Line 2"),
        (b"id,prompt_tokens\na\n", "Line 2"),
        (b"id,prompt_tokens\na,-1\n", "no count"), (b"id,prompt_tokens\na,1.5\n", "no count"),
        (b"id,prompt_tokens\na,99999999999999999999\n", "no count"), (b"id,cost_usd\na,1e999\n", "no amount"),
        (b"id,cost_usd\na,-1\n", "no amount"), (b"id,cost_usd\na,nan\n", "no amount"),
        (b"id,cost_usd\na,99999999999999999999\n", "amount"), (b"day,model\n7d,m\n", "Row 1"),
        (b"id,requests\na,1\nb,1\nc,1\n,1\n", "Row 4: the `id` is empty"),
        (b'{"id":null}', "Row 1: the `id` is empty"), (b"id,day,model\na,,\n,2026-03-01,m\n", "files of their own"),
        (b"day,model\n2026-02-30,m\n", "Row 1"), (b"day,model\n2026-03-01,\n", "'model'"),
        (b'{"id":"a\\u0000"}', "plain text"), (b'{"id":7}', "plain text"),
        (b'{"id":"a"}\n{"day":"2026-03-01","model":"m"}', "files of their own"),
        (b'{"id":"a","prompt_tokens":true}', "no count"), (b"[" * 100_000, "nested"),
        (json.dumps({"data": []}).encode(), "no counts"),
        (json.dumps(OPENAI).replace('"gpt-4o-2024-08-06"', "null").encode(), "group_by=model"),
        (json.dumps(OPENAI).replace("1730419200", '"soon"').encode(), "Row 1"),
        (json.dumps(OPENAI).replace("1730419200", "1e300").encode(), "Row 1"),
        (json.dumps(ANTHROPIC).replace("1500", "null").encode(), "no count"),
        (json.dumps(ANTHROPIC).replace("2025-08-01T00:00:00Z", "never").encode(), "Row 1"),
    ],
)  # fmt: skip
def test_what_is_none(data: bytes, said: str) -> None:
    """Anything else is refused in a sentence that says where and why."""
    with pytest.raises(BadExport, match=r".*") as caught:
        read_export(data)

    assert said in str(caught.value)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """Whatever a file has in it, it is read or refused."""
    with contextlib.suppress(BadExport):
        read_export(data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["data", "start_time", "starting_at", "results", "model", "input_tokens", "output_tokens",
                 "num_model_requests", "uncached_input_tokens", "cache_creation", "id", "day", "cost_usd"]
            ),
            inner, max_size=5,
        ),
        max_leaves=20,
    )
)  # fmt: skip
def test_any_json(value: Any) -> None:
    """So is any JSON with the members of the known forms."""
    with contextlib.suppress(BadExport):
        read_export(json.dumps(value).encode("utf-8", "replace"))
