"""What a body of many entries costs on its way into another dialect: it is written while every other stream waits."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pytest

from gateway.core.catalog import DialectName
from gateway.dialects.neutral import (
    Aside,
    Document,
    Image,
    Message,
    Notes,
    Part,
    Prompt,
    Target,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from gateway.dialects.openai_prompt_thoughts import read_thoughts
from gateway.dialects.registry import DIALECTS
from gateway.providers.traits import traits_of

ENTRIES, TIMES = 3000, 4
MOST = 9  # four times the entries may cost that many times as much: 4 if linear, 16 if every entry looks at all others
Work = Callable[[], object]


def writing(dialect: DialectName, model: str, prompt: Prompt) -> Work:
    target = Target(model, stream=False, traits=traits_of(model))
    return lambda: DIALECTS[dialect].write_body(prompt, target, Notes())


def user(*parts: Part) -> Message:
    return Message("user", parts, "messages[0]")


def documents(count: int) -> Work:
    """All of one title."""
    papers = [Document(media_type="text/plain", data="x", name="a")] * count
    return writing("bedrock_converse", "anthropic.claude-opus-4-6", Prompt((user(*papers),), {}))


def titles(count: int) -> Work:
    """Those of one title behind those that are called as these would be."""
    taken = [Document(media_type="text/plain", data="x", name=f"a ({at + 2})") for at in range(count // 2)]
    papers = [*taken, *[Document(media_type="text/plain", data="x", name="a")] * (count // 2)]
    return writing("bedrock_converse", "anthropic.claude-opus-4-6", Prompt((user(*papers),), {}))


def instructed(dialect: DialectName, model: str) -> Callable[[int], Work]:
    """Instructions behind every turn of the user, who goes on each time."""

    def prepare(count: int) -> Work:
        moved = tuple(Aside(at + 1, "m") for at in range(count))
        said = (user(Text("a")),) * (count + 1)
        return writing(dialect, model, Prompt(said, {}, system=(Text("s"),) * count, moved=moved))

    return prepare


def instructed_at_once(dialect: DialectName, model: str) -> Callable[[int], Work]:
    """Instructions at one place, before a turn of many parts."""

    def prepare(count: int) -> Work:
        said = (user(Text("a")), user(*[Text("b")] * count))
        return writing(dialect, model, Prompt(said, {}, system=(Text("s"),) * count, moved=(Aside(1, "m"),) * count))

    return prepare


def left_thoughts(count: int) -> Work:
    """Instructions, and turns of the assistant of which nothing is left."""
    thought = Message("assistant", (Thinking("h", "s"),), "m")
    said = (user(Text("a")), thought) * count
    moved = tuple(Aside(2 * at + 1, "m") for at in range(count))
    prompt = Prompt((*said, user(Text("b"))), {}, system=(Text("s"),) * count, moved=moved)
    return writing("anthropic_messages", "claude-opus-4-8", prompt)


def pictures(count: int) -> Work:
    """Different ones in one result."""
    seen = tuple(Image(media_type="image/png", data=f"{at:08d}") for at in range(count))
    called = Message("assistant", (ToolCall("c", "f", "{}"),), "m")
    said = (user(Text("a")), called, user(ToolResult("c", seen)))
    return writing("gemini_content", "gemini-4-helium", Prompt(said, {}))


def signatures(count: int) -> Work:
    """Of which nobody says what they signed."""
    details = [{"type": "reasoning.text", "text": "", "signature": "s", "index": at} for at in range(count)]
    return lambda: read_thoughts({"reasoning_content": "abc", "reasoning_details": details}, "m", Notes())


def cost_s(work: Work) -> float:
    """Of this process."""
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


def times_as_much(many: Work, few: Work) -> float:
    """The median of ratios of neighbours: a core that is shared is twice as fast at one moment as at another."""
    return statistics.median([cost_s(many) / cost_s(few) for _ in range(5)])


@pytest.mark.parametrize(
    "prepare",
    [
        documents,
        titles,
        instructed("anthropic_messages", "claude-opus-4-8"),
        instructed_at_once("anthropic_messages", "claude-opus-4-8"),
        instructed_at_once("openai_chat", "gpt-4o"),
        left_thoughts,
        pictures,
        signatures,
    ],
    ids=[
        "documents", "titles", "instructed-claude", "at-once-claude", "at-once-gpt", "thoughts",
        "pictures", "signatures",
    ],
)  # fmt: skip
def test_each_entry_costs_the_same(prepare: Callable[[int], Work]) -> None:
    """Four times the entries take about four times as long: no entry is compared with all the others."""
    few, many = prepare(ENTRIES), prepare(TIMES * ENTRIES)

    assert times_as_much(many, few) < MOST
