"""What a Gemini provider counts, and what is charged of it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.usage import Usage
from gateway.dialects.gemini_events import GeminiReader
from gateway.dialects.neutral import Counted
from gateway.wire.sse import FrameSplitter
from tests.support.notation import GC, GT, GU
from tests.unit.dialects.conversations import RESET, hear
from tests.unit.dialects.gemini import OpenDoor, both_doors, to_messages


def counts(*chunks: bytes) -> Counted:
    """The last count of *chunks*."""
    reader, out = GeminiReader(), []
    for event in FrameSplitter(1 << 20).feed(b"".join(chunks)):
        out += reader.take(event)
    return [event for event in [*out, *reader.end()] if isinstance(event, Counted)][-1]


def test_use_10_thinking_is_billed() -> None:
    """Thinking is counted beside the answer there, and is part of the completion here."""
    assert counts(GT("a", finish="STOP", tokens=(20, 151, 382))) == Counted(
        prompt_tokens=20, completion_tokens=533, reasoning_tokens=382
    )


def test_a_host_that_counts_thinking_inside() -> None:
    """Where the total says that the answer's count has the thinking in it, it is not added again."""
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 43, "thoughtsTokenCount": 40, "totalTokenCount": 53}

    assert counts(GT("a", finish="STOP", usageMetadata=usage)).completion_tokens == 43


def test_cached_and_tool_tokens() -> None:
    """Cached tokens are part of the prompt's count, those that built-in tools read are beside it."""
    usage = {**GU(100, 1), "cachedContentTokenCount": 64, "toolUsePromptTokenCount": 7}

    assert counts(GT("a", finish="STOP", usageMetadata=usage)) == Counted(
        prompt_tokens=107, completion_tokens=1, cached_tokens=64
    )


def test_counts_are_merged() -> None:
    """Per field the last explicit count stands: later chunks may leave out what earlier ones told."""
    told = counts(
        GT("a", usageMetadata=GU(10, None, 5)), GT("b", finish="STOP", usageMetadata={"candidatesTokenCount": 2})
    )

    assert told == Counted(prompt_tokens=10, completion_tokens=7, reasoning_tokens=5)


def test_an_answer_without_its_count() -> None:
    """A count that is left out is what the total leaves, or unknown where there was something to count."""
    total = {"promptTokenCount": 10, "totalTokenCount": 14}

    assert counts(GT("a", finish="STOP", usageMetadata=total)).completion_tokens == 4
    assert counts(GT("a", finish="STOP", usageMetadata={"promptTokenCount": 10})).completion_tokens is None
    assert counts(GC(finish="STOP", usageMetadata={"promptTokenCount": 10})).completion_tokens == 0


@pytest.mark.parametrize("odd", [-1, "7", 1.5, True, 10**12])
def test_odd_counts(odd: Any) -> None:
    """A count that cannot be one is as good as none, and is noted."""
    reader = GeminiReader()
    chunk = GT("a", usageMetadata={**GU(10, 1), "candidatesTokenCount": odd, "totalTokenCount": None})
    for event in FrameSplitter(1 << 20).feed(chunk):
        reader.take(event)

    assert reader.note == "usage_odd"


@both_doors
def test_a_cut_stream_is_charged_for_its_thinking(open_door: OpenDoor) -> None:
    """Of a stream that breaks, what its provider had counted by then is charged, thinking that nobody saw included."""
    heard = hear(open_door(), [GT("Once ", tokens=(10, 2, 40)), GT("upon", tokens=(10, 3, 40))], RESET)

    usage, basis = heard.lane.measure()
    assert heard.end == "interrupted"
    assert (usage.prompt_tokens, usage.completion_tokens, usage.reasoning_tokens) == (10, 43, 40)
    assert basis == "received"


@both_doors
def test_a_count_that_lags_behind(open_door: OpenDoor) -> None:
    """Where more was heard than the provider had counted by then, what was heard is charged."""
    words = "Once upon a time there was a crab that had lost its shell. "

    heard = hear(open_door(), [GT(words, tokens=(10, 3)), GT(words)], RESET)

    usage, basis = heard.lane.measure()
    assert usage.completion_tokens > 20
    assert basis == "estimated"


@both_doors
def test_the_prompt_is_counted_in_front(open_door: OpenDoor) -> None:
    """Clients that are told the prompt's length first are told the provider's own count."""
    heard = hear(open_door(), [GT("a", finish="STOP", tokens=(1234, 1))])

    assert heard.lane.measure() == (Usage(prompt_tokens=1234, completion_tokens=1), "provider_final")
    if open_door is to_messages:
        assert heard.items[0]["message"]["usage"]["input_tokens"] == 1234
