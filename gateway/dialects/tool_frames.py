"""
Calls of tools in a client's own frames: each waits until it is known to be allowed, and all else goes on.

A call's frames wait until its name is whole and, where there are rules for its arguments, until those are; it also
waits for the calls before it, since some clients put them into a list by the order in which they come. What it says
meanwhile is joined, so that no more is held than is said. With the first call that is denied the stream is over:
nothing of it leaves, nor of what follows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from gateway.core.errors import Failure
from gateway.core.guarding import ArgumentRule, ToolTerms
from gateway.dialects.denial import UNREAD, denial
from gateway.dialects.seam import UNREADABLE
from gateway.dialects.tool_arguments import ArgumentText
from gateway.guards.globs import is_like_one_of
from gateway.guards.ruling import (
    MAX_ARGUMENT_BYTES,
    MAX_NAME_CHARS,
    Denied,
    Tool,
    judge_arguments,
    judge_tool,
    rules_of,
)

# Of all calls of a stream that wait: the arguments of some that are as long as can be judged.
MAX_HELD_BYTES = 4 * MAX_ARGUMENT_BYTES
_END = b"\n\n"
_LAST = (b'{"error":', b"[DONE]")  # what lanes end a broken stream with; they pass on none of a provider


class CallDenied(Exception):
    """Raised in the middle of a frame: what was seen of the call is enough."""

    def __init__(self, tool: Tool | None, denied: Denied) -> None:
        super().__init__(denied.reason)
        self.failure = denial(tool, denied)


class Waiting:
    """
    One call as far as it has come.

    Args:
        tool_of: What it calls, by the name.
    """

    __slots__ = ("_argued", "_names", "_pieces", "_rules", "_tool_of", "_whole", "frames", "is_open", "tool", "waits")

    def __init__(self, tool_of: Callable[[str], Tool]) -> None:
        self._tool_of = tool_of
        self._names: list[str] = []
        self._pieces: list[str] = []
        self._argued = ArgumentText()
        self._rules: tuple[ArgumentRule, ...] = ()
        self._whole = False  # its arguments have been judged
        self.tool: Tool | None = None  # once its name is whole
        self.frames = HeldFrames()
        self.is_open = False  # allowed, whatever else comes
        self.waits = False  # for itself, or for calls before it

    def take(self, name: str, text: str, terms: ToolTerms) -> None:
        """The next piece of its *name* and the *text* of its arguments. Raises CallDenied."""
        if name:
            self._name(name)
        if text:
            self.name_is_whole(terms)
        if not text or not self._rules:
            return
        if self._whole:
            if text.strip():
                raise CallDenied(self.tool, Denied("its arguments go on behind their end"))
            return
        if not self._pieces:
            text = text.lstrip()
        if text:
            self._pieces.append(text)
            self._argued.add(text)
            if self._argued.whole:
                self._judge()

    def name_is_whole(self, terms: ToolTerms) -> None:
        """Nothing more of its name comes. Raises CallDenied."""
        if self.tool is not None:
            return
        first = self._names[0] if self._names else ""
        name = first if all(piece == first for piece in self._names) else "".join(self._names)
        self.tool = self._tool_of(name)
        denied = judge_tool(self.tool, terms)
        if denied is None and any(is_like_one_of(piece, terms.deny) for piece in self._names):
            denied = Denied("the policy denies its name")  # to those who keep the last piece of a name
        if denied is not None:
            raise CallDenied(self.tool, denied)
        self._rules = rules_of(self.tool, terms)
        self.is_open = not self._rules

    def end(self, terms: ToolTerms) -> None:
        """Nothing more of it comes. Raises CallDenied."""
        self.name_is_whole(terms)
        if self._rules and not self._whole:
            self._judge()

    def _name(self, name: str) -> None:
        if self.tool is None:
            self._names.append(name)
            if sum(map(len, self._names)) > MAX_NAME_CHARS:
                raise CallDenied(None, Denied("its name is too long"))
        elif name != self.tool.names[0]:  # some providers say it with every piece
            raise CallDenied(self.tool, Denied("its name changes behind the beginning of its arguments"))

    def _judge(self) -> None:
        denied = judge_arguments("".join(self._pieces), self._rules)
        if denied is not None:
            raise CallDenied(self.tool, denied)
        self._pieces.clear()
        self._whole = self.is_open = True


class HeldFrames:
    """Frames of one call that wait. Those that differ in the text of the arguments alone become one."""

    __slots__ = ("_frames", "_join", "_last", "_texts", "size")

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._texts: list[str] = []
        self._last = b""
        self._join: Callable[[bytes, str], bytes] | None = None
        self.size = 0

    def add(self, frame: bytes) -> None:
        """Hold *frame* as it is."""
        self._close()
        self._frames.append(frame)
        self.size += len(frame)

    def add_text(self, frame: bytes, text: str, join: Callable[[bytes, str], bytes]) -> None:
        """Hold *frame*, which says nothing but *text*; *join* puts another one into it."""
        if not self._texts:
            self.size += len(frame)
        self._texts.append(text)
        self._last, self._join = frame, join
        self.size += len(text)

    def take(self) -> list[bytes]:
        """All of them, which are not held any more."""
        self._close()
        frames, self._frames, self.size = self._frames, [], 0
        return frames

    def _close(self) -> None:
        if self._texts and self._join is not None:
            whole = self._join(self._last, "".join(self._texts)) if len(self._texts) > 1 else self._last
            self._frames.append(whole)
            self._texts.clear()


class ToolFrames(ABC):
    """
    One answer in a client's frames; whole ones go in and come out.

    Attributes:
        failure: Once a call was denied.
    """

    def __init__(self, terms: ToolTerms) -> None:
        self.failure: Failure | None = None
        self._terms = terms
        self._held_bytes = 0

    def feed(self, frames: bytes) -> bytes:
        """What may leave, now that *frames* have come; once a call was denied, the error that ends the stream alone."""
        if not frames or (self.failure is None and self._says_nothing(frames)):
            return frames
        out: list[bytes] = []
        for text in frames.split(_END)[:-1]:
            head, _, data = text.partition(b"data: ")
            name = head.removeprefix(b"event: ").rstrip(b"\n")
            if self.failure is not None:
                if name == b"error" or data.startswith(_LAST):
                    out.append(text + _END)
            elif data.startswith(b"{"):
                self._try(partial(self._take, name, data, out))
            else:
                out.append(text + _END)
        return b"".join(out)

    def end(self) -> bytes:
        """The answer is complete: what still waits, if it is allowed."""
        out: list[bytes] = []
        if self.failure is None:
            self._try(partial(self._end, out))
        return b"".join(out)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except CallDenied as exc:
            self.failure = exc.failure
        except UNREADABLE:
            self.failure = denial(None, UNREAD)

    def _hold(self, call: Waiting, frame: bytes, text: str | None, join: Callable[[bytes, str], bytes]) -> None:
        """Keep a *frame* of *call*, of which *text* is all it says, if there is one. Raises CallDenied for too much."""
        before = call.frames.size
        if text is None:
            call.frames.add(frame)
        else:
            call.frames.add_text(frame, text, join)
        self._held_bytes += call.frames.size - before
        if self._held_bytes > MAX_HELD_BYTES:
            raise CallDenied(call.tool, Denied("it is too long to be judged"))

    def _let_go(self, call: Waiting) -> list[bytes]:
        call.waits = False
        self._held_bytes -= call.frames.size
        return call.frames.take()

    @abstractmethod
    def _says_nothing(self, frames: bytes) -> bool:
        """Whether it is plain to see that *frames* have nothing to do with calls."""

    @abstractmethod
    def _take(self, name: bytes, data: bytes, out: list[bytes]) -> None:
        """Add to *out* what may leave with an event. Raises CallDenied, having added what still may."""

    @abstractmethod
    def _end(self, out: list[bytes]) -> None:
        """Add to *out* what waits. Raises CallDenied, as above."""
