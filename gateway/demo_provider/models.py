"""What each demo model does: pieces of text at a pace, a tool call, or the fault it is named after."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from dataclasses import dataclass

import msgspec

from gateway.demo_provider.examples import example
from gateway.demo_provider.pieces import pieces_of
from gateway.demo_provider.prompt import Prompt
from gateway.demo_provider.texts import ESSAY, STORY

TALK_PER_S = 40.0  # tokens; about what large hosted models give to one reader
ECHO_PER_S = 200.0
SLOW_START_S = 25.0  # beyond the 20 s after which the gateway commits, so that its pings can be seen
MAX_OUTPUT_TOKENS = 2048  # of any answer: half of what the demo's small plan has for a minute, and 0.01 USD there
SPOKEN_BEFORE_FAULT = 6  # pieces: enough to see that an answer was under way


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool; `arguments` is JSON."""

    name: str
    arguments: str


class Break(Exception):
    """The model shows a fault: reset the connection."""


class Cut(Exception):
    """The model shows a fault: end the body without its terminator."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Time as the models feel it: *scale* 0.01 makes everything a hundred times faster."""

    scale: float

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.scale)

    async def paced(self, pieces: Iterable[str], per_s: float) -> AsyncIterator[str]:
        """*pieces*, *per_s* of them in a second; late wake-ups are caught up."""
        start = time.monotonic()
        for number, piece in enumerate(pieces):
            await asyncio.sleep(max(0.0, start + number / per_s * self.scale - time.monotonic()))
            yield piece


Said = AsyncGenerator[str | ToolCall, None]
"""Pieces of text, each one token, and calls of tools."""


async def echo(prompt: Prompt, clock: Clock) -> Said:
    async for piece in clock.paced(pieces_of(prompt.text or "(no text)"), ECHO_PER_S):
        yield piece


async def messages(prompt: Prompt, clock: Clock) -> Said:
    answer = tools if prompt.has_to_call and not prompt.results else echo
    async for piece in answer(prompt, clock):
        yield piece


async def story(prompt: Prompt, clock: Clock) -> Said:
    async for piece in clock.paced(pieces_of(STORY), TALK_PER_S):
        yield piece


async def long(prompt: Prompt, clock: Clock) -> Said:
    async for piece in clock.paced(itertools.cycle(pieces_of(ESSAY)), TALK_PER_S):
        yield piece


async def tools(prompt: Prompt, clock: Clock) -> Said:
    text = "Give me a tool, and I will call it."
    if prompt.results:
        text = f"The tool says: {prompt.results[-1]}"
    elif prompt.tool is not None:
        arguments = msgspec.json.encode(example(prompt.tool["schema"], prompt.tool["schema"])).decode()
        yield ToolCall(str(prompt.tool["name"]), arguments)
        return
    async for piece in clock.paced(pieces_of(text), TALK_PER_S):
        yield piece


async def vision(prompt: Prompt, clock: Clock) -> Said:
    text = "I see no image." if not prompt.images else f"I see {'; '.join(map(str, prompt.images))}."
    async for piece in clock.paced(pieces_of(text), TALK_PER_S):
        yield piece


async def slow(prompt: Prompt, clock: Clock) -> Said:
    await clock.sleep(SLOW_START_S)
    async for piece in clock.paced(pieces_of("Good things take their time."), TALK_PER_S):
        yield piece


async def _beginning(clock: Clock) -> Said:
    async for piece in clock.paced(pieces_of(STORY)[:SPOKEN_BEFORE_FAULT], TALK_PER_S):
        yield piece


async def stalls(prompt: Prompt, clock: Clock) -> Said:
    async for piece in _beginning(clock):
        yield piece
    await asyncio.Event().wait()


async def broken(prompt: Prompt, clock: Clock) -> Said:
    async for piece in _beginning(clock):
        yield piece
    raise Break


async def truncated(prompt: Prompt, clock: Clock) -> Said:
    async for piece in _beginning(clock):
        yield piece
    raise Cut


BUSY = "demo-busy"
"""Answered with 429 before it says anything."""

MODELS: dict[str, Callable[[Prompt, Clock], Said] | None] = {
    "demo-echo": echo,
    "demo-chat": echo,
    "demo-messages": messages,
    "demo-story": story,
    "demo-tools": tools,
    "demo-vision": vision,
    "demo-slow": slow,
    "demo-stall": stalls,
    "demo-broken": broken,
    "demo-truncated": truncated,
    "demo-long": long,
    BUSY: None,
}
