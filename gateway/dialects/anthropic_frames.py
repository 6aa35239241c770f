"""Neutral events written as an Anthropic provider would send them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from gateway.dialects.anthropic_answer import Blocks, LastDelta, message, picture_text
from gateway.dialects.base import Journey
from gateway.dialects.neutral import (
    AnswerEvent,
    Argued,
    Begin,
    Called,
    Cited,
    Counted,
    Finished,
    Other,
    Pictured,
    Refused,
    Said,
    Scored,
    Thought,
)
from gateway.dialects.tool_arguments import ArgumentText
from gateway.wire.ascii import ascii_json
from gateway.wire.body import fits
from gateway.wire.sse import frame

_encode = msgspec.json.encode
# The deltas of one block differ in their text alone, and that is ASCII: the lane then reads them by their likeness.
_DELTA = 'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%s","%s":'
_END = b"}}\n\n"
_MEMBERS = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")}
_EMPTY: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}
_STOP = frame(b'{"type":"message_stop"}', b"message_stop")
_NOT_YET = {"stop_reason": None, "stop_sequence": None}


class _Tool:
    """An open block of a tool call."""

    __slots__ = ("arguments", "head", "index", "silent")

    def __init__(self, index: int) -> None:
        self.index = index
        self.head = _head(index, "input_json_delta", "partial_json")
        self.arguments = ArgumentText()
        self.silent = True


class AnthropicWriter:
    """
    Blocks one after the other, but for tool calls: theirs stay open until their arguments are whole.

    So arguments that arrive in turns reach each its own block, and a block that has its own is not left open for long.
    """

    def __init__(self, journey: Journey) -> None:
        self.note: str | None = None
        self._journey = journey
        self._ending = LastDelta()
        self._begun = False
        self._blocks = 0
        self._kind = ""  # of the open block of prose, "" without one
        self._index = 0  # its index
        self._head = b""  # of its deltas
        self._tools: dict[int, _Tool] = {}

    def write(self, event: AnswerEvent) -> bytes:
        """*event* as frames; what only the end tells, and the bare beginning, wait for what comes next."""
        if type(event) is Said and self._kind == "text":
            return self._head + ascii_json(_encode(event.text)) + _END
        return _WRITE[type(event)](self, event)

    def end(self) -> bytes:
        """Stops of what is still open, `message_delta`, `message_stop`."""
        tools = [self._stop_tool(slot) for slot in list(self._tools)]
        last = {"type": "message_delta", "delta": self._ending.delta(), "usage": self._ending.usage()}
        ends = frame(ascii_json(_encode(last)), b"message_delta") + _STOP
        return b"".join((self._begin(), *tools, self._stop_prose(), ends))

    def whole(self, events: Iterable[AnswerEvent]) -> bytes:
        """A `message` body."""
        blocks = Blocks()
        for event in events:
            if isinstance(event, Other | Scored):
                self._skip(event)
                continue
            blocks.take(event)
            self._ending.take(event)
        ending = {**self._ending.delta(), "usage": self._ending.usage()}
        return _encode(message(self._journey, blocks.render(), ending))

    def _begin(self) -> bytes:
        """`message_start`, once; it waits for the first content, since the prompt's count may come before that."""
        if self._begun:
            return b""
        self._begun = True
        ending = {**_NOT_YET, "usage": self._ending.usage()}
        return _frame("message_start", message=message(self._journey, [], ending))

    def _wait(self, event: AnswerEvent) -> bytes:
        self._ending.take(event)
        return b""

    def _say(self, event: Said | Refused) -> bytes:
        return self._prose("text") + self._head + ascii_json(_encode(event.text)) + _END

    def _refuse(self, event: Refused) -> bytes:
        self._ending.take(event)
        return self._say(event)

    def _think(self, event: Thought) -> bytes:
        out = b""
        if event.text:
            out += self._prose("thinking") + self._head + ascii_json(_encode(event.text)) + _END
        if event.signature is not None:
            out += self._prose("thinking") + self._stop_prose(event.signature)
        if event.redacted is not None:
            out += self._begin() + self._stop_prose()
            index, start = self._start({"type": "redacted_thinking", "data": event.redacted})
            out += start + _stop(index)
        return out

    def _picture(self, event: Pictured) -> bytes:
        return self._say(Said(picture_text(event)))

    def _skip(self, event: Other | Scored) -> bytes:
        """What no call of this dialect can ask for, and no answer of it can hold."""
        self.note = self.note or ("other_choices" if isinstance(event, Other) else "logprobs")
        return b""

    def _cite(self, event: Cited) -> bytes:
        if not fits(event.citation):  # a number of over 64 bits
            return b""
        out = self._prose("text")
        return out + _delta(self._index, {"type": "citations_delta", "citation": event.citation})

    def _call(self, event: Called) -> bytes:
        out = self._begin() + self._stop_prose()
        index, start = self._start({"type": "tool_use", "id": event.id, "name": event.name, "input": {}})
        tool = self._tools[event.slot] = _Tool(index)
        return out + start + tool.head + b'""' + _END  # as Anthropic begins every input: content, to whoever waits

    def _argue(self, event: Argued) -> bytes:
        tool = self._tools.get(event.slot)
        if tool is None:  # nothing can follow whole arguments
            return b""
        tool.silent = False
        tool.arguments.add(event.text)
        out = tool.head + ascii_json(_encode(event.text)) + _END
        return out + self._stop_tool(event.slot) if tool.arguments.whole else out

    def _start(self, block: dict[str, Any]) -> tuple[int, bytes]:
        """The index and the start of a new block."""
        index, self._blocks = self._blocks, self._blocks + 1
        return index, _frame("content_block_start", index=index, content_block=block)

    def _prose(self, kind: str) -> bytes:
        """What it takes for a block of *kind* to be open: nothing, where one is."""
        if self._kind == kind:
            return b""
        out = self._begin() + self._stop_prose()
        self._index, start = self._start(_EMPTY[kind])
        self._kind, self._head = kind, _head(self._index, *_MEMBERS[kind])
        return out + start

    def _stop_prose(self, signature: str = "") -> bytes:
        """The stop of the open text or thinking; thinking has its *signature* first, as SDKs need one, if an empty."""
        if not self._kind:
            return b""
        kind, self._kind = self._kind, ""
        sign = {"type": "signature_delta", "signature": signature}
        return (_delta(self._index, sign) if kind == "thinking" else b"") + _stop(self._index)

    def _stop_tool(self, slot: int) -> bytes:
        tool = self._tools.pop(slot)
        return (tool.head + b'"{}"' + _END if tool.silent else b"") + _stop(tool.index)


_WRITE: dict[type, Callable[[AnthropicWriter, Any], bytes]] = {
    Begin: AnthropicWriter._wait,
    Counted: AnthropicWriter._wait,
    Finished: AnthropicWriter._wait,
    Said: AnthropicWriter._say,
    Refused: AnthropicWriter._refuse,
    Thought: AnthropicWriter._think,
    Called: AnthropicWriter._call,
    Argued: AnthropicWriter._argue,
    Cited: AnthropicWriter._cite,
    Pictured: AnthropicWriter._picture,
    Scored: AnthropicWriter._skip,
    Other: AnthropicWriter._skip,
}


def _frame(kind: str, **members: Any) -> bytes:
    return frame(ascii_json(_encode({"type": kind, **members})), kind.encode())


def _head(index: int, kind: str, member: str) -> bytes:
    """The beginning of every delta of a block."""
    return (_DELTA % (index, kind, member)).encode()


def _delta(index: int, delta: dict[str, Any]) -> bytes:
    return _frame("content_block_delta", index=index, delta=delta)


def _stop(index: int) -> bytes:
    return _frame("content_block_stop", index=index)
