"""The content blocks of an Anthropic answer, read into neutral events.

A block is open from its `content_block_start` to its `content_block_stop`; a block of a JSON answer opens and closes at
once. What a block tells at its end (signature, citations, whole arguments) is kept until then.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.core.errors import UpstreamFailed
from gateway.dialects.anthropic_event import Block, Delta
from gateway.dialects.failures import ABSENT, malformed
from gateway.dialects.neutral import AnswerEvent, Argued, Called, Cited, Said, Thought
from gateway.wire.values import decode_values

# Of all blocks that are open: as long as an event may be by default. The signature of 60,000 tokens of thinking has
# some 350 KB.
MAX_HELD_BYTES = 1 << 20


class Held:
    """What the open blocks of an answer keep, in bytes, all together."""

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, size: int) -> None:
        """Keep *size* more. Raises UpstreamFailed where that is more than an answer can need."""
        self._bytes += size
        if self._bytes > MAX_HELD_BYTES:
            raise UpstreamFailed(malformed("blocks with more citations, signatures or arguments than they can have"))

    def drop(self, size: int) -> None:
        """A block that kept *size* is over."""
        self._bytes -= size


class Prose:
    """Text or thinking, whichever its deltas bring."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._chars = 0
        self._signature: list[str] = []
        self._citations: list[Any] = []
        self._held_bytes = 0

    def open(self, block: Block) -> list[AnswerEvent]:
        """What a text, thinking or redacted thinking *block* starts with."""
        citations = decode_values(block.citations)
        if isinstance(citations, list):
            self._keep(self._citations, citations, len(bytes(block.citations)))
        said = self.take(Delta(text=block.text, thinking=block.thinking, signature=block.signature))
        if block.data:
            said.append(Thought(redacted=block.data))
        return said

    def take(self, delta: Delta) -> list[AnswerEvent]:
        said: list[AnswerEvent] = []
        if delta.text:
            self._chars += len(delta.text)
            said.append(Said(delta.text))
        if delta.thinking:
            said.append(Thought(delta.thinking))
        if delta.signature:
            self._keep(self._signature, [delta.signature], len(delta.signature))
        if delta.citation is not ABSENT:
            self._keep(self._citations, [decode_values(delta.citation)], len(bytes(delta.citation)))
        return said

    def close(self) -> list[AnswerEvent]:
        """The signature, and the citations of the whole text: a provider may tell them before it."""
        self._held.drop(self._held_bytes)
        said: list[AnswerEvent] = [Thought(signature="".join(self._signature))] if self._signature else []
        return said + [Cited(citation, self._chars) for citation in self._citations if isinstance(citation, dict)]

    def _keep(self, kept: list[Any], pieces: list[Any], size: int) -> None:
        self._held.add(size)
        self._held_bytes += size
        kept += pieces


class Tool:
    """A call of one of the client's tools."""

    def __init__(self, slot: int, held: Held) -> None:
        self._slot = slot
        self._held = held
        self._input = ""  # arguments that came with the start, as long as no others have

    def open(self, block: Block) -> list[AnswerEvent]:
        if not block.id or not block.name:
            raise UpstreamFailed(malformed("tool_use without id or name"))
        arguments = decode_values(block.input)
        if arguments and isinstance(arguments, dict):
            self._input = msgspec.json.format(bytes(block.input), indent=-1).decode()
            self._held.add(len(self._input))
        return [Called(self._slot, block.id, block.name)]

    def take(self, delta: Delta) -> list[AnswerEvent]:
        if not delta.partial_json:
            return []
        self._let_go()
        return [Argued(self._slot, delta.partial_json)]

    def close(self) -> list[AnswerEvent]:
        kept = self._let_go()
        return [Argued(self._slot, kept)] if kept else []

    def _let_go(self) -> str:
        kept, self._input = self._input, ""
        self._held.drop(len(kept))
        return kept


class Foreign:
    """What the provider does by itself (searches, code, its own tools) and a block of a kind that we do not know."""

    def open(self, block: Block) -> list[AnswerEvent]:
        return []

    def take(self, delta: Delta) -> list[AnswerEvent]:
        return []

    def close(self) -> list[AnswerEvent]:
        return []


OpenBlock = Prose | Tool | Foreign
PROSE = frozenset(("text", "thinking", "redacted_thinking"))
TOOL = "tool_use"
