"""Streams of providers under rules for tools, in every lane: the same for all reads, and nothing denied in them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.guarding import ArgumentRule, ToolTerms
from gateway.dialects.base import Lane
from gateway.dialects.edited import EditedLane
from gateway.dialects.tool_editors import TOOL_EDITORS
from tests.support.notation import CBD, CBJ, CBS, CBX, DONE, MD, MS, MX, TC, R, T, U, chunk
from tests.support.scale import examples
from tests.unit.dialects.conversations import (
    RESET,
    Heard,
    anthropic,
    check_anthropic,
    check_openai,
    hear,
    openai,
)
from tests.unit.dialects.streams import SLOW, cut_lists, pieces
from tests.unit.dialects.translated import to_chat, to_messages

TERMS = ToolTerms((("read", "pay", "drop"),), ("drop",), (ArgumentRule("pay", "amount", maximum=100),))
CALLS = [("read", '{"a":1}'), ("read", ""), ("pay", '{"amount":7}'), ("pay", '{"amount":700}'), ("drop", "{}")]
TOKENS = re.compile(rb'"completion_tokens":\d+')


@st.composite
def said(draw: st.DrawFn) -> list[tuple[str, list[str]]]:
    """What an answer says in turn: words, or a tool's name with its arguments in pieces."""
    out: list[tuple[str, list[str]]] = []
    for name, arguments in draw(st.lists(st.sampled_from([*CALLS, ("", "Hi"), ("", "there")]), max_size=5)):
        cuts = sorted(draw(st.sets(st.integers(1, max(1, len(arguments) - 1)), max_size=2)))
        parts = [arguments[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
        out.append((name, [part for part in parts if part]))
    return out


def chunks(turns: list[tuple[str, list[str]]], *, late: bool) -> bytes:
    """*turns* in chunks; *late* ones have the last call in the chunk that ends the answer."""
    out, calls = [R()], 0
    for name, parts in turns:
        if name:
            out += [TC(calls, name=name), *(TC(calls, part) for part in parts)]
            calls += 1
        else:
            out += [T(part) for part in parts]
    end: dict[str, Any] = {}
    if late:
        name, parts = turns[-1] if turns and turns[-1][0] else ("drop", ["{}"])
        end = {"tool_calls": [{"index": calls, "id": "late", "function": {"name": name, "arguments": "".join(parts)}}]}
    return b"".join([*out, chunk(end, "tool_calls"), U(7, 3), DONE])


def blocks(turns: list[tuple[str, list[str]]]) -> bytes:
    """*turns* in blocks."""
    out = [MS(7)]
    for index, (name, parts) in enumerate(turns):
        out.append(CBS(index, "tool_use", name=name) if name else CBS(index))
        out += [CBJ(index, part) if name else CBD(index, part) for part in parts]
        out.append(CBX(index))
    return b"".join([*out, MD("tool_use"), MX])


LANES: dict[str, tuple[Callable[[], Lane], bool, Callable[[Heard], None]]] = {
    "openai": (openai, True, check_openai),
    "anthropic": (anthropic, False, check_anthropic),
    "to_messages": (to_messages, True, check_anthropic),
    "to_chat": (to_chat, False, check_openai),
}


def edit(kind: str, lane: Lane) -> EditedLane:
    client = "openai_chat" if kind in ("openai", "to_chat") else "anthropic_messages"
    return EditedLane(lane, (TOOL_EDITORS[client](TERMS),))


def up_to_denied(calls: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """*calls* in front of the first that is denied."""
    denied = [name == "drop" or "700" in arguments for name, arguments in calls]
    return calls[: denied.index(True)] if True in denied else calls


def texts_in(heard: Heard) -> str:
    """All text that the client has."""
    out = ""
    for item in heard.items:
        if isinstance(item, dict):
            out += "".join(choice["delta"].get("content") or "" for choice in item.get("choices", ()))
            out += item.get("delta", {}).get("text", "")
    return out


def calls_in(heard: Heard) -> list[tuple[str, str]]:
    """The calls that the client has, put together by choice or block."""
    names: dict[tuple[int, int], str] = {}
    texts: dict[tuple[int, int], str] = {}
    for item in heard.items:
        if not isinstance(item, dict):
            continue
        for choice in item.get("choices", ()):
            for call in choice["delta"].get("tool_calls") or ():
                at = (choice["index"], call["index"])
                names[at] = names.get(at, "") + (call["function"].get("name") or "")
                texts[at] = texts.get(at, "") + (call["function"].get("arguments") or "")
        at = (0, item.get("index", 0))
        if item.get("type") == "content_block_start" and item["content_block"]["type"] == "tool_use":
            names[at] = item["content_block"]["name"]
        if item.get("type") == "content_block_delta" and "partial_json" in item["delta"]:
            texts[at] = texts.get(at, "") + item["delta"]["partial_json"]
    return [(name, texts.get(at) or "{}") for at, name in names.items()]  # what is missing is said at the very end


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", LANES)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=SLOW)
@given(turns=said(), late=st.booleans(), partitions=cut_lists)
def test_every_lane(kind: str, turns: list[tuple[str, list[str]]], late: bool, partitions: list[list[int]]) -> None:
    """
    The client's bytes are the same for every cut of the provider's, but for how many tokens had come; allowed answers
    are what they are without rules; of any other the calls up to the first denied one have left, and an error.
    """
    make, in_chunks, check = LANES[kind]
    stream = chunks(turns, late=late) if in_chunks else blocks(turns)
    plain = hear(make(), [stream])
    whole = hear(edit(kind, make()), [stream])

    if whole.end == "finished":
        check(whole)
    made = calls_in(plain)
    allowed = up_to_denied(made)
    assert calls_in(whole) == allowed
    if len(allowed) < len(made):
        assert whole.end == "interrupted"
        assert b'"tool_denied"' in whole.out
    else:
        assert (whole.end, texts_in(whole)) == ("finished", texts_in(plain))
    for parts in [*(pieces(stream, cuts) for cuts in partitions), pieces(stream, [*range(len(stream))])]:
        assert TOKENS.sub(b"", hear(edit(kind, make()), parts).out) == TOKENS.sub(b"", whole.out)


@pytest.mark.parametrize("kind", LANES)
def test_a_death_at_any_byte(kind: str) -> None:
    """Whatever a broken stream has said, a call that was not known to be allowed by then has not left."""
    make, in_chunks, _ = LANES[kind]
    turns = [("", ["Hi"]), ("pay", ['{"amou', 'nt":7}']), ("pay", ['{"amount":', "700}"])]
    stream = chunks(turns, late=True) if in_chunks else blocks(turns)

    for end in range(len(stream)):
        heard = hear(edit(kind, make()), [stream[:end]], RESET)

        assert heard.end in ("interrupted", "refused")
        assert [(name, text) for name, text in calls_in(heard) if text != '{"amount":7}'] == []
