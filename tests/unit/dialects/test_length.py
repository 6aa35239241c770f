"""Whether a prompt is surely too long: how sure that is, and what it costs."""

from __future__ import annotations

import json
import random
import string
from typing import Any

import pytest
import toktok

from gateway.core.call import Call, CallOptions
from gateway.core.catalog import DialectName
from gateway.dialects.length import least_tokens, may_be_too_long
from gateway.dialects.registry import DIALECTS
from gateway.dialects.tokens import count_text

WINDOW = 1000
PROSE = "The quick brown fox jumps over the lazy dog. "
RANDOM = random.Random(7)
TEXTS = {
    "prose": PROSE * 2_000,
    "chinese": "人工智能是计算机科学的一个分支，它企图了解智能的实质，并生产出智能机器。" * 600,
    "indonesian": "Perusahaan itu mengumumkan bahwa pendapatannya meningkat tajam pada kuartal ketiga. " * 1_000,
    "noise": "".join(RANDOM.choices(string.ascii_letters + string.digits, k=60_000)),
    "digits": "".join(RANDOM.choices(string.digits, k=60_000)),
    "code": "    for item in items:\n        if item.is_ready():\n            yield item.value\n" * 1_000,
    "blanks": " \n\t" * 30_000,
}


def call(*contents: Any, dialect: DialectName = "openai_chat", **members: Any) -> Call:
    messages = [{"role": "user", "content": content} for content in contents]
    body = {"model": "m", "max_tokens": 9, "messages": messages, **members}
    return DIALECTS[dialect].read_call(json.dumps(body).encode(), CallOptions(), ())


def least(asked: Call, window: int = WINDOW) -> int:
    return max(least_tokens(asked, window), default=0)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("vocabulary", ["o200k_base", "qwen3.5", "cl100k_base"])
def test_no_vocabulary_needs_fewer(text: str, vocabulary: str) -> None:
    """What the gateway calls the least is at most what each vocabulary that is at hand makes of the text."""
    assert least(call(text), window=100) <= toktok.truncate(text, 1 << 40, vocabulary)[1]


def test_all_of_it_is_counted() -> None:
    """The last number is half of the tokens of everything, in pieces; a cut adds one at the most."""
    text = PROSE * 3_000
    counts = list(least_tokens(call(text[:50_000], text[50_000:]), WINDOW))

    assert len(counts) > 10
    assert counts == sorted(counts)
    assert count_text(text) // 2 <= counts[-1] <= (count_text(text) + len(counts)) // 2


@pytest.mark.parametrize(
    "hidden",
    [
        {"type": "thinking", "thinking": PROSE * 900, "signature": "s"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 40_000}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": PROSE * 900}},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": PROSE * 900}},
    ],
    ids=lambda block: block["type"],
)
def test_what_a_provider_may_leave_out(hidden: dict[str, Any]) -> None:
    """Thoughts, images, files and arguments do not count: a provider may drop them, or count them otherwise."""
    asked = call([hidden, {"type": "text", "text": PROSE}], dialect="anthropic_messages", system=PROSE)

    assert may_be_too_long(asked, WINDOW)
    assert least(asked) == count_text(PROSE)


def test_system_and_results_count() -> None:
    """System prompts and what tools returned are read like any text."""
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": PROSE}]}

    asked = call([result], dialect="anthropic_messages", system=[{"type": "text", "text": PROSE}])

    assert least(asked) == count_text(PROSE)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, True),
        ({"context_management": {"edits": []}}, False),
        ({"transforms": ["middle-out"]}, False),
        ({"plugins": [{"id": "context-compression"}]}, False),
    ],
)
def test_calls_that_are_shortened(members: dict[str, Any], expected: bool) -> None:
    """Where the provider is asked to shorten the conversation its length is the provider's to judge."""
    assert may_be_too_long(call(PROSE * 1_000, **members), WINDOW) is expected


def test_a_compacted_conversation() -> None:
    """A block of Anthropic's that stands for all before it leaves the length to the provider."""
    blocks = [{"type": "text", "text": PROSE * 900}, {"type": "compaction", "content": "what was said"}]

    assert least(call(blocks, dialect="anthropic_messages")) == 0


def test_short_calls_are_not_read() -> None:
    """Up to four bytes for each token of the window nothing is decoded or counted."""
    sizes = [(len(call("x" * chars).fields["messages"]), call("x" * chars)) for chars in (3_900, 4_100)]

    assert [(size > 4_000, may_be_too_long(asked, WINDOW)) for size, asked in sizes] == [(False, False), (True, True)]


def test_what_will_not_get_there_is_not_counted_to_the_end() -> None:
    """After a sample the count ends where the prompt will hardly reach the window."""
    text = PROSE * 30_000

    assert len(list(least_tokens(call(text), 300_000))) < 10 < len(list(least_tokens(call(text), 100_000)))
