"""Calls of tools in chunks of OpenAI chat completions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Raw, Struct

from gateway.core.guarding import ToolTerms
from gateway.dialects.called import said_of
from gateway.dialects.tool_frames import CallDenied, ToolFrames, Waiting
from gateway.guards.ruling import Tool
from gateway.wire.ascii import ascii_json
from gateway.wire.body import replace_members
from gateway.wire.sse import frame
from gateway.wire.values import decode_members, decode_values

_ESCAPE = b"\\u00"  # a provider may spell the letters of a name that way
_CALLS = ("tool_calls", "function_call")
_OLD = -1  # index of the one call that a choice had before there were several
_PLAIN_CHOICE = frozenset(("index", "delta", "finish_reason", "logprobs"))


class _Chunk(Struct):
    """A chunk as it came, and what it says; `choices` none where it is the error or the metadata."""

    data: bytes
    members: dict[str, Raw]
    choices: list[Any]

    def saying(self, choices: list[Any]) -> bytes:
        """The frame of a chunk with *choices* in this one's envelope; b"" for none."""
        return frame(_with(self.members, choices)) if choices else b""

    def frames(self, calls: Iterable[bytes | _Piece]) -> Iterator[bytes]:
        """*calls* as frames."""
        return (self.saying(call.alone) if isinstance(call, _Piece) else call for call in calls)


class _Piece(Struct):
    """A piece of a call; `member` of the delta is where it stands."""

    choice: dict[str, Any]
    member: str
    said: dict[str, Any]

    @property
    def index(self) -> int:
        """Of its choice."""
        return index_of(self.choice)

    @property
    def alone(self) -> list[dict[str, Any]]:
        """The choices of a chunk that has nothing else."""
        said = [self.said] if self.member == "tool_calls" else self.said
        return [{"index": self.index, "delta": {self.member: said}, "finish_reason": None}]


class OpenAIToolFrames(ToolFrames):
    """Chunks of any number of choices. A chunk of which only a part has to wait is taken apart."""

    def __init__(self, terms: ToolTerms) -> None:
        super().__init__(terms)
        self._calls: dict[tuple[int, int], Waiting] = {}
        self._queues: dict[int, list[Waiting]] = {}  # by choice, those that wait; none is empty

    def _says_nothing(self, frames: bytes) -> bool:
        if self._queues or _ESCAPE in frames:
            return False
        return b"tool_calls" not in frames and b"function_call" not in frames

    def _take(self, name: bytes, data: bytes, out: list[bytes]) -> None:
        members = decode_members(data)
        said = decode_values(members["choices"]) if "choices" in members and "error" not in members else []
        one = _Chunk(data, members, said)
        calls: list[bytes | _Piece] = []  # a piece for the frame that it would make
        try:
            is_whole = [self._go_on(piece, one, calls) for choice in said for piece in _pieces(choice)]
        except CallDenied:
            out += [_content(one), *one.frames(calls)]
            raise
        if all(is_whole):
            self._finish(said, out)
            out.append(frame(data))
        else:
            out += [_content(one), *one.frames(calls)]
            self._finish(said, out)
            out.append(_ends(one))

    def _go_on(self, piece: _Piece, one: _Chunk, out: list[bytes | _Piece]) -> bool:
        """
        A call begins or goes on: add what leaves for that to *out*. Raises CallDenied.

        Returns:
            Whether that is *piece* alone, so that its chunk can stay as it is.
        """
        index = _OLD if piece.member == "function_call" else index_of(piece.said)
        known, queue = self._calls.get((piece.index, index)), self._queues.get(piece.index, [])
        begins_at = len(out)
        call = known or Waiting(lambda name: Tool((name,)))
        if known is None and queue:
            queue[-1].name_is_whole(self._terms)
            out += self._release(piece.index)
        for name, text in said_of({"function": piece.said} if index == _OLD else piece.said):
            call.take(name, text, self._terms)
        if known is None:
            self._calls[piece.index, index] = call
            if queue or not call.is_open:
                queue.append(call)
                self._queues[piece.index] = queue
                call.waits = True
        must_wait = call.waits
        if must_wait:
            is_all = len(one.choices) == 1 and _is_all(piece)
            held = frame(one.data) if is_all else one.saying(piece.alone)
            self._hold(call, held, _text_alone(piece), _with_text)
        else:
            out.append(piece)
        out += self._release(piece.index)
        return not must_wait and len(out) == begins_at + 1

    def _finish(self, choices: list[Any], out: list[bytes]) -> None:
        """Calls of choices that end are over."""
        for choice in choices:
            if choice.get("finish_reason"):
                self._close(index_of(choice), out)

    def _end(self, out: list[bytes]) -> None:
        for choice in list(self._queues):
            self._close(choice, out)

    def _close(self, choice: int, out: list[bytes]) -> None:
        for call in list(self._queues.get(choice, ())):
            call.end(self._terms)
            out += self._release(choice)

    def _release(self, choice: int) -> list[bytes]:
        """The frames of those that were waiting for themselves alone, which leave."""
        queue, out = self._queues.get(choice, []), list[bytes]()
        while queue and queue[0].is_open:
            out += self._let_go(queue.pop(0))
        if not queue:
            self._queues.pop(choice, None)
        return out


def _pieces(choice: dict[str, Any]) -> list[_Piece]:
    delta = choice.get("delta") or {}
    pieces = [_Piece(choice, "tool_calls", said) for said in delta.get("tool_calls") or ()]
    if delta.get("function_call"):
        pieces.append(_Piece(choice, "function_call", delta["function_call"]))
    return pieces


def _is_all(piece: _Piece) -> bool:
    """Whether *piece* is all that its choice says."""
    others = [value for name, value in piece.choice["delta"].items() if name != piece.member]
    is_one = piece.member != "tool_calls" or len(piece.choice["delta"]["tool_calls"]) == 1
    return is_one and not any(others) and not piece.choice.get("finish_reason")


def _text_alone(piece: _Piece) -> str | None:
    """The text of the arguments, where *piece* and the choice around it say nothing else at all."""
    choice, function = piece.choice, piece.said.get("function") if piece.member == "tool_calls" else piece.said
    if not choice.keys() <= _PLAIN_CHOICE or choice.get("logprobs") or choice["delta"].keys() != {piece.member}:
        return None
    if piece.member == "tool_calls" and piece.said.keys() != {"index", "function"}:
        return None
    if not isinstance(function, dict) or function.keys() != {"arguments"}:
        return None
    text = function["arguments"]
    return text if isinstance(text, str) else None


def _with_text(held: bytes, text: str) -> bytes:
    members = decode_members(held.rstrip(b"\n").removeprefix(b"data: "))
    choices: list[Any] = decode_values(members["choices"])
    (piece,) = _pieces(choices[0])
    function = piece.said["function"] if piece.member == "tool_calls" else piece.said
    function["arguments"] = text
    return frame(_with(members, choices))


def _content(one: _Chunk) -> bytes:
    """What a chunk says besides calls and ends."""
    left = []
    for choice in one.choices:
        delta = {name: value for name, value in (choice.get("delta") or {}).items() if name not in _CALLS}
        if any(delta.values()):
            left.append({**choice, "delta": delta, "finish_reason": None})
    return one.saying(left)


def _ends(one: _Chunk) -> bytes:
    """The ends of its choices."""
    ends = [(index_of(choice), choice.get("finish_reason")) for choice in one.choices]
    return one.saying([{"index": index, "delta": {}, "finish_reason": reason} for index, reason in ends if reason])


def _with(members: dict[str, Raw], choices: list[Any]) -> bytes:
    return ascii_json(replace_members(members, {"choices": choices}))


def index_of(said: dict[str, Any]) -> int:
    """The index of a choice or call; 0 where it says none."""
    index = said.get("index")
    return index if type(index) is int else 0
