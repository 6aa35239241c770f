"""Whatever a provider of Anthropic's dialect says, and however it is cut."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.errors import UpstreamFailed
from gateway.dialects.anthropic_events import AnthropicReader
from gateway.dialects.neutral import Begin, Counted, Finished, Refused
from tests.support.notation import CBD, CBJ, CBS, CBX, MD, MS, MX, PING, event
from tests.support.scale import examples
from tests.unit.dialects.anthropic import CITATION, body, delta, hear

words = st.sampled_from(["a", "Once ", "北🦀é", "\u2028", '{"x":', '"}', "\\", "\n", "", "\ufeff"])
pieces = st.one_of(
    st.builds(CBD, st.integers(0, 2), words),
    st.builds(CBJ, st.integers(0, 2), words),
    st.builds(lambda index, word: delta(index, thinking=word, signature=word), st.integers(0, 2), words),
    st.builds(lambda index: delta(index, citation=CITATION), st.integers(0, 2)),
    st.builds(CBS, st.integers(0, 2), st.sampled_from(["text", "thinking", "tool_use", "server_tool_use"])),
    st.builds(CBX, st.integers(0, 2)),
    st.builds(MD, st.sampled_from(["end_turn", "tool_use", None]), st.integers(0, 9)),
    st.sampled_from([PING, MS(7), event("new", {"type": "new"}), b": comment\n\n"]),
)


@given(st.lists(pieces, max_size=12), st.lists(st.integers(0, 3000), max_size=8))
@settings(max_examples=examples(150), deadline=None)
def test_reads_do_not_matter(said: list[bytes], cuts: list[int]) -> None:
    """However the bytes of a stream are cut into reads, the same is understood."""
    stream = b"".join([MS(7), *said, MD(), MX])
    places = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    cut_up = [stream[start:end] for start, end in pairwise(places)]

    at_once = hear(AnthropicReader(), stream)
    single = hear(AnthropicReader(), *(stream[i : i + 1] for i in range(len(stream))))

    assert at_once == hear(AnthropicReader(), *cut_up) == single


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "é", "LONE", "BAD", "tool_use"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "text", "id", "name", "input", "citation", "citations", "usage", "stop_reason"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


def _bent(value: Any) -> bytes:
    """*value* as JSON that a strict decoder refuses where it has the word for that."""
    return json.dumps(value).encode().replace(b"LONE", rb"\ud83d").replace(b"BAD", b"\xff")


members = st.fixed_dictionaries(
    {"type": st.one_of(values, st.sampled_from(["message_start", "content_block_start", "message_delta"]))},
    optional=dict.fromkeys(("index", "delta", "content_block", "message", "usage", "content", "error"), values),
)


@given(st.lists(st.one_of(members, members.map(lambda m: {**m, "type": "content_block_delta"})), max_size=4))
@settings(max_examples=examples(300), deadline=None)
def test_hostile_events_raise_nothing_else(events: list[dict[str, Any]]) -> None:
    """Whatever types the members of an event have, it is understood, left out, or the provider's failure."""
    reader = AnthropicReader()

    try:
        for each in events:
            hear(reader, b"data: " + _bent(each) + b"\n\n")
        said = [*reader.end()]
    except UpstreamFailed:
        return

    assert [type(each) for each in said if not isinstance(each, Counted | Refused)] == [Finished]


@given(values, values, values, st.lists(values, max_size=3))
@settings(max_examples=examples(300), deadline=None)
def test_hostile_bodies_raise_nothing_else(usage: Any, word: Any, id: Any, content: list[Any]) -> None:
    """The same of JSON answers."""
    hostile = _bent(json.loads(body(*content, usage=usage, stop_reason=word, id=id)))

    try:
        said = AnthropicReader().whole(hostile)
    except UpstreamFailed:
        return

    assert isinstance(said[0], Begin)
