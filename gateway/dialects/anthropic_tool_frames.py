"""Calls of tools in events of Anthropic messages."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from gateway.core.guarding import ToolTerms
from gateway.dialects.called import anthropic_calls, is_call, tool_of
from gateway.dialects.tool_frames import CallDenied, ToolFrames, Waiting
from gateway.guards.ruling import judge_arguments, judge_call, rules_of
from gateway.wire.ascii import ascii_json
from gateway.wire.body import replace_members
from gateway.wire.sse import frame
from gateway.wire.values import decode_members, decode_values

_START, _DELTA, _STOP = b"content_block_start", b"content_block_delta", b"content_block_stop"
_NO_INPUT = (b"{}", b"null", b'""')


class AnthropicToolFrames(ToolFrames):
    """
    Blocks of one message.

    Clients put blocks into a list by the order of their starts. So a block that goes on while a call before it waits
    takes that call's index, and the call the next one.
    """

    def __init__(self, terms: ToolTerms) -> None:
        super().__init__(terms)
        self._calls: dict[int, Waiting] = {}  # by index, those that wait and those whose arguments were judged
        self._queue: list[tuple[int, Waiting]] = []  # those that wait
        self._indices: list[int] = []  # of starts that have come, for the next ones that leave
        self._shown: dict[int, int] = {}  # the index that a block has to the client
        self._is_moved = False

    def _says_nothing(self, frames: bytes) -> bool:
        return not self._calls and not self._is_moved and b"_start" not in frames

    def _take(self, name: bytes, data: bytes, out: list[bytes]) -> None:
        if name == b"message_start":
            self._take_message(data)
        if name not in (_START, _DELTA, _STOP):
            out.append(frame(data, name))
            return
        members = decode_members(data)
        index = decode_values(members["index"])
        if name == _START:
            self._indices.append(index)
            self._start(index, decode_members(members["content_block"]), out)
        call = self._calls.get(index)
        text = self._go_on(call, name, members) if call is not None else None
        if call is not None and call.waits:
            self._hold(call, frame(data, name), text, _with_text)
            self._release(out)
        else:
            out.append(self._placed(index, name, data))

    def _take_message(self, data: bytes) -> None:
        """Nobody sends blocks with the start of a message; but clients would take them."""
        message = decode_members(decode_members(data)["message"])
        for called in anthropic_calls(message.get("content", Raw(b"[]"))):
            denied = judge_call(called.tool, called.arguments, self._terms)
            if denied is not None:
                raise CallDenied(called.tool, denied)

    def _start(self, index: int, block: dict[str, Raw], out: list[bytes]) -> None:
        before = self._calls.pop(index, None)
        if before is not None:
            before.end(self._terms)
            self._release(out)
        if not is_call(block):
            return
        tool = tool_of(block)
        call = Waiting(lambda name: tool)
        call.take(tool.names[0], "", self._terms)
        call.name_is_whole(self._terms)
        said = bytes(block.get("input", Raw(b"{}"))).strip()
        denied = judge_arguments(said.decode(), rules_of(tool, self._terms)) if said not in _NO_INPUT else None
        if denied is not None:
            raise CallDenied(tool, denied)
        if self._queue or not call.is_open:
            self._calls[index] = call
            self._queue.append((index, call))
            call.waits = True

    def _go_on(self, call: Waiting, name: bytes, members: dict[str, Raw]) -> str | None:
        """*call* has another event; the text of its arguments, if that is all it says."""
        if name == _STOP:
            call.end(self._terms)
        if name != _DELTA:
            return None
        delta: dict[str, Any] = decode_values(members["delta"])
        text = delta.get("partial_json")
        if not isinstance(text, str):
            return None
        call.take("", text, self._terms)
        return text if delta.keys() == {"type", "partial_json"} else None

    def _release(self, out: list[bytes]) -> None:
        """Those that were waiting for themselves alone leave."""
        while self._queue and self._queue[0][1].is_open:
            index, call = self._queue.pop(0)
            for held in self._let_go(call):
                head, _, data = held.rstrip(b"\n").partition(b"\ndata: ")
                out.append(self._placed(index, head.removeprefix(b"event: "), data))

    def _placed(self, index: int, name: bytes, data: bytes) -> bytes:
        """An event of the block *index*, by the index that the client knows."""
        if name == _START:
            self._shown[index] = self._indices.pop(0)
            self._is_moved |= self._shown[index] != index
        shown = self._shown.get(index, index)
        return frame(data if shown == index else _changed(data, {"index": shown}), name)

    def _end(self, out: list[bytes]) -> None:
        for _, call in list(self._queue):
            call.end(self._terms)
            self._release(out)


def _with_text(held: bytes, text: str) -> bytes:
    data = held.partition(b"data: ")[2]
    delta: dict[str, Any] = decode_values(decode_members(data)["delta"])
    return frame(_changed(data, {"delta": {**delta, "partial_json": text}}), _DELTA)


def _changed(data: bytes, changes: dict[str, object]) -> bytes:
    return ascii_json(replace_members(decode_members(data), changes))
